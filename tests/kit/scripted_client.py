"""A remoting client without sockets: it keeps what is asked, and a test answers."""

import json
from collections.abc import Callable
from dataclasses import dataclass

from rocketmq_ha.impl.errors import RequestFailed
from rocketmq_ha.impl.remoting.command import RemotingCommand, encode_whole


@dataclass
class Asked:
    """A request that has no answer yet."""

    address: str
    command: RemotingCommand
    deadline_ms: int
    on_answer: Callable[[RemotingCommand | RequestFailed], object]

    def answer(self, code: int = 0, body: bytes = b"", remark: str | None = None, **ext_fields: object) -> None:
        fields = {name: str(value) for name, value in ext_fields.items()}
        self.on_answer(RemotingCommand(code, self.command.opaque, 1, remark=remark, ext_fields=fields, body=body))

    def fail(self, *, is_unsent: bool = False, is_late: bool = False) -> None:
        """No answer comes. is_unsent: there was no connection. is_late: its time is over."""
        why = "no answer in time" if is_late else "cannot connect" if is_unsent else "the connection has ended"
        self.on_answer(RequestFailed(self.address, self.command.code, why, is_unsent=is_unsent, is_late=is_late))


class ScriptedClient:
    """asked: what waits for an answer, in order. sent: the oneway requests, with their addresses."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.sent: list[tuple[str, RemotingCommand]] = []

    def invoke(
        self,
        address: str,
        command: RemotingCommand,
        deadline_ms: int,
        on_answer: Callable[[RemotingCommand | RequestFailed], object],
    ) -> None:
        encode_whole(command)  # as the real one does: it raises FrameInvalid
        self.asked.append(Asked(address, command, deadline_ms, on_answer))

    def send(self, address: str, command: RemotingCommand) -> None:
        assert command.is_oneway
        self.sent.append((address, command))

    def next(self, code: int) -> Asked:
        """Take the first request of this code."""
        found = next((asked for asked in self.asked if asked.command.code == code), None)
        assert found is not None, [asked.command.code for asked in self.asked]
        self.asked.remove(found)
        return found


def route_body(*groups: tuple[str, int, dict[int, str]], perm: int = 6, order: str | None = None) -> bytes:
    """The body of a route. groups: name, queues, addresses by id."""
    queues = [
        {"brokerName": name, "readQueueNums": nums, "writeQueueNums": nums, "perm": perm, "topicSysFlag": 0}
        for name, nums, _ in groups
    ]
    brokers = [
        {"cluster": "c", "brokerName": name, "brokerAddrs": {str(key): value for key, value in addrs.items()}}
        for name, _, addrs in groups
    ]
    route: dict[str, object] = {"queueDatas": queues, "brokerDatas": brokers, "filterServerTable": {}}
    if order is not None:
        route["orderTopicConf"] = order
    return json.dumps(route).encode()
