"""The requests that one connection has sent and that have no answer yet, by their opaque."""

from collections.abc import Callable
from typing import Final

from rocketmq_ha.impl.errors import RequestFailed
from rocketmq_ha.impl.remoting.command import RemotingCommand

OnAnswer = Callable[[RemotingCommand | RequestFailed], object]


class WaitingAnswers:
    """Tells each request's caller once: by its answer, at its deadline, or when the connection ends. HA-RM-12, HA-RM-16."""

    def __init__(self, address: str) -> None:
        """address: of the other end, for the errors."""
        self._address: Final = address
        self._last_opaque = 0
        self._waiting: dict[int, tuple[int, int, OnAnswer]] = {}  # by opaque: deadline in ms, code, whom to tell

    def __len__(self) -> int:
        return len(self._waiting)

    def next_opaque(self) -> int:
        """A number that no request of this connection has had, for some two thousand million requests."""
        self._last_opaque = (self._last_opaque + 1) & 0x7FFFFFFF
        while self._last_opaque in self._waiting:
            self._last_opaque = (self._last_opaque + 1) & 0x7FFFFFFF
        return self._last_opaque

    def add(self, request: RemotingCommand, deadline_ms: int, on_answer: OnAnswer) -> None:
        """Wait for the answer to a request, whose opaque no other request of this connection has."""
        assert request.opaque not in self._waiting
        self._waiting[request.opaque] = deadline_ms, request.code, on_answer

    def on_answer(self, answer: RemotingCommand) -> bool:
        """Tell the caller. Returns: False for an answer that nobody waits for.

        Spec: HA-RM-15 "that of no request that waits on its connection MUST be ignored"; HA-RM-12 "Answers MAY come in any
        order"; `opaque` says which request.
        """
        found = self._waiting.pop(answer.opaque, None)
        if found is None:
            return False
        found[2](answer)
        return True

    def on_tick(self, now_ms: int) -> int:
        """Give up what is late. Returns: how many requests were. HA-RM-16 "MUST give up a request that has no answer"."""
        late = [opaque for opaque, (deadline_ms, _, _) in self._waiting.items() if now_ms >= deadline_ms]
        for opaque in late:
            if (found := self._waiting.pop(opaque, None)) is not None:
                found[2](RequestFailed(self._address, found[1], "no answer in time", is_late=True))
        return len(late)

    def on_close(self, why: str, *, is_unsent: bool = False) -> None:
        """The connection has ended: no answer will come. is_unsent: it has taken no byte."""
        waiting, self._waiting = self._waiting, {}
        for _, code, on_answer in waiting.values():
            on_answer(RequestFailed(self._address, code, why, is_unsent=is_unsent))
