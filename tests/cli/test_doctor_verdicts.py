"""Each finding of `doctor` from an observation that has it: level, check, text, advice. No two figures of a case are equal."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from kit.files import contents
from rocketmq_ha.impl.app.doctor import broker_check, master_check, store_check
from rocketmq_ha.impl.app.doctor.advice import START_ANEW
from rocketmq_ha.impl.app.doctor.broker_check import check_broker
from rocketmq_ha.impl.app.doctor.comparison import compare_logs
from rocketmq_ha.impl.app.doctor.file_sizes import compare_file_sizes
from rocketmq_ha.impl.app.doctor.findings import Finding, Findings
from rocketmq_ha.impl.app.doctor.known_quirks import quirks_of
from rocketmq_ha.impl.app.doctor.master_check import check_end, check_master
from rocketmq_ha.impl.app.doctor.probe import MasterProbe, StoreProbe
from rocketmq_ha.impl.app.doctor.store_check import check_process, check_store
from rocketmq_ha.impl.errors import ConfigInvalid, PeerViolation, RocketmqHaError, StoreCorrupt
from rocketmq_ha.impl.net.broker_info import BrokerInfo, NotTold
from rocketmq_ha.impl.net.feed import FeedEnded, OutOfRange, SpeaksTls, TlsRefused, Unreachable
from rocketmq_ha.impl.net.status_socket import NotRunning
from rocketmq_ha.impl.net.tls import TlsBroken
from rocketmq_ha.impl.store.log import reader as reader_module
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.wire.message import Message, encode

FILE_SIZE = 4096
HA_PORT = "the HA port is the broker's listenPort + 1, or haListenPort: 10912 by default"
Rows = list[tuple[str, ...]]


def rows(findings: Findings) -> Rows:
    """The findings as tuples; the advice only where there is some."""
    return [(found.level, found.check, found.text, *([found.advice] if found.advice else [])) for found in findings.all]


def fill(store: Path, count: int, file_size: int = FILE_SIZE) -> Path:
    with CommitLog.open(store, file_size=file_size) as log:
        for index in range(count):
            log.append(Message("topic", b"%d" % index * 30, store_timestamp=1_700_000_000_000))
    return store


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, LogReader]]:
    """Readers of a store without a log, of one with one file, and of one with three, by the number of files."""
    base = tmp_path_factory.mktemp("stores")
    (base / "0" / "commitlog").mkdir(parents=True)
    with ExitStack() as stack:
        found = [LogReader(base / "0"), LogReader(fill(base / "1", 4)), LogReader(fill(base / "3", 60))]
        yield {len(stack.enter_context(reader).files): reader for reader in found}


# --- The findings themselves ------------------------------------------------------------------------------------------


def test_each_finding_is_passed_on_at_once_and_only_those_of_the_level_finding_count() -> None:
    told: list[Finding] = []
    findings = Findings(told.append)
    for number, add in enumerate((findings.ok, findings.note)):
        add("check", "text")
        assert (len(told), findings.count) == (number + 1, 0)
    findings.finding("a", "b", "c")
    findings.finding("d", "e", "f")
    assert findings.count == 2
    assert told == findings.all
    assert rows(findings) == [
        ("ok", "check", "text"),
        ("note", "check", "text"),
        ("finding", "a", "b", "c"),
        ("finding", "d", "e", "f"),
    ]


# --- The log of the store against the master's ------------------------------------------------------------------------

LOST = StoreCorrupt("f", 1, "a", "b")
GONE = OutOfRange("h:1", 5_000, "it sends nothing")
NOT_SEEN = ("note", "overlap", "no message is in both what was read and the store: whether they are the same log was not seen")
ALL = ("ok", "lag", "the store has all")
AHEAD = "bytes ahead of the master: the master has lost what it had sent, or is another (quirk 9)"
PHANTOM = "a RocketMQ slave writes that at 0, and then refuses all (quirk 17); ours, hardened, takes it for a new store"


@pytest.mark.parametrize(
    ("master", "store", "expected"),
    [
        pytest.param({"last_file": 0}, {"has_files": False}, [], id="new, and the master is in its first file"),
        pytest.param(
            {"last_file": 5_001},
            {"has_files": False},
            [("note", "history", "a new slave will not get what is before 5,001 (quirk 8), but ours with --from min")],
            id="new",
        ),
        pytest.param({"last_file": 0}, {"end": 0}, [], id="an empty file, and the master is in its first file"),
        pytest.param(
            {"last_file": 7_003},
            {"end": 0},
            [
                (
                    "finding",
                    "phantom",
                    f"the store has a file and no message, and the master starts at 7,003: {PHANTOM}",
                    START_ANEW,
                )
            ],
            id="an empty file",
        ),
        pytest.param({"difference": 3_000, "is_end": True}, {"damage": LOST}, [], id="damaged"),
        pytest.param({"difference": 3_000, "is_end": True}, {"end": 0, "damage": LOST}, [], id="damaged from its start on"),
        pytest.param({"end": 20_000}, {"end": 20_000}, [NOT_SEEN, ALL], id="level, not read to its end"),
        pytest.param({"end": 20_000, "is_end": True}, {"end": 20_000}, [NOT_SEEN, ALL], id="level"),
        pytest.param(
            {"end": 20_000, "is_end": True, "compared": 1_234},
            {"end": 18_765},
            [
                ("ok", "overlap", "1,234 messages that both have are the same"),
                ("ok", "lag", "the store is 1,235 bytes behind"),
            ],
            id="behind",
        ),
        pytest.param(
            {"end": 20_000, "compared": 3},
            {"end": 19_999},
            [("ok", "overlap", "3 messages that both have are the same"), ("ok", "lag", "the store is 1 bytes behind so far")],
            id="behind, not read to its end",
        ),
        pytest.param(
            {"end": 20_000, "is_end": True, "compared": 3},
            {"end": 22_345},
            [
                ("finding", "ahead", f"the slave ends at 22,345, 2,345 {AHEAD}", START_ANEW),
                ("ok", "overlap", "3 messages that both have are the same"),
            ],
            id="ahead",
        ),
        pytest.param(
            {"end": 20_000, "is_end": True, "compared": 3},
            {"end": 20_001},
            [
                ("finding", "ahead", f"the slave ends at 20,001, 1 {AHEAD}", START_ANEW),
                ("ok", "overlap", "3 messages that both have are the same"),
            ],
            id="ahead by one",
        ),
        pytest.param(
            {"end": 20_000, "compared": 3},
            {"end": 22_345},
            [("ok", "overlap", "3 messages that both have are the same")],
            id="ahead of what was read, which is not all",
        ),
        pytest.param(
            {"end": 20_000, "is_end": True, "out_of_range": GONE, "compared": 0},
            {"end": 9_000, "last_offset": 8_765},
            [
                (
                    "finding",
                    "range",
                    "the master does not have what the slave wants next to 8,765: it sends nothing (quirk 7)",
                    START_ANEW,
                )
            ],
            id="deleted",
        ),
        pytest.param(
            {"end": 20_000, "is_end": True, "out_of_range": GONE},
            {"end": 16_000},
            [
                (
                    "finding",
                    "range",
                    "the master does not have what the slave wants next to 16,000: it sends nothing (quirk 7)",
                    START_ANEW,
                )
            ],
            id="deleted, and the store has no whole message in its last file",
        ),
        pytest.param(
            {"end": 20_000, "is_end": True, "compared": 2, "difference": 17_171},
            {"end": 18_000},
            [("finding", "diverged", "the logs differ at 17,171: the slave's is not the master's log", START_ANEW)],
            id="another log",
        ),
        pytest.param(
            {"end": 20_000, "is_end": True, "difference": 0},
            {"end": 18_000},
            [("finding", "diverged", "the logs differ at 0: the slave's is not the master's log", START_ANEW)],
            id="another log, from its first byte on",
        ),
        pytest.param(
            {"end": 20_000, "is_end": True},
            {"end": 15_000},
            [NOT_SEEN, ("ok", "lag", "the store is 5,000 bytes behind")],
            id="it ends where the last file begins",
        ),
        pytest.param(
            {"end": 20_000, "is_end": True},
            {"end": 14_999},
            [("ok", "lag", "the store is 5,001 bytes behind")],
            id="it ends before the last file",
        ),
    ],
)
def test_the_log_of_the_store_is_compared_with_the_masters(
    master: dict[str, object], store: dict[str, object], expected: Rows, readers: dict[int, LogReader]
) -> None:
    seen = MasterProbe(**{"last_file": 15_000, "end": 20_000} | master)  # type: ignore[arg-type]
    had = StoreProbe(**{"reader": readers[3], "has_files": True, "file_size": 4_096, "min_offset": 0} | store)  # type: ignore[arg-type]
    findings = Findings()
    compare_logs(seen, had, findings)
    assert rows(findings) == expected


# --- The sizes of files -----------------------------------------------------------------------------------------------

FIRST_FILE = "how large the master's files are is not seen: it is in its first file, and --broker can ask it"
NAME = "mappedFileSizeCommitLog"


def broker(config: dict[str, str], version: str = "V4_9_8", **runtime: str) -> BrokerInfo:
    return BrokerInfo({"brokerVersionDesc": version} | runtime, config)


def resync(files: int) -> str:
    return f"stop the slave, `rocketmq-ha resync STORE{files}`"


def other_size(files: int, theirs: int) -> str:
    return f"{resync(files)}; then start the slave with --file-size {theirs}, or ours without it (a broker: {NAME}={theirs})"


IN_ONE_FILE = "a slave of ours without --file-size takes the master's size at the end of this file; else "


@pytest.mark.parametrize(
    ("master", "info", "files", "store", "expected"),
    [
        pytest.param(None, None, 1, {}, [], id="no master"),
        pytest.param(None, broker({}), 1, {}, [], id="no master, and its broker names no size"),
        pytest.param(
            None,
            broker({NAME: "8192"}),
            3,
            {},
            [
                (
                    "finding",
                    "file size",
                    "the master has files of 8,192 bytes, the store has files of 4,096",
                    other_size(3, 8192),
                )
            ],
            id="no master, and its broker names another size",
        ),
        pytest.param(
            None,
            broker({NAME: "4096"}),
            3,
            {},
            [("ok", "file size", "both have files of 4,096 bytes")],
            id="no master, and its broker names the same size",
        ),
        pytest.param(
            {"file_size": 2_048},
            broker({NAME: "8192"}),
            3,
            {},
            [
                (
                    "finding",
                    "file size",
                    "the broker says files of 8,192 bytes, and the HA port shows files of 2,048",
                    "is --broker the remoting address of this master?",
                ),
                (
                    "finding",
                    "file size",
                    "the master has files of 2,048 bytes, the store has files of 4,096",
                    other_size(3, 2048),
                ),
            ],
            id="the broker and the port contradict each other",
        ),
        pytest.param(
            {"file_size": 4_096},
            broker({NAME: "4096"}),
            1,
            {},
            [("ok", "file size", "both have files of 4,096 bytes")],
            id="the same three times",
        ),
        pytest.param(
            {"file_size": 5_120},
            None,
            0,
            {},
            [
                (
                    "note",
                    "file size",
                    f"the master has files of 5,120 bytes; a slave of ours learns that, a broker is told {NAME}=5120",
                )
            ],
            id="the store is empty",
        ),
        pytest.param(
            {"is_longer": True},
            None,
            1,
            {},
            [
                (
                    "finding",
                    "file size",
                    "the master has files of more than 4,096 bytes, the store has files of 4,096",
                    f"{resync(1)}; then start the slave without --file-size (a broker: with the master's {NAME})",
                )
            ],
            id="longer, by an unknown size",
        ),
        pytest.param(
            {"last_file": 8_193},
            None,
            3,
            {},
            [
                (
                    "finding",
                    "file size",
                    "the master's last file begins at 8,193; the store has files of 4,096 bytes",
                    f"{resync(3)}; then start the slave with --file-size as the master's {NAME}",
                )
            ],
            id="the last file begins at no multiple",
        ),
        pytest.param({"last_file": 8_192}, None, 3, {}, [("note", "file size", FIRST_FILE)], id="it begins at a multiple"),
        pytest.param(
            {"last_file": 8_193}, None, 0, {}, [("note", "file size", FIRST_FILE)], id="an empty store has no multiple"
        ),
        pytest.param(
            {"file_size_unseen": "it does not say"},
            None,
            3,
            {},
            [("note", "file size", "how large the master's files are is not seen: it does not say")],
            id="not seen, for a reason",
        ),
        *(
            pytest.param(
                {"file_size": theirs},
                None,
                files,
                {"min_offset": 100, "end": 1_100},
                [
                    (
                        "finding",
                        "file size",
                        f"the master has files of {theirs:,} bytes, the store has files of 4,096",
                        (IN_ONE_FILE if takes else "") + other_size(files, theirs),
                    )
                ],
                id=f"{files} files, 1,000 bytes in the last, and the master's of {theirs}",
            )
            for files, theirs, takes in [
                *((1, 999, False), (1, 1_000, True), (1, 1_001, True), (1, 4_095, True), (1, 4_097, False), (3, 1_001, False)),
            ]
        ),
    ],
)
def test_the_sizes_of_files_are_compared(
    master: dict[str, object] | None,
    info: BrokerInfo | None,
    files: int,
    store: dict[str, int],
    expected: Rows,
    readers: dict[int, LogReader],
) -> None:
    seen = None if master is None else MasterProbe(**{"last_file": 0, "end": 20_000} | master)  # type: ignore[arg-type]
    had = StoreProbe(readers[files], bool(files), 4_096, **{"min_offset": 0, "end": 9_999} | store)
    findings = Findings()
    compare_file_sizes(seen, had, info, findings)
    assert rows(findings) == [
        tuple(word.replace(f"STORE{files}", str(readers[files].store_dir)) for word in row) for row in expected
    ]


# --- The end of the master's log, its heartbeat and its clock ------------------------------------------------------------

NOW_S = 1_700_000_000.0
HEARTBEAT_ADVICE = "set haSendHeartbeatInterval below the slave's haHousekeepingInterval, 20 s by default"
CLOCK_ADVICE = "let NTP steer both; a step of a clock holds back reports, or closes all links (quirk 28)"


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param(
            {"is_end": True, "messages": 1_234},
            [("ok", "end", "its log ends at 56,789; 1,234 messages of the last file were read")],
            id="read to its end",
        ),
        pytest.param(
            {"received": 7_600_000, "seconds": 2.0, "messages": 1_234},
            [("note", "end", "it has not come to its end, at 56,789 so far, 4 MB/s: it is busy, or --patience short")],
            id="not read to its end",
        ),
        pytest.param(
            {"received": 7_600_000},
            [("note", "end", "it has not come to its end, at 56,789 so far, 0 MB/s: it is busy, or --patience short")],
            id="nothing came after the first frame",
        ),
        pytest.param({"heartbeat_s": 0.04}, [("ok", "heartbeat", "a heartbeat after 0.0 s of rest")], id="heartbeat at once"),
        pytest.param({"heartbeat_s": 5.16}, [("ok", "heartbeat", "a heartbeat after 5.2 s of rest")], id="heartbeat"),
        pytest.param({"heartbeat_s": 20.0}, [("ok", "heartbeat", "a heartbeat after 20.0 s of rest")], id="heartbeat, just"),
        pytest.param(
            {"heartbeat_s": 20.1},
            [("finding", "heartbeat", "a heartbeat after 20.1 s of rest", HEARTBEAT_ADVICE)],
            id="heartbeat too late",
        ),
        pytest.param({"newest_ms": 1_700_000_005_000}, [], id="a clock that is ahead, just"),
        pytest.param({"newest_ms": 1_600_000_000_000}, [], id="an old message"),
        *(
            pytest.param(
                {"newest_ms": 1_700_000_000_000 + ahead_ms},
                [("finding", "clock", f"its newest message is stored {told} s in our future: the clocks differ", CLOCK_ADVICE)],
                id=f"a clock that is {ahead_ms} ms ahead",
            )
            for ahead_ms, told in ((5_001, 5), (91_800, 92))
        ),
    ],
)
def test_the_end_of_the_masters_log_is_reported(
    seen: dict[str, object], expected: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: NOW_S)
    found = MasterProbe(**{"last_file": 40_000, "end": 56_789} | seen)  # type: ignore[arg-type]
    findings = Findings()
    check_end(found, findings)
    told = rows(findings)
    assert told[0][1] == "end"
    assert (told if expected and expected[0][1] == "end" else told[1:]) == expected


# --- The connection to the master ----------------------------------------------------------------------------------------


def looked_at(
    monkeypatch: pytest.MonkeyPatch, result: MasterProbe | Exception, times: tuple[float, float, float] = (0.0, 0.0, 0.0)
) -> tuple[MasterProbe | None, Rows]:
    """Check a master of which this is observed. times: seconds before the connect, after it, and at the end."""

    def observe(*_: object) -> MasterProbe:
        if isinstance(result, Exception):
            raise result
        return result

    clock = SimpleNamespace(monotonic=iter(times).__next__, time=time.time)
    findings = Findings()
    with monkeypatch.context() as patched, socket.create_server(("127.0.0.1", 0)) as listener:
        patched.setattr(master_check, "probe_master", observe)
        patched.setattr(master_check, "time", clock)
        address = listener.getsockname()[:2]
        found = check_master(address, None, 3.0, 0.0, findings, lambda: False, None)
    return found, [tuple(word.replace(f":{address[1]}", ":PORT") for word in row) for row in rows(findings)]


@pytest.mark.parametrize(("connections", "told"), [(1, "1 connection"), (2, "2 connections"), (14, "14 connections")])
def test_what_was_looked_at_is_told_with_its_times(connections: int, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = MasterProbe(12_345, 67_890, is_end=True, messages=42, connections=connections)
    found, lines = looked_at(monkeypatch, seen, (100.0, 100.0123, 107.26))
    assert found is seen
    assert lines == [
        ("ok", "reachable", "127.0.0.1:PORT takes connections, in 12.3 ms"),
        ("ok", "protocol", "it talks HA; for a report of 0 it starts at 12,345, the start of its last file"),
        ("ok", "end", "its log ends at 67,890; 42 messages of the last file were read"),
        ("note", "looked", f"for 7.3 s by {told}; a master that counts sockets had one more slave for so long"),
    ]


def test_a_damaged_log_and_a_link_that_ends_are_findings_beside_what_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = MasterProbe(0, 5, damage="crc: found 1, expected 2", lost=FeedEnded("h:1: closed"))
    _, lines = looked_at(monkeypatch, seen)
    assert lines[2:4] == [
        (
            "finding",
            "log",
            "what it sends is no log: crc: found 1, expected 2",
            "check the master's store: `rocketmq-ha verify`",
        ),
        ("finding", "link", "the connection ended while it was read: h:1: closed", "something between cuts it, or the master"),
    ]
    assert [line[1] for line in lines[4:]] == ["end", "looked"]


TLS_ADVICE = (
    "each end's certificate must be in date and signed by the other's --tls-ca, the master's have the name that is asked for "
    "(--tls-name), and the port be that of --tls-listen"
)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(
            TlsBroken("HA-M-70", "h:1", "a", "b"), ("tls", "h:1: found a, expected b (HA-M-70)", TLS_ADVICE), id="certificate"
        ),
        pytest.param(
            PeerViolation("HA-W-2", "h:1", "a", "b"),
            (
                "protocol",
                "it does not talk HA: h:1: found a, expected b (HA-W-2)",
                f"{HA_PORT}; this is another service",
            ),
            id="another service",
        ),
        pytest.param(
            SpeaksTls("h:1: speaks TLS"),
            ("tls", "h:1: speaks TLS", "or name the port of the master's --listen, where it has one"),
            id="a port for TLS",
        ),
        *(
            pytest.param(
                FeedEnded(text),
                (
                    "protocol",
                    f"it says nothing in HA for a report of 0: {told}",
                    f"{HA_PORT}; or it refuses this address, or it expects TLS (--tls-cert, --tls-key and --tls-ca), or its "
                    "heartbeat interval is longer than --patience",
                ),
                id=text,
            )
            for text, told in (("h:1: closed: at once", "closed: at once"), ("closed", "closed"))
        ),
    ],
)
def test_a_master_that_says_nothing_in_ha_is_a_finding(
    error: Exception, expected: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, lines = looked_at(monkeypatch, error)
    assert found is None
    assert [line[1] for line in lines] == ["reachable", expected[0]]
    assert lines[1] == ("finding", *expected)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            Unreachable("h:1: cannot connect: no route"),
            (
                "reachable",
                "h:1: cannot connect: no route",
                f"is the master up, the address right (brokerIP2), and no firewall between? {HA_PORT}",
            ),
        ),
        (TlsRefused("h:1: not trusted"), ("tls", "h:1: not trusted", TLS_ADVICE)),
    ],
    ids=["unreachable", "TLS"],
)
def test_a_connection_that_cannot_be_opened_is_the_only_finding(
    error: Exception, expected: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(master_check, "MasterFeed", refuse)
    findings = Findings()
    assert check_master(("h", 1), None, 1.0, 0.0, findings, lambda: False, None) is None
    assert rows(findings) == [("finding", *expected)]


# --- The broker ----------------------------------------------------------------------------------------------------------

NO_NOTES = "HIGHER_VERSION"  # a version without known quirks


def asked(info: BrokerInfo | Exception, monkeypatch: pytest.MonkeyPatch) -> tuple[BrokerInfo | None, Rows]:
    def answer(address: tuple[str, int]) -> BrokerInfo:
        assert address == ("h", 10911)
        if isinstance(info, Exception):
            raise info
        return info

    monkeypatch.setattr(broker_check, "ask_broker", answer)
    findings = Findings()
    return check_broker(("h", 10911), findings), rows(findings)


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        pytest.param(
            NotTold("h:10911: closes"),
            [
                (
                    "finding",
                    "broker",
                    "it does not tell: h:10911: closes",
                    "the remoting port is its listenPort, 10911 by default",
                )
            ],
            id="no answer",
        ),
        pytest.param(BrokerInfo({}, {}), [("ok", "broker", "a version that it does not tell")], id="nothing told"),
        pytest.param(broker({}, NO_NOTES), [("ok", "broker", NO_NOTES)], id="a version alone"),
        pytest.param(broker({"brokerName": "b-1"}, NO_NOTES), [("ok", "broker", f"{NO_NOTES}, b-1")], id="a name"),
        pytest.param(
            broker({"brokerRole": "ASYNC_MASTER", "brokerName": ""}, NO_NOTES),
            [("ok", "broker", f"{NO_NOTES}, ASYNC_MASTER")],
            id="a role and an empty name",
        ),
        pytest.param(
            broker({"brokerName": "b-1", "brokerRole": "SLAVE"}, NO_NOTES),
            [
                ("ok", "broker", f"{NO_NOTES}, b-1, SLAVE"),
                (
                    "finding",
                    "role",
                    "the broker is a slave itself",
                    "give the slave its master's address; a slave's slave gets no acks",
                ),
            ],
            id="a slave",
        ),
        pytest.param(
            broker({}, NO_NOTES, commitLogMinOffset="1024", commitLogMaxOffset="56789"),
            [("ok", "broker", NO_NOTES), ("note", "broker", "its log holds 1,024 to 56,789")],
            id="its range",
        ),
        pytest.param(
            broker({}, NO_NOTES, commitLogMinOffset="-1", commitLogMaxOffset="many"),
            [("ok", "broker", NO_NOTES), ("note", "broker", "its log holds -1 to 0")],
            id="a range of no numbers",
        ),
        pytest.param(broker({}, NO_NOTES, commitLogMaxOffset="5"), [("ok", "broker", NO_NOTES)], id="half a range"),
    ],
)
def test_what_a_broker_tells_is_reported(info: BrokerInfo | Exception, expected: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    found, lines = asked(info, monkeypatch)
    assert found is (info if isinstance(info, BrokerInfo) else None)
    assert lines == expected


def test_what_is_known_of_a_release_follows_what_the_broker_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    _, lines = asked(broker({}, "V5_3_3"), monkeypatch)
    assert lines == [("ok", "broker", "V5_3_3"), *(("note", "known", text) for text in quirks_of((5, 3, 3)))]


@pytest.mark.parametrize(
    ("heartbeat", "housekeeping", "told"),
    [
        (None, None, None),
        ("18999", None, None),
        ("19000", None, ("19,000", "20,000")),
        ("25000", None, ("25,000", "20,000")),
        (None, "6001", None),
        (None, "6000", ("5,000", "6,000")),
        ("2000", "3001", None),
        ("2000", "3000", ("2,000", "3,000")),
        ("2000", "2999", ("2,000", "2,999")),
        ("often", "never", None),  # no numbers: the defaults of 5 s and 20 s count
        ("0", "0", None),
    ],
)
def test_a_heartbeat_must_be_more_than_a_second_below_the_silence_that_ends_a_link(
    heartbeat: str | None, housekeeping: str | None, told: tuple[str, str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"haSendHeartbeatInterval": heartbeat, "haHousekeepingInterval": housekeeping}
    _, lines = asked(broker({name: text for name, text in settings.items() if text is not None}, NO_NOTES), monkeypatch)
    expected: Rows = [("ok", "broker", NO_NOTES)]
    if told:
        text = f"heartbeats every {told[0]} ms, and {told[1]} ms of silence end a link"
        advice = "set haSendHeartbeatInterval below haHousekeepingInterval by more than a second"
        expected.append(("finding", "intervals", text, advice))
    assert lines == expected


ALWAYS = ("not its history", "sent heartbeats for ever")  # at the end
STARVES, SILENT, HANGS, SOCKETS = "reports can starve", "says nothing for 5 s", "never notices", "each connection counts"
BEYOND, LISTED = "a report beyond the master's end", "stay listed"
FROM_5 = ("inSyncReplicas=1", "flow control", "make nothing of haMasterAddress")


@pytest.mark.parametrize(
    ("version", "known"),
    [
        ((3, 9, 9), (STARVES, SILENT, SOCKETS)),
        ((4, 5, 1), (STARVES, SILENT, SOCKETS)),
        ((4, 5, 2), (SILENT, HANGS, SOCKETS)),
        ((4, 9, 2), (SILENT, HANGS, SOCKETS)),
        ((4, 9, 3), (SILENT, HANGS, SOCKETS, BEYOND)),
        ((4, 9, 8), (SILENT, HANGS, SOCKETS, BEYOND)),
        ((5, 0, 0), (LISTED, *FROM_5)),
        ((5, 3, 1), (LISTED, *FROM_5)),
        ((5, 3, 2), FROM_5),
        ((6, 0, 0), FROM_5),
    ],
    ids=str,
)
def test_what_is_known_of_a_release(version: tuple[int, int, int], known: tuple[str, ...]) -> None:
    found = quirks_of(version)
    assert len(found) == len(known) + len(ALWAYS)
    assert all(word in text for word, text in zip((*known, *ALWAYS), found, strict=True))


# --- The store and its process -------------------------------------------------------------------------------------------

SLAVE = {"role": "slave", "pid": 321, "master": "h:1", "failed_connects": 4, "state": "disconnected", "reported_offset": 56_789}
IDLE = "the slave, pid 321, is not connected; 4 tries have failed"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(NotRunning("no process serves it"), [], id="none"),
        pytest.param(ConfigInvalid("no store"), [], id="no store"),
        pytest.param(OSError(13, "Permission denied"), [], id="not ours"),
        pytest.param(
            NotRunning("s: pid 321 has not answered for 2 s"),
            [
                (
                    "finding",
                    "process",
                    "s: pid 321 has not answered for 2 s",
                    "look at it: is it stopped, or does its disk hang?",
                )
            ],
            id="stopped",
        ),
        pytest.param(
            {"role": "master", "pid": 321},
            [("finding", "process", "the store is served by a master, pid 321", "no slave follows with it")],
            id="a master",
        ),
        pytest.param(
            SLAVE | {"master": "other:2"},
            [
                (
                    "finding",
                    "process",
                    "the slave, pid 321, follows other:2, not h:1",
                    "start it with the address of this master, or ask about the other",
                )
            ],
            id="another master",
        ),
        *(
            pytest.param(SLAVE | {"state": state}, [("note", "process", f"a slave, pid 321, is {state}")], id=state)
            for state in (store_check.ASKING, store_check.WAITING)
        ),
        pytest.param(SLAVE, [("finding", "process", IDLE, "see its log")], id="not connected"),
        pytest.param(
            SLAVE | {"last_close_reason": "end_of_stream"},
            [("finding", "process", f"{IDLE}, its last connection ended: end_of_stream", "see its log")],
            id="not connected, after a connection",
        ),
        pytest.param(
            SLAVE | {"state": "disk full", "disk_full": "no room for f", "last_close_reason": "disk_full"},
            [
                (
                    "finding",
                    "process",
                    f"{IDLE}; its disk is full: no room for f, its last connection ended: disk_full",
                    "make room: it goes on by itself",
                )
            ],
            id="its disk is full",
        ),
        pytest.param(
            SLAVE | {"state": "connected", "last_close_reason": "end_of_stream"},
            [("ok", "process", "a slave, pid 321, is connected and has reported 56,789")],
            id="connected",
        ),
    ],
)
def test_the_process_of_a_store_is_asked(
    answer: dict[str, object] | Exception, expected: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(store: Path, patience_s: float) -> dict[str, object]:
        assert (store, patience_s) == (tmp_path, 2.0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(store_check, "ask", ask)
    findings = Findings()
    check_process(tmp_path, "h:1", findings)
    assert rows(findings) == expected


def checked(store: Path) -> tuple[StoreProbe | None, Rows]:
    findings = Findings()
    before = contents(store)
    with ExitStack() as stack:
        found = check_store(store, "h:1", findings, stack)
    assert contents(store) == before
    return found, rows(findings)


def test_an_empty_store_is_noted(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    found, lines = checked(tmp_path)
    assert lines == [("note", "store", f"{tmp_path} is empty: its slave asks for 0, the start of the master's last file")]
    assert found is not None and (found.has_files, found.end, found.overlap) == (False, 0, 0)


@pytest.mark.parametrize(("count", "files"), [(4, "1 file"), (60, "3 files")])
def test_the_range_of_a_store_is_told_with_its_files(count: int, files: str, tmp_path: Path) -> None:
    """With a deleted first file, so that no two of min offset, end and size are equal."""
    fill(tmp_path, count)
    first = min((tmp_path / "commitlog").iterdir())
    if count > 4:
        fill(tmp_path, 30)
        first.unlink()
        files = f"{len(list((tmp_path / 'commitlog').iterdir()))} files"
    with LogReader(tmp_path) as reader:
        records = list(reader.records())
        begin, end = reader.min_offset, reader.max_offset
    found, lines = checked(tmp_path)
    assert lines == [("ok", "store", f"its log holds {begin:,} to {end:,}, {files} of 4,096 bytes")]
    assert found is not None
    assert (found.min_offset, found.end, found.last_offset, found.overlap) == (begin, end, records[-1][0], records[-1][0])


def test_a_store_that_ends_with_a_part_of_a_message_is_noted(tmp_path: Path) -> None:
    fill(tmp_path, 4)
    with LogReader(tmp_path) as reader:
        reader.walk()
        end = reader.max_offset
    file = tmp_path / "commitlog" / f"{0:020d}"
    part = encode(Message("topic", b"x" * 99), None, end)[:117]
    file.write_bytes(file.read_bytes()[:end] + part + bytes(FILE_SIZE - end - len(part)))
    found, lines = checked(tmp_path)
    assert lines == [
        ("ok", "store", f"its log holds 0 to {end:,}, 1 file of 4,096 bytes"),
        ("note", "store", "117 bytes of a message that is not whole follow; the next start cuts them off"),
    ]
    assert found is not None and (found.end, found.tail_size) == (end, 117)


def test_a_damaged_store_and_a_misshapen_one_are_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "LOOK_AGAIN_S", 0.001)
    fill(tmp_path, 4)
    file = tmp_path / "commitlog" / f"{0:020d}"
    whole = file.read_bytes()
    file.write_bytes(whole[:95] + b"\xff" + whole[96:])
    found, [(level, check, text, advice)] = checked(tmp_path)
    assert found is not None and isinstance(found.damage, StoreCorrupt)
    assert (level, check, text) == ("finding", "store", f"its log is damaged: {found.damage}")
    assert advice == f"see `rocketmq-ha recover --dry-run {tmp_path}`; {START_ANEW}"
    fill(tmp_path / "b", 60)
    file = tmp_path / "b" / "commitlog" / f"{FILE_SIZE:020d}"
    file.write_bytes(whole[:-1])
    found, [(level, check, text, advice)] = checked(tmp_path / "b")
    assert (found, level, check) == (None, "finding", "store")
    assert str(file) in text and "4095" in text
    assert advice == f"a broker refuses such a store; move that file aside if it is not the store's, else {START_ANEW}"


@pytest.mark.parametrize(("blocks", "size", "told"), [(4_095, 1, "4,095"), (4_096, 1, None), (3, 1_365, "4,095"), (1, 0, "0")])
def test_a_disk_with_less_than_a_file_free_is_a_finding(
    blocks: int, size: int, told: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, 4)
    free = SimpleNamespace(f_bavail=blocks, f_frsize=size, f_bfree=1 << 40, f_bsize=1 << 20, f_blocks=1 << 41)
    monkeypatch.setattr("os.statvfs", lambda path: free if path == tmp_path else None)
    _, lines = checked(tmp_path)
    expected = (
        "finding",
        "disk",
        f"{told} bytes are free, less than one file of the log",
        "make room: the next file cannot be made",
    )
    assert lines[1:] == ([expected] if told else [])


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RocketmqHaError, match=str(tmp_path / "none")):
        checked(tmp_path / "none")
