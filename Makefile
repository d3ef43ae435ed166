# Each target creates .venv when it is missing and installs with the pinned versions of constraints.txt.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=

.PHONY: train test test-slow lint reproduce benchmark tensorboard clean

train: $(VENV)/.installed
	$(BIN)/python scripts/train.py $(or $(ARGS),env=cartpole algo=rcac_npg)

test: $(VENV)/.installed
	$(BIN)/python -m pytest -n 2 $(ARGS)

test-slow: $(VENV)/.installed
	$(BIN)/python -m pytest -m slow $(ARGS)

# envs/ and conf/ are rcac.envs and rcac.conf only once installed, so types are checked on a copy laid out that way
lint: $(VENV)/.installed
	$(BIN)/ruff check .
	rm -rf build/types && mkdir -p build/types && cp -r rcac build/types/ && cp -r envs conf build/types/rcac/
	cd build/types && ../../$(BIN)/mypy --config-file ../../pyproject.toml -p rcac

reproduce: $(VENV)/.installed
	$(BIN)/python scripts/reproduce.py $(or $(ARGS),quick)

benchmark: $(VENV)/.installed
	$(BIN)/python scripts/benchmark.py $(or $(ARGS),all)

tensorboard: $(VENV)/.installed
	$(BIN)/tensorboard --logdir runs $(ARGS)

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || python3 -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[test,lint]"
	touch $@

clean:
	rm -rf build dist *.egg-info
