"""What the commands for brokers share: the connections, the routes, and the ids of messages."""

import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rocketmq_ha.impl.app.remoting_tls import RemotingClientTlsFiles, remoting_client_tls
from rocketmq_ha.impl.client.routes import Routes
from rocketmq_ha.impl.client.unique_id import MessageClientIDSetter
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.net.address import format_address, parse_address
from rocketmq_ha.impl.remoting.client import RemotingClient


@dataclass(frozen=True, slots=True)
class NameServers:
    """The name servers of a client. tls: of all its connections, those to brokers too; None for none."""

    addresses: tuple[str, ...]
    tls: RemotingClientTlsFiles | None = None


@dataclass(frozen=True, slots=True)
class ClientSession:
    """A client of some name servers and of the brokers that they know."""

    client: RemotingClient
    routes: Routes
    name_servers: tuple[str, ...]


@contextmanager
def client_session(name_servers: NameServers) -> Iterator[ClientSession]:
    """Yield a session; its connections end with it. Raises: ConfigInvalid if the files of its TLS are not usable."""
    client = RemotingClient(tls=remoting_client_tls(name_servers.tls))
    addresses = name_servers.addresses
    routes = Routes(client, addresses)
    try:
        yield ClientSession(client, routes, addresses)
    finally:
        routes.close()
        client.close()


def parse_name_servers(text: str) -> tuple[str, ...]:
    """Parse `HOST:PORT;HOST:PORT`. Raises: ConfigInvalid.

    >>> parse_name_servers("127.0.0.1:9876;[::1]:9876")
    ('127.0.0.1:9876', '[::1]:9876')
    """
    found = tuple(format_address(*parse_address(part.strip())) for part in text.split(";") if part.strip())
    if not found:
        raise ConfigInvalid(f"name servers {text!r}: expected HOST:PORT, several with ; between")
    return found


def message_ids(name_server: str) -> MessageClientIDSetter:
    """A maker of ids for this process."""
    return MessageClientIDSetter(_own_ip(name_server), os.getpid(), secrets.randbits(32))


def _own_ip(name_server: str) -> bytes:
    """The address of this machine that the name server sees, as bytes. Nothing is sent; where it is unknown, 127.0.0.1."""
    host, port = parse_address(name_server)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.connect((host, port))
            return socket.inet_pton(family, sock.getsockname()[0])
    except OSError:
        return bytes((127, 0, 0, 1))
