"""A running cluster, and the orders that others give it over a Unix socket in its directory."""

import json
import logging
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from rocketmq_ha.impl.app.cluster.cluster import Cluster, NodeFailed
from rocketmq_ha.impl.app.cluster.directory import NoCluster, State, dead_line, is_alive, locked, read_state
from rocketmq_ha.impl.app.cluster.links import AddressTaken
from rocketmq_ha.impl.app.cluster.plan import Plan
from rocketmq_ha.impl.app.cluster.processes import POLL_S, STOP_S, end_all
from rocketmq_ha.impl.errors import ConfigInvalid, RocketmqHaError
from rocketmq_ha.impl.net.local_socket import listen_locally, local_address

SOCKET_NAME: Final = "cluster.sock"
_TURN_S: Final = 0.1
_ORDER_S: Final = 5.0  # for a whole order to come
_ANSWER_S: Final = 300.0  # a node may recover its log before it serves
_LARGEST_ORDER: Final = 65_536
_BACKLOG: Final = 8

log = logging.getLogger(__name__)


class Refused(RocketmqHaError):  # noqa: N818  (says whose fault it is)
    """A running cluster has refused an order, or failed in it."""


def run_cluster(
    directory: Path,
    plan: Plan,
    stopped: Callable[[], bool],
    told: Callable[[str], object],
    ready: Callable[[], object],
) -> None:
    """Run a cluster until SIGINT, SIGTERM or `down`; nothing of it runs when this returns.

    Args:  told: is called with the name of each node that is up. ready: is called when all are.
    Raises: ConfigInvalid, NodeFailed, AddressTaken, LinksFailed.
    """
    directory.mkdir(parents=True, exist_ok=True)
    orders = _Orders(stopped)
    with locked(directory), listen_locally(directory, SOCKET_NAME, _BACKLOG) as listener:
        cluster = Cluster(plan, directory, is_over=orders.is_over)
        try:
            cluster.up(told)
            if cluster.is_ready:
                ready()
            while not orders.is_over():
                orders.turn(listener, cluster)
                for line in cluster.check():
                    log.warning("%s", line)
        finally:
            cluster.down()
            (directory / SOCKET_NAME).unlink(missing_ok=True)


class _Orders:
    """Takes the orders, one after the other."""

    def __init__(self, stopped: Callable[[], bool]) -> None:
        self._stopped, self._is_down = stopped, False

    def is_over(self) -> bool:
        return self._is_down or self._stopped()

    def turn(self, listener: socket.socket, cluster: Cluster) -> None:
        """Wait a little for an order, and do it."""
        listener.settimeout(_TURN_S)
        try:
            client, _ = listener.accept()
        except TimeoutError:
            return
        with client, suppress(OSError):  # whoever has gone needs no answer
            client.settimeout(_ORDER_S)
            order = _receive(client)
            if order is not None:
                client.sendall(json.dumps(self._do(order, cluster)).encode() + b"\n")

    def _do(self, order: dict[str, Any], cluster: Cluster) -> dict[str, Any]:
        """Do an order. Returns: the answer, with "error" if it was refused."""
        names = [str(name) for name in order.get("names", [])]
        try:
            match order.get("do"), names:
                case "down", []:
                    self._is_down = True
                    return {}
                case ("kill" | "stop" | "start") as what, [name]:
                    identity = getattr(cluster, what)(name)
                    log.info("%s: %s, pid %d", name, what, identity.pid)
                    return {"pid": identity.pid, "address": cluster.address(name)}
                case ("cut" | "heal") as what, [first, *rest]:
                    links = getattr(cluster, what)(first, *rest)
                    log.info("%s: %s", what, "; ".join(" ".join(sorted(link)) for link in links) or "nothing new")
                    return {"links": [sorted(link) for link in links]}
        except (ConfigInvalid, NodeFailed, AddressTaken) as error:
            return {"error": str(error)}
        return {"error": f"order {order!r:.200}: expected kill, stop, start, cut, heal or down"}


def _receive(client: socket.socket) -> dict[str, Any] | None:
    """A line of JSON; None if there is none. Raises: OSError."""
    text = b""
    while not text.endswith(b"\n") and len(text) < _LARGEST_ORDER:
        if not (data := client.recv(_LARGEST_ORDER)):
            return None
        text += data
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


# --- From other terminals ------------------------------------------------------------------------------------------------


def give_order(directory: Path, what: str, *names: str) -> dict[str, Any]:
    """Give an order to the cluster of a directory. Raises: NoCluster, Refused, ConfigInvalid."""
    kept = read_state(directory)
    if not is_alive(directory):
        raise NoCluster(dead_line(directory, kept))
    with local_address(directory, SOCKET_NAME) as address, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_ANSWER_S)
        try:
            client.connect(address)
            client.sendall(json.dumps({"do": what, "names": names}).encode() + b"\n")
            answer = _receive(client)
        except TimeoutError:
            raise Refused(f"{directory}: its cluster has not answered within {_ANSWER_S:.0f} s") from None
        except OSError as error:
            raise NoCluster(f"{directory}: its cluster starts, or ends just now: {error.strerror or error}") from None
    if answer is None:
        raise Refused(
            f"{directory}: its cluster ended before it answered; it says why where it was started, or in logs/cluster.log"
        )
    if "error" in answer:
        raise Refused(str(answer["error"]))
    return answer


def end(directory: Path) -> list[str]:
    """Stop the cluster of a directory; of a dead one, what is left of it. Returns: a line for what was ended.

    Raises: NoCluster, ConfigInvalid, Refused.
    """
    kept = read_state(directory)
    if is_alive(directory):
        give_order(directory, "down")
        until = time.monotonic() + 3 * STOP_S
        while is_alive(directory):
            if time.monotonic() > until:
                raise Refused(f"{directory}: its cluster has not ended within {3 * STOP_S:.0f} s")
            time.sleep(POLL_S)
        return [f"down={directory}"]
    if unsure := [name for name, process in kept.processes.items() if not process.started]:
        names = ", ".join(unsure)
        raise ConfigInvalid(f"{directory}: this system does not say whether {names} still have their pids: nothing was ended")
    with locked(directory):
        ended = end_all(list(kept.processes.values()))
        nodes = {name: noted._replace(state=State.STOPPED) for name, noted in kept.nodes.items() if noted.state is State.UP}
        replace(kept, is_ready=False, processes={}, nodes=kept.nodes | nodes).write(directory)
    names_of = {process: name for name, process in kept.processes.items()}
    return [*(f"ended={names_of[process]} pid={process.pid}" for process in ended), f"down={directory}"]
