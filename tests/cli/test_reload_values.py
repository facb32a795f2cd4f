"""What SIGHUP changes: each difference between the file before and the file now, and its words in the log."""

import logging
import signal
from collections.abc import Iterator
from ipaddress import ip_network
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kit.option_tables import received
from rocketmq_ha.impl.app import reload as reload_module
from rocketmq_ha.impl.app.reload import Configuration, Reload
from rocketmq_ha.impl.cli import main
from rocketmq_ha.impl.cli.reload import CommandConfiguration
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.net.limits import LOOPBACK

TEN, SIX = ip_network("10.0.0.0/8"), ip_network("fd00::/8")
BEFORE = {"log_level": "info", "log_format": "text", "allow": ["10.0.0.0/8"], "count": 5, "size": 6}


class Source:
    """A configuration that the test sets."""

    values_at_start: dict[str, Any] = BEFORE

    def __init__(self) -> None:
        self.found: Configuration | Exception = Configuration(BEFORE, "info", "text", (TEN,))

    def read(self) -> Configuration:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


class Peers:
    """A master's list of networks, and a listener's certificates. Both note what they take over."""

    def __init__(self, changes: list[object]) -> None:
        self.networks: Any = (TEN,)
        self.limiter = self
        self._changes = changes

    def allow(self, networks: object) -> None:
        self._changes.append(("allow", networks))
        self.networks = networks

    def renewed(self) -> Any:
        return lambda: self._changes.append("certificates")


def reloading(source: Source, *tls: Any, master: Any = None) -> Reload:
    reload = Reload(source)
    reload.serve(*tls, master=master)
    return reload


@pytest.fixture
def changes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """What was taken over. SIGHUP gets its handler back."""
    found: list[object] = []
    monkeypatch.setattr(reload_module, "set_level", lambda level: found.append(("level", level)))
    monkeypatch.setattr(reload_module, "set_format", lambda form: found.append(("format", form)))
    before = signal.getsignal(signal.SIGHUP)
    yield found
    signal.signal(signal.SIGHUP, before)


