"""Explore every machine of the model alone, and record the outcome of each event at each node, for snapshots.py.

The nodes are the states that a machine can reach under the events of a cluster. At each node every event is tried, in every
variant that makes a difference; outcomes of events that no cluster produces are recorded but not explored further. The link is
the exception: it is a whole cluster with one slave, in which an event that cannot apply must do nothing.
"""

from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from typing import Final

from formal.snapshot_ends import of_master, of_slave
from formal.snapshot_link import Ends, of_link
from formal.snapshot_recorder import Happening, Machine, Recorder
from rocketmq_ha.reference import five_waits, group_transfer, store
from rocketmq_ha.reference.five_waits import FiveWaits, FiveWaitsState
from rocketmq_ha.reference.group_transfer import GroupTransfer, GroupTransferState
from rocketmq_ha.reference.master import MasterConnectionState
from rocketmq_ha.reference.message import Record
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.slave import SlaveState
from rocketmq_ha.reference.step import Step
from rocketmq_ha.reference.store import Log, StoreState
from rocketmq_ha.reference.transitions import FAR, NEAR, SETTINGS, aged, explore
from rocketmq_ha.spec.constants import GROUP_TRANSFER_WAIT_MS
from rocketmq_ha.spec.profile import Profile

# --- The group transfer ------------------------------------------------------------------------------------------------------


def of_five_waits() -> list[Happening]:
    """Explore classic's service: up to two requests in either order, all kinds of reports and ticks. A shutdown ends it."""
    recorder = Recorder(five_waits.classify)
    settings = replace(SETTINGS, sync_flush_timeout_ms=700, ha_slave_fallbehind_max=100)

    def successors(node: tuple[FiveWaits, int]) -> Iterator[tuple[FiveWaits, int]]:
        group, push2 = node
        service = group.service
        do = partial(recorder.do, group, possible=not service.stopped)
        queue = [request.next_offset for request in (*service.requests_read, *service.requests_write)]
        puts = [("nobody counts as a slave", NEAR, 0), ("a slave, too far behind", 100 + push2, 1)]
        for offset in (NEAR, FAR):
            reported = " that has reported so much" if offset <= push2 else ""
            puts += [(f"a slave{reported}", offset, 1)] if offset not in queue else []
        for name, offset, slaves in puts:
            if after := do("put", name, partial(five_waits.on_put, group, offset, offset, slaves, push2, 0, settings)):
                yield aged(after, 0), push2
        for ack in sorted({push2 + 1, FAR}) if push2 < FAR else (push2 + 1,):
            name = "any" if not queue else "enough for the first" if ack >= queue[0] else "too little"
            after = do("ack", name, partial(five_waits.on_ack, group, ack, 0))
            if after and push2 < FAR:
                yield aged(after, 0), ack
        for ms in (600, GROUP_TRANSFER_WAIT_MS):
            older = aged(group, ms)
            over = ["the producer's"] if any(request.deadline_ms < 0 for request in older.requests) else []
            over += ["the service's"] if older.service.waiting_since_ms == -GROUP_TRANSFER_WAIT_MS else []
            ticks = partial(five_waits.on_tick, older, push2, 0)
            name = f"{' and '.join(over) or 'nobody'}{' wait is over' if over else ' has waited long enough'}"
            if after := recorder.do(older, "tick", name, ticks, not service.stopped):
                yield aged(after, 0), push2
        if after := do("shutdown", "", partial(five_waits.on_shutdown, group)):
            yield after, push2

    explore([(FiveWaits(), 0)], successors)
    return recorder.sorted(("put", "ack", "tick", "shutdown"))


def of_group_transfer(profile: Profile) -> list[Happening]:
    """Explore hardened's group transfer: up to two waiting puts, acks, deadlines, shutdown."""
    if not profile.serves_by_deadline:
        return of_five_waits()
    recorder = Recorder(group_transfer.classify)
    settings = replace(SETTINGS, ha_slave_fallbehind_max=100)

    def successors(node: tuple[GroupTransfer, int]) -> Iterator[tuple[GroupTransfer, int]]:
        group, now_ms = node
        do = partial(recorder.do, group)
        first = group.requests[0].next_offset if group.requests else 0
        last = group.requests[-1].next_offset if group.requests else 0
        puts = (
            ("nobody counts as a slave", last + 2, 0, 1, 0),
            ("a slave", last + 2, 1, 1, 0),
            ("a slave, one byte from too far behind", 99, 1, 1, 0),
            ("a slave, too far behind", 100, 1, 1, 0),
            ("a slave that has reported so much", last + 2, 1, 1, last + 2),
            ("a slave, and two are needed", last + 2, 1, 2, 0),
            ("two slaves, and two are needed", last + 2, 2, 2, 0),
        )
        for name, next_offset, slaves, replicas, push2 in puts:
            stays = len(group.requests) < 2 and next_offset <= 6
            needing = replace(settings, replicas=replicas)
            put = partial(group_transfer.on_put, group, next_offset, next_offset, slaves, push2, now_ms, needing)
            after = do("put", name, put)
            if after and (stays or after == group):
                yield after, now_ms
        acks = (("too little", first - 1), ("enough for the first", first), ("enough for all", last))
        for name, ack in (acks if first < last else acks[::2]) if first else (("any", 9),):
            if after := do("ack", name, partial(group_transfer.on_ack, group, ack)):
                yield after, now_ms
        for later in range(now_ms, 5):
            late = sum(later > request.deadline_ms for request in group.requests)
            name = (
                "no deadline has passed"
                if not late
                else "every deadline"
                if late == len(group.requests)
                else "the first deadline"
            )
            if after := do("tick", name, partial(group_transfer.on_tick, group, later)):
                yield after, later
        if after := do("shutdown", "", partial(group_transfer.on_shutdown, group)):
            yield after, now_ms

    explore([(GroupTransfer(), 0)], successors)
    return recorder.sorted(("put", "ack", "tick", "shutdown"))


