"""Room for descriptors: a master raises its limit so that all connections and its own files fit, or takes fewer connections."""

import logging
import resource

import pytest

from kit.limits import Serve
from kit.stage import lines
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.net import limits as module
from rocketmq_ha.impl.net import server as server_module
from rocketmq_ha.impl.net.limits import HARDENED_LIMITS, Limits, fit_descriptors, parse_networks
from rocketmq_ha.impl.net.server import Master

ANY = resource.RLIM_INFINITY


class System:
    """The limits of a process as the system keeps them. refuses: it raises none, by this error."""

    RLIMIT_NOFILE, RLIM_INFINITY = resource.RLIMIT_NOFILE, ANY

    def __init__(self, soft: int, hard: int, refuses: Exception | None = None) -> None:
        self.limits, self.refuses = (soft, hard), refuses
        self.asked: list[tuple[int, int]] = []

    def getrlimit(self, which: int) -> tuple[int, int]:
        assert which == self.RLIMIT_NOFILE
        return self.limits

    def setrlimit(self, which: int, limits: tuple[int, int]) -> None:
        assert which == self.RLIMIT_NOFILE
        self.asked.append(limits)
        if self.refuses:
            raise self.refuses
        self.limits = limits


@pytest.mark.parametrize(
    ("cap", "system", "asked", "fitting"),
    [
        (None, System(20, 20), [], None),
        (100, System(356, 4096), [], 100),
        (100, System(355, 4096), [(356, 4096)], 100),
        (100, System(ANY, ANY), [], 100),
        (100, System(50, ANY), [(356, ANY)], 100),
        (100, System(50, 356), [(356, 356)], 100),
        (100, System(50, 355), [(355, 355)], 99),
        (100, System(300, 320), [(320, 320)], 64),
        (100, System(258, 4096, OSError(1, "no")), [(356, 4096)], 2),
        (100, System(256, 4096, ValueError("no")), [(356, 4096)], 1),
        (100, System(50, 100), [(100, 100)], 1),
        (1, System(256, 256), [(256, 256)], 1),
    ],
    ids=lambda value: f"{value.limits} {value.refuses}" if isinstance(value, System) else None,
)
def test_256_descriptors_are_kept_for_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    cap: int | None, system: System, asked: list[tuple[int, int]], fitting: int | None,
) -> None:  # fmt: skip
    """Whatever the system allows, one connection may come. The other limits stay as they are."""
    monkeypatch.setattr(module, "resource", system)
    allowed = system.limits[0] if system.refuses else min(system.limits[1], 356)
    given = Limits(cap, 7, 8, 9, parse_networks(["10.0.0.0/8"]), 11)
    found = fit_descriptors(given)
    assert system.asked == asked
    assert found == Limits(fitting, 7, 8, 9, parse_networks(["10.0.0.0/8"]), 11)
    said = f"{fitting} connections at most, not {cap}: the system gives this process {allowed} descriptors"
    assert lines(caplog, logging.WARNING) == ([said] if fitting != cap else [])


def test_a_master_counts_by_what_fits(monkeypatch: pytest.MonkeyPatch, serve: Serve) -> None:
    monkeypatch.setattr(module, "resource", System(50, 258))
    master = serve(Limits(100, 5))
    assert master.limits == Limits(2, 5)
    assert [master.limiter.refusal("127.0.0.1") for _ in range(3)] == [
        None,
        None,
        "2 connections are open (--max-connections)",
    ]


def test_the_defaults_are_those_of_the_documents() -> None:
    limits = HARDENED_LIMITS
    assert (limits.max_connections, limits.max_connections_per_address, limits.max_transfer_rate) == (512, 128, None)
    assert (limits.report_deadline_ms, limits.write_stall_deadline_ms) == (10_000, 20_000)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("10.0.0.1/8", "10.0.0.1/8 has host bits set"),
        ("localhost", "'localhost' does not appear to be an IPv4 or IPv6 network"),
    ],
)
def test_what_is_no_network_is_said_with_an_example(text: str, why: str) -> None:
    with pytest.raises(ConfigInvalid) as found:
        parse_networks(["10.0.0.0/8", text])
    assert str(found.value) == f"network {text!r}: {why}; expected one as 10.1.0.0/16 or fd00::/8"


@pytest.mark.parametrize(
    ("allow", "listens", "warns"),
    [
        (["127.0.0.9"], "127.0.0.1", True),  # it stands for the default here, and 127.0.0.1 for a foreign address
        (["127.0.0.9", "127.0.0.8"], "127.0.0.1", False),
        (["127.0.0.9"], "127.0.0.9", False),
    ],
)
def test_a_port_that_nobody_may_reach_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, allow: list[str], listens: str, warns: bool
) -> None:
    """Only if the networks are those of the default: who names them knows them."""
    monkeypatch.setattr(server_module, "LOOPBACK", parse_networks(["127.0.0.9"]))
    monkeypatch.setattr(Master, "plain_address", property(lambda _: (listens, 10912)))
    monkeypatch.setattr(Master, "tls_address", property(lambda _: None))
    monkeypatch.setattr(server_module, "Listeners", lambda *_: None)
    monkeypatch.setattr(server_module, "HAService", lambda *_: None)
    monkeypatch.setattr(server_module, "check_settings", lambda *_: None)
    Master(None, None, None, None, Limits(allow=parse_networks(allow)))._selector.close()  # type: ignore[arg-type]
    said = f"listening on {listens}:10912, and only loopback addresses may connect: --allow NETWORK says who else may"
    assert lines(caplog, logging.WARNING) == ([said] if warns else [])
