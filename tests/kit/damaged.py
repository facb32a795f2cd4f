"""A small store with queues and index, damage to one place of them, and what `verify` and `recover` say of it.

The store has lost its first file to expiry: messages 0 to 6 are gone, 7 to 14 are there, from 1024 to 2699. It was stopped
cleanly. After another stop recovery begins at 2048, with message 12.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kit.command_line import invoke
from kit.files import delete_log_files, patch, snapshot
from rocketmq_ha.impl.store import message_store
from rocketmq_ha.impl.store.derived.index_file import Geometry
from rocketmq_ha.impl.store.derived.queue_entry import ENTRY
from rocketmq_ha.impl.store.derived.rebuild import DerivedRecovery
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.wire.message import Message

OPTIONS = StoreOptions(file_size=1024, queue_file_size=60, index_geometry=Geometry(7, 6), floor_size=0)
DELAYED = "SCHEDULE_TOPIC_XXXX"
PREPARED, COMMITTED, ROLLED_BACK = 4, 8, 12

# Topic, queue id, KEYS, sys flag; behind it the offset and size of the record, and its place in its queue.
MESSAGES = (
    ("a", 0, "", 0),  # 0: 0, 119
    ("a", 0, "", 0),  # 1: 119, 126
    ("a", 0, "", 0),  # 2: 245, 133
    ("b", 3, "k", 0),  # 3: 378, 147
    ("a", 0, "k l", 0),  # 4: 525, 156
    ("b", 3, "k", 0),  # 5: 681, 161
    ("c", 1, "", 0),  # 6: 842, 161
    ("a", 0, "m", PREPARED),  # 7: 1024, 175; in no queue
    ("a", 0, "k", 0),  # 8: 1199, 182; entry 4
    ("b", 3, "", 0),  # 9: 1381, 182; entry 2
    (DELAYED, 2, "k", 0),  # 10: 1563, 223; entry 0
    ("a", 0, "k", ROLLED_BACK),  # 11: 1786, 204; in no queue, and its key is not in the index
    ("a", 0, "m l", COMMITTED),  # 12: 2048, 213; entry 5
    ("b", 3, "k m", 0),  # 13: 2261, 220; entry 3
    ("a", 0, "", 0),  # 14: 2481, 218; entry 6
)
# Index: file 0 has the keys of messages 3, 4, 4, 5 and 7; file 1 of 8, 10, 12, 12 and 13; file 2 the second one of 13.
A_K, A_L, A_M, B_K, B_M, DELAYED_K = 94409, 94410, 94411, 95370, 95372, 1864833152  # hashes of topic#key
END = 2699
FILLER = (0, 2**31 - 1, 0)
EIGHT, NINE, TWELVE, LAST = (1199, 182), (1381, 182), (2048, 213), (2481, 218)  # offset and size of messages
T8, T9, T12, T13, T14 = 3652, 3653, 113045, 113046, 113047  # the hashes of their tags


def stored_ms(number: int) -> int:
    return 1_700_000_000_000 + 10_000 * number


def write_store(path: Path) -> Path:
    """Make the store."""
    with pytest.MonkeyPatch.context() as clock, MessageStore.open(path, OPTIONS) as store:
        for number, (topic, queue_id, keys, sys_flag) in enumerate(MESSAGES):
            clock.setattr(message_store, "wall_clock_ms", lambda number=number: stored_ms(number))
            texts = [
                f"TAGS\x01t{number}",
                *([f"KEYS\x01{keys}"] if keys else []),
                *(["DELAY\x012"] if topic == DELAYED else []),
            ]
            body = bytes(20 + 7 * number)
            store.put(Message(topic, body, queue_id=queue_id, sys_flag=sys_flag, properties_string="\x02".join(texts)))
    delete_log_files(path, 1024)
    return path


# --- Damage ----------------------------------------------------------------------------------------------------------

Damage = Callable[[Path], object]


def entry(queue: str, number: int, offset: int, size: int, tags_code: int = 0) -> Damage:
    """Entry `number` of a queue is these; a file of it that is not there is made."""

    def do(store: Path) -> None:
        path = store / "consumequeue" / queue / f"{number // 3 * 60:020d}"
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_bytes(bytes(60))
        patch(path, number % 3 * 20, ENTRY.pack(offset, size, tags_code))

    return do


def part(queue: str, number: int, position: int, data: bytes) -> Damage:
    return lambda store: patch(store / "consumequeue" / queue / f"{number // 3 * 60:020d}", number % 3 * 20 + position, data)


def gone(pattern: str) -> Damage:
    """All files of that name are gone."""

    def do(store: Path) -> None:
        found = sorted(store.glob(pattern))
        assert found
        for path in found:
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return do


def index_file(store: Path, file: int) -> Path:
    return sorted((store / "index").iterdir())[file]


def index(file: int, position: int, value: int, size: int = 4) -> Damage:
    """An integer of an index file is another."""
    return lambda store: patch(index_file(store, file), position, value.to_bytes(size, "big", signed=True))


def key(file: int, number: int, *, hash: int | None = None, offset: int | None = None, before: int | None = None) -> Damage:
    """A field of an entry of the index is another. `before`: the entry to which it points."""
    at = 40 + 4 * 7 + 20 * number
    fields = ((0, hash, 4), (4, offset, 8), (16, before, 4))
    return both(*(index(file, at + position, value, size) for position, value, size in fields if value is not None))


def slot(file: int, number: int, entry: int) -> Damage:
    """Slot `number` of the index leads to an entry."""
    return index(file, 40 + 4 * number, entry)


def index_count(file: int, count: int) -> Damage:
    return index(file, 36, count)


def index_gone(*files: int) -> Damage:
    return lambda store: [path.unlink() for path in [index_file(store, file) for file in files]]


def both(*each: Damage) -> Damage:
    return lambda store: [damage(store) for damage in each]


# --- What the commands say -------------------------------------------------------------------------------------------


class Found(NamedTuple):
    """What `verify` counts."""

    queues: int = 4
    entries: int = 6
    entries_missing: int = 0
    index_files: int = 3
    keys: int = 7
    keys_missing: int = 0
    keys_as: str = "4.3.0-5.3.4"


class Planned(NamedTuple):
    """What `recover` plans for queues and index."""

    entries_cut: int = 0
    keys_cut: int = 0
    dispatch_from: int = END
    verdict: str = "NOTHING_TO_DO"


WHOLE = Found()
CLEAN = Planned()
UNCLEAN = Planned(dispatch_from=2048, verdict="WOULD_CHANGE")


@dataclass(frozen=True, slots=True)
class Case:
    """One damage.

    says: the counts of `verify`, or its error, in which index[n] is the n-th index file. clean, unclean: the plans for this
    store, and for it with a file `abort`. then, then_unclean: what `verify` says after each recovery; None: the same as before.
    left: what the next recovery would do after the unclean one.
    """

    damage: Damage
    says: Found | str = WHOLE
    clean: Planned = CLEAN
    then: Found | str | None = None
    unclean: Planned = UNCLEAN
    then_unclean: Found | str | None = WHOLE
    left: Planned = CLEAN


def verified(store: Path) -> Found | str:
    names = {str(path.relative_to(store)): f"index[{number}]" for number, path in enumerate(sorted(store.glob("index/*")))}
    result = invoke("verify", store, "--json")
    told = json.loads(result.stdout)
    if told["error"] is None:
        (counts,) = told["stores"]
        assert (result.exit_code, told["verdict"]) == (0, "OK")
        assert (counts["messages"], counts["bytes"], counts["min_offset"], counts["max_offset"]) == (8, 1675, 1024, END)
        return Found(*(counts[name] for name in Found._fields))
    assert (result.exit_code, told["error"]["kind"]) == (2, "StoreCorrupt")
    text: str = told["error"]["message"].removeprefix(f"{store}/")
    for name, number in names.items():
        text = text.replace(name, number)
    return text


def planned(store: Path) -> tuple[dict[str, Any], Planned]:
    """The figures of the log, and the plan for queues and index."""
    told = json.loads(invoke("recover", store, "--json").stdout)
    figures = {name: told[name] for name in ("stop", "looked_from", "messages", "max_offset", "cut", "files_removed", "error")}
    return figures, Planned(*(told[name] for name in Planned._fields))


def starts_of_dispatch(store: Path) -> list[int]:
    """Recover a store. Returns: where the dispatch begins, by each look at it."""
    found: list[int] = []
    run = DerivedRecovery.run

    def running(recovery: DerivedRecovery, *, is_clean: bool) -> int:
        found.append(run(recovery, is_clean=is_clean))
        return found[-1]

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(DerivedRecovery, "run", running)
        assert invoke("recover", store, "--write").exit_code == 0
    return found


def check(case: Case, store: Path) -> None:
    """Damage the store, and hold all that is said and done against the case."""
    case.damage(store)
    damaged = shutil.copytree(store, store.with_name("unclean"))
    (damaged / "abort").touch()
    assert verified(store) == case.says
    rest = {"max_offset": END, "cut": 0, "files_removed": 0, "error": None}
    for path, plan, then, log in (
        (store, case.clean, case.then, {"stop": "clean", "looked_from": 1024, "messages": 8}),
        (damaged, case.unclean, case.then_unclean, {"stop": "unclean", "looked_from": 2048, "messages": 3}),
    ):
        before = snapshot(path)
        assert planned(path) == (log | rest, plan)
        assert snapshot(path) == before
        starts = starts_of_dispatch(path)
        assert starts == [plan.dispatch_from] * 2  # the plan, and the opening
        assert verified(path) == (case.says if then is None else then)
        left = case.left if log["stop"] == "unclean" else CLEAN
        assert planned(path) == ({"stop": "clean", "looked_from": 1024, "messages": 8} | rest, left)
