"""A slave's rounds of questions to its master: for topics, consumer offsets, delay offsets and consumer groups.

Decisions alone: the client asks, and the broker's loop calls `on_turn`.

Spec: HA-MD-1 to HA-MD-16.  Source: 4.9.8 SlaveSynchronize, BrokerController.handleSlaveSynchronize, BrokerOuterAPI.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from rocketmq_ha.impl.broker.config_file import KeptFile
from rocketmq_ha.impl.broker.consumer_offsets import ConsumerOffsetManager
from rocketmq_ha.impl.broker.groups import SubscriptionGroupManager
from rocketmq_ha.impl.broker.registration import Asks
from rocketmq_ha.impl.broker.topic_config import TopicConfigManager
from rocketmq_ha.impl.errors import ConfigInvalid, RequestFailed, RequestInvalid
from rocketmq_ha.impl.net.address import format_address, parse_address
from rocketmq_ha.impl.remoting import body_json
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode, response_name
from rocketmq_ha.impl.remoting.command import RemotingCommand, request

FIRST_MS: Final = 3_000
PERIOD_MS: Final = 10_000
TIMEOUT_MS: Final = 3_000  # HA-MD-7 "MUST give up a request that has no answer after 3 s"
VIP_PORT_OFFSET: Final = 2

log = logging.getLogger(__name__)


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
    """The rounds of one slave.

    Args:  own_addr: HOST:PORT, as the slave registers. delay_offset: config/delayOffset.json.
    """

    def __init__(
        self,
        own_addr: str,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        delay_offset: KeptFile,
        client: Asks,
        now_ms: int,
    ) -> None:
        self._own_addr, self._client, self._delay_offset = own_addr, client, delay_offset
        # HA-MD-1 "MUST ask its master for four tables, in this order"
        self._tables: tuple[tuple[RequestCode, Callable[[bytes], object]], ...] = (
            (RequestCode.GET_ALL_TOPIC_CONFIG, topics.table.replace),
            (RequestCode.GET_ALL_CONSUMER_OFFSET, offsets.merge),
            (RequestCode.GET_ALL_DELAY_OFFSET, self._take_delay_offsets),
            (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, groups.table.replace),
        )
        # HOST:PORT; HA-MD-5 "learn it anew from its next registration with the name server"; "" while it is not known
        self.master_addr = ""
        self.taken = 0  # answers
        self.synchronized_ms: int | None = None  # when a round had ended that took all tables
        self.error = ""  # why the last answer was not taken
        self._taken_of_round = 0
        self._asked: int | None = None  # index of the table that has no answer yet
        self._ended: int | None = None  # index of the table whose question has ended since the last turn
        # HA-MD-2 "MUST come 3 s after the start"; HA-MD-6 "MUST NOT run more than one timer": this is the only one
        self._next_ms = now_ms + FIRST_MS

    def on_turn(self, now_ms: int) -> None:
        """Begin a round if it is time, or go on with the one that has begun."""
        if self._ended is not None:
            index, self._ended = self._ended, None
            if self._taken_of_round == len(self._tables):
                self.synchronized_ms = now_ms
            self._ask(index + 1, now_ms)  # HA-MD-3 "MUST still ask for the next table"
        elif self._asked is None and now_ms >= self._next_ms:
            self._next_ms = now_ms + PERIOD_MS
            self._taken_of_round = 0
            self._ask(0, now_ms)

    def _ask(self, index: int, now_ms: int) -> None:
        """HA-MD-4 "MUST skip a table when it does not know its master's address, or when that address is its own"."""
        if index == len(self._tables) or self.master_addr in ("", self._own_addr):
            self._asked = None
            return
        self._asked = index
        code = self._tables[index][0]
        address = self.master_addr
        if code is RequestCode.GET_ALL_TOPIC_CONFIG:  # HA-MD-8 "at the master's port less 2, the VIP port"
            host, port = parse_address(address)
            address = format_address(host, port - VIP_PORT_OFFSET)
        self._client.invoke(address, request(code), now_ms + TIMEOUT_MS, partial(self._on_answer, index, address))

    def _on_answer(self, index: int, address: str, answer: RemotingCommand | RequestFailed) -> None:
        self._ended = index
        code, take = self._tables[index]
        try:
            if isinstance(answer, RequestFailed):
                raise answer
            if answer.code != ResponseCode.SUCCESS:  # HA-MD-16 "MUST change nothing on the slave"
                raise RequestFailed(address, code, f"answered {response_name(answer.code)}: {answer.remark}")
            take(answer.body)
        except (RequestFailed, RequestInvalid, ConfigInvalid, OSError) as error:
            if not self.error:
                log.warning("%s: a table of the master is not taken, which is tried again: %s", address, error)
            self.error = str(error)
            return
        self.error = ""
        self.taken += 1
        self._taken_of_round += 1

    def _take_delay_offsets(self, content: bytes) -> None:
        """HA-MD-14 "MUST be written to `delayOffset.json` in the form in which they came".

        Raises: RequestInvalid, ConfigInvalid.
        """
        found = body_json.read(content)
        if not isinstance(found, dict) or not isinstance(found.get("offsetTable"), dict):
            raise ConfigInvalid("no offsetTable in the answer, expected one")
        self._delay_offset.persist(content)
