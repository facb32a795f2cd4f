"""Every transition that the model can make, found by exploring each machine alone under all possible inputs.

The result is spec/transitions.json: the transitions that a campaign can possibly see. The scope is tiny: a frame of 6 bytes,
files of 12 bytes, three appends, times of a few milliseconds. A test compares the file with this module, and every transition
of a campaign with the file.

    python -m rocketmq_ha.reference.transitions                 print the table as JSON
    python -m rocketmq_ha.reference.transitions --check         exit status 1 if spec/transitions.json differs
    python -m rocketmq_ha.reference.transitions --check-texts   the same in a second, for all but the transitions
    python -m rocketmq_ha.reference.transitions --write         write it
"""

import json
import sys
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from enum import Enum
from importlib import resources
from itertools import chain
from multiprocessing import get_context
from typing import Final, TypeVar

from rocketmq_ha.reference import (
    explore_derived,
    explore_metadata,
    explore_remoting,
    explore_routes,
    five_waits,
    group_transfer,
    master,
    reads_machines,
    replicas_machines,
    slave,
    store,
    store_exploration,
    wire,
)
from rocketmq_ha.reference.cluster import LinkState
from rocketmq_ha.reference.five_waits import FiveWaits, FiveWaitsState
from rocketmq_ha.reference.group_transfer import GroupCommitRequest, GroupTransfer, GroupTransferState
from rocketmq_ha.reference.master import MasterConnection, MasterConnectionState
from rocketmq_ha.reference.message import Record
from rocketmq_ha.reference.metadata_entries import (
    ConsumerOffsetState,
    DelayProgressState,
    SlaveTableState,
    SynchronizingState,
    TableFileState,
)
from rocketmq_ha.reference.reads_state import HoldState, PullState
from rocketmq_ha.reference.remoting_states import ConnectionState, OutputState, QuestionState, RequestState
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.replicas_state import GroupCommitState, PutState, ReplicaConnectionState, ReplicasState
from rocketmq_ha.reference.route_entries import BrokerEntryState, NameServerState, TextEntryState, TopicEntryState
from rocketmq_ha.reference.routes import RegisteringState
from rocketmq_ha.reference.slave import Slave, SlaveState
from rocketmq_ha.reference.step import Step, Transition
from rocketmq_ha.reference.store import Log, StoreState
from rocketmq_ha.reference.store_derived import ConsumeQueueState, IndexState
from rocketmq_ha.reference.store_state import StoreLifeState
from rocketmq_ha.spec import citations, clauses
from rocketmq_ha.spec.constants import END_FILE_MIN_BLANK_SIZE, GROUP_TRANSFER_WAIT_MS, TRANSFER_HEADER_SIZE
from rocketmq_ha.spec.event_log import TRANSITIONS_FILE, TRANSITIONS_VERSION
from rocketmq_ha.spec.profile import PROFILES, Profile, Settings

Node = TypeVar("Node", bound=Hashable)
Row = tuple[str, str, str, str, str]  # actor, from state, event, to state, profile

FILE_SIZE = 12
SETTINGS = Settings(
    mapped_file_size=FILE_SIZE,
    ha_transfer_batch_size=6,
    ha_send_heartbeat_interval_ms=1,
    ha_housekeeping_interval_ms=3,
    sync_flush_timeout_ms=1,
    master_read_buffer_size=8,
    slave_read_buffer_size=24,
)
LATE_MS = 4  # longer than every interval
NEAR, FAR = 1, 7  # offsets: FAR needs more than six reports, and classic's service waits for fewer


def explore(start: Iterable[Node], successors: Callable[[Node], Iterator[Node]]) -> int:
    """Visit every reachable node. Returns: their number."""
    seen = set(start)
    frontier = list(seen)
    while frontier:
        for node in successors(frontier.pop()):
            if node not in seen:
                seen.add(node)
                frontier.append(node)
    return len(seen)


class Table:
    """The transitions found, with the clauses of their steps."""

    def __init__(self) -> None:
        self.rows: set[Row] = set()
        self.clauses: dict[str, set[str]] = {}  # clause id: the worlds whose schedules can exercise it

    def add(self, actor: str, before: str, event: str, after: str, profile: Profile, step_clauses: Iterable[str]) -> None:
        self.rows.add((actor, before, event, after, profile.name))
        for clause in step_clauses:
            self.clauses.setdefault(clause, set()).update(MACHINES[actor].worlds)

    def update(self, other: "Table") -> None:
        self.rows |= other.rows
        for clause, worlds in other.clauses.items():
            self.clauses.setdefault(clause, set()).update(worlds)


