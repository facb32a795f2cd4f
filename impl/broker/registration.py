"""A broker's registrations with its name servers: at its start, again and again, when its topics change, and at its end.

Decisions alone: the client asks, and the broker's loop calls `on_turn`. A name server that does not answer costs one request at
a time, and holds up no other.

Source: 4.9.8 BrokerController.start, registerBrokerAll, unregisterBrokerAll; BrokerOuterAPI.
"""

import logging
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple, Protocol

from rocketmq_ha.impl.broker.topic_config import PERM_READ, PERM_WRITE, TopicConfigManager, topic_fields
from rocketmq_ha.impl.errors import RequestFailed, RequestInvalid
from rocketmq_ha.impl.remoting import body_json
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode
from rocketmq_ha.impl.remoting.command import RemotingCommand, request
from rocketmq_ha.spec.constants import BODY_CRC_MASK

FIRST_DELAY_MS: Final = 10_000
LEAST_PERIOD_MS: Final = 10_000
GREATEST_PERIOD_MS: Final = 60_000
AGAIN_MS: Final = 1_000
UNREGISTER_TIMEOUT_MS: Final = 3_000
_SHOWN: Final = 200  # characters of a remark
_READ_WRITE: Final = PERM_READ | PERM_WRITE

log = logging.getLogger(__name__)

OnAnswer = Callable[[RemotingCommand | RequestFailed], object]


class Asks(Protocol):
    """The client (impl/remoting/client.py)."""

    def invoke(self, address: str, command: RemotingCommand, deadline_ms: int, on_answer: OnAnswer) -> None: ...


@dataclass(frozen=True, slots=True)
class RegistrationSettings:
    """RocketMQ's names in snake case. name_servers: each HOST:PORT. Times in ms.

    broker_addr: brokerIP1:listenPort. ha_server_addr: HA-R-13 "MUST be `brokerIP2:haListenPort`". registers_again: HA-R-58.
    """

    broker_cluster_name: str
    broker_name: str
    broker_id: int
    broker_addr: str
    ha_server_addr: str
    name_servers: tuple[str, ...]
    register_name_server_period: int = 30_000
    register_broker_timeout_mills: int = 6_000
    broker_permission: int = _READ_WRITE
    registers_again: bool = True


class _NameServer:
    """One name server. is_asked: a request has no answer yet; is_due: another is to follow; again_ms: when, after a failure.

    error: why the last request failed, "" where it did not. registered_ms: when it took a registration last; None for never.
    """

    __slots__ = ("address", "again_ms", "error", "is_asked", "is_due", "registered_ms")

    def __init__(self, address: str) -> None:
        self.address, self.error = address, ""
        self.is_asked = self.is_due = False
        self.again_ms: int | None = None
        self.registered_ms: int | None = None


class Registered(NamedTuple):
    """How a broker stands with a name server. registered_ms: when it was registered last, or None. error: why not since."""

    address: str
    registered_ms: int | None
    error: str


