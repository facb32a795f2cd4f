"""The two ends of a link: the name that a client expects, the key that is warned of, and the profile that has no TLS."""

from pathlib import Path
from typing import Any

import pytest

from rocketmq_ha.impl.app import endpoints as module
from rocketmq_ha.impl.app.endpoints import HaTls, MasterEndpoint, TlsIdentity, TlsListening, tls_listener
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.net.tls_files import TlsFiles
from rocketmq_ha.spec.profile import CLASSIC, HARDENED

FILES = TlsFiles(Path("cert.pem"), Path("own.key"), Path("ca.pem"))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What was made of the files, which nobody reads, and of which key was warned."""
    found: list[tuple[Any, ...]] = []
    monkeypatch.setattr(module, "ClientTls", lambda files, name: found.append((files, name)) or "client")
    monkeypatch.setattr(
        module, "ServerTls", lambda listener, files: found.append((listener.getsockname()[0], files)) or "server"
    )
    monkeypatch.setattr(module, "warn_of_readers", lambda key: found.append(("warned", key)))
    return found


@pytest.mark.parametrize(("name", "expected"), [(None, "10.0.0.5"), ("broker-a", "broker-a"), ("", "")])
def test_a_client_expects_the_name_that_it_is_given_or_the_host(
    name: str | None, expected: str, made: list[tuple[Any, ...]]
) -> None:
    endpoint = MasterEndpoint("10.0.0.5", 10912, TlsIdentity(FILES, name))
    assert endpoint.client_tls() == endpoint.client_tls(HARDENED) == "client"
    assert made == [(FILES, expected), ("warned", FILES.key)] * 2
    assert endpoint.address == ("10.0.0.5", 10912)


@pytest.mark.parametrize("name", [None, "broker-a", ""])
def test_a_slave_broker_expects_the_name_that_it_is_given_or_that_of_each_host(
    name: str | None, made: list[tuple[Any, ...]]
) -> None:
    found: object = HaTls(10922, TlsIdentity(FILES, name)).client_tls(HARDENED)
    assert (found, made) == ("client", [(FILES, name), ("warned", FILES.key)])


def test_a_plain_client_has_no_tls_in_either_profile(made: list[tuple[Any, ...]]) -> None:
    endpoint = MasterEndpoint("10.0.0.5", 10912)
    assert (endpoint.client_tls(), endpoint.client_tls(CLASSIC)) == (None, None)
    assert made == []


def test_a_master_listens_for_tls_until_it_ends(made: list[tuple[Any, ...]]) -> None:
    with tls_listener(TlsListening(("127.0.0.1", 0), FILES), HARDENED) as tls:
        assert tls == "server"
    assert made == [("127.0.0.1", FILES), ("warned", FILES.key)]
    for profile in (CLASSIC, HARDENED):
        with tls_listener(None, profile) as tls:
            assert tls is None


def test_classic_is_refused_before_any_file_is_read_and_any_port_is_opened(
    made: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "listen", lambda *_: made.append(("listens",)))
    told = "--profile classic has no TLS, as RocketMQ has none: expected --profile hardened with --tls-*"
    with pytest.raises(ConfigInvalid) as of_client:
        MasterEndpoint("h", 1, TlsIdentity(FILES)).client_tls(CLASSIC)
    with pytest.raises(ConfigInvalid) as of_slave:
        HaTls(1, TlsIdentity(FILES)).client_tls(CLASSIC)
    with pytest.raises(ConfigInvalid) as of_server, tls_listener(TlsListening(("127.0.0.1", 0), FILES), CLASSIC):
        pass
    assert (str(of_client.value), str(of_slave.value), str(of_server.value), made) == (told, told, told, [])
