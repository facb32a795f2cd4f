"""How a cluster stands: what its state file says, what its brokers say of their logs, and whom its name server lists."""

from pathlib import Path
from typing import Any, Final

from rocketmq_ha.impl.app.cluster.directory import Kept, NoCluster, State, dead_line, is_alive, read_state
from rocketmq_ha.impl.app.cluster.plan import CLIENTS, NAME_SERVER, Link, Node
from rocketmq_ha.impl.client.admin import Admin
from rocketmq_ha.impl.clock import wall_clock_ms
from rocketmq_ha.impl.errors import ConfigInvalid, RocketmqHaError
from rocketmq_ha.impl.net.address import format_address
from rocketmq_ha.impl.net.status_socket import NotRunning, ask
from rocketmq_ha.impl.remoting.client import RemotingClient

_ANSWER_S: Final = 1.0
_ANSWER_MS: Final = 1_000


def cluster_status(directory: Path) -> dict[str, Any]:
    """Look at the cluster of a directory. Raises: NoCluster, if none runs there; ConfigInvalid."""
    kept = read_state(directory)
    if not is_alive(directory):
        raise NoCluster(dead_line(directory, kept))
    now_ms = wall_clock_ms()
    told = {node.name: _told(directory, node) if _is_up(kept, node.name) else None for node in kept.plan.brokers}
    listed = _listed(kept)
    return {
        "directory": str(directory),
        "mode": kept.plan.mode,
        "flush": kept.plan.flush,
        "pid": kept.pid,
        "up_ms": now_ms - kept.began_ms,
        "namesrv": format_address(*kept.plan.name_server.address),
        "nodes": [_row(kept, node, told, listed, now_ms) for node in kept.plan.nodes],
        "links": [_link(kept, link, now_ms) for link in kept.plan.links],
    }


def _is_up(kept: Kept, name: str) -> bool:
    return kept.nodes[name].state is State.UP


def _told(directory: Path, node: Node) -> dict[str, Any] | None:
    """The status of a broker; None if it does not answer."""
    try:
        return ask(directory / "store" / node.name, _ANSWER_S)
    except (NotRunning, ConfigInvalid, OSError):
        return None


def _listed(kept: Kept) -> set[str] | None:
    """The addresses of brokers that the name server lists; None if it does not answer."""
    if not _is_up(kept, NAME_SERVER):
        return None
    client = RemotingClient()
    try:  # at its own address, since its link to the clients may be cut
        admin = Admin(client, [format_address(*kept.plan.name_server.own)], _ANSWER_MS)
        return {broker.address for broker in admin.brokers()}
    except RocketmqHaError:
        return None
    finally:
        client.close()


def _row(
    kept: Kept, node: Node, told: dict[str, dict[str, Any] | None], listed: set[str] | None, now_ms: int
) -> dict[str, Any]:
    noted, process = kept.nodes[node.name], kept.processes.get(node.name)
    found, address = told.get(node.name), format_address(*node.address)
    row: dict[str, Any] = {
        "name": node.name,
        "role": "NAMESRV" if node.role is None else node.role.value if found is None else found["broker_role"],
        "state": noted.state,
        "state_ms": now_ms - noted.since_ms,
        "exit_status": noted.status,
        "pid": None if process is None else process.pid,
        "address": address,
    }
    if not node.is_broker:
        return row
    return row | {
        "listed": None if listed is None else address in listed,
        "max_offset": None if found is None else found["max_offset"],
        "flushed_offset": None if found is None else found["flushed_offset"],
        "lag_bytes": _lag(kept, node, told),
    }


def _lag(kept: Kept, node: Node, told: dict[str, dict[str, Any] | None]) -> int | None:
    """What a slave's log lacks of its master's; None if either does not answer."""
    if not node.broker_id:
        return None
    master = next(other for other in kept.plan.brokers if other.broker_name == node.broker_name and not other.broker_id)
    of_master, of_slave = told[master.name], told[node.name]
    if of_master is None or of_slave is None:
        return None
    return max(0, int(of_master["max_offset"]) - int(of_slave["max_offset"]))


def _link(kept: Kept, link: Link, now_ms: int) -> dict[str, Any]:
    order = [CLIENTS, *(node.name for node in kept.plan.nodes)]
    names = sorted(link, key=order.index, reverse=True)
    since = kept.cut.get(link)
    return {"ends": names, "is_cut": since is not None, "cut_ms": None if since is None else now_ms - since}
