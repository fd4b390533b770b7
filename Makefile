# Every target creates .venv with pinned versions when it is missing, and builds the core.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BUILT := $(VENV)/.built

REPRODUCTION := --write docs/reproduction.md --write docs/measurements.md

.PHONY: demo table reproduce test acceptance nightly check snapshots docs bench distdgl clean

demo: $(BUILT) ## run the main job on this machine
	$(BIN)/emu run scenarios/demo.yaml

table: $(BUILT) ## every system on one graph and cluster, to one accuracy; two over sockets
	$(BIN)/emu compare scenarios/table.yaml --systems all --to accuracy=0.7 --within 60 --confirm 2 --as html --out runs/table.html

reproduce: $(BUILT) ## every figure of the papers beside this model, into docs/ and a page
	$(BIN)/emu reproduce all $(REPRODUCTION) --as html --out runs/reproduction.html

test: $(BUILT) ## everything that CI checks
	$(BIN)/python tools/check --all

acceptance: $(BUILT) ## the shipped scenarios in full, over sockets
	$(BIN)/python tools/check --acceptance

nightly: $(BUILT) ## that, and what `make test` leaves out of long tests and of draws
	$(BIN)/python tools/check --nightly

check: $(BUILT) ## format, lint, types, layers and the quick tests
	$(BIN)/python tools/check

snapshots: $(BUILT) ## what commands print in tests/snapshots, anew: review the diff
	EMU_SNAPSHOTS=write $(BIN)/python -m pytest -q -n 2 tests/snapshots

docs: $(BUILT) ## the site of docs/ into site/, strictly; python -m http.server -d site shows it
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

distdgl: $(BUILT) ## train with dgl.distributed on emulated machines; predict other NICs
	$(BIN)/python scenarios/distdgl/predict.py

bench: $(BUILT) ## timings, as medians and ratios within one run
	$(BIN)/python tools/bench

clean:
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks
	git clean -qfX emu/prediction/core

# Everything by its hash but torch, of which plain pip takes the build that is at hand:
# a local one has another hash than that of the package index.
$(STAMP): pyproject.toml .constraints.txt .pins.txt
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is missing. Install it \
(Debian, Ubuntu: apt install python3.11-venv; Fedora: dnf install python3.11; macOS: \
brew install python@3.11; anywhere: uv python install 3.11), or name one: \
make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes --requirement .pins.txt
	$(BIN)/python -m pip install --quiet --constraint .constraints.txt torch
	touch $@

# The core is built where its sources are, when one of them has changed.
$(BUILT): $(STAMP) $(wildcard emu/prediction/core/*.[ch]) emu/prediction/core/build/CMakeLists.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable '.[train,dev,docs]'
	touch $@
