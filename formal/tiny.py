"""Check the refinement exhaustively on byte-level scopes with buffers of a few bytes: every state and every edge.

`reference.cluster.step` explores a scope breadth-first, and each edge must map to protocol-level steps
(reference/refinement.py). Log units are single bytes, a file holds two, a frame one; sockets and buffers are as small as
possible. The coverage says how many edges of the protocol level's own graph in the same scope occur in the witness of a
byte-level step. Edges from states in which a write side has something to send are left out: the byte level never rests there.

    python -m formal.tiny            explore every scope
    python -m formal.tiny reads      only scopes whose names begin like this

Time is a choice here: a deadline may pass at any moment. A put is a byte and not a record, so a store cannot recover, and a
process that ends only breaks its links. For the overlap (HA-S-61) a byte counts as a record.
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final
from unittest.mock import patch

from formal import graph
from rocketmq_ha.reference import (
    cluster,
    group_transfer_service,
    master,
    overlap,
    protocol,
    refinement,
    refinement_map,
    store,
)
from rocketmq_ha.reference.cluster import Cluster, Link
from rocketmq_ha.reference.events import Connect, Cut, DeliverFrames, DeliverReports, Event, Grant, Put, Tick
from rocketmq_ha.reference.five_waits import FiveWaits
from rocketmq_ha.reference.group_transfer import GroupCommitRequest
from rocketmq_ha.reference.master import MasterConnection
from rocketmq_ha.reference.protocol_state import Scope, State, of_profile
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.step import Done
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec.constants import GROUP_TRANSFER_WAIT_MS, TRANSFER_HEADER_SIZE
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile, Settings

ALL: Final = 1 << 10  # bytes; more than are ever in flight
NOW_MS: Final = 1_000_000  # the time in every state; it passes only by making something due


@dataclass(frozen=True)
class Tiny:
    """A byte-level scope. The `_pieces` are the numbers of bytes that one event may move."""

    name: str
    profile: Profile
    write_pieces: tuple[int, ...] = (ALL,)  # bytes that the master's socket takes
    read_pieces: tuple[int, ...] = (ALL,)  # bytes that the slave reads
    ack_pieces: tuple[int, ...] = (ALL,)  # bytes that the master reads
    max_puts: int = 2
    max_cuts: int = 1
    sync_puts: bool = False
    frame_window: int = 2
    report_window: int = 2
    slave_read_buffer_size: int = TRANSFER_HEADER_SIZE + 1  # one frame
    master_read_buffer_size: int = 8  # one report

    @property
    def settings(self) -> Settings:
        return Settings(
            2,
            ha_transfer_batch_size=1,
            ha_send_heartbeat_interval_ms=1_000,
            ha_housekeeping_interval_ms=100_000,
            sync_flush_timeout_ms=50_000,
            master_read_buffer_size=self.master_read_buffer_size,
            slave_read_buffer_size=self.slave_read_buffer_size,
        )

    @property
    def scope(self) -> Scope:
        """The same bounds at the protocol level."""
        scope = Scope(
            max_puts=self.max_puts,
            max_cuts=self.max_cuts,
            file_size=2,
            batch=1,
            sync_puts=self.sync_puts,
            frame_window=self.frame_window,
            report_window=self.report_window,
        )
        return of_profile(scope, self.profile)


@dataclass(frozen=True, slots=True)
class Node:
    """A byte-level state, with the puts and faults used so far."""

    cluster: Cluster
    cuts: int = 0


@dataclass
class Found:
    """The result of an exploration."""

    tiny: Tiny
    states: int = 0
    edges: int = 0
    seconds: float = 0
    differences: list[str] = field(default_factory=list)
    exceptions: Counter[str] = field(default_factory=Counter)
    image: set[tuple[State, str, State]] = field(default_factory=set)


# --- Steps -------------------------------------------------------------------------------------------------------------------


def rested(now: Cluster) -> Cluster:
    """A state at NOW_MS, without everything that cannot affect the future.

    Zeros replace the dispatched bytes of the slave's buffer, which are never read again. A socket takes its grant at once, or
    nothing.
    """
    at_rest = MasterConnection(NOW_MS, NOW_MS)
    links = tuple(
        replace(
            link,
            link_id=number,
            room=0,
            slave_room=ALL,
            conn=replace(link.conn, last_read_timestamp=NOW_MS, last_write_timestamp=NOW_MS)
            if refinement_map.is_open(link)
            else replace(at_rest, close_reason=link.conn.close_reason),
        )
        for number, link in enumerate(now.links)
    )
    slaves = tuple(
        replace(
            node,
            last_write_timestamp=NOW_MS,
            last_read_timestamp=NOW_MS,
            byte_buffer_read=bytes(node.dispatch_position) + node.byte_buffer_read[node.dispatch_position :],
            close_reason="",
            current_reported_offset=node.current_reported_offset if node.connected else 0,
        )
        for node in now.slaves
    )

    def patient(requests: tuple[GroupCommitRequest, ...]) -> tuple[GroupCommitRequest, ...]:
        return tuple(replace(request, deadline_ms=NOW_MS + 1, request_id=0) for request in requests)

    group = replace(now.group, requests=patient(now.group.requests))
    if isinstance(group, FiveWaits):
        service = replace(
            group.service,
            requests_write=patient(group.service.requests_write),
            requests_read=patient(group.service.requests_read),
            waiting_since_ms=NOW_MS if group.service.requests_read else 0,
        )
        group = replace(group, service=service)
    return replace(now, now_ms=NOW_MS, links=links, slaves=slaves, group=group, next_link_id=len(links), puts=0, done=())


def puts(tiny: Tiny, node: Node) -> Iterator[tuple[Event, Cluster, Cluster]]:
    """Append one byte. Returns: (event, state before, state after the append and everything that it triggers)."""
    before = node.cluster
    if len(before.log.data) >= tiny.max_puts:
        return
    unit = bytes((len(before.log.data) + 1,))
    appended = replace(before, log=replace(before.log, base=0, data=before.log.data + unit))
    for wait in (False, True) if tiny.sync_puts else (False,):
        done: tuple[Done, ...] = ()
        group = before.group
        if wait:
            links = [link for link in before.links if refinement_map.is_open(link)]
            if tiny.profile.forgets_lost_slaves:
                links = [link for link in links if master.acked_offset(link.conn, tiny.profile)]
            offset, push2 = len(appended.log.data), before.push2_slave_max_offset
            step = group_transfer_service.on_put(group, 0, offset, len(links), push2, NOW_MS, tiny.settings)
            group, done = step.state, tuple(out for out in step.outputs if isinstance(out, Done))
        after, _ = cluster.step(replace(appended, group=group), Tick(0), tiny.settings, tiny.profile)
        yield Put("", unit, "", 0, wait), before, replace(after, done=(*done, *after.done))


def aged_link(before: Cluster, number: int, **stamps: Any) -> Cluster:
    links = list(before.links)
    links[number] = replace(links[number], conn=replace(links[number].conn, **stamps))
    return replace(before, links=tuple(links))


def dues(tiny: Tiny, before: Cluster) -> Iterator[Cluster]:
    """The states in which one deadline has just passed."""
    long_ago = NOW_MS - 200_000
    for number, link in enumerate(before.links):
        if not refinement_map.is_open(link):
            continue
        if not refinement_map.is_attached(link):
            yield aged_link(before, number, last_read_timestamp=long_ago)
            if not link.conn.last_write_over:  # events reach only a slave's current link, so this socket stays full
                yield replace(before, links=(*before.links[:number], replace(link, room=ALL), *before.links[number + 1 :]))
        in_flight = refinement_map.abstract_connection(link, before.slaves[link.slave], tiny.settings).frames
        if link.conn.slave_request_offset != -1 and link.conn.last_write_over and len(in_flight) < tiny.frame_window:
            yield aged_link(before, number, last_write_timestamp=NOW_MS - 2_000)
    for index, slave in enumerate(before.slaves):
        current = attached(before, index)
        if current and len(refinement_map.reports_of(refinement_map.to_master(current))) < tiny.report_window:
            aged = replace(slave, last_write_timestamp=NOW_MS - 2_000)
            yield replace(before, slaves=(*before.slaves[:index], aged, *before.slaves[index + 1 :]))
    if isinstance(before.group, FiveWaits) and before.group.service.requests_read:
        waited = replace(before.group.service, waiting_since_ms=NOW_MS - GROUP_TRANSFER_WAIT_MS)
        yield replace(before, group=replace(before.group, service=waited))
    for request in before.group.requests:
        requests = tuple(
            replace(other, deadline_ms=NOW_MS - 1) if other is request else other for other in before.group.requests
        )
        yield replace(before, group=replace(before.group, requests=requests))


def attached(now: Cluster, index: int) -> Link | None:
    return next((link for link in now.links if link.slave == index and refinement_map.is_attached(link)), None)


def steps(tiny: Tiny, node: Node) -> Iterator[tuple[Event, Cluster, Cluster, int]]:
    """All events, each with the states before and after it and the link breaks that it uses up."""
    for event, before, after in puts(tiny, node):
        yield event, before, after, 0
    before = node.cluster
    link = attached(before, 0)
    events: list[tuple[Event, int]] = [] if before.slaves[0].connected else [(Connect(0, 0, ALL), 0)]
    if link:
        left = len(link.conn.byte_buffer_header) + len(link.conn.select_mapped_buffer or b"")
        events += ((Grant(0, size), 0) for size in pieces(tiny.write_pieces, left))
        events += ((DeliverFrames(0, size), 0) for size in pieces(tiny.read_pieces, len(link.to_slave)))
        events += ((DeliverReports(0, size), 0) for size in pieces(tiny.ack_pieces, len(link.to_master)))
    if node.cuts < tiny.max_cuts and link:
        events += ((Cut(0, tell), 1) for tell in ("both", "slave", "master"))
    elif link is None and before.slaves[0].connected:
        events.append((Cut(0, "slave"), 0))  # the slave notices what its master knows
    for event, cuts in events:
        after, _ = cluster.step(before, event, tiny.settings, tiny.profile)
        yield event, before, after, cuts
    for aged in dues(tiny, before):
        after, _ = cluster.step(aged, Tick(0), tiny.settings, tiny.profile)
        yield Tick(0), aged, after, 0


def pieces(sizes: tuple[int, ...], there: int) -> tuple[int, ...]:
    """The sizes that move different numbers of bytes."""
    return tuple(size for size in sizes if size < there or (size == ALL and there))


# --- Exploration -------------------------------------------------------------------------------------------------------------


def last_byte(log: Log) -> int:
    """The first report of a slave if every byte is a record."""
    return store.max_offset(log) - (1 if log.data else 0)


@patch.object(overlap, "first_report", last_byte)
def explore(tiny: Tiny, limit: int | None = None, progress: Callable[[int, int], None] | None = None) -> Found:
    """Explore all states and edges of a scope, and check each edge."""
    found, began = Found(tiny), time.perf_counter()
    start = Node(rested(cluster.new_cluster(1, tiny.settings, tiny.profile, NOW_MS)))
    seen, queue = {start}, [start]
    for number, node in enumerate(queue):  # the list grows during the loop: it is the queue
        for event, before, after, cuts in steps(tiny, node):
            found.edges += 1
            told, witness = refinement.simulate(before, event, after, tiny.settings, tiny.profile)
            if told:
                found.differences.append(f"{node}\n{event}\n{told}")
                return found
            for taken in witness:
                name = taken.label.partition("(")[0]
                found.exceptions[name] += name in refinement.EXCEPTIONS
                ends = of_one_epoch(taken.before), of_one_epoch(taken.after)
                found.image.add((ends[0], name, ends[1]))
            then = Node(rested(after), node.cuts + cuts)
            if then not in seen:
                seen.add(then)
                queue.append(then)
        if limit is not None and len(seen) > limit:
            raise graph.GraphTooLargeError(f"more than {limit} states")
        if progress and number % 2000 == 0:
            progress(number, len(queue))
    found.states, found.seconds = len(seen), time.perf_counter() - began
    return found


def is_at_rest(state: State, scope: Scope) -> bool:
    """Return True if no write side can act: it fixes its start and builds a frame as soon as it can."""
    return not any(
        conn is not None
        and conn.req != -1
        and (conn.next == -1 or (not conn.frames and not conn.stale and protocol.transfer(state, scope, s, k) is not None))
        for s, slots in enumerate(state.conn, 1)
        for k, conn in enumerate(slots, 1)
    )


def edges_when_eager(state: State, scope: Scope) -> Iterator[tuple[str, State]]:
    """The protocol-level edges that a byte-level run can take. Its write sides write at once, and its network has room.

    Left out are: edges that delay a write side; a heartbeat while there is data to send; the arrival of the last frame while
    there is more to send, since the next frame is built before the last byte leaves; a report that replaces another for lack
    of room; the arrival of a report on a stale connection, since a broken link loses the bytes on it (LoseReports).
    """
    rests = is_at_rest(state, scope)
    stale = {(s, k) for s, slots in enumerate(state.conn, 1) for k, conn in enumerate(slots, 1) if conn and conn.stale}
    wide = replace(scope, frame_window=refinement_map.UNBOUNDED)
    for label, after in protocol.edges(state, scope):
        name = label.partition("(")[0]
        numbers = tuple(int(number) for number in label.partition("(")[2].strip(")").split(",") if number)
        if not rests:  # a stale connection's socket may be full, so it may send in a state of rest
            if name == "Begin" or (name == "Transfer" and numbers not in stale):
                yield label, after
            continue
        beats_data = name == "Heartbeat" and protocol.transfer(state, wide, *numbers) is not None
        overtakes = name == "DeliverFrames" and not is_at_rest(after, scope)
        arrives_late = name == "DeliverReports" and numbers in stale
        if not (beats_data or overtakes or arrives_late or replaces_a_report(state, after, scope)):
            yield label, after


def replaces_a_report(before: State, after: State, scope: Scope) -> bool:
    return any(
        len(new.reports) == scope.report_window and new.reports[:-1] == old.reports[:-1]
        for olds, news in zip(before.conn, after.conn, strict=True)
        for old, new in zip(olds, news, strict=True)
        if old is not None and new is not None and old.reports != new.reports and len(old.reports) == scope.report_window
    )


def coverage(found: Found) -> tuple[int, int, Counter[str]]:
    """Coverage of the protocol-level edges that the byte level can take: (covered, all, labels of the uncovered)."""
    whole = graph.explore(found.tiny.scope, edges=edges_when_eager)
    states = [of_one_epoch(state) for state in whole.states]
    wanted = {
        (states[before], label.partition("(")[0], states[after])
        for label, before, after in whole.edges
        if states[before] != states[after]
    }
    missing = Counter(name for _, name, _ in wanted - found.image)
    return len(wanted & found.image), len(wanted), missing


@lru_cache(maxsize=1 << 15)
def of_one_epoch(state: State) -> State:
    """The state with epoch 0 for every unit, as in a scope without crashes; the byte level numbers its units instead.

    Bytes in flight on a stale connection are left out, since the byte level loses them.
    """
    conn = tuple(
        tuple(
            one
            and replace(
                one,
                frames=tuple(replace(frame, units=bytes(len(frame.units))) for frame in one.frames),
                reports=() if one.stale else one.reports,
            )
            for one in slots
        )
        for slots in state.conn
    )
    slave = tuple(replace(node, units=bytes(len(node.units))) for node in state.slave)
    return refinement_map.normal(replace(state, log=bytes(len(state.log)), conn=conn, slave=slave))


# --- The program -------------------------------------------------------------------------------------------------------------

# The master reads one or both of two reports.
_BREAK: Final[dict[str, Any]] = {"max_puts": 1, "ack_pieces": (8, ALL), "master_read_buffer_size": 16}
_STEADY: Final[dict[str, Any]] = {**_BREAK, "max_cuts": 0}

SCOPES: Final = (
    *(
        Tiny(f"{name}-{profile.name}", profile, **bounds)
        for profile in (CLASSIC, HARDENED)
        for name, bounds in {
            "whole": {"read_pieces": (12, 13, ALL), "ack_pieces": (8, ALL), "master_read_buffer_size": 16, "max_cuts": 0},
            "break": _BREAK,
            "writes": {**_STEADY, "write_pieces": (1, 5, ALL), "report_window": 1},
            "reads": {**_STEADY, "read_pieces": (1, ALL), "slave_read_buffer_size": 14},
            "acks": {**_STEADY, "ack_pieces": (1, 9, ALL)},
        }.items()
    ),
    Tiny("sync-classic", CLASSIC, sync_puts=True, **_STEADY),
    Tiny("sync-hardened", HARDENED, sync_puts=True, **_BREAK),
)


# (states, edges, covered protocol-level edges, coverable protocol-level edges)
RESULTS: Final[dict[str, tuple[int, int, int, int]]] = {
    "whole-classic": (6515, 29343, 629, 629),
    "break-classic": (6308, 31846, 1455, 1455),
    "writes-classic": (11370, 50693, 116, 116),
    "reads-classic": (2458, 10864, 237, 237),
    "acks-classic": (2066, 9054, 237, 237),
    "whole-hardened": (6519, 29330, 492, 492),
    "break-hardened": (6344, 32537, 1053, 1053),
    "writes-hardened": (7480, 33270, 78, 78),
    "reads-hardened": (1778, 7799, 167, 167),
    "acks-hardened": (2064, 9051, 167, 167),
    "sync-classic": (2478, 11143, 426, 426),
    "sync-hardened": (6344, 33106, 1089, 1089),
}


def judge(name: str, limit: int) -> tuple[bool, list[str]]:
    """Explore a scope. Returns: whether the result equals the checked-in one, and a line about it."""
    (tiny,) = (one for one in SCOPES if one.name == name)
    found = explore(tiny, limit)
    if found.differences:
        return False, [f"{name}: does not refine: {found.differences[0]}"]
    covered, wanted, missing = coverage(found)
    result = (found.states, found.edges, covered, wanted)
    told = f"{covered} of {wanted}"
    told += f"; not {dict(missing)}" if missing else ""
    told += f"; exceptions {dict(+found.exceptions)}" if +found.exceptions else ""
    lines = [f"{name:<20} {found.states:>8} {found.edges:>8} {found.seconds:>7.1f}  {told}"]
    if result != RESULTS.get(name):
        lines.append(f"{name}: checked in: {RESULTS.get(name)}, found: {result}")
    return len(lines) == 1, lines


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="scope", help="only the scopes whose names begin like this")
    parser.add_argument("--limit", type=int, default=200_000, help="states at most (default: %(default)s)")
    options = parser.parse_args(arguments)
    chosen = [tiny.name for tiny in SCOPES if not options.names or tiny.name.startswith(tuple(options.names))]
    chosen.sort(key=lambda name: -RESULTS.get(name, (0,))[0])  # the largest first, so that no core idles at the end
    holds = True
    graph.say(f"{'byte-level scope':<20} {'states':>8} {'edges':>8} {'seconds':>7}  edges of the protocol level covered")
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for done in as_completed([pool.submit(judge, name, options.limit) for name in chosen]):
            is_as_told, lines = done.result()
            holds = holds and is_as_told
            graph.say("\n".join(lines))
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
