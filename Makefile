# The entry point of the project: `make demo`, `make test`. The first call creates an environment: .venv-demo, .venv.
# Required: Python 3.11+, Java 17+, a Rust toolchain (cargo) with a C compiler, make.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

# Python stores bytecode even if the environment disables it, because the tests start hundreds of Python processes.
unexport PYTHONDONTWRITEBYTECODE

RUST := $(shell find rust -name target -prune -o \( -name '*.rs' -o -name 'Cargo.*' \) -print 2>/dev/null)

VENV := .venv/.made
# Each release line of Spark, and the Python that it is tested with, if it is installed; "4" is the newest release.
SPARKS := 4.0 4.1 4.2 4
PYTHONS_4.0 := python3.11
PYTHONS_4.1 := python3.12
PYTHONS_4.2 := python3.13
PYTHONS_4 := python3.14 python3.13 python3.12
NEWEST := .venv-spark-4/.made
# Tools that make and check a release.
TOOLS := .venv-release/.made
CARGO_DENY := .venv-release/cargo-deny-0.20.2
# The demo has an environment of its own until the one for development exists.
DEMO := $(if $(wildcard $(VENV)),$(VENV),.venv-demo/.made)
# Shortens the start of the JVMs of the tests.
CLASSES := .venv/.made-java-classes
BIN := .venv/bin

PYTEST := $(BIN)/python -m pytest
UNIT := tests/unit tests/simulation
ALL_AT_ONCE := $(BIN)/python -m tests.shards $(MAKE)
SHARDS := $(BIN)/python -m tests.shards --at-once 6 $(MAKE)

# Shards are split into parts so that six run until the end: shard-spark-1-2 is the first of two parts. More parts would
# start more Sparks. The longest come first; those that mostly wait (for brokers that restart, for applications)
# run beside those that compute.
INTEGRATION := shard-spark-1-2 shard-spark-2-2 shard-apps shard-plain-1-2 shard-plain-2-2 shard-direct shard-cluster \
	shard-broker

.PHONY: help
help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(DEMO)  ## write and read 336,776 real flights with a real Kafka, as a batch and as a stream, and plot them
	@$(dir $(DEMO))bin/python examples/demo.py

.PHONY: test
# Spark gives a Python worker ten seconds to start, so at most six shards run at once on two cores: four wait most of the
# time. The kernel is compiled last, with low priority. Integration tests use the Spark that development is pinned to, unit
# tests the newest Spark and Python. Running them with both costs three minutes; "make check" runs the fast ones with the
# pinned Spark. The second environment is created while the archives of classes are: neither keeps both processors busy.
# The archives have their own process group, which ends if the environment cannot be created or the user presses Ctrl+C.
test: $(VENV)  ## set-up, lint, types and all tests, in parallel shards: everything that has to pass
	@set -m; $(MAKE) --silent $(CLASSES) </dev/null & set +m; trap 'kill -- -$$! 2>/dev/null && wait $$! || true' EXIT; \
		$(MAKE) --silent $(NEWEST); wait $$!
	@$(SHARDS) $(INTEGRATION) newest-unit-1 newest-unit-2 newest-unit-3 newest-unit-4 simulation rust-check lint

.PHONY: check
check: $(VENV)  ## lint, types and fast unit tests: the others, and the simulation, are in "make test"
	@$(ALL_AT_ONCE) lint unit-1 unit-2 unit-3 unit-4 unit-5 unit-6

.PHONY: lint
lint: $(VENV)  ## ruff, mypy and the vocabulary
	$(BIN)/python scripts/check-vocabulary
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.PHONY: unit
unit: $(VENV)  ## unit tests only; THOROUGH=1 runs more examples and all histories
	$(PYTEST) $(if $(THOROUGH),--thorough) $(UNIT)

