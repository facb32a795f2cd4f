"""The second verdict of a campaign: its log is judged again by code that did not write it, and from the log alone.

The first verdict comes from the process that wrote the log, by the comparison that is itself under test. A comparison that
finds nothing, a recorder that loses a row, or a mistake that model and implementation share gives `ok` and a log that looks
well. "From the log alone" means two things here, and both are built:

(a) **The row check** (`columns.py`, `rules.py`, `rules_link.py`, `rules_worlds.py`, `puts.py`): every run. A monitor reads
    nothing but the run's rows and its row in runs, and spec/transitions.json. It is written from the clauses and from the
    columns' definitions, and imports neither the model nor the implementation nor the lock-step. So it finds what all of
    these agree about wrongly, if the rows show it. It does not see what no row shows: bodies of messages, sizes of a
    schedule, bytes in flight.

(b) **The re-run** (`rerun.py`): a share of the runs. The model alone goes through the run's schedule again, which its seed
    gives, or its digest among the schedules that the log holds. Its rows must be the logged rows, its invariants must hold,
    and its last state must be what the *implementation* showed when the run was recorded, of which the log has a hash
    (`observed` in runs). No implementation runs and no file is written. So it finds every change of the log, and a lock-step
    that did not compare. It does not find a mistake of the model, because it asks the same model.

Where the log says nothing. A machine whose state does not change has no row; so a row's `from_state` is the `to_state` of the
machine's row before, however long ago that was. A machine also begins anew without a row of its own where another's row says
so: `rules.RENEWED` lists these places. A connection (`instance` of master_connection and network) has a new number from each
accept on; a slave and a store keep theirs over a restart, which has a row.

Each rule is counted: how many rows (or runs) it was about, and how many broke it. A rule that was about none has shown
nothing, and that is reported as a finding too.
"""
