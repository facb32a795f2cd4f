"""The values of the options reach their uses: a command starts with a distinct value for each; what it builds is looked at."""

import errno
import inspect
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kit.option_tables import DOCTOR_OPTIONS, MASTER_OPTIONS, SLAVE_OPTIONS, TAIL_OPTIONS
from rocketmq_ha.impl.app import run_master as master_module
from rocketmq_ha.impl.app import run_slave as slave_module
from rocketmq_ha.impl.app import tail as tail_module
from rocketmq_ha.impl.app.cursor import Position
from rocketmq_ha.impl.app.doctor import diagnosis
from rocketmq_ha.impl.app.doctor.findings import Findings
from rocketmq_ha.impl.app.endpoints import Listening, MasterEndpoint
from rocketmq_ha.impl.app.reload import Configuration
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.ha.service import HAService
from rocketmq_ha.impl.net.feed import OutOfRange, Stopped
from rocketmq_ha.impl.store.log.flush import FlushRealTimeService
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, PROFILES, Profile
from rocketmq_ha.spec.role import BrokerRole

Arguments = dict[str, Any]
FILE_SIZE = 5_000


class NoFile:
    """A process without --config."""

    values_at_start: Mapping[str, Any] = {}

    def read(self) -> Configuration:
        return Configuration({}, None, None, None)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Restore the signal handlers that a command sets."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Arguments]]:
    """Watch the calls of a function that a module imports. Gives the arguments of each call, by name."""

    def watch(module: Any, name: str) -> list[Arguments]:
        original, calls = getattr(module, name), list[Arguments]()

        def called(*arguments: Any, **more: Any) -> Any:
            calls.append(dict(inspect.signature(original).bind(*arguments, **more).arguments))
            return original(*arguments, **more)

        monkeypatch.setattr(module, name, called)
        return calls

    return watch


def stop(_: object = None) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_a_master_is_made_as_its_options_say(profile: Profile, spy: Callable[..., list[Arguments]], tmp_path: Path) -> None:
    names = ("check_replicas", "check_batch_size", "listen", "Space", "bare_log", "Master", "putting", "cleaning")
    names += ("MasterFigures", "publishing_status", "local_puts", "serving_metrics", "tls_listener", "messages", "put_all")
    calls = {name: spy(master_module, name) for name in names}
    settings = replace(MASTER_OPTIONS.settings, replicas=36 if profile is HARDENED else 1)
    options = replace(
        MASTER_OPTIONS,
        store=tmp_path / "s",
        listening=Listening(("127.0.0.1", 0)),
        file_size=FILE_SIZE,
        profile=profile,
        metrics_address="127.0.0.1:0",
        settings=settings,
    )
    lines: list[str] = []
    progress: list[int] = []

    def print_line(line: str) -> None:
        lines.append(line)
        if line.startswith("metrics="):
            stop()

    def show(total: int) -> Any:
        progress.append(total)
        return nullcontext(progress.append)

    master_module.run_master(options, NoFile(), print_line, show)
    seen = {name: found[0] for name, found in calls.items()}
    assert all(len(found) == 1 for found in calls.values())
    assert seen["check_replicas"] == {"replicas": settings.replicas, "profile": profile}
    assert seen["check_batch_size"] == {"size": 33}
    assert seen["listen"] == {"host": "127.0.0.1", "port": 0, "option": "--listen"}
    assert seen["Space"] == {"floor_size": 20}
    assert seen["serving_metrics"] == {"address": "127.0.0.1:0"}
    assert seen["tls_listener"] == {"listening": None, "profile": profile}
    opened = seen["bare_log"]
    space = opened.pop("create").__self__
    is_hardened = profile is HARDENED
    assert opened == {
        "store_dir": tmp_path / "s",
        "file_size": FILE_SIZE,
        "clear_tail": is_hardened,
        "strict": is_hardened,
        "replicated": False,
    }
    made = seen["Master"]
    assert made["settings"] == replace(settings, mapped_file_size=FILE_SIZE, master_read_buffer_size=4096)
    assert (made["profile"], made["limits"], made["tls"]) == (profile, MASTER_OPTIONS.limits, None)
    putting = seen["putting"]
    server = putting["server"]
    log = putting["log"]
    assert (putting["role"], putting["flush"]) == (BrokerRole.ASYNC_MASTER, "sync")
    assert putting["intervals"] == MASTER_OPTIONS.flush_intervals
    cleaned = seen["cleaning"]
    assert cleaned.pop("needed_offset").__func__ is HAService.needed_offset
    assert cleaned == {"log": log, "store": tmp_path / "s", "settings": MASTER_OPTIONS.retention, "space": space}
    figures = seen["MasterFigures"]
    assert (figures["master"], figures["profile"], figures["broker_role"]) == (server, profile.name, BrokerRole.ASYNC_MASTER)
    assert seen["publishing_status"]["store_dir"] == seen["local_puts"]["store_dir"] == tmp_path / "s"
    assert seen["publishing_status"]["metrics"] is not None
    assert seen["messages"] == {"count": 6, "size": 7, "seed": 21, "sync": 0.25}
    produced = seen["put_all"]
    assert [produced[name] for name in ("in_flight", "await_slaves", "await_replicas")] == [8, 9, 10]
    assert (produced["progress"], progress) == (progress.append, [6])
    assert [line.partition("=")[0] for line in lines] == ["listening", "metrics", "put"]
    assert lines[2].startswith("put=0 seconds=")