# Some tests wait for a second, so two parts at once would leave the processors idle for almost half of the time.
.PHONY: unit-1 unit-2 unit-3 unit-4 unit-5 unit-6
unit-1 unit-2 unit-3 unit-4 unit-5 unit-6: unit-%: $(VENV)
	$(PYTEST) -m 'not slow' --junitxml build/tests/shard-check-$*-6.xml --part $*/6 tests/unit

.PHONY: newest-unit-1 newest-unit-2 newest-unit-3 newest-unit-4
newest-unit-1 newest-unit-2 newest-unit-3 newest-unit-4: newest-unit-%: $(NEWEST)
	$(dir $(NEWEST))bin/python -m pytest --junitxml build/tests/shard-unit-$*-4.xml --part $*/4 $(UNIT)

.PHONY: integration
integration: $(VENV) $(CLASSES)  ## tests with a real Kafka and a real Spark, in parallel shards
	@$(SHARDS) $(INTEGRATION)

# What a simulated run may be given besides seeds: PROCESSES=4 SCENARIO=range_reads SIZE=long COVERAGE=file.json
SIMULATED = $(if $(PROCESSES),--processes $(PROCESSES)) $(if $(SCENARIO),--scenario $(SCENARIO)) $(if $(SIZE),--size $(SIZE)) \
	$(if $(COVERAGE),--coverage $(COVERAGE))

.PHONY: simulation
simulation: $(VENV)
	$(BIN)/python -m tests.simulation --seeds $(or $(SEEDS),1000) --first tree --keep-going $(SIMULATED)

# What failed runs once more when the shard has ended: a machine that is very busy for minutes lets brokers miss any limit.
# A failure that repeats is a failure; the first one stays in the output.
once_more = || { [ $$? -eq 1 ] && echo "Once more, what failed:" && \
	$(PYTEST) -o cache_dir=build/tests/$@ --last-failed --maxfail=3 --junitxml build/tests/again-$@.xml tests/integration; }

# shard-spark is the shard, shard-spark-2-2 its second part of two.
part = $(word $(1),$(subst -, ,$*))
shard-%: $(VENV) $(CLASSES)
	$(PYTEST) -o cache_dir=build/tests/$@ --durations=15 --junitxml build/tests/$@.xml --shard $(call part,1) \
		$(if $(call part,3),--part $(call part,2)/$(call part,3)) tests/integration $(once_more)

# With the environment of scripts/prepare, so that cargo does not compile what it has compiled for the kernel.
RUST_CHECK := PYO3_NO_PYTHON=1 nice cargo

.PHONY: rust-check
rust-check:  ## format, lints and tests of the native kernel
	cargo fmt --manifest-path rust/Cargo.toml --all --check
	$(RUST_CHECK) clippy --manifest-path rust/Cargo.toml --workspace --all-targets -- --deny warnings
	$(RUST_CHECK) test --manifest-path rust/Cargo.toml --workspace
	$(BIN)/python scripts/licences --check

.PHONY: test-versions
test-versions: $(SPARKS:%=test-version-%)  ## the tests marked smoke with Spark 4.0, 4.1, 4.2 and the newest, on Python 3.11 to 3.14

# PySpark before 4.2 leaves sockets open; these warnings are not caused by this package.
.PHONY: $(SPARKS:%=test-version-%)
$(SPARKS:%=test-version-%): test-version-%: .venv-spark-%/.made
	.venv-spark-$*/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'pyspark==$*.*'
	.venv-spark-$*/bin/python -c 'import pyspark, sys; print("PySpark", pyspark.__version__, "on Python", sys.version)'
	.venv-spark-$*/bin/python -m pytest -m smoke -W ignore::ResourceWarning \
		-W ignore::pytest.PytestUnraisableExceptionWarning $(or $(TESTS),tests/integration tests/unit/test_internals_of_others.py)

