"""The K-GMRF paper, run again: every table and figure, the printed claim beside our number.

    python -m experiments run all        writes one result file per unit of work
    python -m experiments report         reads them; writes figures and one page, report.html

``run`` may be killed and started again: finished units are kept, nothing is done twice. The
printed numbers live in ``paper_claims.toml``; no code reads them while it computes.
"""

import os
from pathlib import Path

# Small matrices: more threads only make them slower, and the numbers less repeatable. Must be said
# before numpy is loaded.
for _name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR"):
    os.environ.setdefault(f"{_name}_NUM_THREADS", "1")

# Recorded data: where KGMRF_DATA says, or beside the project.
_BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"
if "KGMRF_DATA" not in os.environ and _BESIDE.is_dir():
    os.environ["KGMRF_DATA"] = str(_BESIDE)
