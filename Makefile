# Each target sets up the virtual environment that it needs; nothing else has to be installed.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# The stamps note what is installed, so that a target installs only what is missing.
CORE := $(VENV)/.hedgerow-core
NET := $(VENV)/.hedgerow-net
DEV := $(VENV)/.hedgerow-dev
BENCH := $(VENV)/.hedgerow-bench
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test test-all check bench clean

demo: $(NET)
	$(BIN)/hedgerow demo

test: $(DEV)
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-all: $(DEV)
	$(BIN)/python -m pytest -n 2

check: $(DEV)
	$(BIN)/ruff format src tests benchmarks
	$(BIN)/ruff check --fix src tests benchmarks
	$(BIN)/mypy

bench: $(BENCH)
	$(BIN)/python benchmarks/run.py

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis demo-output

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Hedgerow needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)

$(CORE): $(BIN)/python pyproject.toml constraints.txt
	$(PIP) --editable .
	touch $@

$(NET): $(CORE)
	$(PIP) --editable '.[net]'
	touch $@

$(DEV): $(CORE)
	$(PIP) --editable '.[dev,net]'
	touch $@

$(BENCH): $(CORE)
	$(PIP) --editable '.[bench,net]'
	touch $@
