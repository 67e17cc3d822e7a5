# Every target makes what it needs, on a fresh machine too.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PARALLEL := --numprocesses 2 --dist loadfile --no-loadscope-reorder
# Tests start many processes: what one of them compiled, the others read.
PYTEST := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest

.PHONY: setup ablation test test-all test-oldest test-cluster faults lint docs dist clean

setup: $(READY)

# compileall uses all cores, pip one. It fails on files for other Python versions, which nothing imports.
# Packages and tests that one process imports, or none, are left out. Ours are imported by every worker.
SELDOM := /(tests?|moto|selenium|mypy|_inductor)/
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -qq --upgrade pip
	$(BIN)/pip install -qq --no-compile --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m compileall -q -j 0 -x '$(SELDOM)' $(VENV)/lib hagmeta study analysis > /dev/null 2>&1 || true
	touch $(READY)

ablation: setup  ## what NLA, TLA and GPIL are worth, on an embedded dataset: a first look
	$(BIN)/python study/launch.py --space ablation --quick

test: setup  ## real studies come first: they take longest
	$(PYTEST) $(PARALLEL) -m "not slow"

test-all: setup  ## also the slow tests and all notebooks of examples/
	$(PYTEST) $(PARALLEL)

# What most users touch: runs from Python, one real study, a report.
SMOKE := tests/hagmeta/api/test_api.py tests/study/test_launch.py::test_a_study_runs_once tests/analysis/page/test_report.py
OLDEST := .venv-oldest
test-oldest:  ## two minutes of tests with the oldest versions that pyproject.toml allows
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python tests/oldest.py > $(OLDEST)/constraints.txt
	$(OLDEST)/bin/pip install -qq --constraint $(OLDEST)/constraints.txt --editable . pytest psutil
	OMP_NUM_THREADS=1 $(OLDEST)/bin/python -m pytest -m "not slow" $(SMOKE)

test-cluster: setup  ## five minutes, as root: `ray up` to `ray down` on machines made of namespaces; Slurm
	$(BIN)/python -m tests.cluster.prepare
	$(PYTEST) tests/cluster -s

faults: setup  ## known faults, put into copies of the code one at a time: each must fail a test
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.faults

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy hagmeta study analysis tools

docs: setup  ## the documentation site, in docs/_build/html; a warning is an error
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --nitpicky --quiet docs docs/_build/html

# The wheel is installed into an empty environment, and runs outside the checkout.
FRESH := .venv-dist
dist: setup  ## sdist and wheel, in dist/: checked, installed into an empty environment, and one method run
	rm -rf dist $(FRESH)
	$(BIN)/pip install -qq build twine
	$(BIN)/python -m build --outdir dist .
	$(BIN)/twine check --strict dist/*
	$(PYTHON) -m venv $(FRESH)
	$(FRESH)/bin/pip install -qq --constraint constraints.txt dist/*.whl
	cd dist && ../$(FRESH)/bin/hagmeta --method sgc-ncm --dataset kanji --seeds 2

clean:
	rm -rf docs/_build dist $(VENV) $(OLDEST) $(FRESH) .pytest_cache .mypy_cache .ruff_cache *.egg-info