def polled(reload: Reload, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Send SIGHUP to this process and let the loop see it, twice. Returns: the log lines."""
    caplog.clear()
    logger = logging.getLogger("rocketmq_ha.impl.app.reload")
    logger.addHandler(caplog.handler)
    level = logger.level
    logger.setLevel(logging.INFO)
    try:
        reload.poll()
        signal.raise_signal(signal.SIGHUP)
        reload.poll()
        reload.poll()
    finally:
        logger.removeHandler(caplog.handler)
        logger.setLevel(level)
    return [f"{record.levelname} {record.getMessage()}" for record in dict.fromkeys(caplog.records)]


@pytest.mark.parametrize(
    ("values", "found", "taken", "told"),
    [
        pytest.param({}, ("info", "text", (TEN,)), [], "nothing has changed", id="nothing"),
        pytest.param(
            {"log_level": "debug"}, ("debug", "text", (TEN,)), [("level", "debug")], "log_level = debug", id="the level"
        ),
        pytest.param({"log_level": "debug"}, (None, "text", (TEN,)), [], "nothing has changed", id="level by command line"),
        pytest.param(
            {"log_format": "json"}, ("info", "json", (TEN,)), [("format", "json")], "log_format = json", id="the format"
        ),
        pytest.param({"log_format": "json"}, ("info", None, (TEN,)), [], "nothing has changed", id="format by command line"),
        pytest.param(
            {"allow": ["fd00::/8"]},
            ("info", "text", (SIX, TEN)),
            [("allow", (SIX, TEN))],
            "allow = fd00::/8, 10.0.0.0/8",
            id="networks",
        ),
        pytest.param({"allow": []}, ("info", "text", ()), [("allow", None)], "allow = all", id="all networks"),
        pytest.param({"allow": []}, ("info", "text", None), [], "nothing has changed", id="the command line has the networks"),
        pytest.param(
            {"size": 7, "count": 8}, ("info", "text", (TEN,)), [], "only after a restart: count, size", id="other options"
        ),
        pytest.param(
            {"size": 7, "log_level": "error", "log_format": "json"},
            ("error", "json", (SIX,)),
            [("level", "error"), ("format", "json"), ("allow", (SIX,))],
            "log_level = error; log_format = json; allow = fd00::/8; only after a restart: size",
            id="several",
        ),
    ],
)
def test_each_change_is_taken_over_and_named(
    values: dict[str, object],
    found: tuple[Any, Any, Any],
    taken: list[object],
    told: str,
    changes: list[object],
    caplog: pytest.LogCaptureFixture,
) -> None:
    source, peers = Source(), Peers(changes)
    reload = reloading(source, master=peers)
    source.found = Configuration(BEFORE | values, *found)
    assert polled(reload, caplog) == [f"INFO SIGHUP: {told}"]
    assert changes == taken
    assert polled(reload, caplog) == ["INFO SIGHUP: nothing has changed"]  # it knows what it has taken over


def test_an_option_that_is_gone_from_the_file_has_changed(changes: list[object], caplog: pytest.LogCaptureFixture) -> None:
    source = Source()
    reload = Reload(source)
    values = {name: value for name, value in BEFORE.items() if name not in ("log_level", "size")}
    source.found = Configuration(values, "warning", "text", (TEN,))
    assert polled(reload, caplog) == ["INFO SIGHUP: log_level = warning; only after a restart: size"]
    assert changes == [("level", "warning")]


A, B, GONE = {"log_level": "info", "size": 6}, {"log_level": "debug", "size": 7}, dict[str, Any]()


@pytest.mark.parametrize(
    "files",
    [
        pytest.param((A, B, B, A, A), id="there and back"),
        pytest.param((A, GONE, GONE, A, A), id="removed and set again"),
        pytest.param((GONE, A, GONE, A, A), id="set, removed, and set again"),
        pytest.param((A, B, GONE, B, GONE, A), id="another value, and removed"),
        pytest.param((A, GONE, B, A, GONE), id="removed, and set to another value"),
    ],
)
def test_each_file_is_compared_with_the_one_before_it(
    files: tuple[dict[str, Any], ...], changes: list[object], caplog: pytest.LogCaptureFixture
) -> None:
    """An option that the file does not set has its default, "warning"."""
    source = Source()
    source.values_at_start = files[0]
    reload = Reload(source)
    for before, values in pairwise(files):
        changes.clear()
        level = values.get("log_level", "warning")
        source.found = Configuration(values, level, "text", None)
        told = "nothing has changed" if values == before else f"log_level = {level}; only after a restart: size"
        assert polled(reload, caplog) == [f"INFO SIGHUP: {told}"]
        assert changes == ([] if values == before else [("level", level)])


@pytest.mark.parametrize("mistake", [ConfigInvalid("bad"), None], ids=["no configuration", "no certificate"])
def test_a_mistake_between_two_files_is_no_file(
    mistake: Exception | None, changes: list[object], caplog: pytest.LogCaptureFixture
) -> None:
    """The file behind it is compared with the last one that was taken over."""

    class Certificates(Peers):
        def renewed(self) -> Any:
            if source.found == Configuration(B, "debug", "text", None):
                raise ConfigInvalid("no certificate")
            return lambda: None

    source = Source()
    source.values_at_start = A
    reload = reloading(source, Certificates(changes))
    source.found = mistake or Configuration(B, "debug", "text", None)
    assert polled(reload, caplog)[0].startswith("ERROR SIGHUP: all stays as it is: ")
    source.found = Configuration(A, "info", "text", None)
    assert polled(reload, caplog) == ["INFO SIGHUP: certificates read anew, for new connections"]
    assert changes == []


def test_certificates_are_read_anew_each_time(changes: list[object], caplog: pytest.LogCaptureFixture) -> None:
    reload = reloading(Source(), Peers(changes))
    for _ in range(2):
        assert polled(reload, caplog) == ["INFO SIGHUP: certificates read anew, for new connections"]
    assert changes == ["certificates"] * 2


@pytest.mark.parametrize("error", [ConfigInvalid("f:\n  bad"), PermissionError(13, "Permission denied", "f")], ids=repr)
def test_a_mistake_changes_nothing(error: Exception, changes: list[object], caplog: pytest.LogCaptureFixture) -> None:
    source = Source()
    reload = reloading(source, Peers(changes), master=Peers(changes))
    source.found = error
    assert polled(reload, caplog) == [f"ERROR SIGHUP: all stays as it is: {' '.join(str(error).split())}"]
    assert changes == []


def test_a_certificate_that_cannot_be_read_leaves_all_as_it_is(changes: list[object], caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Peers):
        def renewed(self) -> Any:
            raise ConfigInvalid("cert.pem: no certificate")

    source = Source()
    reload = reloading(source, Broken(changes), master=Peers(changes))
    source.found = Configuration(BEFORE | {"log_level": "debug"}, "debug", "text", (SIX,))
    assert polled(reload, caplog) == ["ERROR SIGHUP: all stays as it is: cert.pem: no certificate"]
    assert changes == []


# --- What the file says, beside the command line ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "behind", "lines", "expected"),
    [
        pytest.param((), (), "", ("info", "text", LOOPBACK), id="defaults"),
        pytest.param((), (), "profile = 'classic'", ("info", "text", ()), id="classic allows all"),
        pytest.param((), (), "log_level = 'debug'\nlog_format = 'json'", ("debug", "json", LOOPBACK), id="the file"),
        pytest.param((), (), "allow = ['10.0.0.0/8', 'fd00::/8']", ("info", "text", (TEN, SIX)), id="networks"),
        pytest.param(("--log-level", "error"), (), "log_level = 'debug'", (None, "text", LOOPBACK), id="level before"),
        pytest.param((), ("--log-level", "error"), "log_level = 'debug'", (None, "text", LOOPBACK), id="level behind"),
        pytest.param(("--log-format", "text"), (), "log_format = 'json'", ("info", None, LOOPBACK), id="format before"),
        pytest.param((), ("--allow", "::1"), "allow = ['10.0.0.0/8']", ("info", "text", None), id="networks behind"),
    ],
)
def test_the_configuration_that_is_read_again(
    before: tuple[str, ...],
    behind: tuple[str, ...],
    lines: str,
    expected: tuple[object, ...],
    tmp_path: Path,
) -> None:
    file = tmp_path / "ha.toml"
    file.write_text(f"store = 's'\n[master]\n{lines}\n")
    with main.make_context("rocketmq-ha", [*before, "status", "."]) as group:
        command = main.get_command(group, "master")
        assert command is not None
        with command.make_context("master", ["--config", str(file), *behind], parent=group):
            configuration = CommandConfiguration()
            at_start = dict(configuration.values_at_start)
            found = configuration.read()
            assert found.values == at_start
            assert (found.log_level, found.log_format, found.allow) == expected
            file.write_text("store = 's'\nfile_size = 7\n")
            assert (configuration.read().values, configuration.values_at_start) == ({"store": "s", "file_size": 7}, at_start)


def test_a_slave_has_no_networks_and_a_command_without_a_file_keeps_its_values(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Configuration] = []
    monkeypatch.setattr("rocketmq_ha.impl.cli.slave.CommandConfiguration", lambda: read.append(CommandConfiguration().read()))
    received(monkeypatch, "slave", "--store", "s", "--master", "h:1")
    assert read == [Configuration({}, "info", "text", None)]


def test_each_port_with_tls_reads_its_certificates(changes: list[object], caplog: pytest.LogCaptureFixture) -> None:
    """A broker has two: that of its slaves and that of its clients; each may be without TLS."""
    reload = Reload(Source())
    reload.serve(Peers(changes), None, Peers(changes))
    assert polled(reload, caplog) == ["INFO SIGHUP: certificates read anew, for new connections"]
    assert changes == ["certificates", "certificates"]


def test_the_order_of_topics_is_taken_over_where_there_is_a_name_server(
    changes: list[object], caplog: pytest.LogCaptureFixture
) -> None:
    source = Source()
    reload = Reload(source)
    reload.serve(set_order_message_enable=changes.append)
    source.found = Configuration(BEFORE | {"order_message_enable": True}, "info", "text", None, True)
    assert polled(reload, caplog) == ["INFO SIGHUP: order_message_enable = true"]
    source.found = Configuration(BEFORE, "info", "text", None, False)
    assert polled(reload, caplog) == ["INFO SIGHUP: order_message_enable = false"]
    source.found = Configuration(BEFORE | {"order_message_enable": True}, "info", "text", None, None)  # the command line has it
    assert polled(reload, caplog) == ["INFO SIGHUP: nothing has changed"]
    assert changes == [True, False]
