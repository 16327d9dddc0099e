# Each target makes its own .venv from requirements/dev.lock, and is quick when it is there already.
PYTHON ?= python3
NEWEST ?= python3.13
BIN := .venv/bin
LOCKED := fleet langchain mcp otel otlp patterns phones secrets ui weights
ENGINES := names patterns phones secrets
READY := .venv/ready
AXE := axe-core-4.14.1
AXE_SHA256 := e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745
VERSIONS := core-1.0 core-alone datasette-1.0 frameworks langgraph-1.1 peers servers
COMPILE := uv pip compile pyproject.toml --universal --generate-hashes --no-header --no-annotate \
	--no-emit-index-url --no-emit-find-links --upgrade

.PHONY: demo test test-slow test-versions test-frameworks test-fleet test-foreign test-names test-readers test-minimum test-python test-wheel lint types imports docs golden pictures site bench bench-fleet bench-gate bench-growth bench-inspection bench-novelty bench-peers bench-recall-live soak soak-fleet \
	changelog lock clean

demo: $(READY)
	$(BIN)/kp-middleware demo

# In random order, on all cores. One test or folder alone: .venv/bin/python -m pytest tests/storage
test: $(READY)
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal

# Killed processes, many at once, the worst registry, and a real browser: mostly waiting, so three at a time.
test-slow: $(READY) build/axe.min.js
	$(BIN)/python -m pytest -m slow --numprocesses 3 --dist loadfile

# Several hosts at a real PostgreSQL and pgbouncer, which fail in every way that docs/fleet.md names.
test-fleet: $(READY)
	$(BIN)/python -m pytest -m fleet --numprocesses auto --dist worksteal tests/fleet

# With other versions of LangChain's packages, beside other tracers, and with other frameworks.
test-versions: $(READY)
	.ci/versions

# Agents of seven other frameworks, each the newest, with scripted models; `test-versions` has it too.
test-frameworks: $(READY)
	.ci/versions requirements/matrix/frameworks.lock

# The tests of langchain's agents and of langgraph, recorded and not: each must end the same way.
test-foreign: $(READY)
	.ci/foreign

# Presidio with a real model, beside the other engines.
test-names: $(READY)
	.ci/versions requirements/names.lock

# What is exported, read by the software that it is for.
test-readers: $(READY)
	.ci/versions requirements/readers.lock

# With the lowest versions that pyproject.toml allows.
test-minimum: $(READY)
	.ci/versions requirements/minimum.lock

# On the newest Python of pyproject.toml, where there is one; NEWEST=python3.12 for another.
test-python: $(READY)
	.ci/versions $(NEWEST)

# What is published, where nothing else is installed.
test-wheel: $(READY)
	.ci/wheel

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/vulture

# As on each system that we know: what is missing on one shows only there.
types: $(READY)
	$(BIN)/mypy
	$(BIN)/mypy --platform darwin
	$(BIN)/mypy --platform win32

imports: $(READY)
	$(BIN)/lint-imports

bench: $(READY)
	$(BIN)/python benchmarks/callbacks.py
	$(BIN)/python benchmarks/spans.py
	$(BIN)/python benchmarks/pipeline.py
	$(BIN)/python benchmarks/scoring.py
	$(BIN)/python benchmarks/model.py
	$(BIN)/python benchmarks/redaction.py

# Which runs leave by a share, and how many of them truly succeeded. Needs ../shared. SHARE=0.1 for another share.
bench-gate: $(READY)
	$(BIN)/python benchmarks/gate.py $(SHARE)
	$(BIN)/python benchmarks/gate_pipeline.py

# What a file that grows costs: 1,000 to 100,000 traces. SIZES="1000000" for a million: 6 GB and some minutes.
bench-growth: $(READY)
	$(BIN)/python benchmarks/growth.py $(SIZES)

# What the doors show of the same runs, written anew: read the difference before you commit it.
golden: $(READY)
	WRITE_GOLDEN=1 $(BIN)/python -m pytest tests/golden

