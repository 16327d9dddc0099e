# Each target makes its own .venv from requirements/dev.lock, and is quick when it is there already.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready

.PHONY: demo test lint types imports bench lock clean

demo: $(READY)
	$(BIN)/kp-middleware demo

test: $(READY)
	$(BIN)/python -m pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

imports: $(READY)
	$(BIN)/lint-imports

bench: $(READY)
	$(BIN)/python benchmarks/run.py

# The lock names no host: whoever installs brings an index of their own.
lock:
	uv pip compile pyproject.toml --all-extras --group dev --universal --generate-hashes --no-header \
		--no-annotate --no-emit-index-url --no-emit-find-links --upgrade --output-file requirements/dev.lock

clean:
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .coverage htmlcov

$(READY): requirements/dev.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "kp-middleware needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement requirements/dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $(READY)
