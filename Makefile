# Overspan. `make` lists what there is.
.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= $(shell bash tests/python.sh)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Tests must not see the user's own daemon, files or settings.
QUIET := env -u SPAN_STATE_DIR -u SPAN_RUNTIME_DIR -u SPAN_CONFIG -u PYTHONDONTWRITEBYTECODE

# One target at a time: several install packages.
.NOTPARALLEL:
.PHONY: help setup environment demo rigs minio test test-all test-part soak check bench package pictures keys states clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(READY) ## make .venv with everything for using and developing

# A make of its own: PYTHON may be there only now.
$(READY): pyproject.toml
	@bash tests/system_packages.sh demo
	@$(MAKE) --no-print-directory environment

environment:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade pip setuptools
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	$(BIN)/python -m compileall -q bridge adapters tui src/overspan/__init__.py
	@touch $(READY)

demo: setup ## run the five-component reinforcement-learning group on this machine
	@bash examples/demo.sh $(BIN)

rigs: ## what the tests use for a real Slurm and a real Kubernetes, which is compiled once (about 8 minutes)
	@bash tests/system_packages.sh tests
	@[ "$$(id -u)" != 0 ] || containers/kube-test/rig.sh build || \
		echo "Kubernetes is not compiled: tests that need it are skipped by name" >&2

test: setup rigs ## the gate: what has to pass before a change lands
	$(QUIET) $(BIN)/pytest -n 4 --gate --bar 1140

minio: setup ## the object store that `make test-all` plays stories with, compiled once (about 10 minutes)
	@$(BIN)/python -m tests.minio || echo "tests that need it are skipped by name" >&2

test-all: setup rigs minio ## run every test
	$(QUIET) $(BIN)/pytest -n 4

# PART is 1 to 8: `.ci/run` takes another one for each commit.
test-part: setup rigs
	$(QUIET) $(BIN)/pytest -n 4 --part $(PART) --bar 600

check: setup ## format, lint, types, layers, Python 3.9 syntax
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/vermin --quiet --no-tips --target=3.9- --violations --eval-annotations --backport typing \
		bridge/model bridge/lifecycle bridge/runtime
	@echo vermin: what the client inside jobs is made of
	@$(BIN)/vermin --quiet --no-tips --target=3.9- --violations --backport typing \
		$(filter-out bridge/cli/jobs/top.py bridge/client/executor.py,$(shell find bridge/cli bridge/client bridge/listings -name '*.py'))

soak: setup rigs ## 10,000 seeds of the simulation, and 100 kills on each kind of cluster (hours)
	SIMULATION_SEEDS=0:10000 OVERSPAN_KILLS=100 OVERSPAN_EXAMPLES=20 $(QUIET) $(BIN)/pytest -n 3 --timeout 20000 tests/simulation \
		tests/system/faults/test_crashes.py tests/system/slurm/test_crashes.py tests/system/slurm/test_chaos.py \
		tests/system/kubernetes/test_crashes.py tests/unit/adapters tests/unit/controller tests/system/api

bench: setup ## measure speed and memory; prints the table of docs/performance.md
	$(QUIET) $(BIN)/python -m compileall -q bridge adapters tui src/overspan/__init__.py
	$(QUIET) $(BIN)/python -m benchmarks.run

package: setup ## build sdist and wheel, install the wheel in a clean environment, submit a job from it
	bash tests/package.sh $(BIN)/python

pictures: setup ## make docs/pictures anew, of `span top` and its simulated lab
	$(QUIET) $(BIN)/python -m overspan.tui.demo.pictures docs/pictures

keys: setup ## write the tables of keys into docs/top.md, from the table of keys
	$(BIN)/python -m overspan.tui.keyboard.key_page docs/top.md

states: setup ## write docs/states.md from the table of moves
	$(BIN)/python -m overspan.bridge.model.states > docs/states.md

clean: ## remove what was built here
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis src/*.egg-info
