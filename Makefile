PYTHON ?= python3
ARGS ?=
ONLY ?=

# Compiled modules are kept, whatever the machine says: without them every start of a gateway takes
# half as long again.
export PYTHONDONTWRITEBYTECODE :=

# Each stamp is newer than the file it was made from, so a second run does nothing.
VENV := .venv/.stamp-venv
LOCKED := .venv/.stamp-locked
SETUP := .venv/.stamp-setup
DEV := .venv/.stamp-dev

PYTEST := .venv/bin/python -m pytest

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup setup-dev run test check bench chaos mutants lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

setup: $(SETUP) ## make .venv with the locked dependencies and .venv/bin/perdure

setup-dev: $(DEV)

run: $(SETUP) ## start the gateway; ARGS="--port 0" passes options to `perdure serve`
	@exec .venv/bin/perdure serve --show-token $(ARGS)

test: $(DEV) ## install what the tests need and run the whole suite; ARGS go to pytest
	@scripts/test-peers
	@scripts/run-tests $(ARGS)

check: $(DEV) ## formatting, lint, types, the import contracts, names, folders and docstrings
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	$(PYTEST) -q --no-header tests/house/test_repo.py tests/house/test_english.py

bench: $(DEV) ## measure; ARGS go to the benchmark
	.venv/bin/python -m bench $(ARGS)

chaos: $(DEV) ## strike at every point, and the long kill-and-recover runs: an hour and a half
	PERDURE_STRIKE=all $(PYTEST) -n 2 -m 'chaos or struck' --timeout 1800 -o faulthandler_timeout=0 --durations 15 $(ARGS)

mutants: $(DEV) ## put deliberate bugs into a copy of the source and see them found; ONLY=name runs one
	.venv/bin/python -m tests.mutants.run $(ONLY)

lock: $(VENV) ## compile the locks again; ARGS=--upgrade takes newer versions
	scripts/lock $(ARGS)

clean: ## remove everything that make made
	rm -rf .venv build dist tests/peers/node_modules .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV): requirements-build.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Perdure needs Python 3.11 or newer, and '$(PYTHON)' is not; try: make PYTHON=python3.11" >&2; \
		exit 1; }
	@echo "making .venv"
	@test -x .venv/bin/python || $(PYTHON) -m venv .venv
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

$(LOCKED): requirements.txt $(VENV)
	@echo "installing the locked dependencies"
	@scripts/install-lock $<
	@touch $@

$(SETUP): pyproject.toml $(LOCKED)
	@.venv/bin/uv pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation --offline -e .
	@touch $@

$(DEV): requirements-dev.txt $(SETUP)
	@echo "installing what the tests and checks need"
	@scripts/install-lock $<
	@touch $@
