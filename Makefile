SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup demo demo-airflow ui stop test test-setup test-all test-fast test-lowest soak chaos faults mutants lint bench bench-quick docs screenshots lock sbom audit clean

# Three for two cores, since tests wait about half of their time; each takes some 3 GB.
WORKERS ?= 3
PARALLEL = --numprocesses=$(WORKERS)
MINUTES ?= 10

# Java as .ci/setup found it; Python's own folder first, for the programs that ours start. Bytecode is kept, also where containers say not to:
# the suite starts Python a hundred times, and pytest rewrites each module for every worker.
IN_ENV := unset PYTHONDONTWRITEBYTECODE; export JAVA_HOME="$$(cat .windrow/java-home)" PATH="$$PWD/.venv/bin:$$PATH";

help: ## this list
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/make \1\t\2/p' Makefile | expand -t 18

setup:
	@.ci/setup

demo: setup ## a real Kafka, 24 hours of orders, 24 hourly windows by Dagster on Spark into a Delta table, checked: make demo [SINK=postgres]; with CHANGES=1 a database's changes into an Iceberg table
	@$(IN_ENV) python -m $(if $(CHANGES),tests.changes.demo,windrow.assets.demo run $(if $(SINK),--sink $(SINK)))

demo-airflow: setup ## after `make demo`: Airflow on 127.0.0.1, its DAGs the demo's pipelines, and a backfill of the day
	@$(IN_ENV) python -m tests.airflow.demo

ui: setup ## Dagster on 127.0.0.1 with the demo's history
	@$(IN_ENV) python -m windrow.assets.demo ui

stop: setup ## end what demo and ui started
	@$(IN_ENV) python -m windrow.assets.demo stop

# The commit is the seed: a commit has one answer, and each commit draws other examples.
test: setup test-setup lint ## all that CI checks: lint, types, layers and the tests but the long ones, with real Kafka and real Spark
	@$(IN_ENV) python -m pytest $(PARALLEL) --short --durations=10 --seed="$$((16#$$(git rev-parse --short=8 HEAD)))"

test-all: setup test-setup lint ## every test, for a release and each night: all kills, all examples, clusters, the demo, chaos
	@$(IN_ENV) python -m pytest $(PARALLEL) --durations=10

# The environment of tests/airflow: to make it takes longer than those tests.
test-setup: setup
	@.ci/airflow

# Folders whose tests stand on Dagster, a database, a table on disk, Kafka's client or other processes, or look at the papers.
NOT_FAST = $(patsubst %,--ignore=tests/%,admin assets cli docs infer integration kafka ledger runner/spark shape)

test-fast: setup ## half a minute: what windrow's own steps promise, without Kafka, Spark, Dagster or a database
	@$(IN_ENV) python -m pytest $(PARALLEL) $(NOT_FAST) --hypothesis-profile=fast -m "not broker and not spark and not slow"

LOWEST := .windrow/lowest
# What the lowest versions of some warn of in others is theirs. Papers, golden files, the image and what a message costs are of the versions in the lock; Airflow has its own.
# The writer of INT96, which only a test uses, was wrong before 1970 then.
test-lowest: setup ## each night: the tests on the lowest versions that pyproject.toml allows, in an environment of their own
	@$(IN_ENV) export UV_SYSTEM_CERTS="$${UV_SYSTEM_CERTS:-true}"; \
	uv pip compile --quiet --upgrade --resolution lowest-direct --python-version 3.11 --all-extras pyproject.toml --output-file $(LOWEST).txt; \
	uv venv --quiet --clear --python 3.11 $(LOWEST); \
	uv pip install --quiet --python $(LOWEST) --override $(LOWEST).txt --requirement $(LOWEST).txt --group dev; \
	uv pip install --quiet --python $(LOWEST) --no-deps --editable .; \
	export PATH="$$PWD/$(LOWEST)/bin:$$PATH"; windrow prepare >/dev/null; \
	python -m pytest $(PARALLEL) --short -W ignore::DeprecationWarning -W ignore::FutureWarning \
		$(patsubst %,--ignore=tests/%,airflow bench deploy docs golden mutants runner/test_cost.py shape) \
		--deselect 'tests/admin/test_rewritten.py::test_no_value_of_any_type_is_changed_by_another_writer[as Spark does]'

