# Everything starts from a clone with Python 3.11 or newer, pip and make; see README.md.

SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DIR ?= .holdfast
MINUTES ?= 30
UV_VERSION := 0.13.9
# Processes that test at once, each with servers of its own: many tests wait more than they compute.
TESTERS ?= 3
export UV_PYTHON_DOWNLOADS := never
export UV_LINK_MODE := copy
# As pip does: a company's own authority is in the system's store, not in the one that uv brings.
export UV_SYSTEM_CERTS := true

.DEFAULT_GOAL := help
.PHONY: help setup demo up test chaos deaf poison model cuts interleavings isolation check lock clean

help: ## Show what can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "make %-13s %s\n", $$1, $$2 }'

setup: $(READY) ## Make .venv from requirements.lock

# The newest Python there is; each is tried, since a name on the path may be a shim of a version that is not there.
$(READY): requirements.lock pyproject.toml
	@test -x $(BIN)/python || { for python in $(PYTHON) python3.13 python3.12 python3.11 python3 python; do \
	    "$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && "$$python" -m venv $(VENV) && exit 0; \
	done; echo "Holdfast needs Python 3.11 or newer with venv and pip (Debian: apt install python3-venv)." >&2; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@$(BIN)/uv pip install --quiet --require-hashes --requirement requirements.lock
	@$(BIN)/uv pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $(READY)

demo: $(READY) ## Watch documents become searchable, one be retried and two fail, in a minute
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m demo

up: $(READY) ## Servers, a worker and Flower until Ctrl-C; data in DIR (default .holdfast)
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m embedded run --dir "$(DIR)" -- $(CURDIR)/$(BIN)/python -m embedded.desk

test: check ## Run every check and test
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest --numprocesses $(TESTERS) --dist loadfile

model: $(READY) ## Random walks of thousands of steps held to the model; MODEL_SEED repeats one
	@seed=$${MODEL_SEED:-$$RANDOM}; echo "MODEL_SEED=$$seed"; \
	    MODEL_SEED=$$seed MODEL_EXAMPLES=$${MODEL_EXAMPLES:-100} $(BIN)/python -m pytest tests/model --timeout 7200

cuts: $(READY) ## Cut the connection to the database before every message of every report
	@CUT_EVERY=1 $(BIN)/python -m pytest tests/cuts --timeout 1800

interleavings: $(READY) ## Let every two operations meet in every order of their statements (hours)
	@INTERLEAVINGS_PAIRS=0 INTERLEAVINGS_SWITCHES=$${INTERLEAVINGS_SWITCHES:-2} $(BIN)/python -m pytest tests/interleavings --timeout 86400

# Every level and some odd time zones, a pooler where there is one, and whatever server POSTGRES_AT names.
SUITES := tests/domain tests/database
isolation: $(READY) ## The suites of domain and database under other isolation levels, time zones, PgBouncer
	@set -e; while read -r level zone; do \
	    echo "default_transaction_isolation=$${level//-/ } timezone=$$zone"; \
	    $(BIN)/python -m pytest -q $(SUITES) --postgres-setting "default_transaction_isolation=$${level//-/ }" \
	        --postgres-setting "timezone=$$zone" $(if $(POSTGRES_AT),--postgres-at $(POSTGRES_AT)); \
	done <<< $$'read-uncommitted Asia/Seoul\nrepeatable-read America/St_Johns\nserializable Pacific/Kiritimati'; \
	if PATH="$$PATH:/usr/sbin" command -v pgbouncer; then $(BIN)/python -m pytest -q $(SUITES) --pooler; \
	else echo "PgBouncer is not installed: not run (Debian: apt install pgbouncer)"; fi

chaos: $(READY) ## Workers at work for MINUTES (30) while all around them fails; writes chaos-report.txt and .svg
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m tests.chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

deaf: $(READY) ## Broker and database silent for minutes, names gone; prints what each took
	@LONG=1 $(BIN)/python -m pytest -s tests/end_to_end/test_deaf_and_blind.py

poison: $(READY) ## A thousand poisoned documents in one worker, whose memory stays flat (20 minutes)
	@POISON=1000 $(BIN)/python -m pytest tests/end_to_end/test_poison.py -k every_kind

check: $(READY) ## Formatter, linter, types, import rules, SQL lint
	@$(BIN)/ruff format --check --quiet . || { echo "Run $(BIN)/ruff format ." >&2; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/squawk migrations/versions/*.sql

lock: $(READY) ## Resolve pyproject.toml anew into requirements.lock: hashes, no addresses
	@$(BIN)/uv pip compile --quiet --upgrade pyproject.toml --all-extras --universal --python-version 3.11 \
	    --generate-hashes --no-header --no-annotate --no-emit-index-url --output-file requirements.lock

clean: ## Remove .venv and caches; data folders stay
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