def explore_master(table: Table, profile: Profile) -> int:
    """Explore a master's connection: all reports in all fragments, any socket room, time, appends, end of stream."""
    # A node: the connection with ages in place of timestamps, its log, and the received bytes of a partial report.
    start = (master.on_accept(0).state, Log(FILE_SIZE, 0, bytes(3)), b"")

    def successors(node: tuple[MasterConnection, Log, bytes]) -> Iterator[tuple[MasterConnection, Log, bytes]]:
        conn, log, rest = node
        if conn.close_reason:
            return

        def to(event: str, step: Step[MasterConnection], rest: bytes = rest) -> tuple[MasterConnection, Log, bytes]:
            before, after = master.classify(conn).value, master.classify(step.state).value
            if step.state != conn:
                table.add("master_connection", before, event, after, profile, step.clauses)
            return _normal(step.state, profile), log, rest

        # The write side runs whenever it can, so other events never meet a connection with something left to write.
        for room in (0, 1, 12, 13, 18, 24, 25, 30, 100):
            step = master.on_transfer(conn, log, room, 0, SETTINGS)
            if step.state != conn:
                yield to("transfer", step)
        if master.on_transfer(conn, log, 0, 0, SETTINGS).state != conn:
            return
        maximum = store.max_offset(log)
        offsets = {0, maximum, maximum + 1, -1, -5}
        for report in (rest,) if rest else map(wire.pack_report, sorted(offsets)):
            for size in {len(report)} if rest else {1, len(report)}:
                taken = master.on_reports(conn, report[:size], log, 0, SETTINGS, profile)
                yield to("reports", taken, report[size:])
        if len(log.data) < 15:  # a last file begun, full, and one byte beyond
            yield conn, replace(log, data=log.data + bytes(6)), rest
        yield replace(conn, last_write_timestamp=-LATE_MS), log, rest
        yield to("tick", master.on_tick(replace(conn, last_read_timestamp=-LATE_MS), 0, SETTINGS))
        yield to("end_of_stream", master.on_end_of_stream(conn))

    state = master.classify(start[0]).value
    table.add("master_connection", state, "accept", state, profile, master.on_accept(0).clauses)
    # The only step that reads the min offset, on a log whose first file was deleted (HA-M-12).
    log = Log(FILE_SIZE, FILE_SIZE, bytes(3))
    step = master.on_reports(start[0], wire.pack_report(FILE_SIZE - 1), log, 0, SETTINGS, profile)
    table.add("master_connection", state, "reports", master.classify(step.state).value, profile, step.clauses)
    return explore([start], successors)


def _normal(conn: MasterConnection, profile: Profile) -> MasterConnection:
    """The connection without fields that no later transition reads; otherwise there are too many nodes to visit."""
    used, begun = conn.process_position, conn.next_transfer_from_where != -1
    return replace(
        conn,
        byte_buffer_read=bytes(used) + conn.byte_buffer_read[used:],
        this_offset=-1 if conn.last_write_over else conn.this_offset,
        slave_request_offset=1 if begun and conn.slave_request_offset >= 0 else conn.slave_request_offset,
        slave_ack_offset=conn.slave_ack_offset if profile.checks_reports else -1,
    )