soak: setup ## what is long by nature, over and over: make soak SEED=1 MINUTES=10
	@$(IN_ENV) python -m tests.soak --minutes $(MINUTES) --workers $(WORKERS) $(if $(SEED),--seed $(SEED))

chaos: setup ## windows of a real sink under kills, stops, doubled runs and more, counted into docs/chaos.md: make chaos SINK=delta SEED=1 MINUTES=10
	@$(IN_ENV) python -m tests.chaos --record --sink $(or $(SINK),delta) --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

faults: setup ## each I/O call of each command fails once, on each kind of sink, counted into docs/chaos.md: make faults SEED=1 MINUTES=60
	@$(IN_ENV) python -m tests.faults --record --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

mutants: setup ## small mistakes in the pure modules that the tests notice, in percent: make mutants [ONLY=model/grid]
	@$(IN_ENV) python -m tests.mutants.run $(ONLY)

lint: setup ## style, types, layers
	@$(IN_ENV) ruff check .
	@$(IN_ENV) ruff format --check .
	@$(IN_ENV) mypy
	@$(IN_ENV) lint-imports

bench: setup ## all that is measured, beside windrow's peers on the same topics, into docs/benchmark.md: make bench [ONLY=small.table]
	@$(IN_ENV) python -m tests.bench $(ONLY)

bench-quick: setup ## two minutes for a change: the ratio to Spark's own Kafka source on a smaller topic
	@$(IN_ENV) python -m tests.bench small.table --quick --scale 0.25 --rounds 3

docs: setup ## docs/settings.md from the descriptions in the spec's models, docs/permissions.md from the table of its tests
	@$(IN_ENV) python -m tests.docs.settings
	@$(IN_ENV) python -m tests.docs.permissions

screenshots: setup ## docs/dagster and docs/airflow: pictures of their pages by a headless Chromium, which also checks what they show
	@$(IN_ENV) python -m tests.screenshots

JARS := ingest/kafka/embedded/kafka
lock: setup ## requirements.lock, airflow/requirements.lock and the hashes of Kafka's jars; what is pinned stays where the ranges allow it
	@$(IN_ENV) UV_CUSTOM_COMPILE_COMMAND="make lock" uv pip compile --quiet --universal --python-version 3.11 \
		--generate-hashes --all-extras --group deploy --group dev pyproject.toml --output-file requirements.lock
	@$(IN_ENV) cd airflow && UV_CUSTOM_COMPILE_COMMAND="make lock" uv pip compile --quiet --universal --python-version 3.11 \
		--generate-hashes --group airflow pyproject.toml --output-file requirements.lock
	@rm -rf .windrow/jars
	@$(IN_ENV) mvn -q -B -f $(JARS)-pom.xml dependency:copy-dependencies -Dmdep.useRepositoryLayout=true -DoutputDirectory=$$PWD/.windrow/jars
	@cd .windrow/jars && find . -name '*.jar' -printf '%P\n' | LC_ALL=C sort | xargs sha256sum >../../$(JARS)-jars.sha256

sbom: setup ## a bill of materials (CycloneDX) of what windrow with all extras installs, and of Kafka's jars, into dist/sbom.json
	@$(IN_ENV) python -m tests.supply_chain sbom

audit: setup ## asks OSV for known vulnerabilities of the packages in requirements.lock; exit code 1 if there are any
	@$(IN_ENV) python -m tests.supply_chain audit

clean: ## stop what runs, then remove all that make made (not what you wrote)
	@if [ -x .venv/bin/python ] && [ -f .windrow/java-home ]; then $(IN_ENV) python -m windrow.assets.demo stop; python -m windrow.assets.demo forget; fi
	find dagster_home -mindepth 1 ! -name .gitignore ! -name dagster.yaml -delete
	rm -rf .venv .windrow .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
