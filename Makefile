# Every target that needs the environment makes it first (.ci/setup.py); a second call changes nothing.
# Plain rules for GNU make 3.81 and newer; relative paths only, so that the tree may lie under a path with spaces.

PYTHON ?= python3
BIN := .venv/bin
ROCKETMQ_HA := $(BIN)/rocketmq-ha

# make test ARGS="-k report"
ARGS ?=

.DEFAULT_GOAL := help

.PHONY: cluster-demo help setup demo test check format bench fuzz replay report demo-bug transitions golden lock clean
.PHONY: bench-spark mutants interop formal formal-breaks clauses ledger golden-claims hostile soak modes

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1|\2/p' Makefile | \
	  while IFS='|' read -r target text; do printf '  %-14s %s\n' "$$target" "$$text"; done

setup: ## Make .venv from the lock and find a Java for Spark; every target below runs it first
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo "setup: $(PYTHON) is\
 missing or older than 3.11: install Python 3.11 or newer, or run make PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" .ci/setup.py

demo: setup ## Messages over a broker and its slave; faults on a real store; a fuzz campaign; the report (build/demo/)
	@$(ROCKETMQ_HA) demo --out build/demo

test: setup ## All tests, three processes for two processors; ARGS="..." goes to pytest, ARGS=-n0 is one process
	@$(BIN)/python -m pytest -n auto $(ARGS)

# Only a test compares the transitions of spec/transitions.json with the model: it takes longer than all of this.
check: setup ## Format, lint, types, the import table, and that generated files are up to date
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/project/test_imports.py tests/project/test_documents.py
	$(BIN)/python -m rocketmq_ha.reference.transitions --check-texts
	$(BIN)/python -m rocketmq_ha.reference.diagram --check
	$(BIN)/python -m formal.snapshots --check
	$(BIN)/python -m rocketmq_ha.spec.clause_form --check
	$(BIN)/python -m rocketmq_ha.spec.release_texts --check
	$(BIN)/python -m rocketmq_ha.spec.citations --check
	$(BIN)/python -m rocketmq_ha.spec.ledger --check
	$(BIN)/python -m rocketmq_ha.spec.pairing --check
	$(BIN)/python docs/command_line.py --check
	$(BIN)/python docs/pictures.py --check

format: setup ## Format, and let the linter fix what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup ## Benchmarks, to build/bench.json; with a JDK and Maven, RocketMQ's own figures too
	@mkdir -p build && $(BIN)/python -m pytest bench -o 'python_files=bench_*.py' --benchmark-only \
	  --benchmark-json=build/bench.json $(ARGS)

bench-spark: setup ## The report's tables and the second verdict over 20 million rows, with 1, 2 and 4 cores (a quarter of an hour): ARGS="--rows 1000000"
	@mkdir -p build && $(BIN)/python bench/spark_bench.py $(ARGS)

fuzz: RUNS ?= 1000
fuzz: SEED ?= 1
fuzz: setup ## A lock-step fuzz campaign on Spark: RUNS=1000 SEED=1 (logs in build/fuzz/)
	@$(ROCKETMQ_HA) fuzz run --overwrite --runs $(RUNS) --seed $(SEED) --out build/fuzz

replay: setup ## One schedule, step by step: SEED=42, and FAULT=name to replay it on a faulty copy
	@test -n "$(SEED)" || { echo "replay: say which: make replay SEED=42 [FAULT=name]" >&2; exit 2; }
	@$(ROCKETMQ_HA) fuzz replay $(SEED) $(if $(FAULT),--fault $(FAULT))

cluster-demo: setup ## A campaign, its second verdict and its report on a Spark cluster of two workers, one of them killed (build/cluster-demo/)
	@$(ROCKETMQ_HA) cluster-demo --out build/cluster-demo

report: LOGS ?= build/fuzz
report: setup ## The report of a campaign's logs: LOGS=build/fuzz (to build/report.html); ARGS="--require 'transitions>=99%'"
	@$(ROCKETMQ_HA) report "$(LOGS)" --out build/report.html $(ARGS)

demo-bug: setup ## Plant FAULT=name in a copy of the implementation and find it; without FAULT, list the faults
	@$(ROCKETMQ_HA) demo-bug $(FAULT)

