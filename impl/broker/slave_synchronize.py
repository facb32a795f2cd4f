"""When a slave asks its master: for the changes of its tables, or for whole tables where the master tells no changes.

    changes: asked 500 ms after the last question; at once while there is more
    whole:   topics -> consumer offsets -> delay offsets -> groups; over a connection whose master does not know the question
             for changes, or in classic

Decisions alone: the client asks, and the broker's loop calls `on_turn`. What is done with an answer is in slave_tables.py.

Spec: HA-MD-1 to HA-MD-9, HA-MD-16, HA-MD-27 to HA-MD-31.
Source: 4.9.8 SlaveSynchronize, BrokerController.handleSlaveSynchronize, BrokerOuterAPI; this project.
"""

import logging
from functools import partial
from typing import Final, Protocol

from rocketmq_ha.impl.broker.registration import Asks
from rocketmq_ha.impl.broker.slave_tables import SlaveTables
from rocketmq_ha.impl.errors import ConfigInvalid, RequestFailed, RequestInvalid
from rocketmq_ha.impl.net.address import format_address, parse_address
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode, response_name
from rocketmq_ha.impl.remoting.command import RemotingCommand, request

FIRST_MS: Final = 3_000
PERIOD_MS: Final = 10_000
CHANGES_PERIOD_MS: Final = 500
LEAST_PERIOD_MS: Final = 1_000  # of rounds of whole tables in hardened
BYTES_A_MS: Final = 100  # of whole tables
TIMEOUT_MS: Final = 3_000  # HA-MD-7 "MUST give up a request that has no answer after 3 s"
VIP_PORT_OFFSET: Final = 2
_CHANGES: Final = -1  # the question for changes, in place of the index of a table

log = logging.getLogger(__name__)


class AsksOverLinks(Asks, Protocol):
    """The client (impl/remoting/client.py)."""

    def link(self, address: str) -> int: ...


def can_be_asked(address: str) -> bool:
    """Whether a text that a peer tells is an address with a VIP port below it, or empty.

    >>> [can_be_asked(text) for text in ("10.0.0.1:10911", "", "10.0.0.1", "10.0.0.1:2")]
    [True, True, False, False]
    """
    try:
        return not address or parse_address(address)[1] > VIP_PORT_OFFSET
    except ConfigInvalid:
        return False


