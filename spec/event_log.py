"""The event log: one row a transition, written by fuzz as Parquet and read by analysis with Spark. Data only.

A log is a directory:

    events/*.parquet   one row a transition of one machine, columns EVENT_COLUMNS
    runs/*.parquet     one row a run, columns RUN_COLUMNS
    campaign.json      what was asked for: seed, runs, profiles, versions

The types are named as both Arrow and Spark know them; `list<string>` is a list of strings.
"""

from typing import Final

SCHEMA_VERSION: Final = 1

EVENTS_DIR: Final = "events"
RUNS_DIR: Final = "runs"
CAMPAIGN_FILE: Final = "campaign.json"

# (name, type, meaning). No column is nullable.
EVENT_COLUMNS: Final = (
    ("run_id", "int64", "the seed of the run, so that a seed gives the same rows everywhere"),
    ("step", "int32", "number of the row within its run, from 0"),
    ("op_index", "int32", "index of the schedule's operation that caused it, from 0"),
    ("actor", "string", "machine: store, master_connection, slave_client, group_transfer or network"),
    ("instance", "int32", "which one: the connection's or the slave's number; 0 where there is one only"),
    ("event", "string", "event of that machine, as in transitions.json"),
    ("from_state", "string", "discrete state before, as in transitions.json"),
    ("to_state", "string", "discrete state after"),
    ("offset", "int64", "commit-log offset concerned: next_transfer_from_where, max offset, or ack; -1 if none"),
    ("nbytes", "int64", "bytes that the machine consumed, wrote or appended in this step"),
    ("fragment_len", "int32", "bytes that the channel allowed or delivered; -1 where no bytes moved"),
    ("split_at", "int32", "bytes of an unfinished frame or report held when the step ended; 0 on a boundary"),
    ("fault", "string", "fault that the schedule injected in this operation, or none"),
    ("clauses", "list<string>", "clauses that the reference model exercised"),
    ("ts_ns", "int64", "model time"),
    ("verdict", "string", "one of VERDICTS"),
)

RUN_COLUMNS: Final = (
    ("run_id", "int64", "the seed"),
    ("phase", "string", "generate: drawn by seed (the sampling unit of the estimates); replay: by hand"),
    ("profile", "string", "classic or hardened"),
    ("n_ops", "int32", "operations of the schedule that were applied"),
    ("n_steps", "int32", "rows of the run in events"),
    ("nbytes", "int64", "bytes carried between master and slaves"),
    ("n_messages", "int32", "messages put"),
    ("verdict", "string", "one of VERDICTS"),
    ("failing_op", "int32", "index of the first operation that failed, or -1"),
    ("signature", "string", "group of a failure: actor/event/field; empty where verdict is ok"),
    ("detail", "string", "one line: what the reference says, what the implementation says; empty where ok"),
)

# The verdict of a step and of a run: the worst of its steps.
VERDICT_OK: Final = "ok"
VERDICT_DIVERGENCE: Final = "divergence"  # reference and implementation disagree
VERDICT_INVARIANT: Final = "invariant"  # they agree, and a safety property is broken
VERDICT_ERROR: Final = "error"  # an exception that no clause allows
VERDICTS: Final = (VERDICT_OK, VERDICT_DIVERGENCE, VERDICT_INVARIANT, VERDICT_ERROR)

PHASE_GENERATE: Final = "generate"
PHASE_REPLAY: Final = "replay"

NO_FAULT: Final = "none"

# transitions.json, generated from the reference model: what is possible at all.
#   {"version": 1,
#    "machines": {actor: {"states": [..], "events": [..],
#                         "transitions": [[from_state, event, to_state, [profile, ..]], ..]}},
#    "clauses": {clause id: its sentence}}        only those that the model exercises
TRANSITIONS_FILE: Final = "transitions.json"
