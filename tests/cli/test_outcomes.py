"""`--json` of verify, recover and resync: each finding has the fields of docs/outcomes.md, and the same exit status as without
--json.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.command_line import invoke
from kit.files import log_file, patch
from rocketmq_ha.impl.app import logs
from rocketmq_ha.impl.store.derived.index_file import Geometry
from rocketmq_ha.impl.store.log import reader as reader_module
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.lock import StoreLock
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.wire.message import Message, encode

OPTIONS = StoreOptions(file_size=1024, queue_file_size=6000, index_geometry=Geometry(50, 100), floor_size=0)
DOCUMENT = (Path(__file__).parents[2] / "docs" / "outcomes.md").read_text(encoding="utf-8")
Told = dict[str, Any]


@pytest.fixture(autouse=True)
def quiet_and_quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(reader_module, "LOOK_AGAIN_S", 0.001)
    yield
    logs.logging.getLogger("rocketmq_ha").handlers.clear()


def documented(heading: str) -> set[str]:
    """The fields in the first column of the table that begins with these words."""
    table = DOCUMENT[DOCUMENT.index(f"{heading}") :].partition("|---|---|\n")[2].partition("\n\n")[0]
    return {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])}


COMMON = documented("## Fields of all three")
FIELDS = {name: documented(f"## {name}\n") | COMMON for name in ("verify", "recover", "resync")}
STORE_FIELDS = documented("| field of a store")
COMPARISON_FIELDS = documented("| field of a comparison")
ERROR_FIELDS = {"kind", "message", "file", "offset", "found", "expected"}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A cleanly closed store with twelve messages, queues and index."""
    path = tmp_path / "s"
    with MessageStore.open(path, OPTIONS) as opened:
        for index in range(12):
            opened.put(Message("orders", b"body %d" % index, properties_string=f"KEYS\x01k{index}\x02TAGS\x01a"))
    return path


# --- The preparation of the store for each finding ------------------------------------------------------------------


def whole(_: Path) -> None:
    pass


def log_alone(store: Path) -> None:
    for name in ("consumequeue", "index"):
        shutil.rmtree(store / name)


def torn(store: Path) -> None:
    """Append the beginning of a record to the log."""
    with CommitLog.open(store) as log:
        end = log.max_offset
    last = max((store / "commitlog").iterdir())
    patch(last, end - int(last.name), encode(Message("orders", b"torn"), None, end)[:60])


def aborted(store: Path) -> None:
    (store / "abort").touch()


def flipped(store: Path) -> None:
    patch(log_file(store), 89, b"\xff")  # in the body of the first message


def entry_flipped(store: Path) -> None:
    patch(store / "consumequeue" / "orders" / "0" / f"{0:020d}", 27, b"\x01")


def key_flipped(store: Path) -> None:
    patch(min((store / "index").iterdir()), 40 + 4 * 50 + 20 + 3, b"\x01")


def gone(store: Path) -> None:
    shutil.rmtree(store)


def not_readable(store: Path) -> None:
    shutil.rmtree(store / "commitlog")
    (store / "commitlog").touch()


def other_log(store: Path) -> None:
    """Make a second store that differs in its last bytes."""
    shutil.copytree(store, store.with_name("other"))
    with CommitLog.open(store.with_name("other")) as log:
        log.append(Message("orders", b"x"))
    with CommitLog.open(store) as log:
        log.append(Message("orders", b"yy"))


def same_log(store: Path) -> None:
    shutil.copytree(store, store.with_name("other"))


def empty_other(store: Path) -> None:
    CommitLog.open(store.with_name("other"), file_size=1024).close()


