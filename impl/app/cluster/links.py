"""The process through which all connections of a cluster go, so that its links can be cut.

It is told by lines of JSON on its standard input, and answers each with a line: the first one has the routes, each further one
the state that is wanted: {"up": [names], "cut": [[name, name], ...]}. At the end of its input it ends.
"""

import json
import os
import subprocess
import sys
from collections.abc import Collection, Iterable
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

from rocketmq_ha.impl.app.cluster.plan import Forward, Link
from rocketmq_ha.impl.app.cluster.processes import STOP_S, Identity, identity_of, start
from rocketmq_ha.impl.app.cluster.translate import FrameTranslator
from rocketmq_ha.impl.errors import ConfigInvalid, RocketmqHaError
from rocketmq_ha.impl.net.relay import Relay, Route

_READ_SIZE: Final = 65_536


class Links:
    """The process, from outside."""

    def __init__(self, forwards: Iterable[Forward], log: Path) -> None:
        """Start it. All links are closed. Raises: LinksFailed."""
        self._log = log
        with log.open("ab") as errors:
            program = [sys.executable, "-m", __name__]
            self._process = start(program, errors, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        identity = identity_of(self._process.pid)
        if identity is None:
            raise LinksFailed(f"{log}: {self._ended()}")
        self.identity: Final[Identity] = identity
        try:
            self._tell([_to_json(forward) for forward in forwards])
        except BaseException:
            self.close()
            raise

    @property
    def status(self) -> int | None:
        """Its exit status; None while it runs."""
        return self._process.poll()

    def set(self, up: Collection[str], cut: Iterable[Link]) -> None:
        """Open the links to the nodes that are up, close the others, and cut these.

        Raises: AddressTaken; then some links are as they were, until the next call. LinksFailed.
        """
        self._tell({"up": sorted(up), "cut": [sorted(link) for link in cut]})

    def close(self) -> None:
        """End it, and with it all connections."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_S)

    def _tell(self, what: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(what).encode() + b"\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except OSError:
            answer = b""
        if not answer:
            raise LinksFailed(f"{self._log}: {self._ended()}")
        if error := json.loads(answer)["error"]:
            raise AddressTaken(error)

    def _ended(self) -> str:
        return f"the process of the links has ended, with status {self._process.poll()}"


class LinksFailed(RocketmqHaError):  # noqa: N818  (says whose fault it is)
    """The process of the links has ended."""


class AddressTaken(RocketmqHaError):  # noqa: N818  (says whose fault it is)
    """Somebody else listens on an address of a link."""


def _to_json(forward: Forward) -> dict[str, Any]:
    return {
        "link": sorted(forward.link),
        "target": forward.target,
        "near": forward.near,
        "far": forward.far,
        "there": forward.there,
        "back": forward.back,
    }


def serve(orders: int, answers: IO[str]) -> None:
    """Be the process. orders: a descriptor."""
    relay = Relay()
    relay.selector.register(orders, 1, "orders")
    routes: list[tuple[Link, str, Route]] = []
    partial_line = b""
    while True:
        if not relay.poll(None):
            continue
        data = os.read(orders, _READ_SIZE)
        if not data:
            break
        *lines, partial_line = (partial_line + data).split(b"\n")
        for line in lines:
            order, error = json.loads(line), None
            try:
                if isinstance(order, list):
                    routes = [_route(relay, each) for each in order]
                else:
                    _set(routes, frozenset(order["up"]), {frozenset(link) for link in order["cut"]})
            except ConfigInvalid as found:
                error = str(found)
            answers.write(json.dumps({"error": error}) + "\n")
            answers.flush()
    relay.close()


def _route(relay: Relay, order: dict[str, Any]) -> tuple[Link, str, Route]:
    (near_host, near_port), (far_host, far_port) = order["near"], order["far"]
    there, back = (partial(FrameTranslator, order[way]) if order[way] else None for way in ("there", "back"))
    route = relay.add((near_host, near_port), (far_host, far_port), there, back)
    return frozenset(order["link"]), order["target"], route


def _set(routes: Iterable[tuple[Link, str, Route]], up: Collection[str], cut: Collection[Link]) -> None:
    """Raises: ConfigInvalid for an address that is taken."""
    for link, target, route in routes:
        route.set(is_open=target in up, is_cut=link in cut)


if __name__ == "__main__":
    serve(sys.stdin.fileno(), sys.stdout)
