# Each target creates .venv when it is missing and installs with the pinned versions of constraints.txt.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=

.PHONY: train test test-slow test-ray lint reproduce benchmark tensorboard clean

train: $(VENV)/.installed
	$(BIN)/python $(if $(ARGS),scripts/train.py $(ARGS),scripts/tour.py)

test: $(VENV)/.installed
	$(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

test-slow: $(VENV)/.installed
	$(BIN)/python -m pytest -m slow $(ARGS)

# Ray brings many packages of its own: they get an environment of their own.
test-ray: .venv-ray/.installed
	.venv-ray/bin/python -m pytest -m ray $(ARGS) tests/config

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

reproduce: $(VENV)/.installed
	$(BIN)/python scripts/reproduce.py $(or $(ARGS),quick)

benchmark: $(VENV)/.installed
	$(BIN)/python scripts/benchmark.py $(or $(ARGS),all)

tensorboard: $(VENV)/.installed
	$(BIN)/tensorboard --logdir runs $(ARGS)

$(VENV)/.installed: pyproject.toml constraints.txt
	@echo "1/3  a virtual environment: $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || python3 -m venv $(VENV)
	@echo "2/3  PyTorch, the largest download (a few minutes)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	@echo "3/3  rcac, and what its tests and checks need"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[test,lint]"
	@touch $@

.venv-ray/.installed: pyproject.toml constraints.txt
	test -x .venv-ray/bin/python || $(PYTHON) -m venv .venv-ray || python3 -m venv .venv-ray
	.venv-ray/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	.venv-ray/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[test,ray]"
	touch $@

clean:
	rm -rf build dist *.egg-info