@pytest.mark.parametrize(
    ("command", "before", "verdict", "status", "kind"),
    [
        ("verify", whole, "OK", 0, None),
        ("verify", log_alone, "OK", 0, None),
        ("verify", torn, "OK", 0, None),
        ("verify", flipped, "REFUSED", 2, "StoreCorrupt"),
        ("verify", entry_flipped, "REFUSED", 2, "StoreCorrupt"),
        ("verify", key_flipped, "REFUSED", 2, "StoreCorrupt"),
        ("verify", gone, "REFUSED", 2, "ConfigInvalid"),
        ("verify", not_readable, "REFUSED", 2, "ConfigInvalid"),
        ("verify two", same_log, "EQUAL", 0, None),
        ("verify two", other_log, "DIFFERENT", 1, None),
        ("verify two", empty_other, "NO_OVERLAP", 1, None),
        ("verify two", whole, "REFUSED", 2, "ConfigInvalid"),  # the other store does not exist
        ("recover", whole, "NOTHING_TO_DO", 0, None),
        ("recover", log_alone, "WOULD_CHANGE", 0, None),
        ("recover", torn, "WOULD_CHANGE", 0, None),
        ("recover", aborted, "WOULD_CHANGE", 0, None),
        ("recover", flipped, "REFUSED", 2, "StoreCorrupt"),
        ("recover", gone, "REFUSED", 2, "ConfigInvalid"),
        ("recover held", whole, "HELD", 0, None),
        ("recover --write", torn, "RECOVERED", 0, None),
        ("recover --write", flipped, "REFUSED", 2, "StoreCorrupt"),
        ("recover --write held", whole, "REFUSED", 2, "StoreLocked"),
        ("resync", whole, "MOVED", 0, None),
        ("resync", gone, "REFUSED", 2, "ConfigInvalid"),
        ("resync held", whole, "REFUSED", 2, "StoreLocked"),
    ],
)
def test_each_finding_is_one_object_with_the_documented_fields(
    command: str, before: Callable[[Path], None], verdict: str, status: int, kind: str | None, store: Path
) -> None:
    before(store)
    name, *words = command.split()
    arguments: list[object] = [name, store]
    arguments += [store.with_name("other")] if "two" in words else []
    arguments += ["--write"] if "--write" in words else []
    text_store = (
        shutil.copytree(store.parent, store.parent.with_name(f"{store.parent.name}-text")) / "s" if store.exists() else store
    )
    lock = StoreLock(store, create=False) if "held" in words else None
    try:
        result = invoke(*arguments, "--json")
    finally:
        if lock is not None:
            lock.release()
    assert result.stdout.count("\n") == 1
    told = json.loads(result.stdout)
    assert set(told) == FIELDS[name]
    assert (told["verdict"], result.exit_code) == (verdict, status)
    if kind is None:
        assert told["error"] is None
        assert "rocketmq-ha: " not in result.stderr
    else:
        assert set(told["error"]) == ERROR_FIELDS
        assert told["error"]["kind"] == kind
        assert result.stderr == f"rocketmq-ha: {told['error']['message']}\n"
        assert (kind == "StoreCorrupt") == all(
            told["error"][field] is not None for field in ("file", "offset", "found", "expected")
        )
    if name == "verify":
        check_verify(told, before)
    elif name == "recover" and kind is None:
        check_recover(told, before)
    elif name == "resync" and kind is None:
        assert told["moved"] == str(store)
        assert Path(told["aside"]).is_dir()
    if lock is None:  # without --json: the same finding, from the same state, with the same status
        in_words = invoke(*(str(each).replace(str(store.parent), str(text_store.parent)) for each in arguments))
        assert in_words.exit_code == status
        if kind is not None:
            assert in_words.stderr == result.stderr.replace(str(store.parent), str(text_store.parent))
        if name != "resync" and kind is None:
            assert in_words.stdout.endswith(f" verdict={verdict}\n")


def check_verify(told: Told, before: Callable[[Path], None]) -> None:
    assert all(set(each) == STORE_FIELDS for each in told["stores"])
    if told["verdict"] in ("DIFFERENT", "EQUAL", "NO_OVERLAP"):
        found = told["comparison"]
        assert (len(told["stores"]), set(found)) == (2, COMPARISON_FIELDS)
        assert (found["difference"] is not None) == (told["verdict"] == "DIFFERENT")
        assert (found["ahead"] is None) == (found["ahead_by"] == 0)
        if found["difference"] is not None:
            assert found["compared_from"] <= found["difference"]["offset"] < found["compared_to"]
            assert len(found["difference"]["files"]) == len(found["difference"]["bytes"]) == 2
        return
    assert told["comparison"] is None
    if told["verdict"] == "OK":
        (each,) = told["stores"]
        assert (each["messages"], each["tail"] > 0) == (12, before is torn)
        found = [each[name] for name in ("entries", "entries_missing", "keys", "keys_missing", "keys_as")]
        assert found == ([None] * 5 if before is log_alone else [12, 0, 12, 0, "4.3.0-5.3.4"])


def check_recover(told: Told, before: Callable[[Path], None]) -> None:
    assert all(told[name] is not None for name in FIELDS["recover"] - {"error", "held_by"})
    assert told["stop"] == ("running" if told["verdict"] == "HELD" else "unclean" if before is aborted else "clean")
    assert (told["held_by"] is None) == (told["verdict"] != "HELD")
    assert (told["cut"] > 0) == (before is torn)


def test_the_line_and_the_json_object_have_the_same_fields(store: Path) -> None:
    """Exceptions: the line has paths in shell quoting, and shows null as none or leaves it out."""
    for name in ("verify", "recover"):
        told = json.loads(invoke(name, store, "--json").stdout)
        fields = told["stores"][0] | {"verdict": told["verdict"]} if name == "verify" else told
        line = dict(word.split("=", 1) for word in invoke(name, store).stdout.split())
        assert line == {key: "none" if value is None else str(value) for key, value in fields.items() if key != "error"}
