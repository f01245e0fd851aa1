# One entry for everything; `make help` lists it. Each target does the set-up that it needs, and works offline the second time.
.POSIX:
.SUFFIXES:

# Java is chosen by `make java`, so its home is read when a recipe runs, not when this file is read.
ENV = JAVA_HOME="$$(cat .cache/java_home)" PYSPARK_PYTHON="$$PWD/.venv/bin/python"
PY = $(ENV) .venv/bin/python
PYTEST = $(PY) -m pytest
# Processes that run the tests of a lane; one more than cores makes starts of nodes and workers miss their bounds.
JOBS = 2

.PHONY: help setup wheel java broker-jars s3-jars hdfs-jars yarn-jars browser promtool systemd lint lint-deploy format test test-fast test-long mutants demo demo-cluster demo-ha soak bench \
	bench-spark bench-ingest bench-limit bench-merge bench-catalog bench-query bench-tpch bench-maintenance bench-hot bench-cluster bench-ha bench-mixed bench-console jepsen docs site lock clean clean-all

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' Makefile

setup: ## make .venv from the lock (PYTHON=... chooses the interpreter)
	@tools/setup_python.sh

java: ## find a full Java 17 or 21 and Maven, or install them (root on Debian or Ubuntu)
	@tools/setup_java.sh

broker-jars: java ## fetch the Kafka broker that tests, demo and benchmarks start
	@tools/setup_jars.sh kafka "the Kafka broker (about 100 MB the first time)"

s3-jars: java ## fetch the S3 server that tests start, and what Spark needs to read S3
	@tools/setup_jars.sh s3 "the S3 server of the tests (about 20 MB the first time)"
	@tools/setup_jars.sh s3a "what Spark needs to read s3a (about 18 MB the first time)"

hdfs-jars: setup java ## fetch the HDFS that tests start
	@tools/setup_jars.sh hdfs "the HDFS of the tests (about 56 MB the first time)"

yarn-jars: hdfs-jars ## fetch the YARN that demo-cluster starts
	@tools/setup_jars.sh yarn "the YARN of the demo (about 10 MB the first time)"

browser: ## find Chromium and its driver, or install them (root on Debian)
	@tools/setup_browser.sh

promtool: ## fetch the tool with which Prometheus checks and tests rules
	@tools/setup_promtool.sh

systemd: ## find systemd-analyze, or install it (root on Debian or Ubuntu)
	@tools/setup_systemd.sh

lint: setup ## formatting, lint, types, import rules
	@.venv/bin/python -m tools.lanes lint

lint-deploy: setup ## Dockerfile, YAML and the manifest of Kubernetes, each by its linter
	@.venv/bin/hadolint deploy/docker/Dockerfile
	@.venv/bin/yamllint --strict --config-file deploy/yamllint.yaml deploy
	@.venv/bin/kubernetes-validate --strict --quiet deploy/kubernetes/tilth.yaml

format: setup ## rewrite the files as ruff likes them
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

test-fast: setup java ## style, and lane 1: tidy, unit, property and docs tests, with types beside them
	@$(PY) -m tools.lanes --jobs $(JOBS) fast

test: setup broker-jars s3-jars hdfs-jars browser promtool systemd ## all but long tests: style, lane 1, then real files, brokers and nodes
	@$(PY) -m tools.lanes --jobs $(JOBS)

test-long: setup broker-jars s3-jars hdfs-jars browser promtool systemd ## hours: all cases, all examples, kills at every place, chaos
	@TILTH_ALL_EXAMPLES=1 TILTH_CRASH_KILLS=60 TILTH_CRASH_POSTGRES_KILLS=8 TILTH_SEQUENCES=5000 TILTH_POSTGRES_SEQUENCES=300 \
		TILTH_STRESS_SECONDS=1800 TILTH_JEPSEN_ROUNDS=5 TILTH_HOSTILE_CASES=20 $(PY) -m tools.lanes --jobs $(JOBS) long

mutants: setup java ## break promises of the source one by one, in a copy, and show for each the test that fails
	$(PY) -m tools.mutants

demo: setup broker-jars ## Kafka to SQL with a crash in the middle, checked against the source
	@$(PY) -m tools.demo

MASTER = standalone

demo-cluster: setup broker-jars s3-jars $(if $(filter yarn,$(MASTER)),yarn-jars) ## four hosts, a cluster of Spark or MASTER=yarn; processes killed, hosts cut off
	@$(PY) -m tools.demo_cluster --master $(MASTER)