class BrokerOuterAPI:
    """The registrations of one broker.

    on_master: called with (haServerAddr, masterAddr) of an answer; a slave's answers name its master, and else both are "".
    """

    def __init__(self, settings: RegistrationSettings, topics: TopicConfigManager, client: Asks) -> None:
        self._settings, self._topics, self._client = settings, topics, client
        self._servers: Final = [_NameServer(address) for address in settings.name_servers]
        period_ms = settings.register_name_server_period
        # HA-R-16 "less than 10 s counts as 10 s, and more than 60 s as 60 s"
        self._period_ms: Final = max(LEAST_PERIOD_MS, min(period_ms, GREATEST_PERIOD_MS))
        self._next_ms = self._now_ms = 0
        self._has_due = False  # some name server may be asked in this turn
        self._registers_again = settings.registers_again
        self._leaving = 0  # unregistrations without an answer
        self.registrations = 0  # that were answered SUCCESS
        self.on_master: Callable[[str, str], object] = lambda _ha, _master: None

    @property
    def is_registered(self) -> bool:
        """True if every name server has taken the last registration that it has answered, and there was one."""
        return self.registrations > 0 and not any(server.error for server in self._servers)

    @property
    def name_servers(self) -> list[Registered]:
        """All name servers, in the order of the settings."""
        return [Registered(server.address, server.registered_ms, server.error) for server in self._servers]

    @property
    def waiting(self) -> int:
        """The number of name servers that have not answered yet."""
        return sum(server.is_asked for server in self._servers)

    def start(self, now_ms: int) -> None:
        """Register for the first time. The next time is 10 s later. HA-R-16 "MUST register when it starts"."""
        self._next_ms, self._now_ms = now_ms + FIRST_DELAY_MS, now_ms
        self.topics_changed()
        self._register(now_ms)

    def topics_changed(self) -> None:
        """Register in the next turn. HA-BT-13 "MUST be registered with the name servers at once"."""
        for server in self._servers:  # HA-R-15 "MUST register with every name server it knows"
            server.is_due = True
        self._has_due = True

    def on_turn(self, now_ms: int) -> None:
        """Register where it is time, or where the topics have changed."""
        self._now_ms = now_ms
        if now_ms >= self._next_ms:
            self._next_ms = now_ms + self._period_ms
            self.topics_changed()
        for server in self._servers:
            if server.again_ms is not None and now_ms >= server.again_ms:
                server.is_due = self._has_due = True
        if self._has_due:
            self._register(now_ms)

    def _register(self, now_ms: int) -> None:
        """Ask the name servers that are due; one that has not answered the last time is asked when it has.

        Spec: HA-SE-41 "MUST register once more, with all its topics, when that answer has come or is given up".
        """
        self._has_due = False
        due = [server for server in self._servers if server.is_due and not server.is_asked]
        if due:
            fields, body = self._registration()
            for server in due:
                self._ask(server, fields, body, now_ms)

    def unregister_broker_all(self, now_ms: int) -> None:
        """Take the broker off the routes; `has_left` says when. HA-R-18 "SHOULD unregister, with code 104"."""
        self._leaving, self._registers_again = len(self._servers), False
        for server in self._servers:
            server.is_due, server.again_ms = False, None
            command = request(RequestCode.UNREGISTER_BROKER, self._names())
            self._client.invoke(server.address, command, now_ms + UNREGISTER_TIMEOUT_MS, partial(self._on_left, server))

    @property
    def has_left(self) -> bool:
        return self._leaving == 0

    def _on_left(self, server: _NameServer, answer: RemotingCommand | RequestFailed) -> None:
        self._leaving -= 1
        if isinstance(answer, RequestFailed) or answer.code != ResponseCode.SUCCESS:
            log.warning("%s: not unregistered: %s", server.address, _why(answer))

    # --- Requests ----------------------------------------------------------------------------------------------------

    def _names(self) -> dict[str, str]:
        settings = self._settings
        return {
            "brokerName": settings.broker_name,
            "brokerAddr": settings.broker_addr,
            "clusterName": settings.broker_cluster_name,
            "brokerId": str(settings.broker_id),
        }

    def _registration(self) -> tuple[dict[str, str], bytes]:
        """The header fields and the body of a registration."""
        body = b'{"filterServerList":[],"topicConfigSerializeWrapper":%b}' % self._wrapper()
        crc = zlib.crc32(body) & BODY_CRC_MASK
        told = {"haServerAddr": self._settings.ha_server_addr, "compressed": "false", "bodyCrc32": str(crc)}
        return {**self._names(), **told}, body

    def _wrapper(self) -> bytes:
        """The table of topics. HA-SE-40 "MUST register every topic with its `brokerPermission`"."""
        permission = self._settings.broker_permission
        if permission & _READ_WRITE == _READ_WRITE:
            return self._topics.encode()
        table = {
            name: topic_fields(replace(config, perm=permission)) for name, config in self._topics.topic_config_table.items()
        }
        return body_json.write({"dataVersion": self._topics.data_version.fields(), "topicConfigTable": table})

    def _ask(self, server: _NameServer, fields: dict[str, str], body: bytes, now_ms: int) -> None:
        server.is_asked, server.is_due, server.again_ms = True, False, None
        command = request(RequestCode.REGISTER_BROKER, dict(fields), body)
        deadline_ms = now_ms + self._settings.register_broker_timeout_mills
        self._client.invoke(server.address, command, deadline_ms, partial(self._on_answer, server))

    def _on_answer(self, server: _NameServer, answer: RemotingCommand | RequestFailed) -> None:
        server.is_asked = False
        self._has_due |= server.is_due
        if isinstance(answer, RequestFailed) and self._registers_again:  # HA-R-58 "again 1 s later"
            server.again_ms = self._now_ms + AGAIN_MS
        if isinstance(answer, RequestFailed) or answer.code != ResponseCode.SUCCESS:
            if not server.error:
                log.warning("%s: not registered, which is tried again: %s", server.address, _why(answer))
            server.error = answer.why if isinstance(answer, RequestFailed) else _why(answer)[:_SHOWN]
            return
        if server.error or not self.registrations:
            log.info("%s: registered as %s %s", server.address, self._settings.broker_name, self._settings.broker_addr)
        server.error, server.registered_ms = "", self._now_ms
        self.registrations += 1
        self.on_master(answer.ext_fields.get("haServerAddr") or "", answer.ext_fields.get("masterAddr") or "")
        self._take_order_topics(server, answer.body)

    def _take_order_topics(self, server: _NameServer, body: bytes) -> None:
        """HA-BT-16 "The topics that the name server lists as ordered": only where the answer has a table at all."""
        if not body:
            return
        try:
            found = body_json.read(body)
        except RequestInvalid as error:
            log.warning("%s: its answer to a registration: %s", server.address, error)
            return
        table = found.get("table") if isinstance(found, dict) else None
        if isinstance(table, dict):
            self._topics.update_order_topic_config(frozenset(table))


def _why(answer: RemotingCommand | RequestFailed) -> str:
    return str(answer) if isinstance(answer, RequestFailed) else f"code {answer.code}: {answer.remark}"
