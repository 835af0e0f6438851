# Two commands do everything: `make demo` and `make test`. Each makes .venv and installs into it first.
PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2
PYTEST := PRIVJAX_SMALL=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --nbmake --nbmake-timeout=900
# Most of the suite's time is XLA compiling, at full effort several times as long: that is for what rounds.
AS_COMPILED := tests/test_kernels.py \
	tests/losses tests/numerics
QUICK := XLA_FLAGS="$(XLA_FLAGS) --xla_cpu_use_fusion_emitters=false" JAX_DISABLE_MOST_OPTIMIZATIONS=1

.PHONY: demo test lint bench figures clean

demo: .venv/.demo
	$(BIN)/python experiments/demo.py

test: .venv/.dev
	$(PYTEST) $(AS_COMPILED)
	$(QUICK) $(PYTEST) $(addprefix --ignore=,$(AS_COMPILED))

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