# What the pages have from the code: help of the commands, docstrings, the schema.
docs: $(READY)
	$(BIN)/python -m cogapp -r -I tests/docs docs/command-line.md docs/reference.md docs/schema.md

# The pictures of the README and the docs, of the demo and of a month of scripted agents.
pictures: $(READY)
	$(BIN)/python tests/browser/readme_pictures.py docs/pictures

# The pages as a site with a search, in build/site.
site: $(READY)
	$(BIN)/zensical build --strict

# How well novelty tells a task's first run from a repeated one, by kind of run.
bench-novelty: $(READY)
	$(BIN)/python benchmarks/novelty.py

# Recall: what it finds, what it says where nothing fits, and how long it takes.
bench-recall: $(READY)
	$(BIN)/python benchmarks/recall.py

# Every command and page on a file of 100,000 traces, while another process writes.
bench-inspection: $(READY)
	$(BIN)/python benchmarks/inspection.py

# Whether a digest of a past run helps a small real model, and whether it harms: 7 minutes to build it once, then 12.
bench-recall-live: $(READY)
	$(BIN)/python benchmarks/recall_live.py

# Several processes and a hostile registry: what is lost, what is sent twice, what the agents pay.
soak: $(READY)
	$(BIN)/python benchmarks/soak.py

# Hosts and their PostgreSQL are killed at random for five minutes: what is lost, decided twice, or sent twice.
soak-fleet: $(READY)
	$(BIN)/python benchmarks/soak_fleet.py

# What several hosts cost PostgreSQL and the agent, beside the same SQL alone.
bench-fleet: $(READY)
	$(BIN)/python benchmarks/fleet.py

# The first table beside Langfuse, OpenInference, MLflow and Opik: an environment of 720 MB, some minutes.
bench-peers: .venv-peers/ready
	.venv-peers/bin/python benchmarks/callbacks.py

# Puts what changelog.d/ has into CHANGELOG.md, under the version of pyproject.toml.
changelog: $(READY)
	$(BIN)/towncrier build --yes --version "$$($(BIN)/hatchling version)"

# A lock names no host: whoever installs brings an index of their own. dev.lock leaves out the extra `names`, of 190 MB.
lock:
	$(COMPILE) $(LOCKED:%=--extra %) --group dev --output-file requirements/dev.lock
	$(COMPILE) --output-file requirements/wheel-alone.lock
	$(COMPILE) $(LOCKED:%=--extra %) --output-file requirements/wheel-extras.lock
	$(COMPILE) $(patsubst %,--extra %,$(filter-out mcp,$(LOCKED))) --resolution lowest-direct requirements/minimum.in --output-file requirements/minimum.lock
	$(COMPILE) $(ENGINES:%=--extra %) requirements/names.in --output-file requirements/names.lock
	$(COMPILE) requirements/readers.in --output-file requirements/readers.lock
	$(COMPILE) requirements/foreign.in --output-file requirements/foreign.lock
	for versions in $(VERSIONS); do \
		$(COMPILE) requirements/matrix/$$versions.in --output-file requirements/matrix/$$versions.lock || exit; \
	done

clean:
	rm -rf .venv .venv-peers build dist .cache .mypy_cache .pytest_cache .ruff_cache .coverage htmlcov

$(READY): requirements/dev.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "kp-middleware needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement requirements/dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $(READY)

# What looks for barriers on our pages.
build/axe.min.js: Makefile
	mkdir -p build
	cd build && npm pack --silent $(subst core-,core@,$(AXE)) && echo "$(AXE_SHA256)  $(AXE).tgz" | sha256sum --check --quiet
	tar --extract --gzip --to-stdout --file build/$(AXE).tgz package/axe.min.js > $@

.venv-peers/ready: requirements/matrix/peers.lock pyproject.toml
	$(PYTHON) -m venv --clear .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement requirements/matrix/peers.lock
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check --no-deps .
	touch .venv-peers/ready
