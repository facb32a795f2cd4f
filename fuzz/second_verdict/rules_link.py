"""The rules of the row check for the world of the link: what the clauses demand between the rows of a run.

Columns by machine (reference/step.py names them; here they are only read):

    store              offset = max offset; instance 0 is the master's, N + 1 that of slave N
    master_connection  reports: offset = slave_ack_offset, split_at = bytes of a partial report; else offset =
                       next_transfer_from_where, split_at = bytes of the pending frame that the socket took
    slave_client       offset = max offset of its log, split_at = unparsed bytes; connect, tick: nbytes = bytes of its report
    group_transfer     offset = push2_slave_max_offset
    network            what a schedule does to a link
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from rocketmq_ha.fuzz.second_verdict import puts
from rocketmq_ha.fuzz.second_verdict.columns import Flags, Groups, Numbers, Rows
from rocketmq_ha.fuzz.second_verdict.rules import Found, Rule, Violation, compare, last_earlier_op, of_rows, of_runs
from rocketmq_ha.spec.constants import (
    END_FILE_MIN_BLANK_SIZE,
    HA_HOUSEKEEPING_INTERVAL_MS,
    HA_SEND_HEARTBEAT_INTERVAL_MS,
    MESSAGE_FIXED_SIZE,
    REPORT_SIZE,
    TRANSFER_HEADER_SIZE,
)

PENDING: Final = ("frame_waiting", "header_partial", "body_partial", "heartbeat_waiting", "heartbeat_partial")
NS_OF_A_MS: Final = 1_000_000


class Link:
    """What several rules of the link ask, computed once for a chunk."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.put = rows.of("store", "put", "put_roll")
        self.append = rows.of("store", "append_data")
        self.store = rows.of("store")
        self.master, self.slave = rows.of("master_connection"), rows.of("slave_client")
        self.accept, self.reports = rows.of("master_connection", "accept"), rows.of("master_connection", "reports")
        self.transfer, self.frames = rows.of("master_connection", "transfer"), rows.of("slave_client", "frames")
        self.connect = rows.of("slave_client", "connect")

    @cached_property
    def before(self) -> Numbers:
        """Place of the row before, where that is of the same operation, else -1."""
        return np.where(self.rows.same_op_as_before, self.rows.at - 1, -1)

    @cached_property
    def slave_of_link(self) -> Numbers:
        """For each row of a master connection the slave that connected right behind its accept, or -1."""
        rows = self.rows
        accept = np.where(self.accept, rows.at, rows.by_machine.previous(self.accept))
        behind = np.minimum(accept + 1, rows.size - 1)
        is_known = self.master & (accept >= 0) & self.connect[behind] & rows.same_op_as_before[behind]
        return np.where(is_known, rows.instance[behind], -1)

    @cached_property
    def link_of(self) -> Numbers:
        """For each row of a master connection, the network or a slave the number of its link, or -1."""
        rows = self.rows
        connect = np.where(self.connect, rows.at, rows.by_machine.previous(self.connect))
        own = np.where(self.slave & (connect > 0), rows.instance[np.maximum(connect - 1, 0)], -1)
        is_behind = self.accept[np.maximum(connect - 1, 0)]
        own = np.where(is_behind, own, -1)
        return np.where(self.master | rows.of("network"), rows.instance, own)

    @cached_property
    def by_link(self) -> Groups:
        return Groups(np.where(self.link_of >= 0, (self.rows.run << 24) + (self.link_of & 0xFFFFFF), -1))

    @cached_property
    def by_node(self) -> Groups:
        """A slave, its store, and the master connections to it."""
        rows = self.rows
        node = np.where(self.store, rows.instance, np.where(self.slave, rows.instance + 1, self.slave_of_link + 1))
        member = self.store | self.slave | (self.slave_of_link >= 0)
        return Groups(np.where(member, (rows.run << 24) + (node & 0xFFFFFF), -1))

    @cached_property
    def max_offset(self) -> Numbers:
        """For a row of a store, a slave, or a connection to it: the max offset of that log before the row."""
        return self.rows.value(self.rows.offset, self.by_node.previous(self.store), 0)

    @cached_property
    def master_max_offset(self) -> Numbers:
        """The master's max offset before the row."""
        rows = self.rows
        return rows.value(rows.offset, rows.by_run.previous(self.store & (rows.instance == 0)), 0)

    @cached_property
    def received(self) -> Numbers:
        """Bytes of reports that the connection has received, with this row's."""
        return self.rows.by_machine.running(np.where(self.reports, self.rows.nbytes, 0))

    @cached_property
    def sent(self) -> Numbers:
        """Bytes of frames that the connection has sent, with this row's."""
        return self.rows.by_machine.running(np.where(self.transfer, self.rows.nbytes, 0))

    @cached_property
    def transfer_before(self) -> Numbers:
        """Place of the last row of the connection that has next_transfer_from_where, or -1."""
        return self.rows.by_machine.previous(self.master & ~self.reports & (self.rows.offset != -1))

    @cached_property
    def report_before(self) -> Numbers:
        return self.rows.by_machine.previous(self.reports)

    @cached_property
    def is_forged(self) -> Flags:
        """Whether a report was forged on the row's link before."""
        return self.by_link.previous(self.rows.of("network", "forge_report")) >= 0

    @cached_property
    def puts(self) -> puts.Ledger:
        return puts.keep(self.rows)