def explore_slave(table: Table, profile: Profile) -> int:
    """Explore a slave: fitting and unfitting frames in all fragments; whole and partial reports."""
    # A node: the slave with ages in place of timestamps, and the missing rest of a partial frame.
    start = (Slave(Log(FILE_SIZE)), b"")
    full_room, cut_room = 100, 3

    def successors(node: tuple[Slave, bytes]) -> Iterator[tuple[Slave, bytes]]:
        client, rest = node

        def to(event: str, step: Step[Slave], rest: bytes = b"") -> tuple[Slave, bytes]:
            table.add(
                "slave_client",
                slave.classify(client).value,
                event,
                slave.classify(step.state).value,
                profile,
                step.clauses,
            )
            after = step.state
            used = after.dispatch_position  # dispatched bytes are not read again
            after = replace(after, byte_buffer_read=bytes(used) + after.byte_buffer_read[used:], close_reason="")
            return after, rest if after.connected else b""

        yield to("restart", slave.on_restart(client, profile))
        if not client.connected:
            for room in (full_room, cut_room):
                yield to("connect", slave.on_connect(client, room, 0, profile))
            return
        yield to("end_of_stream", slave.on_end_of_stream(client))
        maximum = store.max_offset(client.log)
        streams = [rest]
        if not rest:
            room_in_file = FILE_SIZE - maximum % FILE_SIZE
            sizes = {0, room_in_file} if maximum < 2 * FILE_SIZE else {0}
            frames = [wire.pack_header(maximum, size) + b"\x01" * size for size in sorted(sizes)]
            behind = wire.pack_header(maximum + max(sizes), 0)
            streams = [*frames, wire.pack_header(maximum + 1, 1) + b"\x01", frames[0] + frames[-1], frames[-1] + behind]
            # No correct master sends a body larger than the buffer. Classic stalls on it, hardened refuses its header.
            too_large = SETTINGS.slave_read_buffer_size - TRANSFER_HEADER_SIZE + 1
            streams.append(wire.pack_header(maximum, too_large) + b"\x01" * too_large)
            streams += [wire.pack_header(maximum, size) for size in (-1, slave.I32_MAX)]
            streams.append(frames[-1] + wire.pack_header(maximum + max(sizes), -1))  # classic turns deaf behind a whole body
            if not maximum:  # HA-S-52 "whose file would end beyond the greatest offset"
                streams.append(wire.pack_header(slave.I64_MAX, 0))
            if profile.checks_overlap and client.current_reported_offset < maximum:  # bytes equal to its own, and others
                position = client.current_reported_offset
                own = store.data_at(client.log, position, FILE_SIZE)
                streams += [wire.pack_header(position, len(own)) + body for body in (own, b"\x02" * len(own))]
        for stream in streams:
            for size in {1, 12, 13, len(stream) - 11, len(stream)}:
                if 0 < size <= len(stream):
                    for room in (full_room, cut_room):
                        step = slave.on_frames(client, stream[:size], room, 0, SETTINGS, profile)
                        yield to("frames", step, stream[size:])
        for ms in (2, LATE_MS):
            older = replace(
                client,
                last_read_timestamp=max(client.last_read_timestamp - ms, -LATE_MS),
                last_write_timestamp=max(client.last_write_timestamp - ms, -LATE_MS),
            )
            if older == client:
                continue
            for room in (full_room, cut_room):
                step = slave.on_tick(older, room, 0, SETTINGS, profile)
                yield to("tick", step, rest) if step.state != older else (older, rest)

    # A BLANK that ends before the slave's own file: one slave adopts the size, another stops (HA-S-91, HA-S-92).
    for adopts in (True, False):
        client = replace(start[0], connected=True)
        stream = wire.pack_header(0, END_FILE_MIN_BLANK_SIZE) + store.blank(END_FILE_MIN_BLANK_SIZE)
        settings = replace(SETTINGS, adopts_file_size=adopts)
        step = slave.on_frames(client, stream, full_room, 0, settings, profile)
        before, after = slave.classify(client).value, slave.classify(step.state).value
        table.add("slave_client", before, "frames", after, profile, step.clauses)
    # A disk that is full: classic acknowledges the body all the same, hardened closes (HA-S-37, HA-S-38).
    client = replace(start[0], connected=True, disk_full=True)
    step = slave.on_frames(client, wire.pack_header(0, 1) + b"\x01", full_room, 0, SETTINGS, profile)
    before, after = slave.classify(client).value, slave.classify(step.state).value
    table.add("slave_client", before, "frames", after, profile, step.clauses)
    return explore([start], successors)