# The library has no wheels for Linux, so the environment of development does not have it.
.PHONY: test-kerberos
test-kerberos: $(VENV) $(CLASSES)  ## log in with Kerberos at a real KDC and brokers; names the packages that this machine lacks
	@$(BIN)/python -m tests.kerberos
	$(BIN)/python -c 'import gssapi' 2>/dev/null || \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(sed -nE 's/^kerberos = \["(.*)"\].*/\1/p' pyproject.toml)"
	$(PYTEST) --durations=5 tests/kerberos

.PHONY: newest
newest: .venv-newest/.made  ## the smoke tests with the newest PySpark, pyarrow, confluent-kafka, Kafka and Python that the indexes offer, as a table
	.venv-newest/bin/python scripts/newest

# The version of Spark whose published tests run: that of pyproject.toml, or SPARK.
SUITES := $(if $(SPARK),.venv-suites-$(SPARK)/.made,$(VENV))

.PHONY: spark-suites
spark-suites: $(SUITES)  ## run Spark's own tests of its Kafka connector on that connector and on this package: an hour; SPARK=4.1.1, AGAIN=1 only those that failed; needs Maven
	$(dir $(SUITES))bin/python -m tests.spark_suites $(if $(AGAIN),--again)
	$(dir $(SUITES))bin/python -m tests.spark_suites.page

.PHONY: simulate
simulate: $(VENV)  ## run SEEDS (10,000) histories on a simulated Kafka cluster, from FIRST or at random; SEED=n replays one, TRACE=1 shows it
	$(BIN)/python -m tests.simulation $(SIMULATED) \
		$(if $(SEED),--seed $(SEED) $(if $(TRACE),--trace),--seeds $(or $(SEEDS),10000) $(if $(FIRST),--first $(FIRST)) --keep-going)

.PHONY: mutants
mutants: $(VENV)  ## list small changes of TARGET (planning) that unit tests do not detect; MOST=n changes (300), SEED=n, KIND=text, AGAIN=1 retries survivors
	$(BIN)/python -m tests.mutants $(or $(TARGET),planning) --most $(or $(MOST),300) $(if $(SEED),--seed $(SEED)) $(if $(KIND),--kind '$(KIND)') $(if $(AGAIN),--again)

.PHONY: docs
docs: .venv-docs/.made  ## build the documentation as a site in build/site; fails for a broken link
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict

.PHONY: audit
audit: $(TOOLS) $(CARGO_DENY)/bin/cargo-deny  ## check dependencies and tools for known vulnerabilities, and the licences of crates
	.venv-release/bin/pip-audit --strict .
	.venv-release/bin/pip-audit --strict --disable-pip --require-hashes -r scripts/release-requirements.txt -r scripts/docs-requirements.txt
	$(CARGO_DENY)/bin/cargo-deny --manifest-path rust/Cargo.toml check

.PHONY: wheels
wheels: $(TOOLS)  ## build and check a release in dist/: wheels for Linux and an sdist
	scripts/wheels dist $(if $(PROCESSORS),"$(PROCESSORS)")
	scripts/try-wheel dist
	scripts/try-sources dist

.PHONY: new-user
new-user:  ## follow docs/first-query.md with the wheel in dist/, then kill and restart a stream; SPARK=4.1, PYTHON=python3.12
	$(or $(PYTHON),python3) -m tests.new_user --wheels dist $(if $(SPARK),--spark $(SPARK)) $(if $(PORT),--port $(PORT))

.PHONY: two-pythons
two-pythons: $(VENV)  ## run a driver on this Python, and workers with the wheel in dist/ on another: WORKERS=python3.12
	$(BIN)/python -m tests.two_pythons --wheels dist --workers $(or $(WORKERS),python3.12)

.PHONY: soak
soak: $(VENV)  ## kill a streaming query ROUNDS times (30) and check every record; SEED=n repeats (sink: soak-kills)
	$(BIN)/python -m tests.soak --rounds $(or $(ROUNDS),30) $(if $(SEED),--seed $(SEED))

