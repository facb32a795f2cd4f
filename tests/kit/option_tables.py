"""All options of master, slave, namesrv, tail and doctor, no two values equal, and what each command makes of them."""

import json
from ipaddress import ip_network
from pathlib import Path
from typing import Final

import pytest

from kit.command_line import invoke
from rocketmq_ha.impl.app.cleaning import HOUR_MS, RetentionSettings
from rocketmq_ha.impl.app.doctor.diagnosis import DoctorOptions
from rocketmq_ha.impl.app.endpoints import Listening, MasterEndpoint, TlsIdentity, TlsListening
from rocketmq_ha.impl.app.fresh_store import StartSettings
from rocketmq_ha.impl.app.producer import ProducerSettings
from rocketmq_ha.impl.app.remoting_tls import RemotingTlsFiles
from rocketmq_ha.impl.app.roles import RoleSettings
from rocketmq_ha.impl.app.run_master import MasterOptions
from rocketmq_ha.impl.app.run_namesrv import NamesrvOptions
from rocketmq_ha.impl.app.run_slave import FollowSettings, SlaveOptions
from rocketmq_ha.impl.app.tail import TailOptions
from rocketmq_ha.impl.namesrv.route_info_manager import RouteLimits
from rocketmq_ha.impl.net.limits import Limits
from rocketmq_ha.impl.net.tls_files import TlsFiles
from rocketmq_ha.impl.remoting.limits import RemotingLimits
from rocketmq_ha.impl.remoting.tls import TlsMode
from rocketmq_ha.impl.store.log.flush import FlushIntervals
from rocketmq_ha.impl.store.retention import Retention
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Settings
from rocketmq_ha.spec.role import BrokerRole

Words = dict[str, object]
TLS: Final[Words] = {"--tls-cert": "cert.pem", "--tls-key": "own.key", "--tls-ca": "ca.pem"}
FILES: Final = TlsFiles(Path("cert.pem"), Path("own.key"), Path("ca.pem"))
LOOPBACK: Final = (ip_network("127.0.0.0/8"), ip_network("::1/128"))

# Of master and slave alike.
FLUSHING: Final[Words] = {
    "--flush-interval-commit-log": 11_000,
    "--flush-commit-log-least-pages": 12,
    "--flush-commit-log-thorough-interval": 13_000,
}
KEEPING: Final[Words] = {
    "--file-reserved-time": 14,
    "--delete-when": "01;16",
    "--disk-max-used-space-ratio": 17,
    "--clean-file-forcibly": True,
    "--max-log-size": 18,
    "--clean-resource-interval": 19_000,
    "--delete-unacknowledged": True,
    "--min-free-space": 20,
}
KEPT: Final = RetentionSettings(Retention(14 * HOUR_MS, frozenset({1, 16}), 17, True, 18), 19.0, True, 20)
KEPT_BY_DEFAULT: Final = RetentionSettings(Retention(None, frozenset({4}), 75, False, None), 10.0, False, 256 << 20)
INTERVALS: Final[Words] = {"--ha-send-heartbeat-interval": 31, "--ha-housekeeping-interval": 32}