def link_of(rows: Rows) -> Link:
    """The link of the rows: made once."""
    found: Link | None = getattr(rows, "_link", None)
    if found is None:
        found = Link(rows)
        rows._link = found  # type: ignore[attr-defined]
    return found


# --- Columns ------------------------------------------------------------------------------------------------------------


def split_fits_its_state(rows: Rows, name: str) -> Found:
    """A partial header has 1 to 11 bytes, a partial body 12 and more, and what is not partial has none."""
    at = link_of(rows)
    partial_header = rows.to_in("header_partial", "heartbeat_partial")
    body = rows.to_in("body_partial")
    split, premise = rows.split_at, (at.master & ~at.reports & ~rows.to_in("closed")) | at.slave
    fits = np.where(body, split >= TRANSFER_HEADER_SIZE, np.where(partial_header, (split > 0) & (split < 12), split == 0))
    return of_rows(rows, name, premise, fits, lambda i: f"split_at {split[i]} in the state {rows.text(rows.to_state[i])}")


def only_bytes_that_move_have_a_fragment(rows: Rows, name: str) -> Found:
    at = link_of(rows)
    moves = (at.transfer | at.reports | at.frames) & (rows.nbytes > 0)
    holds = moves == (rows.fragment_len >= 0)
    return of_rows(rows, name, rows.at >= 0, holds, lambda i: f"nbytes {rows.nbytes[i]}, fragment_len {rows.fragment_len[i]}")


def run_is_the_sum_of_its_rows(rows: Rows, name: str) -> Found:
    at, runs = link_of(rows), rows.runs
    size = len(runs.run_id)
    carried = np.bincount(rows.run, np.where(at.frames | at.reports, rows.nbytes, 0), size).astype(np.int64)
    stored = np.bincount(rows.run, at.put & (rows.instance == 0), size).astype(np.int64)
    return of_runs(
        name,
        runs.headers == 1,
        (carried == runs.nbytes) & (stored == runs.n_messages),
        lambda run: f"{carried[run]} bytes and {stored[run]} puts, the run has {runs.nbytes[run]} and {runs.n_messages[run]}",
    )


FAULT_OF: Final = {
    ("network", "cut"): ("cut_both", "cut_slave", "cut_master"),
    ("network", "clog"): ("clog",),
    ("network", "forge_report"): ("forge_report",),
    ("network", "forge_header"): ("forge_header",),
    ("slave_client", "restart"): ("restart_slave",),
}
ENDS_OF_A_MASTER: Final = ("stop_master", "kill_master", "lose_tail")


