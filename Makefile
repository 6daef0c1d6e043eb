# harnesstap: `make demo` runs the main job, `make test` the tests, `make check` their fast part.
# Everything is installed into .venv and .harness; nothing outside this folder is touched.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

UV_VERSION := 0.13.9
VENV := .venv
PY := $(VENV)/bin/python
UV := $(shell command -v uv 2>/dev/null || echo .cache/uv/bin/uv)
# Which vLLM: `cpu` is a community build of it, `gpu` is vLLM itself.
EXTRA ?= $(shell command -v nvidia-smi >/dev/null 2>&1 && echo gpu || echo cpu)
MODEL ?=
SEED ?= 0
SEEDS ?= 0 1 2
# Tests that start vLLM or real harnesses: one after the other, each has the machine to itself.
HEAVY := vllm or harness or network
export HF_HUB_DISABLE_TELEMETRY := 1
export VLLM_NO_USAGE_STATS := 1
export PATH := $(CURDIR)/.cache/uv/bin:$(PATH)

.PHONY: help install demo learn results matrix bench test check lint lock clean

help:  ## what there is to make
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## */make \1\t/' | expand -t 16

install: $(VENV)/.installed  ## everything, from the hashed lock, into .venv

.cache/uv/bin/uv:  # needs pip alone: Debian's python3 has no venv
	python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --upgrade --target .cache/uv uv==$(UV_VERSION)

# Python 3.12: on PATH, under pyenv (of this user, or beside the python3 we have), or wherever uv finds or gets one.
$(PY): | $(UV)
	@beside=$$(python3 -c 'import sys; print(sys.base_prefix)')/..; \
	account=$$(python3 -c 'import os, pwd; print(pwd.getpwuid(os.getuid()).pw_dir)'); \
	python=$$(for p in python3.12 {"$${PYENV_ROOT:-$$HOME/.pyenv}","$$account/.pyenv"}/versions/3.12*/bin/python \
	    "$$beside"/3.12*/bin/python; do \
	    command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))' 2>/dev/null \
	    && { command -v $$p; break; }; done || true); \
	$(UV) venv --quiet --allow-existing --python "$${python:-3.12}" $(VENV)

$(VENV)/.installed: requirements.lock pyproject.toml | $(PY)
ifeq ($(EXTRA),cpu)
	$(UV) pip sync --quiet --python $(PY) --require-hashes requirements.lock
	$(UV) pip install --quiet --python $(PY) --no-deps --editable .
else
	$(UV) --no-config pip install --quiet --python $(PY) --editable '.[gpu,train,dev,plots,postgres]'
endif
	@touch $@

demo: install  ## a real harness, real vLLM, one GRPO step, on a tiny model (MODEL=<hf id or path> for yours)
	$(PY) -m trainer.demo $(MODEL)

learn: install  ## GRPO on the tiny model until it solves more of the held-out tasks (SEED=1 for another)
	$(VENV)/bin/trainer run trainer/recipes/tiny.toml --seed $(SEED) --out runs/learn-$(SEED)

RESULTS := tiny-four tiny-one tiny-sft tiny-careful-four tiny-careful-fewer-calls

results: install  ## the experiments on the tiny model, three seeds each, and their table (SEEDS="0 1 2"; two to three hours)
	$(VENV)/bin/trainer run trainer/recipes/tiny-careful.toml --out runs/results/tiny-careful
	for seed in $(SEEDS); do for recipe in $(RESULTS); do \
	    case $$recipe in tiny-careful-*) first=tiny-careful-four;; *) first=tiny-four;; esac; \
	    baseline="--baseline runs/results/$$first-$$seed"; \
	    $(VENV)/bin/trainer run trainer/recipes/$$recipe.toml --seed $$seed --out runs/results/$$recipe-$$seed \
	      $$([ $$recipe = $$first ] || echo $$baseline); \
	done; done
	$(VENV)/bin/trainer summary runs/results/tiny-careful \
	  $(foreach recipe,$(RESULTS),$(foreach seed,$(SEEDS),runs/results/$(recipe)-$(seed))) \
	  --markdown runs/results/summary.md --plot runs/results/summary.png

test: install lint  ## all tests: real mitmdump, real vLLM, real harness
	$(PY) -m pytest -n auto --dist loadgroup -m "not ($(HEAVY))" && light=0 || light=$$?; \
	$(PY) -m pytest -m "$(HEAVY)" && exit $$light

matrix: install  ## every harness of the table on a small task behind the proxy, as it is; runs/matrix has the table
	$(VENV)/bin/tap matrix

bench: install  ## speed, as ratios against a bare path or a peer in the same run
	for bench in tests/bench/[a-z]*.py; do echo "== $$bench"; $(PY) -m tests.bench.$$(basename $$bench .py); done

check: install lint  ## the fast tests: no network, no vLLM
	$(PY) -m pytest -q -n auto --dist loadgroup -m "not ($(HEAVY) or slow)"

lint: install
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

lock: | $(PY)  ## renew requirements.lock from pyproject.toml
	$(UV) pip compile --quiet --universal --python-version 3.12 --generate-hashes --no-emit-index-url \
	  --extra cpu --extra train --extra dev --extra plots --extra postgres pyproject.toml -o requirements.lock \
	  --custom-compile-command 'make lock'

clean:  ## remove what make made
	rm -rf $(VENV) .harness .cache runs build *.egg-info
