"""Where the master's log ends, as the master says (28): no frame of the log says it, and a slave's lag depends on it.

Decisions alone: the client asks, and the broker's loop calls `on_turn`. HA-MD-1 "It MAY ask for more".
"""

import logging
from collections.abc import Callable
from typing import Final

import msgspec

from rocketmq_ha.impl.broker.registration import Asks
from rocketmq_ha.impl.errors import RequestFailed, RequestInvalid
from rocketmq_ha.impl.remoting import body_json
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode
from rocketmq_ha.impl.remoting.command import RemotingCommand, request

PERIOD_MS: Final = 5_000
TIMEOUT_MS: Final = 3_000
_DIGITS: Final = 20  # more than an i64 has

log = logging.getLogger(__name__)


class _Figures(msgspec.Struct):
    max_offset: str = msgspec.field(name="commitLogMaxOffset")


class _RuntimeInfo(msgspec.Struct):
    """The body of an answer, which has many more figures."""

    table: _Figures


class MasterEnd:
    """Asks the master every 5 s.

    Args:  own_addr: HOST:PORT of this slave. master_addr: of its master; "" while it is not known. max_offset: of its own log.
    """

    def __init__(self, own_addr: str, master_addr: Callable[[], str], max_offset: Callable[[], int], client: Asks) -> None:
        self._own_addr, self._master_addr, self._max_offset, self._client = own_addr, master_addr, max_offset, client
        self._is_asked = False
        self._next_ms = self._now_ms = 0
        self.lag_bytes: int | None = None  # what this log lacked at the last answer; None while there was none
        self.told_ms: int | None = None  # when that answer came

    def on_turn(self, now_ms: int) -> None:
        """Ask if it is time."""
        self._now_ms = now_ms
        address = self._master_addr()
        if self._is_asked or now_ms < self._next_ms or address in ("", self._own_addr):
            return
        self._next_ms = now_ms + PERIOD_MS
        self._is_asked = True
        self._client.invoke(address, request(RequestCode.GET_BROKER_RUNTIME_INFO), now_ms + TIMEOUT_MS, self._on_answer)

    def _on_answer(self, answer: RemotingCommand | RequestFailed) -> None:
        """A master that does not answer, or not with a number, leaves what was known before."""
        self._is_asked = False
        if isinstance(answer, RequestFailed) or answer.code != ResponseCode.SUCCESS:
            return
        try:
            found: _RuntimeInfo = body_json.read_as(answer.body, _RuntimeInfo)
        except RequestInvalid as error:
            log.debug("the master's figures: %s", error)
            return
        text = found.table.max_offset
        if text.isascii() and text.isdigit() and len(text) < _DIGITS:
            self.lag_bytes, self.told_ms = max(0, int(text) - self._max_offset()), self._now_ms