def explore_store(table: Table, profile: Profile) -> int:
    """Explore the store: a master's log of up to three files under puts, a slave's log with any part of it, recoveries."""
    # Files of 200 bytes hold a record of 92 bytes and one of 100, or one of them and a BLANK.
    size = 200
    complete = Log(size)

    def add(before: Log, event: str, after: Log, step_clauses: tuple[str, ...]) -> Log:
        table.add("store", store.classify(before).value, event, store.classify(after).value, profile, step_clauses)
        return after

    def recovered(log: Log) -> Log:
        step = store.recover(log, profile)
        return add(log, "recover", step.state, step.clauses)

    def of_master(log: Log) -> Iterator[Log]:
        nonlocal complete
        yield recovered(log)
        shorter = store.without_first_file(log)
        if shorter != log:
            yield add(log, "delete", shorter, ("HA-ST-13",))
        cut = store.recover(store.without_last_record(log), profile)  # a power cut lost the unflushed record
        yield add(log, "recover", cut.state, cut.clauses)
        if store.max_offset(log) > 2 * size:
            complete = max(complete, log, key=lambda candidate: len(candidate.data))
            return
        for body in (b"", bytes(8)):
            after, offset, _ = store.append_record(log, Record(b"T", body))
            rolls = offset > store.max_offset(log)
            stored = ("HA-ST-2", "HA-ST-4")
            yield add(log, "put_roll" if rolls else "put", after, (*stored, "HA-ST-3") if rolls else stored)

    def of_slave(log: Log) -> Iterator[Log]:
        yield recovered(log)
        begins = [store.max_offset(log)]
        if begins == [0]:  # nothing is checked in classic while the max offset is 0 (quirks 17, 18 and 24)
            begins = [0, size] if profile.checks_frames else [0, 50, size]
        for begin in begins:
            for length in (0, 1, 50, 89, size):  # 89: a record without its topic and the rest
                body = store.data_at(complete, begin, length)
                if body or not profile.ignores_heartbeats:
                    after = store.append_data(log, begin, body)
                    if after != log:
                        yield add(log, "append_data", after, ("HA-ST-6",) if body else ("HA-S-10",))

    return explore([Log(size)], of_master) + explore([Log(size)], of_slave)


def explore_group_transfer(table: Table, profile: Profile) -> int:
    """Explore hardened's group transfer: up to two waiting puts, acks, deadlines, shutdown."""
    if not profile.serves_by_deadline:
        return explore_five_waits(table, profile)

    def successors(node: tuple[GroupTransfer, int]) -> Iterator[tuple[GroupTransfer, int]]:
        group, now_ms = node

        def to(event: str, step: Step[GroupTransfer], now_ms: int = now_ms) -> tuple[GroupTransfer, int]:
            before, after = group_transfer.classify(group).value, group_transfer.classify(step.state).value
            if step.state != group or step.outputs:
                table.add("group_transfer", before, event, after, profile, step.clauses)
            return step.state, now_ms

        next_offset = group.requests[-1].next_offset + 1 if group.requests else 1
        for slaves, replicas in ((0, 1), (1, 1), (1, 2)):
            if len(group.requests) < 2 or slaves < replicas:
                for push2 in (0, 9):
                    settings = replace(SETTINGS, replicas=replicas)
                    step = group_transfer.on_put(group, next_offset, next_offset, slaves, push2, now_ms, settings)
                    yield to("put", step)
        for ack in range(4):
            released = group_transfer.on_ack(group, ack)
            yield to("ack", replace(released, clauses=("HA-G-5", "HA-G-30", *released.clauses)))
        for later in range(now_ms, 5):
            yield to("tick", group_transfer.on_tick(group, later), later)
        yield to("shutdown", group_transfer.on_shutdown(group))

    return explore([(GroupTransfer(), 0)], successors)


def aged(group: FiveWaits, ms: int) -> FiveWaits:
    """The same group some time later. Time is always 0 in a node, and all deadlines that have passed count as the same."""

    def older(request: GroupCommitRequest) -> GroupCommitRequest:
        return replace(request, deadline_ms=max(-1, request.deadline_ms - ms))

    service = group.service
    since_ms = max(-GROUP_TRANSFER_WAIT_MS, service.waiting_since_ms - ms) if service.requests_read else 0
    write, read = (tuple(map(older, requests)) for requests in (service.requests_write, service.requests_read))
    aged_service = replace(service, requests_write=write, requests_read=read, waiting_since_ms=since_ms)
    return FiveWaits(tuple(map(older, group.requests)), aged_service)