def fault_is_that_of_its_operation(rows: Rows, name: str) -> Found:
    at = link_of(rows)
    premise, holds = np.zeros(rows.size, dtype=np.bool_), np.ones(rows.size, dtype=np.bool_)
    recover = rows.of("store", "recover")
    cases = [(rows.of(actor, event), rows.fault_in(faults)) for (actor, event), faults in FAULT_OF.items()]
    cases += [(recover & (rows.instance == 0), rows.fault_in(ENDS_OF_A_MASTER))]
    cases += [(recover & (rows.instance > 0), rows.fault_in(("restart_slave",)))]
    cases += [(at.put | at.accept | at.connect, rows.fault_in(("none",)))]
    for case, is_right in cases:
        premise |= case
        holds &= ~case | is_right
    return of_rows(rows, name, premise, holds, lambda i: f"fault {rows.faults[rows.fault[i]]} with {rows.text(rows.event[i])}")


# --- The master's connections -----------------------------------------------------------------------------------------


def an_accept_begins_a_connection(rows: Rows, name: str) -> Found:
    at = link_of(rows)
    is_first = at.master & (rows.by_machine.previous(at.master) < 0)
    number = rows.by_run.running(at.accept.astype(np.int64)) - 1
    holds = at.accept & is_first & (rows.instance == number)
    return of_rows(rows, name, at.accept | is_first, holds, lambda i: f"connection {rows.instance[i]}, accept {number[i]}")


def a_connect_follows_its_accept(rows: Rows, name: str) -> Found:
    at = link_of(rows)
    holds = np.zeros(rows.size, dtype=np.bool_)
    holds[1:] = at.connect[1:] & at.accept[:-1] & rows.same_op_as_before[1:]
    return of_rows(rows, name, at.connect, holds, lambda _: "a connect without an accept right before it")


def reports_are_whole(rows: Rows, name: str) -> Found:
    at = link_of(rows)
    premise = at.reports & ~rows.to_in("closed")
    rest = at.received - rows.split_at
    holds = (rest % REPORT_SIZE == 0) & (rows.split_at >= 0) & (rows.split_at < REPORT_SIZE)
    return of_rows(
        rows, name, premise, holds, lambda i: f"{at.received[i]} bytes received, {rows.split_at[i]} of them a partial report"
    )


def an_ack_needs_a_whole_report(rows: Rows, name: str) -> Found:
    at = link_of(rows)
    before = rows.value(rows.offset, at.report_before, -1)
    completes = at.received // REPORT_SIZE > (at.received - rows.nbytes) // REPORT_SIZE
    return of_rows(
        rows, name, at.reports & ~completes, rows.offset == before, compare("slave_ack_offset", rows.offset, "==", before)
    )


def acks_only_grow(rows: Rows, name: str) -> Found:
    at = link_of(rows)
    before = rows.value(rows.offset, at.report_before, -1)
    premise = at.reports & rows.hardened & (at.report_before >= 0)
    return of_rows(rows, name, premise, rows.offset >= before, compare("slave_ack_offset", rows.offset, ">=", before))


def an_ack_is_appended(rows: Rows, name: str) -> Found:
    at = link_of(rows)
    premise = at.reports & (at.slave_of_link >= 0) & ~at.is_forged
    holds = rows.offset <= at.max_offset
    return of_rows(rows, name, premise, holds, compare("slave_ack_offset", rows.offset, "<=", at.max_offset))


def an_ack_is_sent(rows: Rows, name: str) -> Found:
    at = link_of(rows)
    most = rows.value(rows.offset, at.transfer_before, 0)
    premise = at.reports & rows.hardened & (at.transfer_before >= 0)
    return of_rows(rows, name, premise, rows.offset <= most, compare("slave_ack_offset", rows.offset, "<=", most))


def nothing_is_sent_before_a_report(rows: Rows, name: str) -> Found:
    at = link_of(rows)
    premise = at.transfer & rows.from_in("await_report")
    return of_rows(
        rows, name, premise, at.received >= REPORT_SIZE, lambda i: f"{at.received[i]} bytes of reports were received before"
    )