@pytest.mark.parametrize(("count", "lines"), [(None, ["listening"]), (0, ["listening"]), (1, ["listening", "put"])])
def test_a_master_without_put_prints_no_counts(count: int | None, lines: list[str], tmp_path: Path) -> None:
    options = replace(
        MASTER_OPTIONS,
        store=tmp_path / "s",
        listening=Listening(("127.0.0.1", 0)),
        file_size=FILE_SIZE,
        profile=HARDENED,
        producer=replace(MASTER_OPTIONS.producer, count=count),
        metrics_address=None,
    )
    printed: list[str] = []

    def print_line(line: str) -> None:
        printed.append(line.partition("=")[0])
        stop()

    master_module.run_master(options, NoFile(), print_line, lambda _: nullcontext(lambda _: None))
    assert printed == lines


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"replicas": 2}, "replicas 2: expected 1 in the classic profile, which counts no replicas"),
        ({"replicas": 1, "ha_transfer_batch_size": 4_194_293}, "batch size 4194293 .*: expected 1 to 4194292 bytes"),
    ],
)
def test_settings_that_cannot_be_are_refused_before_the_store_is_touched(
    change: dict[str, int], told: str, tmp_path: Path
) -> None:
    options = replace(MASTER_OPTIONS, store=tmp_path / "s", settings=replace(MASTER_OPTIONS.settings, **change))
    with pytest.raises(ConfigInvalid, match=told):
        master_module.run_master(options, NoFile(), print, lambda _: nullcontext(lambda _: None))
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("file_size", [FILE_SIZE, None])
@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_a_slave_is_made_as_its_options_say(
    profile: Profile,
    file_size: int | None,
    spy: Callable[..., list[Arguments]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ("check_own_address", "serving_metrics", "Space", "FreshStore", "bare_log", "Follower", "flushing", "cleaning")
    calls = {name: spy(slave_module, name) for name in (*names, "SlaveFigures", "publishing_status")}
    prepared: list[Arguments] = []

    def prepare(_: object, commit_log: object, *more: object) -> bool:
        prepared.append({"log": commit_log, "address": more[0], "tls": more[2], "source_address": more[3]})
        stop()
        return False

    monkeypatch.setattr("rocketmq_ha.impl.app.fresh_store.FreshStore.prepare", prepare)
    options = replace(
        SLAVE_OPTIONS,
        store=tmp_path / "s",
        master=MasterEndpoint("127.0.0.1", 3),
        start=replace(SLAVE_OPTIONS.start, file_size=file_size),
        profile=profile,
        metrics_address="127.0.0.1:0",
    )
    lines: list[str] = []
    slave_module.run_slave(options, NoFile(), lines.append)
    assert all(len(found) == 1 for found in calls.values())
    seen = {name: found[0] for name, found in calls.items()}
    is_hardened = profile is HARDENED
    assert seen["check_own_address"] == {"text": "127.0.0.7"}
    assert seen["serving_metrics"] == {"address": "127.0.0.1:0"}
    assert seen["Space"] == {"floor_size": 20}
    fresh = {"store": tmp_path / "s", "start": 4096, "settle_s": 5.5, "file_size": file_size, "learns": is_hardened}
    assert seen["FreshStore"] == fresh
    opened = seen["bare_log"]
    space = opened.pop("create").__self__
    assert opened == {
        "store_dir": tmp_path / "s",
        "file_size": file_size,
        "clear_tail": is_hardened,
        "strict": is_hardened,
        "replicated": True,
    }
    made = seen["Follower"]
    log = made.pop("commit_log")
    assert made.pop("has_room") == space.has_room
    assert made == {
        "host": "127.0.0.1",
        "port": 3,
        "settings": replace(SLAVE_OPTIONS.settings, mapped_file_size=file_size or 1 << 30, adopts_file_size=file_size is None),
        "profile": profile,
        "frame_deadline_ms": 8_500,
        "flushes": True,
        "source_address": "127.0.0.7",
        "tls": None,
    }
    assert seen["flushing"] == {"log": log, "intervals": SLAVE_OPTIONS.flush_intervals}
    assert seen["cleaning"] == {"log": log, "store": tmp_path / "s", "settings": SLAVE_OPTIONS.retention, "space": space}
    assert (seen["SlaveFigures"]["log"], seen["SlaveFigures"]["profile"]) == (log, profile.name)
    assert seen["publishing_status"]["store_dir"] == tmp_path / "s"
    assert prepared[0] == {"log": log, "address": ("127.0.0.1", 3), "tls": None, "source_address": ("127.0.0.7", 0)}
    assert [line.partition("=")[0] for line in lines] == ["metrics"]


def test_a_slave_without_an_address_of_its_own_lets_the_system_choose(
    spy: Callable[..., list[Arguments]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked, made, prepared = spy(slave_module, "check_own_address"), spy(slave_module, "Follower"), list[object]()

    def prepare(_: object, *arguments: object) -> bool:
        prepared.append(arguments[4])
        stop()
        return False

    monkeypatch.setattr("rocketmq_ha.impl.app.fresh_store.FreshStore.prepare", prepare)
    following = replace(SLAVE_OPTIONS.following, source_address="", flushes=False, frame_deadline_ms=None)
    master = MasterEndpoint("127.0.0.1", 3)
    options = replace(SLAVE_OPTIONS, store=tmp_path / "s", master=master, following=following, metrics_address=None)
    start = replace(SLAVE_OPTIONS.start, file_size=FILE_SIZE)
    slave_module.run_slave(replace(options, start=start), NoFile(), print)
    assert checked == []
    assert (made[0]["source_address"], made[0]["flushes"], made[0]["frame_deadline_ms"]) == ("", False, None)
    assert prepared == [None]


def test_a_slave_ends_if_its_log_cannot_be_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that flushes keeps its error; the loop raises it between two turns."""

    def check(_: object) -> None:
        raise OSError(errno.EIO, "a failed sync")

    monkeypatch.setattr(FlushRealTimeService, "check", check)
    tries = iter((True,))  # the loop must not come to a second try

    monkeypatch.setattr("rocketmq_ha.impl.app.fresh_store.FreshStore.prepare", lambda *_: next(tries))
    start = replace(SLAVE_OPTIONS.start, file_size=FILE_SIZE)
    options = replace(SLAVE_OPTIONS, store=tmp_path / "s", master=MasterEndpoint("127.0.0.1", 3), start=start, profile=HARDENED)
    with pytest.raises(OSError, match="a failed sync"):
        slave_module.run_slave(replace(options, metrics_address=None), NoFile(), print)


@pytest.mark.parametrize(("profile", "is_taken"), [(CLASSIC, False), (HARDENED, True)])
def test_classic_has_no_tls(profile: Profile, is_taken: bool) -> None:
    expected = "certificate|cert.pem" if is_taken else "--profile classic has no TLS, as RocketMQ has none: expected --profile"
    with pytest.raises(ConfigInvalid, match=expected):
        SLAVE_OPTIONS.master.client_tls(profile)


# --- tail and doctor -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "position", "opened"),
    [
        ("last", None, ("open_feed", None, None)),
        ("end", None, ("open_feed", None, None)),
        ("min", None, ("find_min", 7, None)),
        (4_711, None, ("open_feed", 4_711, None)),
        ("min", Position(500, 400, 100, 1), ("open_feed", 500, 400)),
        ("last", Position(500), ("open_feed", 500, None)),
        ("last", Position(500, 0, 500, 1), ("open_feed", 500, 0)),
    ],
)
def test_tail_opens_its_connection_as_its_options_say(
    start: str | int, position: Position | None, opened: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[object, ...]] = []

    def note(
        name: str, address: object, where: object, stopped: object, *, heartbeat_ms: int, tls: object, **more: Any
    ) -> None:
        assert (address, stopped, heartbeat_ms, tls) == (("h", 3), stop, 6, "tls")
        assert more.pop("settle_s", 5.5) == 5.5
        calls.append((name, where, more.pop("overlap", None)))
        assert not more
        raise Stopped

    for name in ("open_feed", "find_min"):
        monkeypatch.setattr(tail_module, name, partial(note, name))
    tail = tail_module.Tail(replace(TAIL_OPTIONS, start=start), None, position, "tls")  # type: ignore[arg-type]
    with pytest.raises(Stopped):
        tail._open(stop)  # type: ignore[arg-type]
    assert calls == [opened]


def test_tail_names_the_offset_that_its_master_has_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OutOfRange("h:3", 500, "it closes")

    monkeypatch.setattr(tail_module, "open_feed", refuse)
    tail = tail_module.Tail(TAIL_OPTIONS, None, Position(500))  # type: ignore[arg-type]
    with pytest.raises(tail_module.LogChanged) as found:
        tail._open(lambda: False)
    told = "h:3: offset 500 is out of the master's range: it closes"
    assert str(found.value) == f"{told}; it has deleted that part of its log, or never had it. Begin elsewhere: --from"


@pytest.mark.parametrize("has_cursor", [True, False])
def test_tail_begins_at_its_cursor(has_cursor: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cursor = tmp_path / "cursor"
    position = Position(500, 400, 100, 77)
    tail_module.write_cursor(cursor, position)
    made: list[tuple[object, ...]] = []

    class Noted:
        def __init__(self, *arguments: object) -> None:
            made.append(arguments)

        def run(self, _: object) -> bool:
            """End at once."""
            return True

    monkeypatch.setattr(tail_module, "Tail", Noted)
    monkeypatch.setattr("sys.stdout.fileno", lambda: 1, raising=False)
    options = replace(TAIL_OPTIONS, master=MasterEndpoint("h", 3), cursor=cursor if has_cursor else None)
    tail_module.run_tail(options)
    assert [(found[0], found[2], found[3]) for found in made] == [(options, position if has_cursor else None, None)]
    with pytest.raises(ConfigInvalid, match=f"{tmp_path}/none/cursor: its directory does not exist"):
        tail_module.run_tail(replace(options, cursor=tmp_path / "none" / "cursor"))


@pytest.mark.parametrize("has_broker", [True, False])
@pytest.mark.parametrize("has_store", [True, False])
@pytest.mark.parametrize("is_seen", [True, False])
def test_doctor_makes_its_checks_in_order(
    has_broker: bool, has_store: bool, is_seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one check has seen goes to the next ones."""
    made: list[tuple[object, ...]] = []
    findings = Findings()

    def check(name: str, result: object, *arguments: object) -> object:
        made.append((name, *arguments))
        return result

    results = {"check_store": "store", "check_broker": "info", "check_master": "master" if is_seen else None}
    for name in (*results, "compare_file_sizes", "compare_logs"):
        monkeypatch.setattr(diagnosis, name, partial(check, name, results.get(name)))
    options = replace(
        DOCTOR_OPTIONS,
        master=MasterEndpoint("::1", 3),
        broker=DOCTOR_OPTIONS.broker if has_broker else None,
        store=DOCTOR_OPTIONS.store if has_store else None,
    )
    diagnosis.diagnose(options, findings, stop)  # type: ignore[arg-type]
    store, info, master = "store" if has_store else None, "info" if has_broker else None, "master" if is_seen else None
    expected: list[tuple[object, ...]] = []
    if has_store:
        assert made[0][:4] == ("check_store", Path("s"), "[::1]:3", findings)
        del made[0]
    expected += [("check_broker", ("b", 4), findings)] if has_broker else []
    expected += [("check_master", ("::1", 3), store, 5.5, 6.5, findings, stop, None)]
    expected += [("compare_file_sizes", master, store, info, findings)] if has_store else []
    expected += [("compare_logs", master, store, findings)] if has_store and is_seen else []
    assert made == expected
