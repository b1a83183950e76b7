# Everything a person or a build machine does with this repository. `make` alone lists it.

PYTHON ?= python3
VENV   ?= .venv
# Passed on to pytest, for example: make test ARGS='-k lease'
ARGS   ?=
# Steps of the long model check.
STEPS  ?= 100000
# Where the scripts of `make faults` are, and how often each is run.
FAULTS ?= ../shared/faults
TIMES  ?= 1
# Time for all fuzz targets together.
SECONDS ?= 600

BIN     := $(VENV)/bin
STAMP   := $(VENV)/.installed
SOURCES := $(wildcard src tests bench examples tools docs/*.py)
PIP     := $(BIN)/python -m pip --disable-pip-version-check install --quiet
COMPILE := $(BIN)/python -m piptools compile --quiet --no-header --annotation-style=line --strip-extras \
           --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options --resolver=backtracking

.DEFAULT_GOAL := help
.PHONY: help install services demo test test-all check model fuzz chaos faults bench docs lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

install: $(STAMP) ## make the virtual environment in .venv

# Made again when a lock or pyproject.toml changes. The stamps come last, so an interrupted install is repeated.
$(STAMP): $(STAMP)-run pyproject.toml requirements/dev.txt
	@$(PIP) -r requirements/dev.txt
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

# What Shoal itself needs is enough for the demo.
$(STAMP)-run: requirements/run.txt
	@command -v "$(PYTHON)" >/dev/null || { echo "make: $(PYTHON) is not on PATH; install Python 3.11 to 3.14 or name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' || { echo "make: $$("$(PYTHON)" --version 2>&1) does not run Shoal; install Python 3.11 to 3.14 or name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { echo "make: $(PYTHON) has no venv module; install it (Debian and Ubuntu: apt-get install python3-venv)" >&2; exit 1; }
	@"$(BIN)/python" -m pip --version >/dev/null 2>&1 || "$(PYTHON)" -m venv --clear "$(VENV)"
	@echo "installing into $(VENV)"
	@$(PIP) -r requirements/run.txt
	@touch $@

services: ## install the programs tests start, where that is possible
	@tests/services

demo: $(STAMP)-run ## crawl four small sites on this machine, and show what held
	@PYTHONPATH=src $(BIN)/python -m shoal demo

# Most tests wait for processes and clocks: four at a time take a third of the time, also on two cores.
# In the order of their names: files of few and slow tests do not come last.
PYTEST := $(BIN)/python -m pytest -q -n 4 --dist loadfile --no-loadscope-reorder

test: install services ## run the tests that a change needs first, in about five minutes
	@$(PYTEST) -m 'not variant and (not full or smoke)' $(ARGS)

test-all: install services ## run all tests, as .ci/run does
	@$(PYTEST) $(ARGS)

check: install ## lint, types, layers, docs
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/ruff format --check $(SOURCES)
	@$(BIN)/mypy $(SOURCES)
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python docs/generate.py --check
	@$(BIN)/python docs/words.py
	@$(BIN)/python tools/check_store_access.py

model: install ## check the frontier against its model for STEPS steps
	@STEPS=$(STEPS) $(BIN)/python -m pytest -q tests/model $(ARGS)

fuzz: install ## fuzz every parser for SECONDS (coverage-guided with: pip install atheris)
	@$(BIN)/python -m tests.fuzz $(SECONDS) $(ARGS)

chaos: install services ## kill, freeze and cut things off on purpose
	@CHAOS_LONG=1 $(BIN)/python -m pytest -q tests/chaos $(ARGS)

faults: install services ## break stores under running crawls, TIMES each, with the scripts in FAULTS
	@$(BIN)/python tools/faults.py $(FAULTS) $(TIMES) $(ARGS)

bench: $(VENV)/.installed-bench ## measure, beside scrapy-redis in the same run
	@$(BIN)/python -m bench $(ARGS)

$(VENV)/.installed-bench: $(STAMP) requirements/bench.txt
	@$(PIP) -r requirements/bench.txt
	@touch $@

docs: install ## write the generated parts of docs/
	@$(BIN)/python docs/generate.py

# One resolution for all three: bench is installed beside dev, and both hold what run holds.
lock: install ## pin requirements/ again (newest versions: make lock ARGS=--upgrade)
	@$(COMPILE) $(ARGS) -o requirements/run.txt pyproject.toml
	@$(COMPILE) $(ARGS) -c requirements/run.txt --extra dev -o requirements/dev.txt pyproject.toml requirements/markers.in
	@$(COMPILE) $(ARGS) -c requirements/dev.txt --extra bench -o requirements/bench.txt pyproject.toml requirements/markers.in

clean: ## remove the environment and everything that was built
	@rm -rf $(VENV) build dist shoal-demo .hypothesis .fuzz .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	@find src tests docs $(wildcard bench examples) -name __pycache__ -type d -prune -exec rm -rf {} +