def a_transfer_starts_where_the_report_says(rows: Rows, name: str) -> Found:
    """Where the connection has one report, and that is not 0: the first frames are whole from there on."""
    at = link_of(rows)
    start = rows.value(rows.offset, at.report_before, 0)
    premise = at.transfer & rows.from_in("await_report") & (at.received == REPORT_SIZE) & (start != 0)
    built = rows.offset - start
    whole = ~rows.to_in("caught_up") | ((rows.nbytes - built) % TRANSFER_HEADER_SIZE == 0) & (rows.nbytes >= built)
    return of_rows(
        rows,
        name,
        premise,
        (built >= 0) & whole,
        lambda i: f"next_transfer_from_where {rows.offset[i]} after {rows.nbytes[i]} bytes from a start at {start[i]}",
    )


def transfer_only_grows(rows: Rows, name: str) -> Found:
    at = link_of(rows)
    least = rows.value(rows.offset, at.transfer_before, -1)
    premise = at.master & ~at.reports & (at.transfer_before >= 0)
    return of_rows(rows, name, premise, rows.offset >= least, compare("next_transfer_from_where", rows.offset, ">=", least))


def transfer_is_within_the_log(rows: Rows, name: str) -> Found:
    """In classic a transfer may start beyond the log's end, but then it does not go on."""
    at = link_of(rows)
    grows = (at.transfer_before >= 0) & (rows.offset > rows.value(rows.offset, at.transfer_before, 0))
    return of_rows(
        rows,
        name,
        at.transfer & (rows.hardened | grows),
        rows.offset <= at.master_max_offset,
        compare("next_transfer_from_where", rows.offset, "<=", at.master_max_offset),
    )


def frames_are_whole(rows: Rows, name: str) -> Found:
    """Between two moments without a pending frame the connection has sent so many bytes as its offset grew, and headers."""
    at = link_of(rows)
    idle = at.transfer & rows.to_in("caught_up")
    last = rows.by_machine.previous(idle)
    headers = (at.sent - rows.offset) - rows.value(at.sent - rows.offset, last, 0)
    holds = (headers % TRANSFER_HEADER_SIZE == 0) & (headers >= TRANSFER_HEADER_SIZE)
    return of_rows(
        rows, name, idle & (last >= 0), holds, lambda i: f"{headers[i]} bytes more than its offset grew, expected headers of 12"
    )


def a_pending_frame_goes_on(rows: Rows, name: str) -> Found:
    at = link_of(rows)
    last = rows.by_machine.previous(at.transfer)
    same = rows.offset == rows.value(rows.offset, last, -1)
    premise = at.transfer & (last >= 0) & same & rows.from_in(*PENDING) & rows.to_in(*PENDING)
    expected = rows.value(rows.split_at, last, 0) + rows.nbytes
    return of_rows(rows, name, premise, rows.split_at == expected, compare("split_at", rows.split_at, "==", expected))


def silence_closes(rows: Rows, name: str) -> Found:
    """An end for silence comes more than 20 s after the last byte read, or after the accept or the connect."""
    at = link_of(rows)
    master = rows.of("master_connection", "tick") & rows.to_in("closed")
    slave = rows.of("slave_client", "tick") & rows.has_clause("HA-S-12")
    last = rows.by_machine.previous(at.accept | at.connect | at.reports | at.frames)
    silent_ms = (rows.ts_ns - rows.value(rows.ts_ns, last, 0)) // NS_OF_A_MS
    holds = (last >= 0) & (silent_ms > HA_HOUSEKEEPING_INTERVAL_MS)
    return of_rows(rows, name, master | slave, holds, lambda i: f"closed after {silent_ms[i]} ms, expected more than 20000")


def a_report_in_time_is_due(rows: Rows, name: str) -> Found:
    """A slave's tick reports more than 5 s after its last report, or its connect."""
    at = link_of(rows)
    premise = rows.of("slave_client", "tick") & rows.has_clause("HA-S-2")
    last = rows.by_machine.previous(at.connect | (at.slave & rows.has_clause("HA-W-1")))
    waited_ms = (rows.ts_ns - rows.value(rows.ts_ns, last, 0)) // NS_OF_A_MS
    holds = (last >= 0) & (waited_ms > HA_SEND_HEARTBEAT_INTERVAL_MS)
    return of_rows(rows, name, premise, holds, lambda i: f"reported after {waited_ms[i]} ms, expected more than 5000")


