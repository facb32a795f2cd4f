"""The routes that a client knows: asked from the name servers when they are needed, kept, and asked again.

Source: 4.9.8 MQClientInstance.updateTopicRouteInfoFromNameServer.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from rocketmq_ha.impl.client.route_data import TBW102, TopicRoute, default_route, read_route
from rocketmq_ha.impl.errors import ConfigInvalid, NoRoute, RequestFailed, RequestInvalid
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode, response_name
from rocketmq_ha.impl.remoting.command import RemotingCommand, request

POLL_NAME_SERVER_INTERVAL_MS: Final = 30_000
MQ_CLIENT_API_TIMEOUT_MS: Final = 3_000
_AGAIN_MS: Final = 1_000  # the least time between two questions about a topic

log = logging.getLogger(__name__)

OnAnswer = Callable[[RemotingCommand | RequestFailed], object]
OnRoute = Callable[[TopicRoute | NoRoute], object]


class Asks(Protocol):
    """The client (impl/remoting/client.py)."""

    def invoke(self, address: str, command: RemotingCommand, deadline_ms: int, on_answer: OnAnswer) -> None: ...
    def send(self, address: str, command: RemotingCommand) -> None: ...


class _Topic:
    """What is known of a topic. waiting: whom to tell of the answer, and whether TBW102 will do."""

    __slots__ = ("ask_at_ms", "failures", "is_asked", "route", "waiting")

    def __init__(self) -> None:
        self.route: TopicRoute | None = None
        self.ask_at_ms = 0
        self.failures = 0  # name servers that did not answer, in a row
        self.is_asked = False
        self.waiting: list[tuple[OnRoute, bool]] = []


class Routes:
    """The routes of the topics that were asked for. `turn` asks again; time is in ms of one clock."""

    def __init__(self, client: Asks, name_servers: Sequence[str]) -> None:
        """name_servers: each HOST:PORT, at least one."""
        self._client, self._name_servers = client, tuple(name_servers)
        self._chosen = 0  # which name server is asked
        self._topics: dict[str, _Topic] = {}
        self._now_ms = 0
        self._is_closed = False

    def close(self) -> None:
        """Its connections end now: a question without an answer is no failure of a name server any more."""
        self._is_closed = True

    def get(self, topic: str) -> TopicRoute | None:
        """The route, if it is known."""
        known = self._topics.get(topic)
        return known.route if known is not None else None

    def find(self, topic: str, on_route: OnRoute, now_ms: int, *, may_make: bool = False) -> None:
        """Tell of a route: at once if it is known, else when a name server has answered.

        Args:  may_make: the topic is to be sent to, so that a broker may make it.
        Spec: HA-C-1 "MUST ask a name server for the route of a topic (105) before it uses the topic".
        """
        known = self._topics.setdefault(topic, _Topic())
        if known.route is not None:
            on_route(known.route)
            return
        known.waiting.append((on_route, may_make))
        self._ask(topic, known, now_ms)

    def find_anew(self, topic: str, on_route: OnRoute, now_ms: int) -> None:
        """Tell of a route after a new question, for a send; where that gives none, of the one that is known.

        Spec: HA-C-16 "after a new question for the route"; HA-C-2 "MUST stay in use while no name server answers".
        """
        known = self._topics.setdefault(topic, _Topic())
        known.waiting.append((on_route, True))
        self._ask(topic, known, now_ms)

    def broker_failed(self, topic: str, now_ms: int) -> None:
        """Ask again, but not more often than once a second. HA-C-1 "and where a broker of the route does not answer"."""
        known = self._topics.get(topic)
        if known is not None:
            known.ask_at_ms = min(known.ask_at_ms, now_ms + _AGAIN_MS)

    def turn(self, now_ms: int) -> None:
        """Ask again where it is time."""
        self._now_ms = now_ms
        for topic, known in self._topics.items():
            if now_ms >= known.ask_at_ms:
                self._ask(topic, known, now_ms)

    def _ask(self, topic: str, known: _Topic, now_ms: int) -> None:
        if known.is_asked:
            return
        known.is_asked = True
        # HA-C-1 "every 30 s from then on"
        known.ask_at_ms = now_ms + POLL_NAME_SERVER_INTERVAL_MS
        self._now_ms = max(self._now_ms, now_ms)
        self._invoke(topic, partial(self._on_answer, topic, known))

    def _invoke(self, asked: str, on_answer: Callable[[int, RemotingCommand | RequestFailed], object]) -> None:
        chosen = self._chosen
        command = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": asked})
        try:
            self._client.invoke(
                self._name_servers[chosen], command, self._now_ms + MQ_CLIENT_API_TIMEOUT_MS, partial(on_answer, chosen)
            )
        except ConfigInvalid as error:
            on_answer(chosen, RequestFailed(self._name_servers[chosen], command.code, str(error)))

    def _on_answer(self, topic: str, known: _Topic, chosen: int, answer: RemotingCommand | RequestFailed) -> None:
        """The answer for the topic itself."""
        found = _route_of(answer)
        if isinstance(found, TopicRoute):
            self._answered(known, found)
            return
        if isinstance(found, RequestFailed):
            if self._again(known, chosen):
                self._invoke(topic, partial(self._on_answer, topic, known))
            else:
                # HA-C-2 "MUST stay in use while no name server answers"
                self._failed(known, NoRoute(topic, f"no answer of a name server ({found})", "a route"))
            return
        known.failures = 0
        if known.route is None and any(may_make for _, may_make in known.waiting):
            self._invoke(TBW102, partial(self._on_default, topic, known))
            return
        self._failed(known, NoRoute(topic, f"no route ({found})", "a registered broker that has the topic"))

    def _on_default(self, topic: str, known: _Topic, chosen: int, answer: RemotingCommand | RequestFailed) -> None:
        """The answer for TBW102. HA-C-3 "a producer MUST send by the route of TBW102"."""
        found = _route_of(answer)
        if isinstance(found, TopicRoute):
            self._answered(known, default_route(found))
        elif isinstance(found, RequestFailed) and self._again(known, chosen):
            self._invoke(TBW102, partial(self._on_default, topic, known))
        else:
            expected = "a registered broker that has the topic, or makes it"
            self._failed(known, NoRoute(topic, f"no route ({found})", expected))

    def _again(self, known: _Topic, chosen: int) -> bool:
        """Whether another name server is asked. HA-C-1 "MUST be followed by the next one"."""
        if self._chosen == chosen:
            self._chosen = (chosen + 1) % len(self._name_servers)
        known.failures += 1
        return known.failures < len(self._name_servers)

    def _answered(self, known: _Topic, route: TopicRoute) -> None:
        known.is_asked, known.failures = False, 0
        if route != known.route:
            known.route = route
        waiting, known.waiting = known.waiting, []
        for on_route, _ in waiting:
            on_route(route)

    def _failed(self, known: _Topic, error: NoRoute) -> None:
        known.is_asked, known.failures = False, 0
        if known.route is None:
            known.ask_at_ms = self._now_ms + MQ_CLIENT_API_TIMEOUT_MS
        elif "no answer" in str(error) and not self._is_closed:
            log.warning("%s; the last route stays in use", error)
        waiting, known.waiting = known.waiting, []
        for on_route, _ in waiting:
            on_route(error if known.route is None else known.route)


def _route_of(answer: RemotingCommand | RequestFailed) -> TopicRoute | RequestFailed | str:
    """A route; a failure, also for an answer that is none; or why there is no route."""
    if isinstance(answer, RequestFailed):
        return answer
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return "TOPIC_NOT_EXIST"
    if answer.code != ResponseCode.SUCCESS:
        return RequestFailed(
            "name server", RequestCode.GET_ROUTEINFO_BY_TOPIC, f"answer {response_name(answer.code)}: {answer.remark}"
        )
    try:
        return read_route(answer.body)
    except RequestInvalid as error:
        return RequestFailed("name server", RequestCode.GET_ROUTEINFO_BY_TOPIC, str(error))
