# Everything runs from a virtual environment in .venv; see `make help`.
# Variables: PYTHON (the interpreter .venv is made from), PYTEST_ARGS (default "-n auto": a process for each core).

PYTHON ?= python3
PYTEST_ARGS ?= -n auto
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input -qq
# Python compiles the modules that are used when they are first imported: pip would compile all.
INSTALL := $(PIP) install --no-compile -c constraints.txt -e
EXTRAS := test,dev,robots,sim,view
DEMO_OUT := out/demo

.DEFAULT_GOAL := help
.PHONY: help venv kernels demo test lint format bench docs docs-quick docs-links pictures clean

help:
	@echo 'make demo    solve the UR5 reach and write its plots into $(DEMO_OUT)'
	@echo 'make test    lint, then the whole test suite (PYTEST_ARGS="-k rnea" for a part of it)'
	@echo 'make lint    ruff check, ruff format --check, mypy'
	@echo 'make format  rewrite the sources in the project format'
	@echo 'make bench   all benchmarks: accuracy, orders, times beside peers, gaits, solvers (tens of minutes)'
	@echo 'make docs    build the documentation into docs/_build/html; its examples run, warnings are errors'
	@echo 'make docs-quick  the same with a small gallery, much faster'
	@echo 'make docs-links  check the links to other sites (needs a network)'
	@echo 'make pictures  draw the pictures of README.md again'
	@echo 'make venv    set up $(VENV), as the other targets do, and trace the bundled problems that take longest'
	@echo 'make kernels build the C library for all instruction sets, again after a change of its sources'
	@echo 'make clean   remove build products, caches and $(DEMO_OUT), but not $(VENV)'

venv: $(VENV)/.traces
	@echo '$(VENV) is ready'

$(STAMP): pyproject.toml setup.py constraints.txt tools/install_cyipopt.py
	@command -v '$(PYTHON)' >/dev/null 2>&1 || { \
	  echo "error: '$(PYTHON)' was not found. Install Python 3.11 or newer, or name it: make venv PYTHON=python3.12" >&2; exit 1; }
	@'$(PYTHON)' -c 'import sys; sys.exit(sys.version_info < (3, 11))' </dev/null || { \
	  echo "error: Python 3.11 or newer is needed, '$(PYTHON)' is $$('$(PYTHON)' --version 2>&1)." \
	    "Name a newer one: make venv PYTHON=python3.12" >&2; exit 1; }
	@message=$$(PYTHONPATH=. '$(PYTHON)' -B -c 'from dynamics_backends.environment import compiler_command; compiler_command()' 2>&1 </dev/null) || { \
	  echo "error: $${message##*Error: }" >&2; exit 1; }
	@if $(BIN)/python -m pip --version </dev/null >/dev/null 2>&1; then :; \
	elif '$(PYTHON)' -c 'import ensurepip, venv' </dev/null 2>/dev/null; then \
	  '$(PYTHON)' -m venv --clear $(VENV) </dev/null; \
	elif '$(PYTHON)' -m virtualenv --version </dev/null >/dev/null 2>&1; then \
	  '$(PYTHON)' -m virtualenv -q --clear $(VENV) </dev/null; \
	elif command -v virtualenv >/dev/null 2>&1; then \
	  virtualenv -q --clear -p '$(PYTHON)' $(VENV) </dev/null; \
	else \
	  echo "error: '$(PYTHON)' has no module venv or ensurepip, and there is no virtualenv." \
	    "Remedy: apt install python3-venv (Debian, Ubuntu), or put virtualenv on the path" >&2; exit 1; \
	fi
	@echo 'Installing into $(VENV) (once; some minutes, 1.6 GB) ...'
	@$(INSTALL) '.[$(EXTRAS),scene]' </dev/null || { $(INSTALL) '.[$(EXTRAS)]' </dev/null && \
	  echo 'warning: without the extra scene, motions among obstacles are checked with capsules only, and no paths around them are planned' >&2; }
	@$(BIN)/python tools/install_cyipopt.py </dev/null
	@touch $@

$(VENV)/.traces: $(STAMP) tools/build_traces.py
	@echo 'Tracing the bundled problems that take longest (once) ...'
	@$(BIN)/python tools/build_traces.py </dev/null
	@touch $@

kernels: $(STAMP)
	@$(BIN)/python tools/build_kernels.py </dev/null

demo: $(STAMP)
	@$(BIN)/trajopt solve problems/configs/ur5_reach.toml --out $(DEMO_OUT) </dev/null
	@echo 'The pictures are in $(DEMO_OUT):'
	@find $(DEMO_OUT) -name '*.png' -o -name '*.svg' -o -name '*.pdf' | sort | sed 's/^/  /'

# The tests run even if lint fails, so that one run shows everything; the exit status reports both.
test: $(STAMP) kernels
	@lint=0; $(MAKE) --no-print-directory lint || lint=1; \
	$(BIN)/python -m pytest -q $(PYTEST_ARGS) </dev/null || exit 1; \
	if [ $$lint -ne 0 ]; then echo 'error: lint failed, see above the tests; make format may help' >&2; exit 1; fi

lint: $(STAMP)
	@failed=0; \
	$(BIN)/ruff check . || failed=1; \
	$(BIN)/ruff format --check . || failed=1; \
	$(BIN)/mypy || failed=1; \
	exit $$failed

format: $(STAMP)
	@$(BIN)/ruff check --fix . || true
	@$(BIN)/ruff format .

BENCHMARKS := first_order foundation compiled second_order contact gaits ddp dms sqp arms crocoddyl
bench: $(STAMP)
	@for name in $(BENCHMARKS); do echo "== benchmark_$$name"; $(BIN)/python -m experiments.benchmark_$$name </dev/null || exit 1; done

# The packages of the documentation are installed when it is first built: tests do without them.
DOCS_STAMP := $(VENV)/.docs-installed
$(DOCS_STAMP): $(STAMP)
	@echo 'Installing what the documentation needs into $(VENV) (once) ...'
	@$(INSTALL) '.[docs]' </dev/null
	@touch $@

SPHINX = $(BIN)/python -m sphinx -W --keep-going -q -j 2 -d docs/_build/doctrees
docs: $(DOCS_STAMP)
	@$(SPHINX) -b html docs docs/_build/html </dev/null
	@echo 'The documentation is in docs/_build/html/index.html'

# The whole site but the gallery, of which one configuration is solved: what continuous integration builds.
docs-quick: $(DOCS_STAMP)
	@$(SPHINX) -D gallery_only=cart_pole_swing_up -b html docs docs/_build/quick </dev/null
	@echo 'The documentation without its gallery is in docs/_build/quick/index.html'

docs-links: $(DOCS_STAMP)
	@$(SPHINX) -b linkcheck docs docs/_build/linkcheck </dev/null

pictures: $(STAMP)
	@$(BIN)/python docs/extensions/pictures.py docs/pictures </dev/null

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache $(DEMO_OUT)
	rm -rf docs/_build docs/generated docs/tutorials/*.html docs/howto/*.html docs/coming_from/*.html
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
