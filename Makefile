# Everything starts here: `make demo`, `make test`. The first use makes .venv (a few minutes), later ones find it made.
# Needed on the machine: Python 3.11+, Java 17+, make. Welcome: a Rust toolchain (cargo), for fast decoding.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

# Python keeps what it compiled, whatever the environment says: the tests start hundreds of Python processes.
unexport PYTHONDONTWRITEBYTECODE

CARGO := $(shell command -v cargo)
RUST := $(shell find rust -name target -prune -o \( -name '*.rs' -o -name 'Cargo.*' \) -print 2>/dev/null)

# A toolchain that comes or goes means another build.
STAMP := .made-$(if $(CARGO),native,python)
VENV := .venv/$(STAMP)
# Each release line of Spark; "4" is the newest that there is.
SPARKS := 4.0 4.1 4.2 4
# Lets the JVMs of the tests start quickly.
CLASSES := .venv/.made-java-classes
BIN := .venv/bin

PYTEST := $(BIN)/python -m pytest
LANES := $(BIN)/python -m tests.lanes --at-once 3 $(MAKE)

# Whole lanes in parts, so that all places stay filled to the end: lane-spark-1-2 is the first of two parts.
INTEGRATION := lane-spark-1-2 lane-plain-1-2 lane-apps-1-3 lane-direct lane-spark-2-2 lane-apps-2-3 lane-plain-2-2 lane-apps-3-3

.PHONY: help
help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(VENV)  ## write and read 336,776 real flights with a real Kafka, at rest and live, and draw them
	@$(BIN)/python examples/demo.py

.PHONY: test
# Spark gives a Python worker ten seconds to start, so on two cores no more than three lanes run at once, and the compiler of
# the kernel comes last, and stands back.
test: $(VENV) $(CLASSES)  ## set-up, lint, types and all tests, in lanes side by side: what has to pass
	@$(LANES) $(INTEGRATION) unit-1 unit-2 lint rust-check

.PHONY: check
check: $(VENV)  ## lint, types and unit tests: under two minutes
	@$(LANES) lint unit-1 unit-2

.PHONY: lint
lint: $(VENV)  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.PHONY: unit
unit: $(VENV)  ## unit tests only
	$(PYTEST) tests/unit

.PHONY: unit-1 unit-2
unit-1 unit-2: unit-%: $(VENV)
	$(PYTEST) --part $*/2 tests/unit

.PHONY: integration
integration: $(VENV) $(CLASSES)  ## tests with a real Kafka and a real Spark, in lanes side by side
	@$(LANES) $(INTEGRATION)

# lane-spark is the lane, lane-spark-2-3 its second part of three.
part = $(word $(1),$(subst -, ,$*))
lane-%: $(VENV) $(CLASSES)
	$(PYTEST) --durations=15 --lane $(call part,1) $(if $(call part,3),--part $(call part,2)/$(call part,3)) tests/integration

.PHONY: rust-check
rust-check:  ## format, lints and tests of the native kernel, where there is a toolchain
ifdef CARGO
	cargo fmt --manifest-path rust/Cargo.toml --all --check
	nice cargo clippy --manifest-path rust/Cargo.toml --workspace --all-targets --release -- --deny warnings
	nice cargo test --manifest-path rust/Cargo.toml --workspace
else
	@echo "No cargo: the native kernel is not checked."
endif

.PHONY: test-versions
test-versions: $(SPARKS:%=test-version-%)  ## the tests marked smoke with Spark 4.0, 4.1, 4.2 and the newest

# PySpark before 4.2 leaves sockets open, which is no failure of ours.
.PHONY: $(SPARKS:%=test-version-%)
$(SPARKS:%=test-version-%): test-version-%: .venv-spark-%/$(STAMP)
	.venv-spark-$*/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'pyspark==$*.*'
	.venv-spark-$*/bin/python -c 'import pyspark; print("PySpark", pyspark.__version__)'
	.venv-spark-$*/bin/python -m pytest -m smoke -W ignore::ResourceWarning \
		-W ignore::pytest.PytestUnraisableExceptionWarning $(or $(TESTS),tests/integration)

.PHONY: mutants
mutants: $(VENV)  ## which small changes of ROOM (planning) do unit tests not notice? MOST=n changes (300), SEED=n, AGAIN=1 for survivors
	$(BIN)/python -m tests.mutants $(or $(ROOM),planning) --most $(or $(MOST),300) $(if $(SEED),--seed $(SEED)) $(if $(AGAIN),--again)

.PHONY: wheels
wheels:  ## the files of a release in dist/: wheels for Linux (needs cargo; zig links them), a pure one, an sdist; checked
	scripts/wheels dist $(if $(PROCESSORS),"$(PROCESSORS)")
	scripts/try-wheel dist

.PHONY: new-user
new-user:  ## README's first screen with the wheel in dist/, word by word, and a stream killed; SPARK=4.1, PYTHON=python3.12
	$(or $(PYTHON),python3) -m tests.new_user --wheels dist $(if $(SPARK),--spark $(SPARK)) $(if $(PORT),--port $(PORT))

