# Commands for users, contributors and CI. The first one that needs .venv creates it.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: demo test test-slow test-integrations check docs environments bench dist clean

demo: $(INSTALLED)
	$(BIN)/engram demo

# Tests start many short commands, which should not compile engram every time.
export PYTHONDONTWRITEBYTECODE =

# Two test processes, so one thread per process. Neighbours stay in one process and share what they prepare.
test: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal -m "not slow" $(ARGS)

# Behaviour over seeds, real data, fresh installations. Takes a while. Set ENGRAM_DATA to a folder
# with mnist.npz to include the tests on MNIST. A third process works while others wait for what they started.
# The longest are listed at the end, which is where time can be saved.
test-slow: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 3 --dist worksteal -m slow --durations=40 $(ARGS)

# Other libraries, with engram in their training loops or as trackers, have an environment of their own, and
# Avalanche has another one. The examples of the modules that need them, and the pages about them, run here.
test-integrations: .venv-integrations/.installed benchmarks/.avalanche-venv/complete
	OMP_NUM_THREADS=1 .venv-integrations/bin/pytest -n 0 -m integrations tests/interop tests/docs src/engram/interop $(ARGS)

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The documentation site, in _site. Warnings are errors, and so are links and anchors that lead nowhere.
docs: .venv-docs/.installed
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict --quiet $(ARGS)

bench: $(INSTALLED)
	$(BIN)/python -m benchmarks $(ARGS)

# The sdist, and the wheel built from that sdist, so a missing file in the sdist is noticed here.
# build/ is removed first: setuptools would put files left there by an earlier build into the wheel.
dist: $(INSTALLED)
	rm -rf dist build
	$(BIN)/python -m build --outdir dist .

environments: $(INSTALLED) .venv-docs/.installed .venv-integrations/.installed benchmarks/.avalanche-venv/complete

# Runs again whenever the dependencies or their versions change.
$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "engram needs Python 3.11 or newer: set PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check --quiet -c constraints.txt -e '.[dev]'
	touch $@

.venv-integrations/.installed: pyproject.toml constraints.txt tests/interop/requirements.txt
	$(PYTHON) -m venv .venv-integrations
	.venv-integrations/bin/python -m pip install --disable-pip-version-check --quiet --no-compile -c constraints.txt -e '.[dev,lightning,mlflow,ray,slurm,tensorboard,torchmetrics,transformers,wandb]' -r tests/interop/requirements.txt
	touch $@

benchmarks/.avalanche-venv/complete: pyproject.toml constraints.txt benchmarks/avalanche_env.py benchmarks/torchvision_operators.py | $(INSTALLED) .venv-integrations/.installed
	$(BIN)/python -m benchmarks.avalanche_env

# Only what the extra `docs` names: building the site imports neither torch nor anything else that engram needs.
.venv-docs/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"], sep="\n")' > .venv-docs/requirements.txt
	.venv-docs/bin/python -m pip install --disable-pip-version-check --quiet --no-compile -c constraints.txt -r .venv-docs/requirements.txt
	touch $@

clean:
	rm -rf .venv .venv-docs .venv-integrations benchmarks/.avalanche-venv _site build dist demo runs report.html
