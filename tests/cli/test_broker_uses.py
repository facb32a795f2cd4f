"""The options of `broker` reach their uses: it starts with a distinct value for each, and what it builds is looked at."""

import inspect
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kit.broker_option_tables import BROKER_OPTIONS
from kit.command_line import invoke
from rocketmq_ha.impl.app import run_broker as module
from rocketmq_ha.impl.app.endpoints import Listening
from rocketmq_ha.impl.app.reload import Configuration
from rocketmq_ha.impl.app.roles import RoleSettings
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.store.message_store import MessageStore
from rocketmq_ha.spec.profile import CLASSIC, HARDENED
from rocketmq_ha.spec.role import BrokerRole

Arguments = dict[str, Any]
TOLD = "10.9.9.9"
FILE_SIZE = 65_536


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
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, Arguments]:
    """The arguments, by name, of the last call of each function that a broker is built by."""
    found: dict[str, Arguments] = {}

    def watch(owner: Any, name: str) -> None:
        original: Callable[..., Any] = getattr(owner, name)

        def called(*arguments: Any, **more: Any) -> Any:
            bound = inspect.signature(original).bind(*arguments, **more)
            found[name] = dict(bound.arguments)
            return original(*arguments, **more)

        monkeypatch.setattr(owner, name, called)

    for name in (
        "RemotingServer",
        "Master",
        "BrokerController",
        "remoting_tls",
        "remoting_client_tls",
        "serving_metrics",
        "publishing_status",
    ):
        watch(module, name)
    for name in ("check_replicas", "check_batch_size", "tls_listener", "GroupCommitService", "Puts"):
        watch(module, name)
    watch(MessageStore, "open")
    return found