def a_heartbeat_is_due(rows: Rows, name: str) -> Found:
    """A heartbeat is built more than 5 s after the connection's last write, or its accept."""
    at = link_of(rows)
    premise = at.transfer & rows.has_clause("HA-M-8")
    last = rows.by_machine.previous(at.accept | (at.transfer & (rows.nbytes > 0)))
    waited_ms = (rows.ts_ns - rows.value(rows.ts_ns, last, 0)) // NS_OF_A_MS
    holds = (last >= 0) & (waited_ms > HA_SEND_HEARTBEAT_INTERVAL_MS)
    return of_rows(rows, name, premise, holds, lambda i: f"a heartbeat after {waited_ms[i]} ms, expected more than 5000")


# --- The network ------------------------------------------------------------------------------------------------------


def what_is_delivered_was_sent(rows: Rows, name: str) -> Found:
    at = link_of(rows)
    forged = TRANSFER_HEADER_SIZE * rows.of("network", "forge_header")
    sent = at.by_link.running(np.where(at.transfer, rows.nbytes, forged))
    delivered = at.by_link.running(np.where(at.frames, rows.nbytes, 0))
    premise = at.frames & (at.link_of >= 0)
    return of_rows(rows, name, premise, delivered <= sent, compare("bytes of frames delivered", delivered, "<=", sent))


