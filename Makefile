# Each target creates .venv when it is missing and installs with the pinned versions of constraints.txt.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=

.PHONY: train test test-slow test-ray test-python mutation lint docs reproduce benchmark tensorboard clean

train: $(VENV)/.installed
	$(BIN)/python $(if $(ARGS),scripts/train.py $(ARGS),scripts/tour.py)

test: $(VENV)/.installed
	$(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

test-slow: $(VENV)/.installed
	$(BIN)/python -m pytest -m slow $(ARGS)

# Ray brings many packages of its own: they get an environment of their own.
test-ray: .venv-ray/.installed
	.venv-ray/bin/python -m pytest -m ray $(ARGS) tests/config

# A sample of small changes to the code: does a test fail? ARGS="--only rcac/switch.py --count 50".
mutation: $(VENV)/.installed
	$(BIN)/python scripts/mutation.py $(ARGS)

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The documentation site, in build/site; its notebooks are executed.
docs: .venv-docs/.installed
	.venv-docs/bin/python -m mkdocs build --strict $(ARGS)

# The tabular half on each interpreter, without torch.
PYTHONS ?= 3.11 3.12 3.13
WITHOUT_TORCH := filelock "gymnasium>=1.1,<2" matplotlib numba omegaconf pillow pyyaml rich safetensors scipy threadpoolctl \
    cvxpy hypothesis pytest pytest-timeout pytest-xdist
TABULAR := tests/tabular tests/uncertainty tests/evaluation tests/test_problem.py tests/test_estimation.py tests/test_contexts.py
test-python: $(PYTHONS:%=.venv-%/.installed)
	for version in $(PYTHONS); do .venv-$$version/bin/python -m pytest -p no:cacheprovider -n 2 $(or $(ARGS),$(TABULAR)) || exit 1; done

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

.venv-docs/.installed: pyproject.toml constraints.txt
	test -x .venv-docs/bin/python || $(PYTHON) -m venv .venv-docs || python3 -m venv .venv-docs
	.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	touch $@

.venv-3.%/.installed: pyproject.toml constraints.txt
	test -x .venv-3.$*/bin/python || python3.$* -m venv .venv-3.$*
	.venv-3.$*/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $(WITHOUT_TORCH)
	.venv-3.$*/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	touch $@

clean:
	rm -rf build dist *.egg-info
