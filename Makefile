# Everything one needs by hand. `make` alone prints the list.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed
# The types of settings are read by importing them; nothing is connected to.
NO_SERVERS := DATABASE_URL=postgres://nobody@127.0.0.1:9/none \
	HEADRACE_SECRET_KEY=of-no-use-because-no-request-is-served-here

.DEFAULT_GOAL := help
.PHONY: help up demo check test test-long test-all screenshots reconcile bench gpu-check clean

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: $(INSTALLED) ## Run the whole house on this machine until Ctrl-C
	@exec $(RUN) -m headrace.standalone up

demo: $(INSTALLED) ## Set up a house of its own in .demo/ and tell its story
	@exec $(RUN) -m headrace.standalone demo

check: $(INSTALLED) ## Lint, format, import rules, types, missing migrations
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/lint-imports
	$(NO_SERVERS) $(VENV)/bin/mypy .
	$(RUN) manage.py makemigrations --check --dry-run

test: $(INSTALLED) ## Run the tests, but for the long ones
	$(RUN) -m pytest -m "not long"

test-long: $(INSTALLED) ## Run the long tests: kills, restarts, whole houses
	$(RUN) -m pytest -m long

test-all: $(INSTALLED) ## Run every test
	$(RUN) -m pytest

screenshots: $(INSTALLED) ## Photograph every page into .screenshots/; PAGE=usage for some
	@exec $(RUN) -m tests.console.screenshots $(PAGE)

reconcile: $(INSTALLED) ## Check every invariant of the books; exit 1 when one is broken
	@$(RUN) manage.py reconcile

bench: $(INSTALLED) ## Print the benchmark tables
	$(RUN) -m benchmarks

gpu-check: ## Check and measure kernels and engine on a GPU; without one, a dry run
	@$(if $(wildcard $(RUN)),$(RUN),$(PYTHON)) -m benchmarks.gpu_check

clean: ## Remove the virtual environment, the demo's data and caches; keeps .data/
	rm -rf $(VENV) .demo .screenshots .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# pip keeps no cache: nothing is written outside the virtual environment.
$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Headrace needs Python 3.11 or newer, not $$($(PYTHON) --version 2>&1): name one, as in" >&2; \
		echo "    make $(or $(MAKECMDGOALS),up) PYTHON=python3.12" >&2; exit 1; }
	@test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --no-cache-dir --disable-pip-version-check --editable '.[dev]'
	@touch $@
