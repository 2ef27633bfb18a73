# Relative paths only: the checkout may lie under a folder with spaces in its name.

PYTHON ?= python3
ARGS ?=
QUIET ?= --quiet
RUN := .venv/bin/python
# A launch keeps one core busy, and mostly waits on the other.
SPREAD := --numprocesses 3 --dist loadscope --durations 15
INSTALL := $(RUN) -m pip install $(QUIET) --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo lab venv test check notebooks bench fix clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile | expand -t 18

demo: .venv/base.stamp ## install what is missing, then run the demonstration
	@.venv/bin/ddpnb demo

lab: .venv/base.stamp ## open the lessons in JupyterLab
	@.venv/bin/ddpnb lab

venv: .venv/test.stamp ## make or refresh .venv, with what the tests need

test: .venv/test.stamp ## run every test that this machine can run (ARGS="-k stop")
	@$(RUN) -m pytest $(SPREAD) $(ARGS)

check: .venv/test.stamp ## lint, format, types and unit tests: under a minute
	@$(RUN) -m ruff check
	@$(RUN) -m ruff format --check
	@$(RUN) -m mypy
	@$(RUN) -m pytest -q tests/unit

notebooks: .venv/test.stamp ## run every notebook
	@$(RUN) -m pytest tests/notebooks $(ARGS)

bench: .venv/test.stamp ## run every benchmark
	@for script in benchmarks/*.py; do echo "$$script"; $(RUN) "$$script" || exit 1; done

fix: .venv/test.stamp ## mend what lint and format can mend, and strip the notebooks
	@$(RUN) -m ruff check --fix
	@$(RUN) -m ruff format
	@$(RUN) -m nbconvert --log-level WARN --to notebook --inplace --clear-output \
	  --ClearMetadataPreprocessor.enabled=True \
	  --ClearMetadataPreprocessor.clear_cell_metadata=False \
	  --ClearMetadataPreprocessor.preserve_nb_metadata_mask kernelspec \
	  --ClearMetadataPreprocessor.preserve_nb_metadata_mask language_info \
	  notebooks/*.ipynb

clean: ## remove .venv, builds and caches; runs under .ddpnb stay
	@rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Two stamps: the demonstration need not wait for linters and a browser driver.
.venv/base.stamp: pyproject.toml constraints.txt
	@command -v "$(PYTHON)" >/dev/null || \
	  { echo "There is no $(PYTHON) here; install Python 3.11 or newer, or name one: make PYTHON=python3.12"; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is $$("$(PYTHON)" -V 2>&1), ddpnb needs 3.11 or newer; name one: make PYTHON=python3.12"; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || \
	  { "$(PYTHON)" -c 'import sys; print("This Python cannot make virtual environments (no ensurepip); on Debian or Ubuntu: apt-get install python%d.%d-venv" % sys.version_info[:2])'; exit 1; }
	@test -x .venv/bin/python || "$(PYTHON)" -m venv --clear .venv
	@echo "Installing into .venv (a few minutes the first time)"
	@$(INSTALL) -e . || { echo "pip said why above; for all that it says: make venv QUIET="; exit 1; }
	@touch $@

.venv/test.stamp: .venv/base.stamp
	@echo "Installing what the tests need into .venv"
	@$(INSTALL) -e '.[test]'
	@touch $@