def reports_were_sent(rows: Rows, name: str) -> Found:
    """A slave reports once for each time that it reads; in classic once for each frame, of which 12 bytes are the least."""
    at = link_of(rows)
    last = rows.by_machine.previous(at.slave)
    frames = np.where(rows.hardened, 1, (rows.value(rows.split_at, last, 0) + rows.nbytes) // TRANSFER_HEADER_SIZE)
    own = np.where(at.frames, REPORT_SIZE * frames, np.where(rows.of("slave_client", "connect", "tick"), rows.nbytes, 0))
    sent = at.by_link.running(own + REPORT_SIZE * rows.of("network", "forge_report"))
    received = at.by_link.running(np.where(at.reports, rows.nbytes, 0))
    return of_rows(rows, name, at.reports, received <= sent, compare("bytes of reports received", received, "<=", sent))


# --- Logs --------------------------------------------------------------------------------------------------------------


def a_log_grows_by_what_is_appended(rows: Rows, name: str) -> Found:
    """Max offset and nbytes agree. A log without files begins where its first bytes say; one that loses its first file ends
    where it ended.
    """
    at = link_of(rows)
    had_files, has_files = ~rows.from_in("no_files"), ~rows.to_in("no_files")
    deletes = rows.event_in("delete")
    grown = at.max_offset + np.where(deletes, 0, rows.nbytes)
    begins = np.where(rows.event_in("put", "put_roll"), rows.offset == rows.nbytes, rows.offset >= rows.nbytes)
    emptied = (rows.offset == 0) & (rows.nbytes <= 0) & (-rows.nbytes <= at.max_offset)
    holds = np.where(had_files & has_files, rows.offset == grown, np.where(has_files, begins, emptied))
    holds &= ~deletes | (rows.nbytes < 0)
    return of_rows(
        rows, name, at.store, holds, lambda i: f"max offset {rows.offset[i]}, before {at.max_offset[i]}, {rows.nbytes[i]} bytes"
    )


def a_put_appends_a_record(rows: Rows, name: str) -> Found:
    at = link_of(rows)
    least = MESSAGE_FIXED_SIZE + 1 + END_FILE_MIN_BLANK_SIZE * rows.event_in("put_roll")
    holds = (rows.nbytes >= least) & (rows.instance == 0)
    return of_rows(rows, name, at.put, holds, compare("nbytes", rows.nbytes, ">=", least))


def an_append_follows_its_frames(rows: Rows, name: str) -> Found:
    """A slave appends, right behind its read, no more than the bodies of the frames that the read completed."""
    at = link_of(rows)
    read = np.maximum(rows.at - 1, 0)
    is_behind = rows.same_op_as_before & at.frames[read] & (rows.instance[read] == rows.instance - 1)
    held = rows.value(rows.split_at, rows.by_machine.previous(at.slave), 0)
    consumed = (held + rows.nbytes - rows.split_at)[read] - TRANSFER_HEADER_SIZE
    holds = is_behind & (rows.nbytes >= 0) & (rows.nbytes <= consumed)
    return of_rows(
        rows, name, at.append, holds, lambda i: f"{rows.nbytes[i]} bytes appended, at most {consumed[i]} were of bodies"
    )


def frames_are_taken_whole(rows: Rows, name: str) -> Found:
    """What a hardened slave read and does not hold any more is bodies that it appended, and headers.

    But for bytes that it compares (HA-S-62), and for a read that ends its connection.
    """
    at = link_of(rows)
    behind = np.minimum(rows.at + 1, rows.size - 1)
    appends = (
        at.append[behind] & rows.same_op_as_before[behind] & (rows.instance[behind] == rows.instance + 1) & (behind > rows.at)
    )
    appended = np.where(appends, rows.nbytes[behind], 0)
    held = rows.value(rows.split_at, rows.by_machine.previous(at.slave), 0)
    headers = held + rows.nbytes - rows.split_at - appended
    premise = at.frames & rows.hardened & ~rows.has_clause("HA-S-62") & ~rows.to_in("disconnected")
    holds = (headers % TRANSFER_HEADER_SIZE == 0) & (headers >= 0)
    return of_rows(rows, name, premise, holds, lambda i: f"{headers[i]} bytes read and not appended, expected headers of 12")


def a_slave_has_the_offset_of_its_log(rows: Rows, name: str) -> Found:
    at = link_of(rows)
    behind = np.minimum(rows.at + 1, rows.size - 1)
    appends = at.append[behind] & rows.same_op_as_before[behind] & (rows.instance[behind] == rows.instance + 1) & at.frames
    expected = np.where(appends, rows.offset[behind], at.max_offset)
    return of_rows(rows, name, at.slave, rows.offset == expected, compare("max offset", rows.offset, "==", expected))


def a_recovery_keeps_whole_records(rows: Rows, name: str) -> Found:
    """A master's log is whole records, so a restart cuts nothing; unless the schedule lost the tail, which takes bytes."""
    premise = rows.of("store", "recover") & (rows.instance == 0)
    holds = np.where(rows.fault_in(("lose_tail",)), rows.nbytes <= 0, rows.nbytes == 0)
    return of_rows(rows, name, premise, holds, lambda i: f"{rows.nbytes[i]} bytes by {rows.faults[rows.fault[i]]}")


def a_master_that_ends_closes_all(rows: Rows, name: str) -> Found:
    """No connection that is older than a master's restart has a row in an operation behind it."""
    at = link_of(rows)
    restart = last_earlier_op(rows, rows.of("store", "recover") & (rows.instance == 0))
    first = np.where(at.accept, rows.at, rows.by_machine.previous(at.accept))
    premise = at.master & (restart >= 0)
    return of_rows(rows, name, premise, first > restart, lambda i: f"connection {rows.instance[i]} is older than the master")


# --- Clauses ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Due:
    """A clause that the rows `where` exercise, and no others of the machine, if `only` is set."""

    clause: str
    actor: str
    where: Callable[[Link], Flags]
    only: bool = True


DUE: Final = (
    Due("HA-ST-2", "store", lambda at: at.put),
    Due("HA-ST-4", "store", lambda at: at.put),
    Due("HA-ST-3", "store", lambda at: at.rows.of("store", "put_roll")),
    Due("HA-ST-5", "store", lambda at: at.rows.of("store", "recover")),
    Due("HA-ST-6", "store", lambda at: at.append & (at.rows.nbytes > 0)),
    Due("HA-S-10", "store", lambda at: at.append & (at.rows.nbytes == 0)),
    Due("HA-M-1", "master_connection", lambda at: at.accept),
    Due(
        "HA-M-2",
        "master_connection",
        lambda at: at.reports & (at.received // REPORT_SIZE > (at.received - at.rows.nbytes) // REPORT_SIZE),
    ),
    Due("HA-M-6", "master_connection", lambda at: at.transfer & at.rows.from_in(*PENDING)),
    Due("HA-M-9", "master_connection", lambda at: at.rows.of("master_connection", "tick")),
    Due("HA-M-13", "master_connection", lambda at: at.rows.of("master_connection", "end_of_stream")),
    Due("HA-S-1", "slave_client", lambda at: at.connect),
    Due("HA-S-3", "slave_client", lambda at: at.connect & at.rows.hardened),
    Due(
        "HA-S-13", "slave_client", lambda at: at.slave & at.rows.to_in("disconnected") & ~at.rows.of("slave_client", "restart")
    ),
    Due("HA-ST-5", "slave_client", lambda at: at.rows.of("slave_client", "restart")),
    Due("HA-G-4", "group_transfer", lambda at: at.rows.of("group_transfer", "ack") & at.rows.classic),
    Due("HA-G-5", "group_transfer", lambda at: at.rows.of("group_transfer", "ack") & at.rows.hardened),
)


def a_clause_is_exercised_where_it_is_due(rows: Rows, name: str) -> Found:
    at = link_of(rows)
    premises, violations = 0, list[Violation]()
    for due in DUE:
        where = due.where(at)
        has = rows.has_clause(due.clause) & rows.of(due.actor)
        found = of_rows(
            rows,
            name,
            where | has if due.only else where,
            where == has if due.only else has,
            lambda i, clause=due.clause, has=has: (  # type: ignore[misc]
                f"{clause} is {'named, but not' if has[i] else 'not named, but'} exercised by {rows.text(int(rows.event[i]))}"
            ),
        )
        premises += found.premises
        violations += found.violations
    return Found(premises, tuple(violations))


# --- Puts that wait -------------------------------------------------------------------------------------------------------


def of_the_ledger(rows: Rows, name: str) -> Found:
    """The result of a rule of puts.py."""
    ledger = link_of(rows).puts
    violations = (Violation(int(rows.run[at]), name, int(rows.step[at]), detail) for at, detail in ledger.broken.get(name, []))
    return Found(ledger.premises.get(name, 0), tuple(violations))


def _rule(name: str, source: str, sentence: str, check: Callable[[Rows, str], Found], profile: str = "") -> Rule:
    return Rule(name, source, sentence, check, profile, "link")


OF_LINK: Final = (
    _rule("split_fits_its_state", "events.split_at", "split_at fits to_state", split_fits_its_state),
    _rule(
        "only_bytes_that_move_have_a_fragment",
        "events.fragment_len",
        "fragment_len is -1 where no bytes moved, and only there",
        only_bytes_that_move_have_a_fragment,
    ),
    _rule("run_is_the_sum_of_its_rows", "runs.nbytes, n_messages", "the run sums its rows up", run_is_the_sum_of_its_rows),
    _rule(
        "fault_is_that_of_its_operation", "events.fault", "the fault fits what the row shows", fault_is_that_of_its_operation
    ),
    _rule(
        "an_accept_begins_a_connection",
        "HA-M-16, HA-M-19",
        "a connection begins with its accept, and has the next number",
        an_accept_begins_a_connection,
    ),
    _rule(
        "a_connect_follows_its_accept", "HA-M-16, HA-S-19", "a slave connects as it is accepted", a_connect_follows_its_accept
    ),
    _rule("reports_are_whole", "HA-W-1, HA-M-10", "reports are 8 bytes, and stay aligned", reports_are_whole),
    _rule(
        "an_ack_needs_a_whole_report",
        "HA-M-2",
        "slave_ack_offset changes only when a report completes",
        an_ack_needs_a_whole_report,
    ),
    _rule("acks_only_grow", "HA-M-11", "no report is used that is less than the one before", acks_only_grow, "hardened"),
    _rule(
        "an_ack_is_appended",
        "ack_is_appended, HA-S-38",
        "no report that is not forged exceeds the slave's log",
        an_ack_is_appended,
    ),
    _rule("an_ack_is_sent", "HA-M-11", "no report exceeds what was sent", an_ack_is_sent, "hardened"),
    _rule("nothing_is_sent_before_a_report", "HA-M-1", "nothing is sent before a report", nothing_is_sent_before_a_report),
    _rule(
        "a_transfer_starts_where_the_report_says",
        "HA-M-5, HA-M-27",
        "the transfer starts at the report that is not 0",
        a_transfer_starts_where_the_report_says,
    ),
    _rule(
        "transfer_only_grows",
        "transfer_only_grows, HA-M-7",
        "next_transfer_from_where never decreases on a connection",
        transfer_only_grows,
    ),
    _rule(
        "transfer_is_within_the_log",
        "transfer_is_within_the_log, HA-M-7, HA-M-35",
        "next_transfer_from_where does not grow beyond the master's max offset",
        transfer_is_within_the_log,
    ),
    _rule("frames_are_whole", "HA-M-6, HA-M-7, HA-W-2", "what is sent is whole frames", frames_are_whole),
    _rule("a_pending_frame_goes_on", "HA-M-6", "a pending frame goes on where it stopped", a_pending_frame_goes_on),
    _rule("silence_closes", "HA-M-9, HA-S-12, HA-T-1", "only more than 20 s of silence close", silence_closes),
    _rule("a_report_in_time_is_due", "HA-S-2, HA-T-1", "a slave's time to report is more than 5 s", a_report_in_time_is_due),
    _rule("a_heartbeat_is_due", "HA-M-8, HA-T-1", "a heartbeat needs more than 5 s without a write", a_heartbeat_is_due),
    _rule("what_is_delivered_was_sent", "HA-W-7", "a slave reads no more than was sent or forged", what_is_delivered_was_sent),
    _rule("reports_were_sent", "HA-W-7, HA-S-28", "a master reads no more than was reported or forged", reports_were_sent),
    _rule(
        "a_log_grows_by_what_is_appended",
        "HA-ST-6, HA-ST-12",
        "max offset moves by nbytes",
        a_log_grows_by_what_is_appended,
    ),
    _rule("a_put_appends_a_record", "HA-ST-2, HA-ST-3", "a put appends a record at the master", a_put_appends_a_record),
    _rule(
        "an_append_follows_its_frames",
        "HA-S-5",
        "a slave appends no more than the bodies that it has read whole",
        an_append_follows_its_frames,
    ),
    _rule("frames_are_taken_whole", "HA-S-5, HA-S-31", "a slave takes whole frames", frames_are_taken_whole, "hardened"),
    _rule(
        "a_slave_has_the_offset_of_its_log",
        "events.offset",
        "a slave's offset is its log's max offset",
        a_slave_has_the_offset_of_its_log,
    ),
    _rule("a_recovery_keeps_whole_records", "HA-ST-5", "a master's restart cuts no record", a_recovery_keeps_whole_records),
    _rule("a_master_that_ends_closes_all", "HA-M-37", "no connection outlives its master", a_master_that_ends_closes_all),
    _rule(
        "a_clause_is_exercised_where_it_is_due",
        "events.clauses",
        "the clauses that the rows show are named, and no others of these",
        a_clause_is_exercised_where_it_is_due,
    ),
    _rule(
        puts.ACKNOWLEDGED,
        "HA-G-4, HA-G-5, HA-G-30",
        "push2_slave_max_offset is no more than was acknowledged",
        of_the_ledger,
    ),
    _rule(puts.MOVES, "HA-G-17", "a notification follows a report that moves push2_slave_max_offset", of_the_ledger),
    _rule(puts.ENDS_OK, "HA-G-1, HA-G-7", "PUT_OK is given when the offset is acknowledged", of_the_ledger),
    _rule(puts.IN_TIME, "HA-G-2, HA-T-1", "a wait ends after more than 5 s", of_the_ledger, "hardened"),
    _rule(puts.STORED, "HA-G-10", "a put that waits is stored", of_the_ledger, "hardened"),
    _rule(puts.STATE, "HA-G-6", "the group transfer waits as long as a put does", of_the_ledger, "hardened"),
)
