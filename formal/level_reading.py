"""The reading level (spec/reading.md), as the programs of this folder see it."""

import json
from collections.abc import Collection, Mapping
from operator import attrgetter
from typing import Any, Final

from formal.level import Constants, Level, ascending, plain, row
from rocketmq_ha.reference import reading
from rocketmq_ha.reference.reading_properties import OF_STATES
from rocketmq_ha.reference.reading_state import BROKERS, Scope, State, initial, of_profile

NUMBERS: Final = {
    "max_puts": "MaxPuts",
    "max_losses": "MaxLosses",
    "max_promotions": "MaxPromotions",
    "max_restarts": "MaxRestarts",
}
MENDS: Final = ("KeepsGreatest", "TellsMaster", "KnowsTopics", "Holds", "Finishes")
CONSUMER_KEYS: Final = ("at", "held", "entry", "node")
USED_KEYS: Final = ("puts", "losses", "promotions", "restarts")


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _list(values: Collection[object]) -> str:
    return f"[{','.join(map(str, values))}]"


def canonical(state: State) -> str:
    """The canonical line of a state (canonical.md)."""
    one, other = state.broker
    consumer, used = state.consumer, state.used
    held = ",".join(f"[{offset},{message}]" for offset, message in consumer.held)
    return (
        f'{{"master":{state.master},"up":{_list(sorted(state.up))},"log":[{_list(one.log)},{_list(other.log)}],'
        f'"topic":[{_bool(one.topic)},{_bool(other.topic)}],"offset":[{one.offset},{other.offset}],"told":{state.told},'
        f'"own":{_bool(state.own)},"consumer":[{consumer.at},[{held}],{_bool(consumer.entry)},{consumer.node}],'
        f'"delivered":{_list(sorted(state.delivered))},"done":{_list(sorted(state.done))},'
        f'"used":[{used.puts},{used.losses},{used.promotions},{used.restarts}]}}'
    )


def labels(_values: Mapping[str, int | bool]) -> list[str]:
    """All labels."""
    of_broker = [f"{action}({b})" for action in ("Lose", "Return") for b in BROKERS]
    alone = ("Put", "Replicate", "TakeTopics", "TakeOffsets", "Promote", "Pull", "Deliver", "Commit", "Restart")
    return [*alone, *of_broker]


def faults(state: State) -> int:
    return state.used.losses + state.used.promotions + state.used.restarts


def used(state: State) -> int:
    return state.used.puts + faults(state)


def has_faults(scope: Scope) -> bool:
    return scope.max_losses + scope.max_promotions + scope.max_restarts > 0


def shown(line: Mapping[str, Any]) -> dict[str, str]:
    """What a trace shows of a state: the parts that its steps change."""
    found: dict[str, str] = {}
    for name, value in line.items():
        if name in ("log", "topic", "offset"):
            found |= {f"{name} {b}": _compact(of_broker) for b, of_broker in enumerate(value, 1)}
        elif name != "used":
            found[name] = _compact(value)
    return found


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


READING: Final = Level(
    name="reading",
    module="HAReading",
    scope=Scope,
    of_profile=of_profile,
    initial=initial,
    edges=reading.edges,
    canonical=canonical,
    shown=shown,
    forms={
        "master": plain,
        "up": ascending,
        "log": plain,
        "topic": plain,
        "offset": plain,
        "told": plain,
        "own": plain,
        "consumer": lambda value: row(value, CONSUMER_KEYS),
        "delivered": ascending,
        "done": ascending,
        "used": lambda value: row(value, USED_KEYS),
    },
    constants=Constants(
        numbers=NUMBERS,
        booleans={"diverges": "Diverges", "from_last": "FromLast", "slave_read": "SlaveRead"},
        switches=dict.fromkeys(MENDS, attrgetter("keeps_invariants")),
        unsaid=dict.fromkeys(NUMBERS, 0),
        alike=("from_last",),
        bounds=("diverges", "slave_read"),
    ),
    labels=labels,
    of_states=OF_STATES,
    used=used,
    faults=faults,
    has_faults=has_faults,
    quirks=frozenset({"43", "44", "45", "46", "47", "48"}),
)