demo-ha: setup broker-jars ## two servers over one catalog; a server, a worker, the broker and the database killed
	@$(PY) -m tools.demo_ha

ROUNDS = 300
SEED =
SUBJECT = all

jepsen: setup broker-jars s3-jars hdfs-jars ## ROUNDS=.. of overlapping blows under load, SEED=.., SUBJECT=..; what was acknowledged is there
	@$(PY) -m tools.jepsen --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED)) --subject $(SUBJECT)

MINUTES = 40
CLIENTS = 200

soak: setup broker-jars ## MINUTES=.. of ingestion, upserts, queries and kills; memory, threads and files each minute
	@$(PY) -m tools.soak --minutes $(MINUTES)

bench: bench-ingest bench-limit bench-merge bench-catalog bench-query bench-tpch bench-maintenance bench-hot bench-cluster bench-ha bench-spark ## all benchmarks, one after the other

bench-ingest: setup broker-jars ## Kafka to table, beside the Iceberg and Delta sinks
	@$(PY) -m bench.bench_ingest

bench-limit: setup broker-jars ## stages of a round in MiB for a second of a core, beside what the machine can do
	@$(PY) -m bench.ingest_limit

bench-merge: setup java ## merge of sorted parts, beside Iceberg's sort rewrite and Delta's OPTIMIZE
	@$(PY) -m bench.bench_merge

bench-catalog: setup java ## commits, a million parts, plans
	@$(PY) -m bench.bench_catalog

bench-query: setup java ## a query over plain parts, beside Spark over the same files
	@$(PY) -m bench.bench_query

bench-tpch: setup java ## the 22 queries of TPC-H, beside Spark over the same files and beside Iceberg
	@$(PY) -m bench.bench_tpch

bench-maintenance: setup broker-jars ## ten thousand tables, the key_range policy, twenty minutes of ingestion
	@$(PY) -m bench.bench_maintenance

bench-hot: setup broker-jars ## memory table, small inserts, fresh rows and upserts, beside the sinks and upserts of others
	@$(PY) -m bench.bench_hot

bench-cluster: setup broker-jars s3-jars ## workers and warehouses: ingest, kills, requests to a bucket, reads, restart
	@$(PY) -m bench.bench_cluster

bench-ha: setup broker-jars s3-jars ## several servers: failover, commits on PostgreSQL, idle cost, 100 rounds of jepsen
	@$(PY) -m bench.bench_ha

bench-spark: setup java ## writes and reads by a user's own Spark beside Parquet, Delta and Iceberg; a stream killed 20 times
	@$(PY) -m bench.bench_spark

bench-mixed: setup java ## CLIENTS=.. that mix everything for MINUTES=.., a JVM stopped and one killed meanwhile
	@$(PY) -m bench.mixed_clients --clients $(CLIENTS) --minutes $(MINUTES)

bench-console: setup java browser ## the console's pages over 10,000 tables and 100,000 parts, and a browser that stays
	@$(PY) -m bench.bench_console

wheel: setup ## build the wheels of tilth and tilth-server into dist, without the network
	@$(PY) -m tools.wheels

docs: setup ## write docs/reference, the alarms, their rules and the dashboard from the code, and wrap the prose of all pages
	@$(PY) -m tools.make_docs
	@$(PY) -m tools.make_errors
	@$(PY) -m tools.make_rules
	@$(PY) -m tools.make_dashboard
	@$(PY) -m tools.prose

site: setup ## build the documentation as HTML pages in build/site, and fail where a link leads nowhere
	@$(PY) -m tools.make_site

lock: setup ## write the locks anew from pyproject.toml, keeping what still fits
	.venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
		--no-emit-index-url --no-emit-find-links --output-file requirements-build.lock requirements-build.in
	.venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
		--no-emit-index-url --no-emit-find-links --extra dev --extra server --output-file requirements.lock pyproject.toml
	.venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
		--no-emit-index-url --no-emit-find-links --extra server --constraint requirements.lock \
		--output-file requirements-server.lock pyproject.toml

clean: ## remove what tools and runs leave behind; keep .venv and the downloads
	rm -rf build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache \
		demo-data metastore_db spark-warehouse derby.log
	find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +

clean-all: clean ## remove .venv and the downloads too
	rm -rf .venv .cache
