"""The format of the event log, which fuzz writes as Parquet and analysis reads with Spark. Data only.

A log is a directory:

    events/*.parquet   one row per transition of one machine, columns EVENT_COLUMNS
    runs/*.parquet     one row per run, columns RUN_COLUMNS
    campaign.json      the settings of the campaign: seed, runs, profiles, versions

The names of the types are those of Arrow. `list<string>` is a list of strings.
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
    ("op_index", "int32", "index of the schedule's operation that caused the step, from 0"),
    ("actor", "string", "machine: store, master_connection, slave_client, group_transfer or network"),
    ("instance", "int32", "number of the connection or of the slave; 0 if there is only one"),
    ("event", "string", "event of that machine, as in transitions.json"),
    ("from_state", "string", "discrete state before, as in transitions.json"),
    ("to_state", "string", "discrete state after"),
    ("offset", "int64", "commit-log offset of the step: next_transfer_from_where, max offset or ack; -1 if none"),
    ("nbytes", "int64", "bytes that the machine consumed, wrote or appended in this step"),
    ("fragment_len", "int32", "bytes that the channel allowed or delivered; -1 if no bytes moved"),
    ("split_at", "int32", "bytes of an unfinished frame or report held when the step ended; 0 on a boundary"),
    ("fault", "string", "fault that the schedule injected in this operation, or none"),
    ("clauses", "list<string>", "clauses that the reference model exercised"),
    ("ts_ns", "int64", "model time"),
    ("verdict", "string", "one of VERDICTS"),
)

RUN_COLUMNS: Final = (
    ("run_id", "int64", "the seed"),
    ("phase", "string", "generate: drawn by seed (the sampling unit of the estimates); replay: started by hand"),
    ("profile", "string", "classic or hardened"),
    ("n_ops", "int32", "operations of the schedule that were applied"),
    ("n_steps", "int32", "rows of the run in events"),
    ("nbytes", "int64", "bytes carried between master and slaves"),
    ("n_messages", "int32", "messages put"),
    ("verdict", "string", "one of VERDICTS"),
    ("failing_op", "int32", "index of the first operation that failed, or -1"),
    ("signature", "string", "group of a failure: actor/event/field; empty if the verdict is ok"),
    ("detail", "string", "one line with the reference's value and the implementation's; empty if the verdict is ok"),
)

# The verdicts of a step. The verdict of a run is the worst of its steps.
VERDICT_OK: Final = "ok"
VERDICT_DIVERGENCE: Final = "divergence"  # reference and implementation disagree
VERDICT_INVARIANT: Final = "invariant"  # they agree, but a safety property is broken
VERDICT_ERROR: Final = "error"  # an exception that no clause allows
VERDICTS: Final = (VERDICT_OK, VERDICT_DIVERGENCE, VERDICT_INVARIANT, VERDICT_ERROR)

PHASE_GENERATE: Final = "generate"
PHASE_REPLAY: Final = "replay"

NO_FAULT: Final = "none"

# transitions.json, generated from the reference model: all possible transitions.
#   {"version": 1,
#    "machines": {actor: {"states": [..], "events": [..],
#                         "transitions": [[from_state, event, to_state, [profile, ..]], ..]}},
#    "clauses": {clause id: its sentence}}        only the clauses that the model exercises
TRANSITIONS_FILE: Final = "transitions.json"
