# Each target sets up the virtual environment that it needs; nothing else has to be installed.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# The stamps note what is installed, so that a target installs only what is missing.
CORE := $(VENV)/.hedgerow-core
NET := $(VENV)/.hedgerow-net
DEV := $(VENV)/.hedgerow-dev
TEST := $(VENV)/.hedgerow-test
BENCH := $(VENV)/.hedgerow-bench
NAPARI := $(VENV)/.hedgerow-napari
DIST := $(VENV)/.hedgerow-dist
DOCS := $(VENV)/.hedgerow-docs
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# What works without PyTorch.
CORE_TESTS := tests/images tests/features tests/forest tests/predict tests/io tests/synthetic tests/export/test_export_c.py \
	tests/jobs tests/cli tests/test_config.py tests/test_house.py

PLUGIN := plugins/napari-hedgerow
CHECKED := src tests benchmarks experiments plugins

.PHONY: demo test test-all test-core test-napari test-plugin check format fuzz docs dist test-dist bench experiments clean

demo: $(NET)
	$(BIN)/hedgerow demo

# Two workers with a thread each: small tests with two threads each take twice as long. `make test-all` has the threads.
PYTEST := HEDGEROW_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "not slow"

test: $(DEV)
	$(PYTEST)

test-all: $(DEV)
	$(BIN)/python -m pytest -n 2

# In an environment of its own, without PyTorch: make test-core VENV=.venv-core
test-core: $(TEST)
	! $(BIN)/python -c 'import torch' 2>/dev/null || { echo "PyTorch is in $(VENV): use VENV=.venv-core"; exit 1; }
	$(PYTEST) $(CORE_TESTS)

# The plugin for napari, in an environment of its own (1 GB); its windows open under Xvfb where there is one.
test-napari:
	$(MAKE) VENV=.venv-napari test-plugin

test-plugin: $(NAPARI)
	cd $(PLUGIN) && $$(command -v xvfb-run > /dev/null && echo "xvfb-run -a") $(abspath $(BIN))/python -m pytest

check: $(DEV)
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/mypy
	$(BIN)/basedpyright --pythonpath $(BIN)/python
	if ! command -v npm > /dev/null; then echo "the scripts of the page are not checked: there is no npm (install Node.js)"; \
	elif [ -d node_modules ] || npm install --no-audit --no-fund --no-package-lock --silent; then npm run --silent check; \
	else echo "the scripts of the page are not checked: npm cannot install their checkers"; fi

format: $(DEV)
	$(BIN)/ruff format $(CHECKED)
	$(BIN)/ruff check --fix $(CHECKED)

# Until it is stopped, or for so long: make fuzz FUZZ="--minutes 60"
fuzz: $(DEV)
	$(BIN)/python tests/fuzz/run.py $(FUZZ)

# The documentation as a site in build/site/; a broken link is an error.
docs: $(DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "open build/site/index.html"

# A wheel and a source archive in dist/, built twice to see that they are the same bytes.
dist: $(DIST)
	rm -rf dist build/dist-again
	$(BIN)/python -m build --outdir dist > /dev/null
	$(BIN)/python -m build --outdir build/dist-again > /dev/null
	for file in dist/*; do cmp $$file build/dist-again/$${file##*/} || exit 1; done
	$(BIN)/twine check --strict dist/*
	wc -c dist/*

# The core tests on the installed wheel, first without and then with PyTorch, in an empty environment, for instance
# make test-dist PYTHON=python3.13. The tests lie in the source archive; nothing is read from this folder.
DIST_VENV := $(abspath build/dist-tests)
test-dist: dist
	rm -rf $(DIST_VENV)
	$(PYTHON) -m venv $(DIST_VENV)
	tar -xzf dist/hedgerow-*.tar.gz -C $(DIST_VENV)
	rm -rf $(DIST_VENV)/hedgerow-*/src
	for extras in test 'test,net'; do \
	  $(DIST_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
	    "$$(ls dist/*.whl)[$$extras]" && \
	  (cd $(DIST_VENV)/hedgerow-*/ && HEDGEROW_THREADS=1 OMP_NUM_THREADS=1 $(DIST_VENV)/bin/python -m pytest -q -n 2 \
	    -m "not slow" $(filter-out tests/test_house.py,$(CORE_TESTS))) || exit 1; \
	done

bench: $(BENCH)
	$(BIN)/python benchmarks/run.py

# One of the paper's experiments: make experiments EXPERIMENT="kinect -o kinect/"
EXPERIMENT ?= zebrafish -o build/zebrafish/
experiments: $(NET)
	$(BIN)/python -m experiments $(EXPERIMENT)

clean:
	rm -rf $(VENV) node_modules .venv-core .venv-napari build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis demo-output

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Hedgerow needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)

$(CORE): $(BIN)/python pyproject.toml constraints.txt
	$(PIP) --editable .
	touch $@

$(NET): $(CORE)
	$(PIP) --editable '.[net]'
	touch $@

$(TEST): $(CORE)
	$(PIP) --editable '.[test]'
	touch $@

$(DEV): $(CORE)
	$(PIP) --editable '.[dev,net]'
	touch $@

$(BENCH): $(CORE)
	$(PIP) --editable '.[bench,net]'
	touch $@

$(DOCS): $(CORE)
	$(PIP) --editable '.[docs]'
	touch $@

$(DIST): $(CORE)
	$(PIP) --editable '.[dist]'
	touch $@

$(NAPARI): $(CORE) $(PLUGIN)/pyproject.toml
	$(PIP) --editable '$(PLUGIN)[test]'
	touch $@