@pytest.mark.parametrize("role", [BrokerRole.ASYNC_MASTER, BrokerRole.SLAVE])
def test_a_broker_is_made_as_its_options_say(
    role: BrokerRole, calls: dict[str, Arguments], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = replace(
        BROKER_OPTIONS,
        store=tmp_path / "s",
        listen=("127.0.0.1", 0),
        announce=TOLD,
        ha=Listening(("127.0.0.1", 0)),
        tls=None,
        client_tls=None,
        ha_tls=None,
        file_size=FILE_SIZE,
        queue_file_size=4_700,
        profile=HARDENED,
        roles=RoleSettings(role, "sync"),
        metrics_address="127.0.0.1:0",
        broker=replace(BROKER_OPTIONS.broker, name_servers=()),
    )
    lines: list[str] = []
    ha_status: dict[str, object] = {}

    def print_line(line: str) -> None:
        lines.append(line)
        if line.startswith("metrics="):
            ha_status.update(calls["BrokerController"]["ha_status"]())
            os.kill(os.getpid(), signal.SIGTERM)

    module.run_broker(options, NoFile(), print_line)
    assert [line.partition("=")[0] for line in lines] == ["listening", "vip_listening", "ha_listening", "metrics"]
    port, ha_port = (int(lines[at].rpartition(":")[2]) for at in (0, 2))
    assert calls["check_replicas"] == {"replicas": 36, "profile": HARDENED}
    assert calls["check_batch_size"] == {"size": 33}
    assert calls["tls_listener"] == {"listening": None, "profile": HARDENED}
    assert calls["serving_metrics"] == {"address": "127.0.0.1:0"}
    assert (calls["remoting_tls"], calls["remoting_client_tls"]) == ({"files": None}, {"files": None})
    server = calls["RemotingServer"]
    assert (len(list(server["listeners"])), server["limits"], server["tls"]) == (2, options.remoting_limits, None)
    opened = calls["open"]["options"]
    assert calls["open"]["store_dir"] == tmp_path / "s"
    assert (opened.file_size, opened.queue_file_size, opened.index_geometry) == (FILE_SIZE, 4_700, options.index_geometry)
    assert (opened.role, opened.store_host, opened.floor_size) == (role, (TOLD, port), 20)
    assert (opened.retention, opened.expiry_interval_s) == (options.retention.retention, 19.0)
    assert (opened.flush_intervals, opened.notes_topics, opened.clear_tail) == (options.flush_intervals, False, True)
    master = calls["Master"]
    expected = replace(options.settings, mapped_file_size=FILE_SIZE, master_read_buffer_size=4096)
    assert (master["settings"], master["profile"], master["limits"], master["tls"]) == (
        expected,
        HARDENED,
        options.limits,
        None,
    )
    settings = calls["BrokerController"]["settings"]
    is_slave = role is BrokerRole.SLAVE
    warned = f"broker id 40 of a {role.value}: a master has 0, and so has this one"
    assert (warned in caplog.messages) is not is_slave
    assert replace(settings, config={}) == replace(
        options.broker,
        role=role,
        broker_addr=(TOLD, port),
        ha_server_addr=(TOLD, ha_port),
        broker_id=40 if is_slave else 0,
    )
    assert (
        (calls["BrokerController"]["puts"] is None) == is_slave == ("Puts" not in calls) == ("GroupCommitService" not in calls)
    )
    assert ha_status["master"] == (not is_slave)  # HA-BT-71 "whether the broker is a master"
    assert ("haClientRuntimeInfo" in ha_status) == is_slave
    if not is_slave:
        assert calls["Puts"]["role"] is role
    assert calls["publishing_status"]["store_dir"] == tmp_path / "s"
    assert calls["publishing_status"]["metrics"] is not None


@pytest.mark.parametrize(
    ("role", "announce", "told"),
    [
        (BrokerRole.SLAVE, TOLD, {"brokerId": "40", "brokerIP1": TOLD, "brokerIP2": TOLD}),
        (BrokerRole.SLAVE, None, {"brokerId": "40", "brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.2"}),
        (BrokerRole.ASYNC_MASTER, TOLD, {"brokerId": "0", "brokerIP1": TOLD, "brokerIP2": TOLD}),
        (BrokerRole.SYNC_MASTER, None, {"brokerId": "0", "brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.2"}),
    ],
)
def test_what_a_broker_tells_of_its_settings(
    role: BrokerRole, announce: str | None, told: dict[str, str], calls: dict[str, Arguments], tmp_path: Path
) -> None:
    """Request 26: every setting by RocketMQ's name, each with a value of its own; those that the broker runs with, whatever was
    configured. HA-R-2 "A master's `brokerId` MUST be 0, whatever is configured"; HA-R-13 "MUST be `brokerIP2:haListenPort`".
    """
    broker = replace(BROKER_OPTIONS.broker, name_servers=("127.0.0.1:1", "127.0.0.1:2"))
    where = {
        "listen": ("127.0.0.1", 0),
        "announce": announce,
        "ha": Listening(("127.0.0.2", 0)),
        "tls": None,
        "client_tls": None,
        "ha_tls": None,
        "file_size": FILE_SIZE,
    }
    options = replace(
        BROKER_OPTIONS,
        store=tmp_path,
        profile=HARDENED,
        roles=RoleSettings(role, "sync"),
        metrics_address=None,
        broker=broker,
        queue_file_size=4_700,
        **where,
    )
    lines: list[str] = []

    def print_line(line: str) -> None:
        lines.append(line.rpartition(":")[2])
        os.kill(os.getpid(), signal.SIGTERM)

    module.run_broker(options, NoFile(), print_line)
    settings = calls["BrokerController"]["settings"]
    assert settings.config == {
        "brokerName": "broker-x",
        "brokerClusterName": "cluster-x",
        "listenPort": lines[0],
        "haListenPort": lines[2],
        "namesrvAddr": "127.0.0.1:1;127.0.0.1:2",
        "brokerRole": role.value,
        "brokerPermission": "4",
        "flushDiskType": "SYNC_FLUSH",
        "storePathRootDir": str(tmp_path),
        "mappedFileSizeCommitLog": str(FILE_SIZE),
        "maxMessageSize": "42",
        "autoCreateTopicEnable": "false",
        "autoCreateSubscriptionGroup": "false",
        "defaultTopicQueueNums": "41",
        "registerNameServerPeriod": "43",
        "regionId": "region-x",
        "traceOn": "false",
        "slaveReadEnable": "true",
        "accessMessageInMemoryMaxRatio": "59",
        "rejectTransactionMessage": "true",
        "transactionTimeOut": "44",
        "transactionCheckMax": "45",
        "transactionCheckInterval": "46",
        **told,
    }
    assert settings.broker_addr == (told["brokerIP1"], int(lines[0]))
    assert settings.ha_server_addr == (told["brokerIP2"], int(lines[2]))
    assert str(settings.broker_id) == told["brokerId"]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (
            {"roles": RoleSettings(BrokerRole.SLAVE, "async"), "broker": replace(BROKER_OPTIONS.broker, broker_id=0)},
            "broker id 0",
        ),
        ({"profile": CLASSIC}, "replicas 36: expected 1 in the classic profile"),
        ({"settings": replace(BROKER_OPTIONS.settings, ha_transfer_batch_size=4_194_293)}, "batch size 4194293"),
    ],
)
def test_settings_that_cannot_be_are_refused_before_the_store_is_touched(
    changed: dict[str, Any], told: str, tmp_path: Path
) -> None:
    options = replace(BROKER_OPTIONS, store=tmp_path / "s", **{"profile": HARDENED, **changed})
    with pytest.raises(ConfigInvalid, match=told):
        module.run_broker(options, NoFile(), print)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("option", ["--broker-name", "--cluster"])
@pytest.mark.parametrize("name", ["", " ", "a b", "a:1", "a/b", "a;b", "a\n", "x" * 128])
def test_a_name_that_no_list_of_brokers_can_have_is_refused(option: str, name: str, tmp_path: Path) -> None:
    """Routes have `name:queues;name:queues`, and lines of logs and tables have names."""
    store = tmp_path / "s"
    result = invoke("broker", "--store", store, "--listen", "127.0.0.1:0", option, name)
    assert (result.exit_code, result.stdout, store.exists()) == (2, "", False)
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"rocketmq-ha: {option} {name!r}: expected 1 to 127 characters")
