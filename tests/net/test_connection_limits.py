"""Which peers may connect to an open port, and how many: HA-M-50, HA-M-51."""

from pathlib import Path

import pytest

from kit.command_line import invoke
from kit.limits import Serve, connect, is_closed, polled
from rocketmq_ha.impl.cli.limit_options import limits_from
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.net import server as server_module
from rocketmq_ha.impl.net.limits import HARDENED_LIMITS, LOOPBACK, ConnectionLimiter, Limits, limits_of, parse_networks
from rocketmq_ha.impl.wire.frame import HEADER, REPORT
from rocketmq_ha.spec.profile import CLASSIC, HARDENED


@pytest.mark.parametrize(
    ("networks", "host", "may"),
    [
        (["10.1.0.0/16"], "10.1.255.255", True),
        (["10.1.0.0/16"], "10.2.0.0", False),
        (["10.1.0.0/16"], "::ffff:10.1.2.3", True),
        (["10.1.0.0/16"], "::ffff:10.2.2.3", False),
        (["10.1.0.0/16"], "::1", False),
        (["10.1.2.3"], "10.1.2.3", True),
        (["fd00::/8", "10.0.0.0/8"], "fd12::5", True),
        (["fe80::/10"], "fe80::1%eth0", True),
        (["::/0"], "10.0.0.1", False),
        (["0.0.0.0/0"], "203.0.113.9", True),
    ],
)
def test_a_network_admits_its_own_addresses(networks: list[str], host: str, may: bool) -> None:
    assert ConnectionLimiter(Limits(allow=parse_networks(networks))).admits(host) is may


@pytest.mark.parametrize(("host", "may"), [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("10.0.0.1", False)])
def test_loopback_is_let_in_unless_more_is_said(host: str, may: bool) -> None:
    """HA-M-50 "loopback by default"; classic allows every address, as RocketMQ does."""
    assert ConnectionLimiter(limits_of(HARDENED)).admits(host) is may
    assert ConnectionLimiter(limits_of(CLASSIC)).admits(host)


def test_a_peer_from_a_foreign_network_is_closed_and_logged(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """HA-M-50 "MUST NOT serve a peer from outside the networks that it is told to allow"."""
    master = serve(Limits(allow=parse_networks(["127.0.0.2/32"])), 100)
    with connect(master, "127.0.0.1") as stranger, connect(master, "127.0.0.2") as known:
        for sock in (stranger, known):
            sock.sendall(REPORT.pack(0))
        polled(master)
        assert is_closed(stranger)
        assert len(known.recv(1 << 16)) == HEADER.size + 100
        assert master.limiter.refused == {"allow": 1}
    assert "127.0.0.1" in caplog.text
    assert "--allow" in caplog.text


def test_who_listens_for_strangers_and_lets_none_in_is_warned(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    elsewhere = parse_networks(["127.0.0.9"])  # without loopback: here 127.0.0.1 plays a foreign address
    monkeypatch.setattr(server_module, "LOOPBACK", elsewhere)
    serve(Limits(allow=elsewhere))
    assert "--allow NETWORK" in caplog.text


@pytest.mark.parametrize("text", ["10.0.0.0/33", "10.0.0.1/8", "localhost", "", "::/129"])
def test_a_network_that_is_none_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="expected one as"):
        parse_networks([text])
    found = invoke("master", "--store", str(tmp_path / "new"), "--listen", "127.0.0.1:0", "--allow", text)
    assert (found.exit_code, len(found.stderr.splitlines())) == (2, 1)
    assert repr(text) in found.stderr
    assert not (tmp_path / "new").exists()


def test_connections_beyond_the_caps_are_closed_at_once(serve: Serve) -> None:
    """HA-M-51 "MUST be closed as it is accepted, before anything is read from it"; a place that becomes free is used again."""
    master = serve(Limits(max_connections=3, max_connections_per_address=2))
    with connect(master) as first, connect(master) as second, connect(master) as third:
        polled(master)
        assert [is_closed(sock) for sock in (first, second, third)] == [False, False, True]
        with connect(master, "127.0.0.2") as other, connect(master, "127.0.0.3") as beyond:
            polled(master)
            assert [is_closed(sock) for sock in (other, beyond)] == [False, True]
            assert master.limiter.refused == {"max_connections": 1, "max_connections_per_address": 1}
            first.close()
            polled(master)
            with connect(master) as again:
                polled(master)
                assert not is_closed(again)
                assert len(master.service.connections) == 3


def test_the_options_change_the_limits_of_the_profile() -> None:
    assert limits_from(HARDENED, (), None, None, None, None, None) == HARDENED_LIMITS
    assert limits_from(CLASSIC, (), None, None, None, None, None) == Limits()
    said = limits_from(CLASSIC, ("10.0.0.0/8",), 1, 2, 0.5, 2, 4096)
    assert said == Limits(1, 2, 500, 2000, parse_networks(["10.0.0.0/8"]), 4096)
    assert limits_from(HARDENED, (), 7, None, None, None, None).allow == LOOPBACK
