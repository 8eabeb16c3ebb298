SHELL := /bin/bash
PYTHON ?= python3
LOCK = .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links

lock:
	$(LOCK) pyproject.toml -o requirements/runtime.txt
	$(LOCK) pyproject.toml --group dev -c requirements/runtime.txt -o requirements/dev.txt
