"""The nodes of a cluster, their ports and settings, and the links between them. Nothing here does I/O.

Each node listens on ports of its own, and nobody is told of these: clients, name servers and the others of its group reach it
by links, each of which can be cut. Translations of addresses bring this about: what a broker registers becomes the address of
its link to the clients, and what a slave is told of its master becomes that of the link between the two.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.net.address import format_address
from rocketmq_ha.impl.net.relay import Address
from rocketmq_ha.spec.role import BrokerRole

HOST: Final = "127.0.0.1"
NAME_SERVER: Final = "namesrv"
CLIENTS: Final = "clients"
CLUSTER_NAME: Final = "DefaultCluster"
LETTERS: Final = "abcdefgh"
PORTS_OF_A_NODE: Final = 20
RESERVED_PORT: Final = 2  # above the base; no node and no link listens on it
FIRST_BROKER_PORT: Final = 10  # above the base
# Small files: a log of 16 MiB holds the largest message, and a broker makes two at its start.
FILE_SIZE: Final = 16 << 20
SIZES: Final = {
    "mappedFileSizeCommitLog": str(FILE_SIZE),
    "mappedFileSizeConsumeQueue": "200000",
    "maxHashSlotNum": "10000",
    "maxIndexNum": "40000",
}
_VIP, _HA = -2, 1  # of a broker's ports, from its first one

Link = frozenset[str]  # the names of its two ends
Translation = Mapping[str, Mapping[str, str]]  # name of a header field -> its value -> the value in its place


@dataclass(frozen=True, slots=True)
class Mode:
    """A way to deploy. masters: how many; role: of each; has_slaves: one for each."""

    masters: int
    role: BrokerRole
    has_slaves: bool


MODES: Final = {
    "1m": Mode(1, BrokerRole.ASYNC_MASTER, has_slaves=False),
    "2m": Mode(2, BrokerRole.ASYNC_MASTER, has_slaves=False),
    "async-2m-2s": Mode(2, BrokerRole.ASYNC_MASTER, has_slaves=True),
    "sync-2m-2s": Mode(2, BrokerRole.SYNC_MASTER, has_slaves=True),
}
FLUSHES: Final = ("async", "sync")


@dataclass(frozen=True, slots=True)
class Node:
    """A process. own: where it listens. address: the link to the clients, which name servers tell.

    role: None for the name server. first_port: of the ports of a broker and of its links.
    """

    name: str
    role: BrokerRole | None
    broker_name: str
    broker_id: int
    own: Address
    address: Address
    first_port: int = 0

    @property
    def is_broker(self) -> bool:
        return self.role is not None

    @property
    def from_group(self) -> Address:
        """Where the others of its group reach a broker."""
        return HOST, self.first_port + 12

    @property
    def to_name_server(self) -> Address:
        """Where a broker reaches the name server."""
        return HOST, self.first_port + 15


@dataclass(frozen=True, slots=True)
class Forward:
    """One port of a link. target: the node at its far end. there, back: what requests and answers have translated."""

    link: Link
    target: str
    near: Address
    far: Address
    there: Translation
    back: Translation


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole cluster."""

    mode: str
    flush: str
    base_port: int
    nodes: tuple[Node, ...]
    forwards: tuple[Forward, ...]

    @property
    def brokers(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.is_broker)

    @property
    def name_server(self) -> Node:
        return self.nodes[0]

    @property
    def links(self) -> list[Link]:
        """Each pair of names that a link joins, in the order of the nodes."""
        return list(dict.fromkeys(forward.link for forward in self.forwards))

    def node(self, name: str) -> Node:
        """Raises: ConfigInvalid."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise ConfigInvalid(f"node {name!r}: no such node, expected one of {', '.join(node.name for node in self.nodes)}")

    def links_of(self, first: str, second: str | None) -> list[Link]:
        """The link of two names, or all links of one. Raises: ConfigInvalid."""
        known = [CLIENTS, *(node.name for node in self.nodes)]
        for name in (first, second):
            if name is not None and name not in known:
                raise ConfigInvalid(f"{name!r}: no such node, expected one of {', '.join(known)}")
        found = [link for link in self.links if first in link and (second is None or link == {first, second})]
        if not found:
            others = [name for link in self.links if first in link for name in link - {first}]
            raise ConfigInvalid(f"{first} and {second}: no link joins them, expected {first} and {' or '.join(others)}")
        return found


def ports_of(plan: Plan) -> list[int]:
    """All ports on which a cluster listens."""
    own = [plan.name_server.own[1]]
    own += [node.own[1] + more for node in plan.brokers for more in (_VIP, 0, _HA)]
    return sorted({*own, *(forward.near[1] for forward in plan.forwards)})


def make_plan(mode: str, flush: str, base_port: int) -> Plan:
    """Lay out a cluster. Raises: ConfigInvalid."""
    if mode not in MODES:
        raise ConfigInvalid(f"mode {mode!r}: expected one of {', '.join(MODES)}")
    if flush not in FLUSHES:
        raise ConfigInvalid(f"flush {flush!r}: expected one of {', '.join(FLUSHES)}")
    name_server = Node(NAME_SERVER, None, "", 0, (HOST, base_port + 1), (HOST, base_port))
    brokers = tuple(_brokers(MODES[mode], base_port + FIRST_BROKER_PORT))
    forwards = [Forward(frozenset({CLIENTS, NAME_SERVER}), NAME_SERVER, name_server.address, name_server.own, {}, {})]
    for broker in brokers:
        forwards += _to_broker(CLIENTS, broker, broker.address)
        forwards.append(_registration(broker, brokers, name_server))
        for other in brokers:
            if other.broker_name == broker.broker_name and other.name != broker.name:
                forwards += _to_broker(other.name, broker, broker.from_group)
    return Plan(mode, flush, base_port, (name_server, *brokers), tuple(forwards))


def _brokers(mode: Mode, first_port: int) -> Iterator[Node]:
    """The brokers, each slave behind its master, with the names of RocketMQ's own examples."""
    port = first_port
    for letter in LETTERS[: mode.masters]:
        for broker_id, role in enumerate((mode.role, BrokerRole.SLAVE)[: 1 + mode.has_slaves]):
            broker_name = f"broker-{letter}"
            name = broker_name + ("-s" if broker_id else "")
            yield Node(name, role, broker_name, broker_id, (HOST, port + 7), (HOST, port + 2), port)
            port += PORTS_OF_A_NODE


