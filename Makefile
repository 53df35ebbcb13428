# Needs Python >= 3.11 with venv, and make; everything else is installed into $(VENV).
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
DEMO := runs/demo-$(shell date +%Y%m%d-%H%M%S)
SMOKE := runs/check-$(shell date +%Y%m%d-%H%M%S)
# Two processes, each with whole files: tests of a file share what they compile. Files of few tests
# are not the quick ones, so they do not come last.
PYTEST = python -m pytest -n 2 --dist loadfile --no-loadscope-reorder
TESTS ?= tests

.PHONY: demo test suite long slow smoke lint types format pins clean

demo: $(VENV)/.ready  ## train a Go2 until it walks, not well; drive it through the bridge
	@echo "Some 15 minutes for 6M steps, after which a Go2 walks, not at its best; then its drive and film."
	$(BIN)/python -m experiments.walk --steps 6000000 --evals 6 --no-video --out $(DEMO)
	$(BIN)/python -m experiments.drive $(DEMO)

test: lint types suite  ## what must pass before a commit

suite: $(VENV)/.ready-dev  ## the tests alone, or some: make suite TESTS=tests/test_sac.py
	$(BIN)/$(PYTEST) $(TESTS)

long: $(VENV)/.ready-dev  ## the tests that take some ten seconds each, which CI runs as well
	$(BIN)/$(PYTEST) -m "long and not slow" $(TESTS)

slow: $(VENV)/.ready-dev  ## the tests that train
	$(BIN)/python -m pytest -m slow

smoke: $(VENV)/.ready-dev  ## a sweep and its report; curves must be no worse than those on record
	$(BIN)/python -m benchmarks run smoke --runs $(SMOKE)
	$(BIN)/python -m benchmarks report smoke --runs $(SMOKE)
	$(BIN)/python -m benchmarks compare $(SMOKE)/smoke benchmarks/results/smoke.jsonl --alpha 0.02 --require no-worse

lint: $(VENV)/.ready-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(VENV)/.ready-dev
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(VENV)/.ready-dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

pins:  ## resolve constraints.txt anew, for every supported Python at once
	$(PYTHON) -m venv $(VENV)-pins
	$(VENV)-pins/bin/python -m pip install --quiet uv
	$(VENV)-pins/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 \
		--fork-strategy requires-python --all-extras --no-annotate --no-header \
		--output-file constraints.txt pyproject.toml

clean:
	rm -rf .venv* build dist *.egg-info .pytest_cache .ruff_cache .hypothesis

$(VENV)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = "%d.%d" % sys.version_info[:2]; sys.exit( \
		"Python %s is too old: 3.11 or newer is needed; name one: make PYTHON=python3.12" % v \
		if sys.version_info < (3, 11) else 0)'
	@echo "Setting up $(VENV): about 1.2 GB, a minute or two."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.ready-dev: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@
