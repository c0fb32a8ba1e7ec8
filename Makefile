# Every target sets itself up: a fresh clone needs only make and Python >= 3.11.
#   make demo        the rotating ellipse with an occlusion: a table and a picture
#   make test        lint, types, layers, then the laws, the contract and doctests of the package
#   make test-all    every group of tests, with coverage, and a small share of the soak
#   make test-group GROUP=streams   one group of tests/groups.py
#   make test-spark  the operator on Spark Structured Streaming (needs Java 17 or newer)
#   make test-sanitized   the loops under AddressSanitizer and UndefinedBehaviorSanitizer
#   make lint        the first half of the above
#   make core        build the compiled core again (the others do so by themselves)
#   make bench       speed and memory
#   make reproduce   every experiment, then the report
#   make docs        the documentation site, strictly
#   make clean       forget the environment and everything built

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt
# The package itself as a path to src/; the core is built by `make core`.
HERE   := -C wheel.cmake=false -e

# Small matrices: more threads only make them slower, and the numbers less repeatable.
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1
export MKL_NUM_THREADS := 1
export NUMEXPR_NUM_THREADS := 1
export MPLBACKEND := Agg

LINTED := src tests $(wildcard benchmarks docs/*.py experiments examples)

.DEFAULT_GOAL := help
.PHONY: help core demo test-sanitized test test-all test-group test-spark lint bench reproduce docs clean

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
	@$(PIP) $(HERE) ".[cli,plots]"
	@touch $@

$(VENV)/.test: $(VENV)/.created pyproject.toml constraints.txt
	@echo "== installing kgmrf[all,dev] (torch included: some minutes the first time)"
	@$(PIP) $(HERE) ".[all,dev]" "torch==2.13.0"
	@touch $(VENV)/.demo $@

$(VENV)/.bench: $(VENV)/.test benchmarks/requirements.txt
	@echo "== installing the rivals"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -r benchmarks/requirements.txt "torch==2.13.0"
	@touch $@

$(VENV)/.spark: $(VENV)/.created pyproject.toml constraints.txt
	@echo "== installing kgmrf[spark] (500 MB)"
	@$(PIP) $(HERE) ".[spark]" "pyspark==4.3.0" pytest hypothesis
	@touch $@

$(VENV)/.docs: $(VENV)/.created pyproject.toml constraints.txt
	@echo "== installing kgmrf[docs]"
	@$(PIP) $(HERE) ".[docs]"
	@touch $@

# --- the compiled core ------------------------------------------------------------------------

# Beside the Python files, for the processor of this machine alone; a wheel has loops for all.
# A machine without a C++ compiler takes Zig's, a package like any other (80 MB).
ifeq ($(shell command -v c++ || command -v g++ || command -v clang++),)
COMPILER := $(VENV)/.zig
CONFIGURE := CC=$(abspath $(BIN))/zig-cc CXX=$(abspath $(BIN))/zig-c++ $(BIN)/cmake
else
COMPILER :=
CONFIGURE := $(BIN)/cmake
endif

$(VENV)/.zig: $(VENV)/.created
	@echo "== no C++ compiler here: installing ziglang, which has one"
	@$(PIP) ziglang
	@for tool in cc c++; do printf '#!/bin/sh\nexec "%s" -m ziglang %s "$$@"\n' "$(abspath $(BIN))/python" $$tool > $(BIN)/zig-$$tool && chmod +x $(BIN)/zig-$$tool; done
	@touch $@

$(VENV)/.tools: $(VENV)/.created constraints.txt
	@$(PIP) cmake ninja nanobind scikit-build-core
	@touch $@

CORE := build/.core
$(CORE): CMakeLists.txt $(wildcard src/core/*) src/kgmrf/constants.py $(VENV)/.tools $(COMPILER)
	@echo "== building the core"
	@mkdir -p build
	@{ $(CONFIGURE) -S . -B build/core -G Ninja -DKGMRF_LEVELS=native -DKGMRF_IN_SOURCE=ON \
	    -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DPython_EXECUTABLE=$(abspath $(BIN))/python \
	    && $(BIN)/cmake --build build/core; } > build/core.log 2>&1 || { cat build/core.log; exit 1; }
	@touch $@

core: $(CORE)

# --- what people run --------------------------------------------------------------------------

demo: $(VENV)/.demo $(CORE)
	@echo "== kgmrf demo"
	@$(BIN)/kgmrf demo

lint: $(VENV)/.test $(CORE)
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

QUICK := laws or contract or doctests

test: lint
	@echo "== laws, contract, doctests"
	@$(BIN)/python -m pytest -q -n 2 -m "$(QUICK)"

test-group: $(VENV)/.test $(CORE)
	@echo "== group $(GROUP)"
	@$(BIN)/python -m pytest -q -n 2 -m "$(GROUP)" $(OPTIONS)

# With KGMRF_SOAK_SHARE=1 the soak takes more than an hour, and docs/reliability.md shows its numbers.
test-all: export KGMRF_SOAK_SHARE ?= 0.02
test-all: lint
	@echo "== every group but the soak, with coverage"
	@rm -f .coverage .coverage.*
	@$(BIN)/python -m pytest -q -n 2 -m "not soak" --cov
	@echo "== soak, $(KGMRF_SOAK_SHARE) of it"
	@KGMRF_SOAK=$(if $(filter 0.02,$(KGMRF_SOAK_SHARE)),build,benchmarks/results)/reliability.json $(BIN)/python -m pytest -q -m soak

# Every work array of the loops is an allocation of its own, so that a sanitizer sees its bounds.
# A copy of the tree has the core that is built so; the loops run at every level of processor.
SANITIZED := $(abspath build/sanitized)
test-sanitized: $(VENV)/.test $(VENV)/.tools
	@echo "== the core with sanitizers"
	@rm -rf $(SANITIZED)/tree && mkdir -p $(SANITIZED)/tree
	@cp -r src tests pyproject.toml CMakeLists.txt $(SANITIZED)/tree && rm -f $(SANITIZED)/tree/src/kgmrf/_core*
	@{ $(BIN)/cmake -S $(SANITIZED)/tree -B $(SANITIZED)/core -G Ninja -DKGMRF_SANITIZE=ON -DKGMRF_IN_SOURCE=ON \
	    -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DPython_EXECUTABLE=$(abspath $(BIN))/python \
	    && $(BIN)/cmake --build $(SANITIZED)/core; } > $(SANITIZED)/log 2>&1 || { cat $(SANITIZED)/log; exit 1; }
	@for level in $$(cd $(SANITIZED)/tree && $(abspath $(BIN))/python tests/sanitized.py --levels); do \
	    echo "== loops of level $$level"; \
	    (cd $(SANITIZED)/tree && KGMRF_LEVEL=$$level $(abspath $(BIN))/python tests/sanitized.py) || exit 1; \
	done

test-spark: $(VENV)/.spark $(CORE)
	@echo "== Spark: operator, restarts, rules"
	@$(BIN)/python -m pytest -q tests/spark

bench: $(VENV)/.bench $(CORE)
	@echo "== benchmarks"
	@$(BIN)/python -m benchmarks

reproduce: $(VENV)/.test $(CORE)
	@echo "== experiments"
	@$(BIN)/python -m experiments run all --stale
	@$(BIN)/python -m experiments report

# The key-frame sheet of the drawn clip; other videos belong to other people.
docs/vision.png: $(VENV)/.test $(CORE)
	@$(BIN)/python -m experiments.otb_sheets $@
	@$(BIN)/python -c 'from PIL import Image; p = Image.open("$@").convert("RGB"); p.quantize(256, dither=Image.Dither.NONE).save("$@", optimize=True)'

docs/steady.png: $(VENV)/.test $(CORE)
	@$(BIN)/python -c 'from pathlib import Path; from experiments import report_steady, store; from experiments.reading import Results; from kgmrf import plots; plots.write_figure(report_steady.strip(Results(store.RESULTS)), Path("$@"))'
	@$(BIN)/python -c 'from PIL import Image; p = Image.open("$@").convert("RGB"); p.quantize(256, dither=Image.Dither.NONE).save("$@", optimize=True)'

docs: $(VENV)/.docs $(CORE)
	@echo "== documentation"
	@$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) build dist site .coverage .coverage.* htmlcov
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
