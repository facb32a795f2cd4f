"""The protocol level (spec/protocol.md), as the programs of this folder see it."""

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

from formal.level import Constants, Level, ascending, plain, row
from rocketmq_ha.reference import protocol
from rocketmq_ha.reference.protocol_durability import AckedState
from rocketmq_ha.reference.protocol_properties import OF_STATES
from rocketmq_ha.reference.protocol_state import Connection, Scope, SlaveNode, State, initial, of_profile

GHOST: Final = "acked"  # the last variable, in scopes that remember the acknowledged units
CONNECTION_KEYS: Final = ("req", "ack", "start", "next", "frames", "reports", "stale")
FRAME_KEYS: Final = ("offset", "units")
SLAVE_KEYS: Final = ("base", "units", "slot", "reported", "flushed")
USED_KEYS: Final = ("puts", "cuts", "mcrashes", "scrashes", "deletes", "forgeries")

# --- Canonical lines: canonical.md, rules 1 to 4. Faster than json.dumps; a test compares both. -----------------------------


def _ints(values: Iterable[int]) -> str:
    return f"[{','.join(map(str, values))}]"


@lru_cache(maxsize=1 << 16)
def _conn(conn: Connection | None) -> str:
    if conn is None:
        return "null"
    frames = ",".join(f"[{frame.offset},{_ints(frame.units)}]" for frame in conn.frames)
    return (
        f"[{conn.req},{conn.ack},{conn.start},{conn.next},[{frames}],{_ints(conn.reports)},{'true' if conn.stale else 'false'}]"
    )


@lru_cache(maxsize=1 << 16)
def _slave(node: SlaveNode) -> str:
    return f"[{node.base},{_ints(node.units)},{node.slot},{node.reported},{node.flushed}]"


def canonical(state: State) -> str:
    """The canonical line of a state."""
    used = state.used
    slots = ",".join(f"[{','.join(map(_conn, slots))}]" for slots in state.conn)
    acked = f',"acked":[{",".join(map(_ints, state.acked))}]' if isinstance(state, AckedState) else ""
    return (
        f'{{"log":{_ints(state.log)},"flushed":{state.flushed},"min":{state.min},"epoch":{state.epoch},"push2":{state.push2},'
        f'"waiting":{_ints(state.waiting)},"conn":[{slots}],"slave":[{",".join(map(_slave, state.slave))}],'
        f'"used":[{used.puts},{used.cuts},{used.mcrashes},{used.scrashes},{used.deletes},{used.forgeries}]{acked}}}'
    )


# --- TLC's dump ---------------------------------------------------------------------------------------------------------------


def _connection(value: Mapping[str, Any] | None) -> list[Any] | None:
    if value is None:
        return None
    return row({**value, "frames": [row(frame, FRAME_KEYS) for frame in value["frames"]]}, CONNECTION_KEYS)


FORMS: Final = {
    "log": plain,
    "flushed": plain,
    "min": plain,
    "epoch": plain,
    "push2": plain,
    "waiting": ascending,
    "conn": lambda value: [[_connection(slot) for slot in slots] for slots in value],
    "slave": lambda value: [row(slave, SLAVE_KEYS) for slave in value],
    "used": lambda value: row(value, USED_KEYS),
    GHOST: ascending,
}

# --- Scopes -------------------------------------------------------------------------------------------------------------------

NUMBERS: Final = {
    "max_puts": "MaxPuts",
    "max_cuts": "MaxCuts",
    "max_master_crashes": "MaxMasterCrashes",
    "max_slave_crashes": "MaxSlaveCrashes",
    "max_deletes": "MaxDeletes",
    "max_forgeries": "MaxForgeries",
    "file_size": "FileSize",
    "batch": "Batch",
    "frame_window": "FrameWindow",
    "report_window": "ReportWindow",
    "replicas": "Replicas",
    "fall_behind_max": "FallBehindMax",
}


def _slaves(values: Mapping[str, int | bool]) -> list[str]:
    return [f"Slaves = {{{', '.join(str(slave + 1) for slave in range(int(values['slaves'])))}}}"]


CONSTANTS: Final = Constants(
    numbers=NUMBERS,
    booleans={"sync_puts": "SyncPuts", "acks_flushed": "AcksFlushed"},
    switches={
        "Checks": attrgetter("checks_reports"),
        "Forgets": attrgetter("forgets_lost_slaves"),
        "AtOnce": attrgetter("reports_on_connect"),
        "IgnoresHeartbeats": attrgetter("ignores_heartbeats"),
        "Coalesces": attrgetter("coalesces_reports"),
        "Overlaps": attrgetter("checks_overlap"),
    },
    unsaid=dict.fromkeys(NUMBERS, 1) | {"fall_behind_max": 99},
    alike=("file_size", "batch", "replicas", "fall_behind_max", "acks_flushed"),
    bounds=("slaves", "sync_puts"),
    head=_slaves,
    tail=("NONE = NONE",),
)


def labels(values: Mapping[str, int | bool]) -> list[str]:
    """All labels that exist with the parameters of a scope."""
    slaves = range(1, int(values["slaves"]) + 1)
    puts = range(1, int(values["max_puts"]) + 1)
    of_slave = ("Connect", "Report", "ForgeReport", "DeliverFrames", "Cut", "CutUnseen", "SlaveCrash")
    of_slot = ("DeliverReports", "Begin", "Transfer", "Heartbeat", "Reap")
    return [
        *("Put", "PutSync", "Flush", "Delete", "MasterCrash"),
        *(f"Timeout({offset})" for offset in puts),
        *(f"{action}({slave})" for action in of_slave for slave in slaves),
        *(f"{action}({slave},{slot})" for action in of_slot for slave in slaves for slot in (1, 2)),
    ]


def faults(state: State) -> int:
    used = state.used
    return used.cuts + used.mcrashes + used.scrashes + used.deletes + used.forgeries


def used(state: State) -> int:
    return state.used.puts + faults(state)


def has_faults(scope: Scope) -> bool:
    crashes = scope.max_master_crashes + scope.max_slave_crashes
    return scope.max_cuts + crashes + scope.max_deletes + scope.max_forgeries > 0


def shown(line: Mapping[str, Any]) -> dict[str, str]:
    """What a trace shows of a state: the parts that its steps change."""
    found = {}
    for name, value in line.items():
        if name in ("log", "flushed", "min", "push2", "waiting"):
            found[name] = _compact(value)
        elif name == "slave":
            found |= {f"slave {s}": _compact(node) for s, node in enumerate(value, 1)}
        elif name == "conn":
            slots = ((s, k, conn) for s, slots in enumerate(value, 1) for k, conn in enumerate(slots, 1))
            found |= {f"conn {s},{k}": _compact(conn) for s, k, conn in slots}
    return found


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


PROTOCOL: Final = Level(
    name="protocol",
    module="HA",
    scope=Scope,
    of_profile=of_profile,
    initial=initial,
    edges=protocol.edges,
    canonical=canonical,
    shown=shown,
    forms=FORMS,
    constants=CONSTANTS,
    labels=labels,
    of_states=OF_STATES,
    used=used,
    faults=faults,
    has_faults=has_faults,
    quirks=frozenset({"1", "2", "3", "7", "8", "9", "17"}),
    ghosts=frozenset({GHOST}),
)
