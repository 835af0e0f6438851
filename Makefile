# Two commands do everything: `make demo` and `make test`. Each makes .venv and installs into it first.
PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2

.PHONY: demo test lint bench figures clean

demo: .venv/.demo
	$(BIN)/python experiments/demo.py

test: .venv/.dev
	PRIVJAX_SMALL=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --nbmake --nbmake-timeout=900

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

# Timings need a quiet machine; torch is installed for comparison only.
bench: .venv/.bench
	$(BIN)/python experiments/bench/objectives.py

# Every picture and table again from the committed results.
figures: .venv/.dev
	$(BIN)/python experiments/figures.py

.venv/bin/pip:
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "privjax needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv

.venv/.demo: .venv/bin/pip pyproject.toml
	$(BIN)/pip install --quiet --editable .
	touch $@

.venv/.dev: .venv/bin/pip pyproject.toml
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

.venv/.bench: .venv/bin/pip pyproject.toml
	$(BIN)/pip install --quiet --editable '.[bench,experiments]'
	touch $@

clean:
	rm -rf .venv build dist *.egg-info