transitions: setup ## Generate files again (table, diagrams, clause indexes, snapshots, tours, traces, releases, docs); look at the diff
	$(BIN)/python -m rocketmq_ha.reference.transitions --write
	$(BIN)/python -m rocketmq_ha.reference.diagram --write
	$(BIN)/python -m rocketmq_ha.spec.clause_form --write
	$(BIN)/python -m formal.snapshots --write
	$(BIN)/python -m formal.tours --write
	$(BIN)/python -m formal.violations --write
	$(BIN)/python -m rocketmq_ha.spec.release_texts --write
	$(BIN)/python -m rocketmq_ha.spec.pairing --write
	$(BIN)/python docs/command_line.py --write
	$(BIN)/python docs/pictures.py --write

clauses: setup ## Table of clauses: where TLA+, the model, the implementation and the tests quote each
	@$(BIN)/python -m rocketmq_ha.spec.citations

ledger: setup ## What became of each statement of the five articles: built, or why not
	@$(BIN)/python -m rocketmq_ha.spec.ledger

golden-claims: setup ## Table of claims: how many pieces of RocketMQ's own bytes each was compared with (also build/golden-claims.txt)
	@$(BIN)/python tests/golden_claims/table.py

# Each step has a table of its own; the first that fails ends it.
formal: setup ## TLC, equal state graphs of TLA+ and model, exhaustive refinement, contracts, mutants (TLC needs Java and Maven)
	@$(BIN)/python -m formal.run_formal
	@$(BIN)/python -m formal.tiny
	@$(BIN)/python -m formal.contracts
	@$(BIN)/python -m formal.mutants

formal-breaks: setup ## Break one thing of each kind in a copy, and name the check that notices it
	@$(BIN)/python -m formal.breaks

mutants: setup ## Plant mistakes one at a time and see which test fails; ARGS="--sample 25", "--only impl/ha", "--resume", "--list"
	@$(BIN)/python -m mutants $(ARGS)

interop: setup ## Real RocketMQ brokers on either end (needs a JDK and Maven); RELEASE=4.5.2 chooses the release, VIOLATIONS=1 shows its quirks
	@RELEASE="$(RELEASE)" VIOLATIONS="$(VIOLATIONS)" $(BIN)/python -m pytest -n 2 tests/interop $(ARGS)

hostile: setup ## Hostile peers over TCP against a live master and live slaves (table in build/hostile.json); ARGS="flood noise" chooses
	@PYTHONPATH=tests $(BIN)/python tests/hostile/run_hostile.py $(ARGS)

golden: setup ## Make the golden store again with RocketMQ itself (needs a JDK and Maven)
	@$(BIN)/python tests/interop/golden/make_golden.py $(ARGS)

lock: ## Make requirements.lock and requirements-java.lock again; UPGRADE=1 takes newer versions
	@"$(PYTHON)" -m venv build/lock && build/lock/bin/python -m pip --quiet --disable-pip-version-check install uv
	@$(UV_COMPILE) --extra fuzz --group dev --output-file requirements.lock pyproject.toml
	@$(UV_COMPILE) --group java --output-file requirements-java.lock

# --universal: one file for every platform and every CPython from 3.11 on. The output names no index.
UV_COMPILE = build/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
  --no-header --no-emit-index-url $(if $(UPGRADE),--upgrade)

clean: ## Remove .venv, build/ and the caches
	rm -rf .venv build .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks *.egg-info

soak: ROUNDS ?= 200
soak: setup ## kill -9 of stores, brokers and name servers under load, and losses of a disk: ROUNDS=200 of each (an hour and more)
	@$(BIN)/python tests/crash/kill9.py --rounds $(ROUNDS)
	@PYTHONPATH=tests $(BIN)/python tests/crash/broker_kills.py --rounds $(ROUNDS)
	@$(BIN)/python tests/crash/disk_death.py --rounds $(ROUNDS)
	@$(BIN)/python tests/crash/disk_death.py --rounds $(ROUNDS) --power-cut
	@$(BIN)/python tests/crash/disk_death.py --rounds $(ROUNDS) --async

modes: ROUNDS ?= 1
modes: setup ## Each way to deploy under each fault, beside what the articles promise (an hour and a half): ROUNDS=3, ARGS="--only 2m/kill"; --product 4.9.8 measures RocketMQ itself
	@PYTHONPATH=tests:tests/interop:tests/interop/golden $(BIN)/python tests/modes/run_modes.py --rounds $(ROUNDS) $(ARGS)

sequences: N ?= 50
sequences: setup ## Random sequences of faults on each way to deploy, and whether anything went wrong (two hours): N=5, ARGS="--jobs 2 --only 2m"
	@PYTHONPATH=tests $(BIN)/python tests/modes/run_sequences.py --sequences $(N) $(ARGS)
