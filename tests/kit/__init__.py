"""Helpers that tests in several files share.

waiting       wait for a condition
command_line  run a command, within this process or as a process
nodes         start masters and slaves as processes, or a master in a thread
examples      how many examples a state machine runs
scheduler     threads that run one at a time, in an order that a test chooses
name_server   requests to a name server, and one without sockets
scrapes       what the HTTP port of --metrics answers
sockets       connect masters, slaves and bare sockets within one process
worlds        run the model and the implementation in lock-step
limits        a clock that the test moves, and peers for a master with limits
files         find, read, change and compare the files of a store
variants      a message of any kind, with the bytes of its record; variant_tables has them
golden        the stores that releases of RocketMQ wrote
certificates  issue TLS certificates
event_logs    build event logs for the tests of analysis
processes     which tests share a process of `make test`
"""