def _to_broker(source: str, broker: Node, near: Address) -> Iterator[Forward]:
    """The three ports of a broker: for clients, the VIP port, and that for slaves."""
    for more in (_VIP, 0, _HA):
        host, port = broker.own
        yield Forward(frozenset({source, broker.name}), broker.name, (near[0], near[1] + more), (host, port + more), {}, {})


def _registration(broker: Node, brokers: tuple[Node, ...], name_server: Node) -> Forward:
    """The link from a broker to the name server."""
    there = {
        "brokerAddr": {format_address(*broker.own): format_address(*broker.address)},
        "haServerAddr": {_ha(broker.own): _ha(broker.address)},
    }
    group = [other for other in brokers if other.broker_name == broker.broker_name and other.name != broker.name]
    back = {
        "masterAddr": {format_address(*other.address): format_address(*other.from_group) for other in group},
        "haServerAddr": {_ha(other.address): _ha(other.from_group) for other in group},
    }
    link = frozenset({broker.name, name_server.name})
    return Forward(link, name_server.name, broker.to_name_server, name_server.own, there, back)


def _ha(address: Address) -> str:
    return format_address(address[0], address[1] + _HA)


def name_server_conf(node: Node, directory: Path) -> dict[str, str]:
    """The settings of namesrv.conf."""
    host, port = node.own
    return {"bindAddress": host, "listenPort": str(port), "kvConfigPath": str(directory / "kvConfig.json")}


def broker_conf(plan: Plan, node: Node, store: Path) -> dict[str, str]:
    """The settings of a broker.conf."""
    assert node.role is not None
    host, port = node.own
    return {
        "brokerClusterName": CLUSTER_NAME,
        "brokerName": node.broker_name,
        "brokerId": str(node.broker_id),
        "brokerRole": node.role.value,
        "flushDiskType": f"{plan.flush.upper()}_FLUSH",
        "brokerIP1": host,
        "listenPort": str(port),
        "haListenPort": str(port + _HA),
        "namesrvAddr": format_address(*node.to_name_server),
        "storePathRootDir": str(store),
        "storePathCommitLog": str(store / "commitlog"),
        **SIZES,
    }


def conf_text(settings: Mapping[str, str]) -> str:
    """Settings as Java's properties, where a backslash begins an escape."""
    return "".join(f"{name}={value}\n" for name, value in settings.items()).replace("\\", "\\\\")
