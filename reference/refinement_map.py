"""The refinement map: the protocol level's view of a byte-level cluster.

A unit is one byte, represented by itself, so a prefix at one level is a prefix at the other. A frame in flight, as
spec/protocol.md defines it, consists of the bytes between the master's log and the slave's: those that the master has not
written yet, those in the network, and those that the slave has read but not dispatched. The table there covers the rest.
"""

from dataclasses import dataclass
from typing import Final

from rocketmq_ha.reference import slave, wire
from rocketmq_ha.reference.cluster import Cluster, Link
from rocketmq_ha.reference.protocol_state import Connection, Frame, Scope, SlaveNode, State, Used, of_profile
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.slave import Slave
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec.constants import REPORT_SIZE, TRANSFER_HEADER_SIZE
from rocketmq_ha.spec.profile import Profile, Settings

UNBOUNDED: Final = 1 << 62  # no scope bounds a byte-level run


class NoViewError(ValueError):
    """The bytes in flight are no sequence of whole frames, or of whole reports."""


def byte_scope(slaves: int, settings: Settings, profile: Profile) -> Scope:
    """The scope of a byte-level run, whose units are bytes: without bounds on puts, faults and frames in flight."""
    scope = Scope(
        slaves,
        *(UNBOUNDED,) * 6,
        file_size=settings.mapped_file_size,
        batch=settings.ha_transfer_batch_size,
        sync_puts=True,
        replicas=settings.replicas,
        fall_behind_max=settings.ha_slave_fallbehind_max,
        frame_window=UNBOUNDED,
        report_window=UNBOUNDED,
    )
    return of_profile(scope, profile)


def is_open(link: Link) -> bool:
    """The master holds the connection."""
    return not link.conn.close_reason


def is_attached(link: Link) -> bool:
    """The slave holds it too, and the network delivers: at the protocol level it is not stale."""
    return is_open(link) and link.slave_open and not link.severed


def open_links(cluster: Cluster, index: int) -> list[Link]:
    """The connections of a slave that the master holds, by slot."""
    return [link for link in cluster.links if link.slave == index and is_open(link)]


@dataclass(frozen=True, slots=True)
class Stream:
    """The frames in flight to a slave. `stopper`: a header (offset, body size) that it cannot dispatch; the rest is lost."""

    frames: tuple[Frame, ...] = ()
    stopper: tuple[int, int] | None = None
    is_deaf: bool = False  # the slave has met such a header already, and dispatches nothing any more


def frames_of(stream: bytes, slave_read_buffer_size: int) -> Stream:
    """The frames that a stream holds, headers and bodies, up to a header that cannot be dispatched.

    >>> frames_of(bytes.fromhex("0000000000000005 00000002 6162") + bytes.fromhex("0000000000000007 00000000"), 14).frames
    (Frame(offset=5, units=b'ab'), Frame(offset=7, units=b''))
    >>> frames_of(bytes.fromhex("0000000000000005 00000002 6162"), 13)
    Stream(frames=(), stopper=(5, 2), is_deaf=False)
    """
    found: list[Frame] = []
    at = 0
    while at < len(stream):
        body = at + TRANSFER_HEADER_SIZE
        if body > len(stream):
            raise NoViewError(f"a frame ends in its header: {stream[at:].hex(' ')}")
        offset, body_size = wire.unpack_header(stream[at:body])
        if not 0 <= body_size <= slave_read_buffer_size - TRANSFER_HEADER_SIZE:
            return Stream(tuple(found), (offset, body_size))
        at = body + body_size
        if at > len(stream):
            raise NoViewError(f"a frame at {offset} has {len(stream) - body} bytes of {body_size}")
        found.append(Frame(offset, stream[body:at]))
    return Stream(tuple(found))


def reports_of(stream: bytes) -> tuple[int, ...]:
    """The reports that a stream holds."""
    if len(stream) % REPORT_SIZE:
        raise NoViewError(f"a report ends within it: {stream.hex(' ')}")
    return tuple(wire.unpack_report(stream[at : at + REPORT_SIZE]) for at in range(0, len(stream), REPORT_SIZE))


def to_slave(link: Link, node: Slave, settings: Settings) -> Stream:
    """All bytes between the master's log and the slave's: not parsed, in the network, not written yet."""
    if node.deaf:
        return Stream(is_deaf=True)
    pending = link.conn.byte_buffer_header + (link.conn.select_mapped_buffer or b"")
    return frames_of(slave.unparsed(node) + link.to_slave + pending, settings.slave_read_buffer_size)