def explore_five_waits(table: Table, profile: Profile) -> int:
    """Explore classic's service: up to two requests in either order; a tick ends its wait, a producer's wait, or both."""
    in_time_ms, late_ms = 600, GROUP_TRANSFER_WAIT_MS
    settings = replace(SETTINGS, sync_flush_timeout_ms=in_time_ms + 100)

    def successors(node: tuple[FiveWaits, int]) -> Iterator[tuple[FiveWaits, int]]:
        group, push2 = node

        def to(event: str, step: Step[FiveWaits], push2: int = push2) -> tuple[FiveWaits, int]:
            if step.state != group or step.outputs:
                before, after = five_waits.classify(group).value, five_waits.classify(step.state).value
                table.add("group_transfer", before, event, after, profile, step.clauses)
            return aged(step.state, 0), push2

        held = {request.next_offset for request in (*group.service.requests_read, *group.service.requests_write)}
        for next_offset in {NEAR, FAR} - held:
            for slaves in (0, 1):
                yield to("put", five_waits.on_put(group, next_offset, next_offset, slaves, push2, 0, settings))
        for ack in {push2 + 1, FAR} if push2 < FAR else set():
            step = five_waits.on_ack(group, ack, 0)
            yield to("ack", replace(step, clauses=("HA-G-4", *step.clauses)), ack)
        for ms in (in_time_ms, late_ms):
            group = aged(node[0], ms)
            yield to("tick", five_waits.on_tick(group, push2, 0))
        group = node[0]
        to("shutdown", five_waits.on_shutdown(group))  # and then the process ends

    return explore([(FiveWaits(), 0)], successors)


def explore_network(table: Table, profile: Profile) -> int:
    """Explore a link under the events of schedules. A severed link can be cut again if its slave has not noticed yet."""
    up, severed = LinkState.UP.value, LinkState.SEVERED.value
    rows = (
        (up, "forge_report", up),
        (up, "forge_header", up),
        (up, "clog", up),
        (up, "cut", severed),
        (severed, "clog", severed),
        (severed, "cut", severed),
    )
    for before, event, after in rows:
        table.add("network", before, event, after, profile, ())
    return len(LinkState)


def explore_store_life(table: Table, profile: Profile) -> int:
    """Explore a store through starts, stops and crashes: store_exploration.py, explore_derived.py."""
    rows = 0
    for row in chain(store_exploration.transitions(profile), explore_derived.transitions(profile)):
        table.add(row.actor, row.from_state, row.event, row.to_state, profile, row.clauses)
        rows += 1
    return rows


@dataclass(frozen=True, slots=True)
class Machine:
    """How the transitions of one actor of the event log are found, and in the runs of which worlds it takes part."""

    explore: Callable[[Table, Profile], int]
    states: tuple[type[Enum], ...]
    worlds: tuple[str, ...]


def explored_beside(table: Table, profile: Profile) -> int:  # noqa: ARG001
    """The scope of another machine of the same world has found its transitions."""
    return 0


LINK: Final = ("link",)
REPLICAS: Final = ("replicas",)
READS: Final = ("reads",)


def _together(
    actor: str, state: type[Enum], worlds: tuple[str, ...], rows_of: Callable[[Profile], Iterable[Transition]]
) -> Machine:
    """A machine of a world whose machines are explored together: `rows_of` has the rows of them all."""

    def explore(table: Table, profile: Profile) -> int:
        rows = [row for row in rows_of(profile) if row.actor == actor]
        for row in rows:
            table.add(actor, row.from_state, row.event, row.to_state, profile, row.clauses)
        return len(rows)

    return Machine(explore, (state,), worlds)


METADATA: Final = ("metadata",)
REMOTING: Final = ("remoting",)
ROUTES: Final = ("routes",)
STORE: Final = ("store",)
MACHINES: Final = {
    "store": Machine(explore_store, (StoreState,), LINK),
    "master_connection": Machine(explore_master, (MasterConnectionState,), LINK),
    "slave_client": Machine(explore_slave, (SlaveState,), LINK),
    "group_transfer": Machine(explore_group_transfer, (GroupTransferState, FiveWaitsState), (*LINK, *REPLICAS)),
    "network": Machine(explore_network, (LinkState,), LINK),
    "put": Machine(replicas_machines.explore_puts, (PutState,), REPLICAS),
    "group_commit": Machine(explored_beside, (GroupCommitState,), REPLICAS),
    "replica_connection": Machine(replicas_machines.explore_connections, (ReplicaConnectionState,), REPLICAS),
    "replicas": Machine(replicas_machines.explore_replicas, (ReplicasState,), REPLICAS),
    "pull": Machine(reads_machines.explore_pulls, (PullState,), READS),
    "hold": Machine(reads_machines.explore_hold, (HoldState,), READS),
    "broker_entry": _together("broker_entry", BrokerEntryState, ROUTES, explore_routes.rows),
    "topic_entry": _together("topic_entry", TopicEntryState, ROUTES, explore_routes.rows),
    "text_entry": _together("text_entry", TextEntryState, ROUTES, explore_routes.rows),
    "name_server": _together("name_server", NameServerState, ROUTES, explore_routes.rows),
    "synchronizing": _together("synchronizing", SynchronizingState, METADATA, explore_metadata.rows),
    "slave_table": _together("slave_table", SlaveTableState, METADATA, explore_metadata.rows),
    "consumer_offset": _together("consumer_offset", ConsumerOffsetState, METADATA, explore_metadata.rows),
    "delay_progress": _together("delay_progress", DelayProgressState, METADATA, explore_metadata.rows),
    "table_file": _together("table_file", TableFileState, METADATA, explore_metadata.rows),
    "registering": _together("registering", RegisteringState, ROUTES, explore_routes.rows),
    "remoting_connection": _together("remoting_connection", ConnectionState, REMOTING, explore_remoting.rows),
    "remoting_output": _together("remoting_output", OutputState, REMOTING, explore_remoting.rows),
    "remoting_request": _together("remoting_request", RequestState, REMOTING, explore_remoting.rows),
    "remoting_question": _together("remoting_question", QuestionState, REMOTING, explore_remoting.rows),
    "store_life": Machine(explore_store_life, (StoreLifeState,), STORE),
    "consume_queue": Machine(explored_beside, (ConsumeQueueState,), STORE),
    "index": Machine(explored_beside, (IndexState,), STORE),
}