# --- The store ---------------------------------------------------------------------------------------------------------------

STORE_FILE_SIZE = 200  # a file holds a record of 92 bytes and one of 100, or one of them and a BLANK


def of_store(profile: Profile) -> list[Happening]:
    """Explore the store: a master's log of up to three files under puts, slaves' logs with any part of it, recovery of both."""
    recorder = Recorder(store.classify)
    size = STORE_FILE_SIZE
    complete = [Log(size)]  # the master's longest log, from which slaves get parts

    def put(log: Log, body: bytes) -> Step[Log]:
        rolls = size - len(log.data) % size < 100 + len(body)
        return Step(store.append_record(log, Record(b"T", body))[0], (), ("HA-ST-2", "HA-ST-4", *(("HA-ST-3",) * rolls)))

    def append_data(log: Log, offset: int, body: bytes) -> Step[Log]:
        after = store.append_data(log, offset, body)
        return Step(after, (), () if after == log else ("HA-ST-6",) if body else ("HA-S-10",))

    def puts(log: Log, possible: bool) -> Iterator[Log]:
        for event, variant, body in (("put", "", b""), ("put", "", bytes(8)), ("put", "larger than a file", bytes(size))):
            rolls = size - len(log.data) % size < 100 + len(body) <= size
            if after := recorder.do(log, "put_roll" if rolls else event, variant, partial(put, log, body), possible):
                yield after

    def appends(log: Log, possible: bool) -> Iterator[Log]:
        maximum, room = store.max_offset(log), size - len(log.data) % size
        for length in (50, 89, room):  # 89: a record without its topic and the rest
            if length <= room and (body := store.data_at(complete[0], maximum, length)):
                name = "the rest of the file" if length == room else "a part of the file"
                if after := recorder.do(log, "append_data", name, partial(append_data, log, maximum, body), possible):
                    yield after
        unchecked = possible and not profile.checks_frames
        odd = [("nothing", maximum, b""), ("more than the file has room for", maximum, b"\x01" * (room + 1))]
        if maximum == 0:
            odd += [("an offset within a file", size + 50, b"\x01"), ("a negative offset within file 0", -5, b"\x01")]
            odd += [("a negative offset", -size, b"\x01"), ("nothing, at a negative offset", -size, b"")]
        for name, offset, body in odd:
            after = recorder.do(log, "append_data", name, partial(append_data, log, offset, body), unchecked)
            if after and len(after.data) <= 2 * size:
                yield after

    def recovers(log: Log) -> Iterator[Log]:
        if after := recorder.do(log, "recover", "", partial(store.recover, log, profile)):
            yield after

    def recovers_what_is_left(log: Log) -> Iterator[Log]:
        left = store.without_last_record(log)
        if after := recorder.do(log, "recover", "without its last record", partial(store.recover, left, profile)):
            yield after

    def deletes(log: Log, possible: bool) -> Iterator[Log]:
        after = store.without_first_file(log)
        step = Step(after, (), () if after == log else ("HA-ST-13",))
        if found := recorder.do(log, "delete", "the first file", lambda: step, possible):
            yield found

    def of_master_log(log: Log) -> Iterator[Log]:
        yield from recovers(log)
        yield from deletes(log, True)
        yield from recovers_what_is_left(log)
        tuple(appends(log, False))
        for after in puts(log, True):
            complete[0] = max(complete[0], after, key=lambda candidate: len(candidate.data))
            if store.max_offset(log) <= 2 * size:
                yield after

    def of_slave_log(log: Log) -> Iterator[Log]:
        yield from recovers(log)
        tuple(puts(log, False))
        tuple(deletes(log, False))
        yield from appends(log, True)

    explore([Log(size)], of_master_log)
    explore([Log(size)], of_slave_log)
    return recorder.sorted(("put", "put_roll", "append_data", "delete", "recover"))


def _machine(title: str, happenings: Callable[[Profile], list[Happening]], *states: type[Enum]) -> Machine:
    return Machine(title, tuple(dict.fromkeys(state.value for kind in states for state in kind)), happenings)


MACHINES: Final = {
    "master_connection": _machine("The master's end of a connection", of_master, MasterConnectionState),
    "slave_client": _machine("The slave", of_slave, SlaveState),
    "group_transfer": _machine("The puts that wait for a slave", of_group_transfer, GroupTransferState, FiveWaitsState),
    "store": _machine("A commit log", of_store, StoreState),
    "link": _machine("The connections of one slave, in a cluster", of_link, Ends),
}
