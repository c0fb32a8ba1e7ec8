# Every target sets itself up: a fresh clone needs only make and Python >= 3.11.
#   make demo        the rotating ellipse with an occlusion: a table and a picture
#   make test        lint, types, layers, tests, doctests, coverage
#   make test-all    the slow tests: a million keys, and the soak that docs/reliability.md shows
#   make test-spark  the operator on Spark Structured Streaming (needs Java 17 or newer)
#   make lint        the first half of the above
#   make bench       speed and memory
#   make reproduce   every experiment, then the report
#   make docs        the documentation site, strictly
#   make clean       forget the environment and everything built

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt

# Small matrices: more threads only make them slower, and the numbers less repeatable.
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1
export MKL_NUM_THREADS := 1
export NUMEXPR_NUM_THREADS := 1
export MPLBACKEND := Agg

LINTED := src tests $(wildcard benchmarks docs/*.py experiments examples)

.DEFAULT_GOAL := help
.PHONY: help core demo test test-all test-spark lint bench reproduce docs clean

help:
	@sed -n 's/^#   //p' Makefile

# --- environment: one stamp per set of packages -----------------------------------------------

$(VENV)/.created:
	@echo "== creating $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "kgmrf needs Python 3.11 or newer; try make PYTHON=python3.12")'
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.demo: $(VENV)/.created pyproject.toml constraints.txt
	@echo "== installing kgmrf[cli,plots]"
	@$(PIP) -e ".[cli,plots]"
	@touch $@

$(VENV)/.test: $(VENV)/.created pyproject.toml constraints.txt
	@echo "== installing kgmrf[all,dev] (torch included: some minutes the first time)"
	@$(PIP) -e ".[all,dev]" "torch==2.13.0"
	@echo "== compiling the loops, once"
	@$(BIN)/python -c "import kgmrf; kgmrf.warmup()"
	@touch $(VENV)/.demo $@

$(VENV)/.bench: $(VENV)/.test benchmarks/requirements.txt
	@echo "== installing the rivals"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -r benchmarks/requirements.txt "torch==2.13.0"
	@touch $@

$(VENV)/.spark: $(VENV)/.created pyproject.toml constraints.txt
	@echo "== installing kgmrf[spark] (500 MB)"
	@$(PIP) -e ".[spark]" "pyspark==4.3.0" pytest hypothesis
	@echo "== compiling the loops, once"
	@$(BIN)/python -c "import kgmrf; kgmrf.warmup()"
	@touch $@

$(VENV)/.docs: $(VENV)/.created pyproject.toml constraints.txt
	@echo "== installing kgmrf[docs]"
	@$(PIP) -e ".[docs]"
	@touch $@

# --- the compiled core ------------------------------------------------------------------------

# Only the loops of this machine's processor, beside the Python files; a wheel has all levels.
CORE := build/.core
$(CORE): CMakeLists.txt $(wildcard src/core/*) src/kgmrf/constants.py $(VENV)/.core-tools
	@echo "== building the core"
	@$(BIN)/cmake -S . -B build -G Ninja -DKGMRF_LEVELS=native -DKGMRF_IN_SOURCE=ON \
	    -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DPython_EXECUTABLE=$(abspath $(BIN))/python > build.log 2>&1 \
	    && $(BIN)/cmake --build build >> build.log 2>&1 || { cat build.log; exit 1; }
	@mv build.log build/; touch $@

$(VENV)/.core-tools: $(VENV)/.created
	@$(PIP) cmake ninja nanobind scikit-build-core
	@touch $@

core: $(CORE)

# --- what people run --------------------------------------------------------------------------

demo: $(VENV)/.demo
	@echo "== kgmrf demo"
	@$(BIN)/kgmrf demo

lint: $(VENV)/.test
	@echo "== ruff check"
	@$(BIN)/ruff check $(LINTED)
	@echo "== ruff format --check"
	@$(BIN)/ruff format --check $(LINTED)
	@echo "== mypy"
	@$(BIN)/mypy
	@echo "== import layers"
	@$(BIN)/lint-imports
	@echo "== workflows, templates, citation"
	@$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	@$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/*.yml
	@$(BIN)/check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff

test: lint
	@echo "== tests and doctests"
	@rm -f .coverage .coverage.*
	@$(BIN)/python -m pytest -q -n 2 -m "not slow" --cov

test-all: test
	@echo "== compiled loops once more, compiler off: every index is checked"
	@NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -q -m "not slow" tests/test_kernels.py tests/test_ensemble.py
	@echo "== slow tests: soak and fuzz (more than an hour; KGMRF_SOAK_SHARE=0.15: some minutes)"
	@KGMRF_SOAK=benchmarks/results/reliability.json $(BIN)/python -m pytest -q -m slow

test-spark: $(VENV)/.spark
	@echo "== Spark: operator, restarts, rules"
	@$(BIN)/python -m pytest -q tests/spark

bench: $(VENV)/.bench
	@echo "== benchmarks"
	@$(BIN)/python -m benchmarks

reproduce: $(VENV)/.test
	@echo "== experiments"
	@$(BIN)/python -m experiments run all --stale
	@$(BIN)/python -m experiments report

# The key-frame sheet of the drawn clip; other videos belong to other people.
docs/vision.png: $(VENV)/.test
	@$(BIN)/python -m experiments.otb_sheets $@
	@$(BIN)/python -c 'from PIL import Image; p = Image.open("$@").convert("RGB"); p.quantize(256, dither=Image.Dither.NONE).save("$@", optimize=True)'

docs/steady.png: $(VENV)/.test
	@$(BIN)/python -c 'from pathlib import Path; from experiments import report_steady, store; from experiments.reading import Results; from kgmrf import plots; plots.write_figure(report_steady.strip(Results(store.RESULTS)), Path("$@"))'
	@$(BIN)/python -c 'from PIL import Image; p = Image.open("$@").convert("RGB"); p.quantize(256, dither=Image.Dither.NONE).save("$@", optimize=True)'

docs: $(VENV)/.docs
	@echo "== documentation"
	@$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) build dist site .coverage .coverage.* htmlcov
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
