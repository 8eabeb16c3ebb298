SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help up test unit coverage cluster-tests soak lint docs recording cluster cluster-down install run deploy generate build image lock clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
READY := $(VENV)/.ready
SITE := $(VENV)/.site
IMAGE ?= fairway:dev
ARGS ?=
# Most tests wait more than they work. Files stay whole and in order: those with clusters first, the many small ones last.
SHARED := --numprocesses 2 --dist loadfile --no-loadscope-reorder --durations 30 --durations-min 10
PIP := $(BIN)/uv pip install --quiet --python $(BIN)/python
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	--no-emit-index-url --no-emit-find-links

help: ## show what can be made
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@printf "  make bench-%-8s %s\n" "NAME" "one benchmark: $(patsubst bench/%.py,%,$(filter-out $(addprefix bench/,answering.py budget.py contender.py crowd.py load.py programs.py scripted.py writer.py),$(wildcard bench/[a-z]*.py)))"

$(BIN)/uv: requirements/uv.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Fairway needs Python 3.11 or newer; say which with PYTHON=python3.12")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "python3 has no venv module: on Debian or Ubuntu, apt-get install python3-venv"; exit 2; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
	@touch $@

$(RUNTIME): $(BIN)/uv requirements/runtime.txt requirements/build.txt pyproject.toml
	@echo "preparing $(VENV): $$(grep -c == requirements/runtime.txt) packages, each checked against its hash"
	@$(PIP) --require-hashes -r requirements/runtime.txt -r requirements/build.txt
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(READY): $(RUNTIME) requirements/dev.txt
	@echo "preparing $(VENV): tools for tests and checks"
	@$(PIP) --require-hashes -r requirements/dev.txt
	@touch $@

$(SITE): $(RUNTIME) requirements/docs.txt
	@echo "preparing $(VENV): tools for the documentation"
	@$(PIP) --require-hashes -r requirements/docs.txt
	@touch $@

up: $(RUNTIME) ## run the quickstart on this machine; ARGS=--check calls every example's tool and stops
	@$(BIN)/fairway up -f examples/quickstart $(ARGS)

test: $(READY) ## everything: units, a real Kubernetes, real pods, real clients
	@$(BIN)/python -m pytest $(SHARED) $(ARGS)

unit: $(READY) ## only what needs no cluster and no network
	@$(BIN)/python -m pytest tests/unit $(ARGS)

coverage: $(READY) ## unit tests with branch coverage
	@$(BIN)/python -m coverage run -m pytest tests/unit
	@$(BIN)/python -m coverage combine --quiet; $(BIN)/python -m coverage report --skip-covered

soak: $(READY) ## the long counts
	@$(BIN)/python -m pytest -m soak --timeout 7200 $(ARGS)

lint: $(READY) ## ruff, mypy --strict, import directions, generated files
	@$(BIN)/ruff format --check --quiet . && $(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python -m fairway.api.generate --check && $(BIN)/python -m fairway.controllers.generate --check
	@$(BIN)/python -m handbook.generate --check

docs: $(SITE) ## the documentation as a site in build/site; ARGS=serve shows it and follows edits
	@mkdir -p build
	@export NO_MKDOCS_2_WARNING=1; $(if $(ARGS),$(BIN)/python -m mkdocs $(ARGS),\
	 $(BIN)/python -m mkdocs build --strict 2> build/site.log || { cat build/site.log; exit 1; }; echo build/site/index.html)

recording: $(RUNTIME) ## take docs/recording.svg anew, from a real run of the quickstart
	@$(BIN)/python -m handbook.recording docs/recording.svg

cluster: $(READY) ## start a real Kubernetes here (ARGS=--node adds a node that runs pods; needs root)
	@$(BIN)/python -m rig up $(ARGS)

cluster-down: $(READY) ## stop it again
	@$(BIN)/python -m rig down $(ARGS)

install: $(RUNTIME) ## apply the CRDs to the cluster of your kubeconfig
	@$(BIN)/fairway install --crds-only $(ARGS)

run: $(RUNTIME) ## run the operator here against the cluster of your kubeconfig
	@$(BIN)/fairway operator $(ARGS)

image: $(READY) ## a container image of this checkout in build/, made without Docker or a registry
	@$(BIN)/python -m rig.fairwayimage $(IMAGE) $(ARGS)

deploy: $(RUNTIME) ## CRDs, RBAC and the operator, to the cluster of your kubeconfig
	@$(BIN)/fairway install --image $(IMAGE) $(ARGS)

generate: $(READY) ## write what is generated from the code: CRDs, RBAC, install manifest, contracts, reference
	@$(BIN)/python -m fairway.api.generate && $(BIN)/python -m fairway.controllers.generate && $(BIN)/python -m handbook.generate

build: $(READY) ## the wheel
	@rm -rf dist && $(BIN)/uv build --quiet --wheel --no-build-isolation --python $(BIN)/python --out-dir dist && ls dist/*.whl

bench-%: $(READY)
	@$(BIN)/python -m bench.$* $(ARGS)

lock: $(BIN)/uv ## compile requirements/*.txt anew from pyproject.toml
	@echo uv | $(LOCK) - -o requirements/uv.txt
	@$(LOCK) pyproject.toml -o requirements/runtime.txt
	@$(LOCK) --group build -c requirements/runtime.txt -o requirements/build.txt
	@$(LOCK) pyproject.toml --group dev -c requirements/runtime.txt -o requirements/dev.txt
	@$(LOCK) --group docs -c requirements/dev.txt -o requirements/docs.txt

clean: ## remove what was built or installed here
	@rm -rf $(VENV) build dist .fairway
