"""The format of the event log, which fuzz writes as Parquet and analysis reads with Spark. Data only.

A log is a directory, or a prefix of an object store:

    campaign.json       the settings of the campaign
    manifest/*.json     one file for each published partition; it names the partition's two data files
    events/*.parquet    one row per transition of one machine, columns EVENT_COLUMNS
    runs/*.parquet      one row per run, columns RUN_COLUMNS
    corpus/WORLD/*.json   guided campaigns: schedules that reached something new
    features/*.txt      guided campaigns: what each schedule of the corpus reached first
    failures/*.json     the schedules of the failed runs
    started/*.json      one file for each partition that an executor has begun; without a manifest, a run may have ended it

A data file that no manifest names is a remnant of a lost attempt, and is not read. A partition is published by writing its
manifest, which is one small object: by a rename on a file system, by one request on an object store. So a partition is in the
log whole, or not at all, and once, however often Spark repeats its task.

In version 1, which analysis still reads, every Parquet file counts, there are no manifests, and the columns of ADDED are
missing.

The names of the types are those of Arrow. `list<string>` is a list of strings.
"""

from typing import Final

SCHEMA_VERSION: Final = 2

EVENTS_DIR: Final = "events"
RUNS_DIR: Final = "runs"
MANIFEST_DIR: Final = "manifest"
CORPUS_DIR: Final = "corpus"
FEATURES_DIR: Final = "features"
FAILURES_DIR: Final = "failures"
STARTED_DIR: Final = "started"
CAMPAIGN_FILE: Final = "campaign.json"

# manifest/NAME.json: {"partition": int, "events": file name, "runs": file name, "n_runs": int, "n_steps": int, "n_failed": int,
#                      "seed": int, "seconds": float, "failures": [{"run_id": int, "world": str, "verdict": str,
#                      "signature": str, "digest": int}, ..]}    "seed": that of the first run; "failures": the first of them
MANIFEST_KEYS: Final = ("partition", "events", "runs", "n_runs", "n_steps", "n_failed", "seed", "seconds", "failures")

# (name, type, meaning). No column is nullable.
EVENT_COLUMNS: Final = (
    ("run_id", "int64", "the run's number: the seed of a drawn run, so that a seed gives the same rows everywhere"),
    ("world", "string", "what the run drives: link, store, ..."),
    ("step", "int32", "number of the row within its run, from 0"),
    ("op_index", "int32", "index of the schedule's operation that caused the step, from 0"),
    ("actor", "string", "machine, as in transitions.json: store, master_connection, slave_client, ..."),
    ("instance", "int32", "number of the connection, of the slave or of the entry; 0 if there is only one"),
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
    ("run_id", "int64", "the seed of a drawn run; a negative number for any other"),
    ("world", "string", "as in events"),
    ("phase", "string", "one of PHASES"),
    ("profile", "string", "classic or hardened; empty for a test case of Hypothesis"),
    ("n_ops", "int32", "operations of the schedule that were applied"),
    ("n_steps", "int32", "rows of the run in events"),
    ("nbytes", "int64", "bytes carried between master and slaves"),
    ("n_messages", "int32", "messages put"),
    ("verdict", "string", "one of VERDICTS"),
    ("failing_op", "int32", "index of the first operation that failed, or -1"),
    ("signature", "string", "group of a failure: actor/event/field; empty if the verdict is ok"),
    ("detail", "string", "one line with the reference's value and the implementation's; empty if the verdict is ok"),
    ("digest", "int64", "hash of the schedule without its seed; equal schedules have equal ones"),
    ("recipe", "string", "how a guided run's schedule was made from the corpus; empty for the others"),
    ("observed", "int64", "hash of what the implementation showed after the last operation; 0 if it failed, or nobody looked"),
    ("elapsed_us", "int64", "duration of the run: the only column that is not the same on every machine"),
)

# Columns that version 1 lacks, and what they are there.
ADDED: Final = {"world": "link", "digest": 0, "recipe": "", "observed": 0, "elapsed_us": -1}

# The verdicts of a step. The verdict of a run is the worst of its steps.
VERDICT_OK: Final = "ok"
VERDICT_DIVERGENCE: Final = "divergence"  # reference and implementation disagree
VERDICT_INVARIANT: Final = "invariant"  # they agree, but a safety property is broken
VERDICT_ERROR: Final = "error"  # an exception that no clause allows
VERDICT_TIMEOUT: Final = "timeout"  # the run took longer than a run may
VERDICT_MEMORY: Final = "memory"  # it asked for more memory than a run may have
VERDICT_CRASH: Final = "crash"  # its process ended with it, and the executor before that
VERDICTS: Final = (
    VERDICT_OK,
    VERDICT_DIVERGENCE,
    VERDICT_INVARIANT,
    VERDICT_ERROR,
    VERDICT_TIMEOUT,
    VERDICT_MEMORY,
    VERDICT_CRASH,
)

PHASE_GENERATE: Final = "generate"  # drawn by seed: the sampling unit of the estimates
PHASE_GUIDED: Final = "guided"  # made from the corpus
PHASE_REPLAY: Final = "replay"  # started by hand
PHASE_RECORDED: Final = "recorded"  # a real link, from a transcript or a capture
PHASE_HYPOTHESIS: Final = "hypothesis"  # a test case of Hypothesis, from its observability lines
PHASES: Final = (PHASE_GENERATE, PHASE_GUIDED, PHASE_REPLAY, PHASE_RECORDED, PHASE_HYPOTHESIS)

WORLD_HYPOTHESIS: Final = "hypothesis"  # of the runs of PHASE_HYPOTHESIS: their actor is a property, and they have no profile

NO_FAULT: Final = "none"

# transitions.json, generated from the reference model: all possible transitions, and where each clause is held.
#   {"version": 2,
#    "machines": {actor: {"worlds": [world, ..], "states": [..], "events": [..],
#                         "transitions": [[from_state, event, to_state, [profile, ..]], ..]}},
#    "clauses": {clause id: {"sentence": str, "worlds": [world, ..]}},     the clauses that a schedule can exercise
#    "elsewhere": {clause id: {"sentence": str, "tests": [str, ..], "reason": str}}}
#                                                                          every other one, and what holds it instead
TRANSITIONS_VERSION: Final = 2
TRANSITIONS_FILE: Final = "transitions.json"
