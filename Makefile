# Two commands do all on a machine with Python 3.11, git and make: `make demo` and `make test`.
# TORCH_FLAGS goes to the pip that installs torch: see the README for a CPU-only build.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
TORCH_FLAGS ?=
WORKERS ?= 2
MINUTES ?= 10
BIN := .venv/bin
RUNS := .venv/.runs
READY := .venv/.ready

ifeq ($(CI),true)
export LINNET_REQUIRE_CHECKPOINTS := 1
export LINNET_REQUIRE_BROWSER := 1
export LINNET_REQUIRE_MLX := 1
endif

.PHONY: help demo test lint types tests format bench lang-fuzz registry-stress docs site screenshots system clean

help:
	@echo "make demo    set up, then check the packages, build the site and run a model"
	@echo "make test    set up, then run everything CI runs: lint, types, docs, tests"
	@echo "make lint types docs tests   one of those alone;  make format   rewrite the code in its style"
	@echo "make lang-fuzz   attack the language with fresh random programs for MINUTES ?= 10"
	@echo "make registry-stress   kill publishers at every step, and let many publish at once, on every kind of registry"
	@echo "make bench   print timings;  make system   Chromium and Java, where apt can install them"
	@echo "make site    the packages that ship here and the guide as a website, in build/site"
	@echo "make screenshots   pictures of its pages, in docs/images"
	@echo "make clean   remove what the others made"

# What the demo needs; the tools of development come on top of it.
$(RUNS): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or later is needed: install it, or run make PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/python || "$(PYTHON)" -m venv .venv
	@echo "Installing into .venv, which takes a few minutes"
	$(BIN)/python -m pip install --quiet -c constraints.txt $(TORCH_FLAGS) torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[torch]'
	@# pip compiles what it installs, but not an editable install.
	$(BIN)/python -m compileall -q linnet
	@touch $@

$(READY): $(RUNS)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(RUNS)
	$(BIN)/nest demo --nests nests -o build/demo
	@echo "To use nest and linnet in this shell: . .venv/bin/activate"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/linnet fmt --check --diff --quiet linnet/std linnet/convert nests tests/corpus/good

types: $(READY)
	$(BIN)/mypy

tests: $(READY) system
	$(BIN)/pytest -n $(WORKERS)

# In this order, so that the last line is pytest's.
test:
	$(MAKE) --no-print-directory lint
	$(MAKE) --no-print-directory types
	$(MAKE) --no-print-directory docs
	$(MAKE) --no-print-directory tests

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/linnet fmt --quiet linnet/std linnet/convert nests tests/corpus/good

bench: $(READY)
	$(BIN)/python bench/check.py
	$(BIN)/python bench/language.py
	$(BIN)/python bench/registry.py --packages 100,1000
	$(BIN)/python bench/site.py --models 100 --no-mkdocs
	$(BIN)/python bench/decode.py
	$(BIN)/python bench/accuracy.py
	$(BIN)/python bench/parity.py
	$(BIN)/python bench/mlx_decode.py --runs 1
	$(BIN)/pytest -q tests/runner/test_triton_results.py tests/runner/test_triton_compiled.py

lang-fuzz: $(READY)
	$(BIN)/python tests/language/fuzzing.py --minutes $(MINUTES)

registry-stress: $(READY)
	LINNET_STRESS=1 $(BIN)/pytest tests/registry/store/test_publish_crashes.py tests/registry/store/test_publish_many.py \
		tests/registry/store/test_store_conformance.py::test_each_of_many_paths_has_one_winner

docs: $(READY)
	$(BIN)/linnet doc --quiet
	$(BIN)/mkdocs build --quiet --strict

site: docs
	$(BIN)/nest site build --nests nests --guide build/guide -o build/site --strict

screenshots: site system
	$(BIN)/python .ci/screenshots.py

system:
	@bash .ci/system

clean:
	rm -rf build dist site index.json .pytest_cache .mypy_cache .ruff_cache .hypothesis
