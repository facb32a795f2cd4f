"""A remoting client that asks nobody: the test answers."""

from collections import defaultdict

from rocketmq_ha.impl.broker.registration import OnAnswer
from rocketmq_ha.impl.errors import RequestFailed
from rocketmq_ha.impl.remoting.command import RemotingCommand, response_to


class Asked:
    """A client that keeps what it is asked: address, command, deadline, whom to tell."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, RemotingCommand, int, OnAnswer]] = []
        self.links: defaultdict[str, int] = defaultdict(lambda: 1)  # the number of the connection to each address

    def invoke(self, address: str, command: RemotingCommand, deadline_ms: int, on_answer: OnAnswer) -> None:
        self.requests.append((address, command, deadline_ms, on_answer))

    def link(self, address: str) -> int:
        return self.links[address]

    def addresses(self) -> list[str]:
        return [address for address, *_ in self.requests]

    def answer(self, address: str, code: int = 0, body: bytes = b"", **fields: str) -> None:
        """Answer the oldest request to an address; a code below 0: it failed."""
        number = self.addresses().index(address)
        _, command, _, on_answer = self.requests.pop(number)
        failed = RequestFailed(address, command.code, "no answer in time")
        on_answer(failed if code < 0 else response_to(command, code, "remark", fields, body))