def explored(machines: Collection[Machine]) -> Table:
    """The transitions of these machines in both profiles."""
    table = Table()
    for profile in PROFILES.values():
        for machine in machines:
            machine.explore(table, profile)
    return table


def explored_of(worlds: tuple[str, ...]) -> Table:
    """The transitions of the machines of these worlds and no others."""
    return explored([machine for machine in MACHINES.values() if machine.worlds == worlds])


def explored_in_processes() -> Table:
    """The transitions of all machines, with a processor for each world: it takes a minute and a half of one."""
    table = Table()
    # From the last on: those of the worlds that take longest. Machines of one world share what they have explored.
    worlds = dict.fromkeys(machine.worlds for machine in reversed(MACHINES.values()))
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        for found in pool.map(explored_of, worlds):
            table.update(found)
    return table


def found_in(text: str) -> Table:
    """The transitions that the text of spec/transitions.json tells, with the clauses of their steps."""
    document, table = json.loads(text), Table()
    for actor, machine in document["machines"].items():
        table.rows |= {(actor, *names, profile) for *names, profiles in machine["transitions"] for profile in profiles}
    table.clauses = {clause: set(told["worlds"]) for clause, told in document["clauses"].items()}
    return table


def generate(table: Table | None = None) -> str:
    """The text of spec/transitions.json.

    Args:  table: the transitions; None: those that an exploration of the model finds.
    """
    table = table or explored_in_processes()
    machines = {}
    for actor, machine in MACHINES.items():
        rows = sorted(row[1:] for row in table.rows if row[0] == actor)
        by_transition: dict[tuple[str, str, str], list[str]] = {}
        for before, event, after, profile_name in rows:
            by_transition.setdefault((before, event, after), []).append(profile_name)
        machines[actor] = {
            "worlds": machine.worlds,
            "states": list(dict.fromkeys(state.value for kind in machine.states for state in kind)),
            "events": sorted({event for _, event, _, _ in rows}),
            "transitions": [[*transition, profiles] for transition, profiles in by_transition.items()],
        }
    sentences = clauses.load()
    assert table.clauses.keys() <= sentences.keys(), f"cited, not in spec/: {sorted(table.clauses.keys() - sentences.keys())}"
    document = {
        "version": TRANSITIONS_VERSION,
        "machines": machines,
        "clauses": {
            clause: {"sentence": sentence, "worlds": sorted(table.clauses[clause])}
            for clause, sentence in sentences.items()
            if clause in table.clauses
        },
        "elsewhere": citations.elsewhere(table.clauses),
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> int:
    file = resources.files("rocketmq_ha.spec") / TRANSITIONS_FILE
    only_texts = arguments == ["--check-texts"] and file.is_file()
    text = generate(found_in(file.read_text(encoding="utf-8")) if only_texts else None)
    if arguments == ["--write"]:
        with resources.as_file(file) as path:
            path.write_text(text, encoding="utf-8")
    elif arguments in (["--check"], ["--check-texts"]):
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            sys.stderr.write(f"{file}: differs from the model; make transitions writes it anew\n")
            return 1
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