MASTER: Final[Words] = {
    "--store": "s",
    "--listen": "h:3",
    "--tls-listen": "h:4",
    **TLS,
    "--file-size": 5,
    "--profile": "classic",
    "--put": 6,
    "--size": 7,
    "--in-flight": 8,
    "--sync": 0.25,
    "--await-slaves": 9,
    "--await-replicas": 10,
    "--role": "ASYNC_MASTER",
    "--flush": "sync",
    **FLUSHING,
    **KEEPING,
    "--seed": 21,
    "--allow": ["10.0.0.0/8", "fd00::/8"],
    "--max-connections": 22,
    "--max-connections-per-address": 23,
    "--report-deadline": 24.5,
    "--write-stall-deadline": 25.5,
    "--max-transfer-rate": 2_600,
    "--metrics": "h:30",
    **INTERVALS,
    "--ha-transfer-batch-size": 33,
    "--ha-slave-fallbehind-max": 34,
    "--sync-flush-timeout": 35,
    "--replicas": 36,
}
MASTER_OPTIONS: Final = MasterOptions(
    store=Path("s"),
    listening=Listening(("h", 3), TlsListening(("h", 4), FILES)),
    file_size=5,
    profile=CLASSIC,
    producer=ProducerSettings(count=6, size=7, in_flight=8, sync=0.25, await_slaves=9, await_replicas=10),
    roles=RoleSettings(BrokerRole.ASYNC_MASTER, "sync"),
    flush_intervals=FlushIntervals(11.0, 12, 13.0),
    retention=KEPT,
    seed=21,
    limits=Limits(
        max_connections=22,
        max_connections_per_address=23,
        report_deadline_ms=24_500,
        write_stall_deadline_ms=25_500,
        allow=(ip_network("10.0.0.0/8"), ip_network("fd00::/8")),
        max_transfer_rate=2_600,
    ),
    metrics_address="h:30",
    settings=Settings(
        ha_send_heartbeat_interval_ms=31,
        ha_housekeeping_interval_ms=32,
        ha_transfer_batch_size=33,
        ha_slave_fallbehind_max=34,
        sync_flush_timeout_ms=35,
        replicas=36,
    ),
)
MASTER_BY_DEFAULT: Final = MasterOptions(
    store=Path("s"),
    listening=Listening(("127.0.0.1", 10912)),
    file_size=None,
    profile=HARDENED,
    producer=ProducerSettings(count=None, size=1024, in_flight=64, sync=1.0, await_slaves=0, await_replicas=0),
    roles=RoleSettings(BrokerRole.SYNC_MASTER, "async"),
    flush_intervals=FlushIntervals(0.5, 4, 10.0),
    retention=KEPT_BY_DEFAULT,
    seed=0,
    limits=Limits(512, 128, 10_000, 20_000, LOOPBACK, None),
    metrics_address=None,
    settings=Settings(
        ha_send_heartbeat_interval_ms=5_000,
        ha_housekeeping_interval_ms=20_000,
        ha_transfer_batch_size=32_768,
        ha_slave_fallbehind_max=268_435_456,
        sync_flush_timeout_ms=5_000,
        replicas=1,
    ),
)

SLAVE: Final[Words] = {
    "--store": "s",
    "--master": "h:3",
    **TLS,
    "--tls-name": "broker-a",
    "--from": "4096",
    "--settle": 5.5,
    "--file-size": 6,
    "--profile": "classic",
    "--ack": "flushed",
    "--bind": "127.0.0.7",
    "--frame-deadline": 8.5,
    **FLUSHING,
    **KEEPING,
    "--metrics": "h:30",
    **INTERVALS,
}
SLAVE_OPTIONS: Final = SlaveOptions(
    store=Path("s"),
    master=MasterEndpoint("h", 3, TlsIdentity(FILES, "broker-a")),
    start=StartSettings(start=4096, settle_s=5.5, file_size=6),
    profile=CLASSIC,
    following=FollowSettings(flushes=True, source_address="127.0.0.7", frame_deadline_ms=8_500),
    flush_intervals=FlushIntervals(11.0, 12, 13.0),
    retention=KEPT,
    metrics_address="h:30",
    settings=Settings(ha_send_heartbeat_interval_ms=31, ha_housekeeping_interval_ms=32),
)
SLAVE_BY_DEFAULT: Final = SlaveOptions(
    store=Path("s"),
    master=MasterEndpoint("h", 3),
    start=StartSettings(start=None, settle_s=10.0, file_size=None),
    profile=HARDENED,
    following=FollowSettings(flushes=False, source_address="", frame_deadline_ms=None),
    flush_intervals=FlushIntervals(0.5, 4, 10.0),
    retention=KEPT_BY_DEFAULT,
    metrics_address=None,
    settings=Settings(ha_send_heartbeat_interval_ms=5_000, ha_housekeeping_interval_ms=20_000),
)

TAIL: Final[Words] = {
    "--master": "h:3",
    **TLS,
    "--tls-name": "broker-a",
    "--from": "min",
    "--cursor": "feed.cursor",
    "--limit": 4,
    "--stop-at-end": True,
    "--topic": ["a", "b"],
    "--body": "raw",
    "--settle": 5.5,
    "--heartbeat": 6,
    "--file-size": 7,
}
TAIL_OPTIONS: Final = TailOptions(
    master=MasterEndpoint("h", 3, TlsIdentity(FILES, "broker-a")),
    start="min",
    cursor=Path("feed.cursor"),
    limit=4,
    stop_at_end=True,
    topics=("a", "b"),
    body="raw",
    settle=5.5,
    heartbeat=6,
    file_size=7,
)
TAIL_BY_DEFAULT: Final = TailOptions(
    master=MasterEndpoint("h", 3),
    start="last",
    cursor=None,
    limit=None,
    stop_at_end=False,
    topics=(),
    body="text",
    settle=10.0,
    heartbeat=5_000,
    file_size=1 << 30,
)