class SlaveSynchronize:
    """The questions of one slave.

    Args:  own_addr: HOST:PORT, as the slave registers. now_ms: by a clock that does not step.
    """

    def __init__(self, own_addr: str, tables: SlaveTables, client: AsksOverLinks, now_ms: int) -> None:
        self._own_addr, self._tables, self._client = own_addr, tables, client
        self._asks_changes = tables.profile.asks_changes
        # HOST:PORT; HA-MD-5 "learn it anew from its next registration with the name server"; "" while it is not known
        self._master_addr = ""
        self.taken = 0  # answers
        self.synchronized_ms: int | None = None  # when all tables had been taken
        self.as_of_ms: int | None = None  # when they were asked for: what the master has changed since may be missing
        self.taken_by = ""  # "changes" or "whole tables"
        self.error = ""  # why the last answer was not taken
        self._whole_link = 0  # the connection whose master tells no changes; 0 for none
        self._round_is_whole = True  # all answers of this round were taken
        self._asked: int | None = None  # index of the table that has no answer yet, or _CHANGES
        self._ended: int | None = None  # the same of a question that has ended since the last turn
        self._number = 0  # of the last question
        self._is_more = False  # that the master can tell at once
        self._is_unknown = False  # the master does not know the question for changes
        self._began_ms = self._size = 0  # begin of the last round, and the bytes of its answers
        # HA-MD-2 "MUST come 3 s after the start"; HA-MD-6 "MUST NOT run more than one timer": this is the only one
        self._next_ms = now_ms if self._asks_changes else now_ms + FIRST_MS

    @property
    def master_addr(self) -> str:
        """HOST:PORT of the master; "" while it is not known."""
        return self._master_addr

    @master_addr.setter
    def master_addr(self, address: str) -> None:
        """HA-MD-27 "as soon as it knows the master's address": an answer of another master is not waited for."""
        if address != self._master_addr and self._asks_changes:
            self._asked = self._ended = None
            self._number += 1
            self._next_ms = self._whole_link = 0
        self._master_addr = address

    def on_turn(self, now_ms: int) -> None:
        """Begin a round if it is time, or go on with the one that has begun."""
        self._tables.on_turn(now_ms)
        if self._ended is not None:
            index, self._ended = self._ended, None
            self._go_on(index, now_ms)
        elif self._asked is None and now_ms >= self._next_ms:
            self._begin(now_ms)

    def finish(self) -> None:
        """Write what is not written yet. The process ends."""
        self._tables.finish()

    def _begin(self, now_ms: int) -> None:
        if not self._asks_changes:
            self._next_ms = now_ms + PERIOD_MS
            self._begin_whole(now_ms)
        elif self._can_ask():
            if self._whole_link and self._client.link(self._master_addr) == self._whole_link:
                self._begin_whole(now_ms)
                return
            self._whole_link = 0
            # HA-MD-27 "again 500 ms after each such question"
            self._began_ms, self._next_ms = now_ms, now_ms + CHANGES_PERIOD_MS
            self._ask(_CHANGES, now_ms)

    def _begin_whole(self, now_ms: int) -> None:
        self._began_ms, self._size, self._round_is_whole = now_ms, 0, True
        self._ask(0, now_ms)

    def _go_on(self, index: int, now_ms: int) -> None:
        """A question has ended, in whatever way."""
        if index != _CHANGES:
            self._ask(index + 1, now_ms)  # HA-MD-3 "MUST still ask for the next table"
            return
        self._asked = None
        if self._is_unknown:  # HA-MD-30 "MUST take whole tables from it"
            self._begin_whole(now_ms)
        elif self._is_more:  # HA-MD-29 "the slave asks for the rest at once"
            self._begin(now_ms)
        elif self._round_is_whole:
            self._on_all_taken(now_ms, "changes")

    def _can_ask(self) -> bool:
        """HA-MD-4 "MUST skip a table when it does not know its master's address, or when that address is its own"."""
        return self._master_addr not in ("", self._own_addr)

    def _ask(self, index: int, now_ms: int) -> None:
        whole = self._tables.whole
        if index == len(whole) or not self._can_ask():
            self._asked = None
            if index == len(whole) and self._round_is_whole:
                self._on_all_taken(now_ms, "whole tables")
            if self._asks_changes:  # HA-MD-30 "10 ms after the begin of the last for each 1,000 bytes of its answers"
                self._next_ms = self._began_ms + max(LEAST_PERIOD_MS, min(self._size // BYTES_A_MS, PERIOD_MS))
            return
        self._asked = index
        self._number += 1
        address = self._master_addr
        if index == _CHANGES:
            command = request(RequestCode.GET_METADATA_CHANGES, body=self._tables.question())
        else:
            command = request(whole[index][0])
            if command.code == RequestCode.GET_ALL_TOPIC_CONFIG:  # HA-MD-8 "at the master's port less 2, the VIP port"
                host, port = parse_address(address)
                address = format_address(host, port - VIP_PORT_OFFSET)
        on_answer = partial(self._on_answer, index, self._number, address)
        self._client.invoke(address, command, now_ms + TIMEOUT_MS, on_answer)

    def _on_all_taken(self, now_ms: int, taken_by: str) -> None:
        self.synchronized_ms, self.as_of_ms, self.taken_by = now_ms, self._began_ms, taken_by

    # --- Answers ------------------------------------------------------------------------------------------------------

    def _on_answer(self, index: int, number: int, address: str, answer: RemotingCommand | RequestFailed) -> None:
        if number != self._number:  # HA-MD-31 "if its master is another one by now"
            return
        self._ended = index
        try:
            self._take(index, address, answer)
        except (RequestFailed, RequestInvalid, ConfigInvalid, OSError) as error:
            self._on_refused(address, str(error))
            return
        self.error = ""
        self.taken += 1

    def _take(self, index: int, address: str, answer: RemotingCommand | RequestFailed) -> None:
        """Raises: RequestFailed, RequestInvalid, ConfigInvalid, OSError."""
        self._is_more = self._is_unknown = False
        if isinstance(answer, RequestFailed):
            raise answer
        link = self._client.link(address)
        if index == _CHANGES and answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            log.info("%s tells no changes of its tables: whole tables are taken", address)
            self._is_unknown, self._whole_link = True, link
            self._tables.on_not_supported()
            return
        if answer.code != ResponseCode.SUCCESS:  # HA-MD-16 "MUST change nothing on the slave"
            code = RequestCode.GET_METADATA_CHANGES if index == _CHANGES else self._tables.whole[index][0]
            raise RequestFailed(address, code, f"answered {response_name(answer.code)}: {answer.remark}")
        if index == _CHANGES:
            self._round_is_whole = True
            self._is_more, error = self._tables.take_changes(answer.body)
            if error:
                raise ConfigInvalid(error)
        else:
            self._size += len(answer.body)
            self._tables.whole[index][1](answer.body, link)

    def _on_refused(self, address: str, why: str) -> None:
        if not self.error:
            log.warning("%s: a table of the master is not taken, which is tried again: %s", address, why)
        self.error = why
        self._round_is_whole = False
