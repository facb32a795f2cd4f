"""Programs that generate and check, each run from the checkout's root as `python -m formal.NAME`; the wheel has none of them.

run_formal   TLC over the scopes of scopes.toml, and TLC's state graphs against the model's (graph, equality, premises)
tiny         the byte level against the protocol level, over every run with buffers of a few bytes
contracts    CrossHair on the offset arithmetic
mutants      wrong copies of the model, and how many of them the checks notice
breaks       one edit of each kind, and the check that notices it
snapshots    spec/snapshots/: every outcome of every event in every state
tours        spec/vectors/tours/: walks through every transition
violations   the traces of spec/violations.md
scenarios    what the files of tests/stateful/scenarios/ mean
"""