.PHONY: soak-direct
soak-direct: $(VENV)  ## kill direct streams ROUNDS times (30) and check every record; SEED=n repeats a run
	$(BIN)/python -m tests.soak.direct --rounds $(or $(ROUNDS),30) $(if $(SEED),--seed $(SEED))

.PHONY: soak-short
soak-short: shard-soak  ## all tests marked soak: the short forms of the soaks below, example applications...: half an hour

.PHONY: soak-sink
soak-sink: $(VENV)  ## inject ROUNDS faults (30) into a query that writes and check every record; SEED=n repeats, FOLDER=f continues
	$(BIN)/python -m tests.soak.sink --rounds $(or $(ROUNDS),30) $(if $(SEED),--seed $(SEED)) \
		$(if $(DELIVERY),--delivery $(DELIVERY)) $(if $(FOLDER),--folder $(FOLDER))

.PHONY: soak-kills
soak-kills: $(VENV)  ## kill the driver of an exactly-once query ROUNDS times (200) at each step and check every record; SEED=n repeats
	$(BIN)/python -m tests.soak.sink --kills --rounds $(or $(ROUNDS),200) $(if $(SEED),--seed $(SEED)) \
		$(if $(FOLDER),--folder $(FOLDER))

.PHONY: soak-epochs
soak-epochs: $(VENV)  ## run a continuous query's task beyond the 32,767 epochs of its producer id
	$(BIN)/python -m tests.soak.producer_epochs

.PHONY: soak-log
soak-log: $(VENV)  ## inject faults into writers, readers and brokers of a shared log for MINUTES (10) and compare; SEED=n repeats
	$(BIN)/python -m tests.soak.log --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED))

.PHONY: soak-lakehouse
soak-lakehouse: $(VENV)  ## kill queries into Delta tables (FORMAT=iceberg) ROUNDS times (12) and check every row; SEED=n repeats
	$(BIN)/python -m tests.soak.lakehouse --format $(or $(FORMAT),delta) --rounds $(or $(ROUNDS),12) $(if $(SEED),--seed $(SEED))

.PHONY: soak-continuous
soak-continuous: $(VENV)  ## inject ROUNDS faults (30) into continuous queries, or run for MINUTES (FAULTS=1 with faults), and check every record; SEED=n, FOLDER=f
	$(BIN)/python -m tests.soak.continuous $(if $(MINUTES),--minutes $(MINUTES) $(if $(FAULTS),--faults),--rounds $(or $(ROUNDS),30)) \
		$(if $(SEED),--seed $(SEED)) $(if $(DELIVERY),--delivery $(DELIVERY)) $(if $(FOLDER),--folder $(FOLDER))

# Benchmarks measure what a release contains. The next environment that is created builds the kernel for development again.
.PHONY: release-kernel
release-kernel: $(VENV)
	SETUPTOOLS_RUST_CARGO_PROFILE=release $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile \
		--no-build-isolation --no-deps --editable .

.PHONY: bench
bench: release-kernel  ## compare with Spark's JVM connector and Python clients: the quick profile, 15 minutes
	$(BIN)/python -m bench

.PHONY: bench-full
bench-full: release-kernel  ## the same for every size, codec and sink: hours
	$(BIN)/python -m bench --full

.PHONY: bench-streams
bench-streams: release-kernel  ## compare streaming queries with Spark's JVM connector: ten minutes
	$(BIN)/python -m bench --only streams

.PHONY: bench-sink
bench-sink: release-kernel  ## compare writing with Spark's JVM sink and confluent-kafka: 15 minutes
	$(BIN)/python -m bench --only sink

.PHONY: bench-tls
bench-tls: release-kernel  ## compare reading with and without TLS with Spark's JVM connector: five minutes
	$(BIN)/python -m bench --only tls

.PHONY: bench-first-rows
bench-first-rows: release-kernel  ## compare show() and limit(10), with and without the warm daemon, with Spark's JVM connector: three minutes
	$(BIN)/python -m bench --only first-rows

