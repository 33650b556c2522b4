# Everything a newcomer, a hook and CI need. Each recipe prepares .venv by itself, once.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: demo test test-slow check bench clean

demo: $(INSTALLED)
	$(BIN)/engram demo

# One thread a process: the tests run in two processes.
test: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -m "not slow" $(ARGS)

# Behaviour over seeds and real data: minutes. Set ENGRAM_DATA to a folder with mnist.npz for all of them.
test-slow: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal -m slow $(ARGS)

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(INSTALLED)
	$(BIN)/python -m benchmarks $(ARGS)

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "engram needs Python 3.11 or newer: set PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check --quiet -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf .venv runs report.html
