# make demo [CHECK=1]   set up, build the sample workspace, open it        make test   set up, lint, all tests
# make soak             the long checks                                    make lint   ruff and mypy
# make test-train       real training steps, in an environment of their own
.DEFAULT_GOAL := help
.PHONY: help demo test test-train train-env soak lint samples browser clean
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check
SOURCES := pyproject.toml analysis/__init__.py

help:
	@sed -n '1,3s/^# //p' Makefile

demo: $(VENV)/.installed
	$(VENV)/bin/counterpoint demo $(if $(CHECK),--check)

test: $(VENV)/.installed-dev browser
	$(MAKE) --no-print-directory lint
	$(PY) -m pytest -q -n auto --dist loadfile

soak: $(VENV)/.installed-dev browser
	COUNTERPOINT_EXAMPLES=other $(PY) -m pytest -q -m "soak or not soak"

# Real training steps; `make test` runs them too, once the environment that trains is there (1.6 GB, outside the checkout).
test-train: train-env
	$(PY) -m pytest -q tests/training

train-env: $(VENV)/.installed-dev
	$(PY) -m analysis.training.environment

lint: $(VENV)/.installed-dev
	$(VENV)/bin/ruff check --quiet .
	$(VENV)/bin/ruff format --check --quiet .
	$(VENV)/bin/mypy --no-error-summary

samples: $(VENV)/.installed
	$(PY) -m analysis.counterfactual.samples data/samples

# A browser and a font with Chinese characters for the browser tests. COUNTERPOINT_BROWSER names another browser.
browser:
	@if [ -z "$$COUNTERPOINT_BROWSER" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  for name in chromium chromium-browser google-chrome google-chrome-stable; do command -v $$name >/dev/null && found=1; done; \
	  if [ -z "$$found" ] || [ -z "$$(fc-list :lang=zh 2>/dev/null)" ]; then \
	    echo "installing chromium and a CJK font"; \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium fontconfig fonts-noto-cjk >/dev/null; \
	  fi; \
	fi

$(VENV)/.installed: $(SOURCES) | $(VENV)/bin/python
	$(PIP) -e .
	@touch $@

$(VENV)/.installed-dev: $(SOURCES) | $(VENV)/bin/python
	$(PIP) -e '.[dev]'
	@touch $@ $(VENV)/.installed

# Debian ships Python without venv; as root we can add it, otherwise we say what to install.
$(VENV)/bin/python:
	@for name in $(PYTHON) python3.11 python3.12 python3.13 python3.14 python3; do \
	  if $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python=$$name; break; fi; \
	done; \
	if [ -z "$$python" ]; then echo "Python 3.11 or newer is needed: apt-get install python3" >&2; exit 1; fi; \
	if ! $$python -c 'import ensurepip' 2>/dev/null; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv >/dev/null; \
	  else echo "venv is missing: apt-get install python3-venv" >&2; exit 1; fi; \
	fi; \
	$$python -m venv $(VENV)

clean:
	rm -rf $(VENV) counterpoint-demo counterpoint-workspace