.PHONY: two-pythons
two-pythons: $(VENV)  ## a driver on this Python, workers with the wheel in dist/ on another: WORKERS=python3.12
	$(BIN)/python -m tests.two_pythons --wheels dist --workers $(or $(WORKERS),python3.12)

.PHONY: soak
soak: $(VENV)  ## kill a streaming query ROUNDS times (30) and check every record; SEED=n repeats a run
	$(BIN)/python -m tests.soak --rounds $(or $(ROUNDS),30) $(if $(SEED),--seed $(SEED))

.PHONY: soak-direct
soak-direct: $(VENV)  ## kill direct streams ROUNDS times (30) and check every record; SEED=n repeats a run
	$(BIN)/python -m tests.soak.direct --rounds $(or $(ROUNDS),30) $(if $(SEED),--seed $(SEED))

.PHONY: soak-sink
soak-sink: $(VENV)  ## hurt a query that writes ROUNDS times (30) and check every record; SEED=n repeats, FOLDER=f goes on
	$(BIN)/python -m tests.soak.sink --rounds $(or $(ROUNDS),30) $(if $(SEED),--seed $(SEED)) \
		$(if $(DELIVERY),--delivery $(DELIVERY)) $(if $(FOLDER),--folder $(FOLDER))

.PHONY: soak-epochs
soak-epochs: $(VENV)  ## a continuous query's task past the 32,767 epochs of its producer id
	$(BIN)/python -m tests.soak.producer_epochs

.PHONY: soak-log
soak-log: $(VENV)  ## hurt writers, readers and brokers of a shared log for MINUTES (10) and compare them all; SEED=n repeats
	$(BIN)/python -m tests.soak.log --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED))

.PHONY: soak-continuous
soak-continuous: $(VENV)  ## hurt continuous queries ROUNDS times (30), or run for MINUTES, and check every record; SEED=n, FOLDER=f
	$(BIN)/python -m tests.soak.continuous $(if $(MINUTES),--minutes $(MINUTES),--rounds $(or $(ROUNDS),30)) \
		$(if $(SEED),--seed $(SEED)) $(if $(DELIVERY),--delivery $(DELIVERY)) $(if $(FOLDER),--folder $(FOLDER))

.PHONY: bench
bench: $(VENV)  ## compare with Spark's JVM connector and Python clients: the quick profile, a quarter of an hour
	$(BIN)/python -m bench

.PHONY: bench-full
bench-full: $(VENV)  ## the same over every size, codec and sink: hours
	$(BIN)/python -m bench --full

.PHONY: bench-streams
bench-streams: $(VENV)  ## streaming queries against Spark's JVM connector: ten minutes
	$(BIN)/python -m bench --only streams

.PHONY: bench-sink
bench-sink: $(VENV)  ## writing, against Spark's JVM sink and confluent-kafka: a quarter of an hour
	$(BIN)/python -m bench --only sink

.PHONY: bench-tls
bench-tls: $(VENV)  ## reading over TLS and without, against Spark's JVM connector: five minutes
	$(BIN)/python -m bench --only tls

.PHONY: bench-first-rows
bench-first-rows: $(VENV)  ## show() and limit(10), with and without the warm daemon, against Spark's JVM connector: three minutes
	$(BIN)/python -m bench --only first-rows

.PHONY: bench-log
bench-log: $(VENV)  ## loading a log of a million keys, against Python's clients: three minutes
	$(BIN)/python -m bench.log

.PHONY: bench-continuous
bench-continuous: $(VENV)  ## from topic to topic in milliseconds, against Spark's JVM connector: a quarter of an hour
	$(BIN)/python -m bench.continuous

.PHONY: fmt
fmt: $(VENV)  ## format everything
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
ifdef CARGO
	cargo fmt --manifest-path rust/Cargo.toml --all
endif

.PHONY: clean
clean:  ## remove what was made here (the cache of Kafka's jars is the user's and stays)
	rm -rf .venv $(SPARKS:%=.venv-spark-%) .venv-wheels rust/target build dist demo-output spark-warehouse metastore_db derby.log
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis src/*.egg-info
	find src tests bench examples -name __pycache__ -prune -exec rm -rf {} +
	find src \( -name '_native*.so' -o -name _native_absent.txt \) -delete

$(VENV): pyproject.toml scripts/prepare $(RUST)
	@scripts/prepare .venv dev
	@touch $@

$(SPARKS:%=.venv-spark-%/$(STAMP)): .venv-spark-%/$(STAMP): pyproject.toml scripts/prepare $(RUST)
	@scripts/prepare .venv-spark-$* test 'pyspark==$*.*'
	@touch $@

$(CLASSES): $(VENV) tests/lanes/jvm.py
	@echo "Making archives of Java classes, so that brokers and Sparks of the tests start quickly (half a minute)."
	@$(BIN)/python -m tests.lanes.jvm || echo "NOTE: that failed; the tests take longer without them."
	@touch $@
