# `make demo` and `make test` set up .venv themselves. `make check` is the fast gate, `make test` the whole suite.
PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2
PYTEST := PRIVJAX_SMALL=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile
# Tests of rounding compile as users do. All others skip the slowest passes of XLA, which dominate the suite's time.
AS_USERS_COMPILE := tests/losses tests/numerics tests/test_kernels.py
QUICK := XLA_FLAGS="$(XLA_FLAGS) --xla_cpu_use_fusion_emitters=false" JAX_DISABLE_MOST_OPTIMIZATIONS=1

.PHONY: demo test check lint types bench figures clean

demo: .venv/.demo
	$(BIN)/python experiments/demo.py

check: lint types
	$(QUICK) $(PYTEST) -m "not slow" tests

test: .venv/.dev
	$(PYTEST) $(AS_USERS_COMPILE)
	$(QUICK) $(PYTEST) --nbmake --nbmake-timeout=900 $(addprefix --ignore=,$(AS_USERS_COMPILE))

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.dev
	$(BIN)/pyright

# Timings need a quiet machine. torch is installed for comparison only.
bench: .venv/.bench
	$(BIN)/python experiments/bench/objectives.py

# Draw every picture and table from the committed results.
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