DOCTOR: Final[Words] = {
    "--master": "h:3",
    **TLS,
    "--tls-name": "broker-a",
    "--broker": "b:4",
    "--store": "s",
    "--patience": 5.5,
    "--settle": 6.5,
    "--json": True,
}
DOCTOR_OPTIONS: Final = DoctorOptions(
    master=MasterEndpoint("h", 3, TlsIdentity(FILES, "broker-a")),
    broker=("b", 4),
    store=Path("s"),
    patience_s=5.5,
    settle_s=6.5,
)
DOCTOR_BY_DEFAULT: Final = DoctorOptions(master=MasterEndpoint("h", 3), broker=None, store=None, patience_s=8.0, settle_s=10.0)

NAMESRV: Final[Words] = {
    "--listen": "h:3",
    "--kv-config": "kv.json",
    "--order-message-enable": True,
    "--tls-mode": "enforcing",
    **TLS,
    "--allow": ["10.0.0.0/8", "fd00::/8"],
    "--max-connections": 4,
    "--max-connections-per-address": 5,
    "--max-brokers": 6,
    "--max-topics": 7,
    "--metrics": "h:30",
}
NAMESRV_OPTIONS: Final = NamesrvOptions(
    listen=("h", 3),
    kv_config=Path("kv.json"),
    order_message_enable=True,
    tls=RemotingTlsFiles(TlsMode.ENFORCING, FILES.cert, FILES.key, FILES.ca),
    limits=RemotingLimits(Limits(4, 5, allow=(ip_network("10.0.0.0/8"), ip_network("fd00::/8")))),
    route_limits=RouteLimits(brokers=6, queue_datas=7),
    metrics_address="h:30",
)
NAMESRV_BY_DEFAULT: Final = NamesrvOptions(
    listen=("127.0.0.1", 9876),
    kv_config=Path.home() / "namesrv" / "kvConfig.json",
    order_message_enable=False,
    tls=None,
    limits=RemotingLimits(Limits(4096, 1024, allow=LOOPBACK)),
    route_limits=RouteLimits(brokers=1_000, queue_datas=200_000),
    metrics_address=None,
)

# Command: the function that gets its value, and in which module; the options; the value with all of them; those that are
# required; the value with these alone.
COMMANDS: Final[dict[str, tuple[str, Words, object, Words, object]]] = {
    "master": ("master.run_master", MASTER, MASTER_OPTIONS, {"--store": "s"}, MASTER_BY_DEFAULT),
    "slave": ("slave.run_slave", SLAVE, SLAVE_OPTIONS, {"--store": "s", "--master": "h:3"}, SLAVE_BY_DEFAULT),
    "tail": ("tail.run_tail", TAIL, TAIL_OPTIONS, {"--master": "h:3"}, TAIL_BY_DEFAULT),
    "namesrv": ("namesrv.run_namesrv", NAMESRV, NAMESRV_OPTIONS, {}, NAMESRV_BY_DEFAULT),
    "doctor": ("doctor.diagnose", DOCTOR, DOCTOR_OPTIONS, {"--master": "h:3"}, DOCTOR_BY_DEFAULT),
}


def arguments(words: Words) -> list[str]:
    """The options as a command line. True: a flag. A list: the option several times."""
    found: list[str] = []
    for option, value in words.items():
        if value is True:
            found.append(option)
        else:
            for each in value if isinstance(value, list) else [value]:
                found += [option, str(each)]
    return found


def toml(words: Words) -> str:
    return "".join(f"{name.removeprefix('--').replace('-', '_')} = {json.dumps(value)}\n" for name, value in words.items())


def received(monkeypatch: pytest.MonkeyPatch, command: str, *words: object) -> object:
    """The value with which the command runs."""
    values: list[object] = []
    target = COMMANDS[command][0] if command in COMMANDS else f"{command}.run_{command}"
    monkeypatch.setattr(f"rocketmq_ha.impl.cli.{target}", lambda options, *_: values.append(options))
    result = invoke(command, *words)
    assert result.exit_code == 0, result.stderr
    (value,) = values
    return value
