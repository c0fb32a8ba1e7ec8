"""How fast: kgmrf beside its rivals and the limits of the machine, in one run.

`python -m benchmarks run` measures and writes `results/speed.json`; `python -m benchmarks report`
reads it and writes the table and the figure. Without a word it does both.
"""
