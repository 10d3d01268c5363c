# Two commands set everything up: `make demo` runs the main job, `make test` passes the tests.
# Both install what they need below this folder and in the user's cache, and say what they do while they do it.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
UV_VERSION := 0.13.9
UV := .tools/bin/uv
RUN := $(UV) run --frozen
ENGINE ?= simulated
PYTEST_ARGS ?=

# Engines get environments of their own, which uv makes.
export PATH := $(CURDIR)/.tools/bin:$(PATH)

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

$(UV):
	@echo "== uv $(UV_VERSION) into .tools"
	python3 -m venv .tools
	.tools/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

.PHONY: install
install: $(UV) ## Install the locked Python environment into .venv
	@echo "== Python packages (about a minute the first time)"
	$(UV) sync --frozen --quiet

.PHONY: assets
assets: install ## Find or build the control plane and Prometheus (about 7 minutes on two cores the first time)
	$(RUN) frontier-local assets

.PHONY: demo
demo: assets ## Run the main job on an embedded cluster; ENGINE=vllm runs a real vLLM on the CPU
	$(RUN) python -m frontier_local.demo --engine $(ENGINE)

.PHONY: lint
lint: install ## Formatting, lint, types and import contracts
	$(RUN) ruff format --check .
	$(RUN) ruff check .
	$(RUN) mypy
	$(RUN) lint-imports

.PHONY: test
test: lint assets ## Everything: unit, simulation, packaging, integration, and a real vLLM on the CPU
	REQUIRE_APISERVER=1 REQUIRE_ENGINE=1 $(RUN) pytest $(PYTEST_ARGS)

.PHONY: quick
quick: install ## The tests that need no cluster
	$(RUN) pytest -m "not integration and not engine" $(PYTEST_ARGS)

.PHONY: clean
clean: ## Remove what was installed below this folder
	rm -rf .venv .tools .mypy_cache .ruff_cache .pytest_cache dist