def to_master(link: Link) -> bytes:
    """All reports that the master has not used: in its buffer, and in the network."""
    return link.conn.byte_buffer_read[link.conn.process_position :] + link.to_master


def abstract_connection(link: Link, node: Slave, settings: Settings) -> Connection:
    conn = link.conn
    found = Connection(conn.slave_request_offset, conn.slave_ack_offset, conn.start_offset, conn.next_transfer_from_where)
    if not is_attached(link):
        on_their_way = to_master(link)
        whole = len(on_their_way) - len(on_their_way) % REPORT_SIZE  # the rest of a report that is cut never comes
        return replace(found, stale=True, reports=reports_of(on_their_way[:whole]))
    return replace(found, frames=to_slave(link, node, settings).frames, reports=reports_of(to_master(link)))


def abstract_slave(cluster: Cluster, index: int) -> SlaveNode:
    """The view of a slave. If only the slave's end is open, it has no connection at the protocol level."""
    node, slots = cluster.slaves[index], open_links(cluster, index)
    slot = next((k for k, link in enumerate(slots, 1) if is_attached(link)), 0)
    base = -1 if node.log.base is None else node.log.base
    return SlaveNode(base, node.log.data, slot, node.current_reported_offset)


def units_of(log: Log) -> bytes:
    """The master's units from offset 0 on; deleted ones are zeros."""
    return bytes(log.base or 0) + log.data


def waiting(cluster: Cluster) -> tuple[int, ...]:
    """The puts without acknowledgement. In classic, acknowledged ones may still wait for their status (quirk 32)."""
    push2 = cluster.push2_slave_max_offset
    return tuple(sorted(request.next_offset for request in cluster.group.requests if request.next_offset > push2))


def abstract(cluster: Cluster, settings: Settings) -> State:
    """The state at the protocol level. `flushed`, `epoch` and `used` have no counterpart and stay 0."""
    return State(
        log=units_of(cluster.log),
        flushed=0,
        epoch=0,
        push2=cluster.push2_slave_max_offset,
        min=cluster.log.base or 0,
        waiting=waiting(cluster),
        conn=tuple(
            (*(abstract_connection(link, node, settings) for link in open_links(cluster, index)), None)
            for index, node in enumerate(cluster.slaves)
        ),
        slave=tuple(abstract_slave(cluster, index) for index in range(len(cluster.slaves))),
        used=Used(),
    )


def normal(state: State) -> State:
    """The state without fields that no action depends on, or that only bound a scope.

    Slots are mere names: a byte-level master has a list of connections, so slots are numbered anew. A slave without a
    connection never reads `reported` before it connects, which sets it. `flushed`, `epoch` and `used` have no counterpart. Of
    units that were deleted the byte level has zeros.
    """
    conn, nodes = [], []
    for slots, node in zip(state.conn, state.slave, strict=True):
        conn.append((*(one for one in slots if one is not None), None))
        slot = sum(one is not None for one in slots[: node.slot])
        nodes.append(replace(node, slot=slot, reported=node.reported if slot else 0))
    log = bytes(state.min) + state.log[state.min :]
    return replace(state, log=log, flushed=0, epoch=0, used=Used(), conn=tuple(conn), slave=tuple(nodes))


def first_difference(found: State, expected: State) -> str:
    """The part in which two states differ, or the empty string."""
    if found == expected:
        return ""
    for name in ("log", "min", "push2", "waiting"):
        if getattr(found, name) != getattr(expected, name):
            return f"{name}: {_short(getattr(found, name))}, and at the byte level {_short(getattr(expected, name))}"
    for s, (ours, theirs) in enumerate(zip(found.slave, expected.slave, strict=True), 1):
        if ours != theirs:
            return f"slave {s}: {_short(ours)}, and at the byte level {_short(theirs)}"
    for s, (slots, others) in enumerate(zip(found.conn, expected.conn, strict=True), 1):
        if slots != others:
            return f"connections of slave {s}: {_short(slots)}, and at the byte level {_short(others)}"
    return f"{_short(found)}, and at the byte level {_short(expected)}"


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 400 else f"{shown[:390]}... ({len(shown)} characters)"