.PHONY: bench-log
bench-log: release-kernel  ## compare loading a log of a million keys with Python clients: three minutes
	$(BIN)/python -m bench.log

.PHONY: bench-arrow
bench-arrow: release-kernel  ## compare read_arrow and write_arrow with kafkarrow, confluent-kafka and a batch query: three minutes
	$(BIN)/python -m bench.arrow

.PHONY: bench-continuous
bench-continuous: release-kernel  ## compare continuous queries with Spark's JVM connector: 15 minutes
	$(BIN)/python -m bench.continuous

.PHONY: bench-typed
bench-typed: release-kernel  ## compare typed JSON with Spark's JVM connector and from_json: ten minutes
	$(BIN)/python -m bench.typed

.PHONY: bench-schemas
bench-schemas: release-kernel  ## compare Avro and Protobuf with Spark's JVM connector, from_avro and to_avro: ten minutes
	$(BIN)/python -m bench.schemas

.PHONY: bench-queries
bench-queries: release-kernel  ## compare eight streaming queries on one driver with Spark's JVM connector: five minutes
	$(BIN)/python -m bench.queries

.PHONY: fmt
fmt: $(VENV)  ## format everything
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	cargo fmt --manifest-path rust/Cargo.toml --all

.PHONY: clean
clean:  ## remove all generated files except the cache of Kafka's jars, which belongs to the user
	rm -rf .venv .venv-demo .venv-newest .venv-suites-* $(SPARKS:%=.venv-spark-%) .venv-docs .venv-release rust/target build dist demo-output spark-warehouse metastore_db derby.log
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis src/*.egg-info
	find src tests bench examples -name __pycache__ -prune -exec rm -rf {} +
	find src -name '_native*.so' -delete

# The profiles of rust/Cargo.toml that compile the kernel faster: "dev" shares its dependencies with "make rust-check".
$(VENV) .venv-newest/.made $(SUITES) $(SPARKS:%=.venv-spark-%/.made): export SETUPTOOLS_RUST_CARGO_PROFILE = dev
.venv-demo/.made: export SETUPTOOLS_RUST_CARGO_PROFILE = demo

$(VENV): pyproject.toml scripts/prepare $(RUST)
	@scripts/prepare .venv dev
	@touch $@

.venv-demo/.made: pyproject.toml scripts/prepare $(RUST)
	@scripts/prepare .venv-demo demo "$$(sed -nE 's/^ *"(pyspark==[^"]*)".*/\1/p' pyproject.toml)"
	@touch $@

$(SPARKS:%=.venv-spark-%/.made): .venv-spark-%/.made: pyproject.toml scripts/prepare $(RUST)
	@PYTHON='$(or $(PYTHON),$(PYTHONS_$*) python3)' scripts/prepare .venv-spark-$* test 'pyspark==$*.*'
	@touch $@

.venv-suites-%/.made: pyproject.toml scripts/prepare $(RUST)
	@scripts/prepare .venv-suites-$* test 'pyspark==$*'
	@touch $@

.venv-newest/.made: pyproject.toml scripts/prepare $(RUST)
	@PYTHON='$(or $(PYTHON),$(PYTHONS_4) python3)' scripts/prepare .venv-newest test pyspark
	@touch $@

.venv-docs/.made $(TOOLS): .venv-%/.made: scripts/%-requirements.txt
	$(or $(PYTHON),python3) -m venv --clear .venv-$*
	.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

$(CARGO_DENY)/bin/cargo-deny: | $(TOOLS)
	cargo install --quiet --locked --root $(CARGO_DENY) $(subst deny-,deny@,$(notdir $(CARGO_DENY)))

$(CLASSES): $(VENV) tests/shards/jvm.py
	@echo "Creating archives of Java classes, which shorten the start of the tests' brokers and Sparks (half a minute)."
	@$(BIN)/python -m tests.shards.jvm || echo "NOTE: this failed; the tests take longer without the archives."
	@touch $@
