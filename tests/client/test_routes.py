"""The routes of a client: who is asked, when, and what is taken of an answer. HA-C-1 to HA-C-3, HA-C-15."""

import pytest

from kit.scripted_client import ScriptedClient, route_body
from rocketmq_ha.impl.client.route_data import TopicRoute, publish_queues, read_route
from rocketmq_ha.impl.client.routes import Routes
from rocketmq_ha.impl.errors import NoRoute, RequestInvalid

BODY = route_body(("a", 8, {0: "a:1"}))


def test_a_name_server_that_does_not_answer_is_followed_by_the_next_one() -> None:
    """HA-C-1 "A name server that does not answer MUST be followed by the next one"; the one that answers is asked again."""
    client = ScriptedClient()
    routes = Routes(client, ["one:1", "two:2"])
    told: list[TopicRoute | NoRoute] = []
    routes.find("T", told.append, 0)
    client.next(105).fail()
    asked = client.next(105)
    assert asked.address == "two:2"
    asked.answer(body=BODY)
    assert told == [read_route(BODY)]
    routes.turn(30_000)
    assert client.next(105).address == "two:2"


def test_nobody_answers() -> None:
    client = ScriptedClient()
    routes = Routes(client, ["one:1", "two:2"])
    told: list[TopicRoute | NoRoute] = []
    routes.find("T", told.append, 0)
    client.next(105).fail()
    client.next(105).fail()
    assert not client.asked
    assert "no answer of a name server" in str(told[0])
    routes.turn(2_999)
    assert not client.asked
    routes.turn(3_000)  # without a route it is soon asked again
    assert client.asked


def test_a_topic_that_is_to_be_made_goes_by_the_route_of_tbw102() -> None:
    """HA-C-3 "MUST send by the route of TBW102, with no more than 4 queues of each broker"; a consumer gets none."""
    client = ScriptedClient()
    routes = Routes(client, ["one:1"])
    told: list[TopicRoute | NoRoute] = []
    routes.find("T", told.append, 0)
    client.next(105).answer(17)
    assert isinstance(told.pop(), NoRoute)
    routes.find("T", told.append, 0, may_make=True)
    client.next(105).answer(17)
    asked = client.next(105)
    assert asked.command.ext_fields == {"topic": "TBW102"}
    asked.answer(body=BODY)
    found = told.pop()
    assert isinstance(found, TopicRoute)
    assert [queue.queue_id for queue in publish_queues("T", found)] == [0, 1, 2, 3]


def test_a_broker_that_fails_makes_the_route_be_asked_for_within_a_second() -> None:
    """HA-C-1 "and where a broker of the route does not answer"."""
    client = ScriptedClient()
    routes = Routes(client, ["one:1"])
    routes.find("T", lambda _: None, 0)
    client.next(105).answer(body=BODY)
    for _ in range(3):
        routes.broker_failed("T", 5_000)
    routes.turn(5_999)
    assert not client.asked
    routes.turn(6_000)
    client.next(105).answer(body=BODY)
    routes.turn(7_000)
    assert not client.asked


def test_several_who_want_a_route_ask_once() -> None:
    client = ScriptedClient()
    routes = Routes(client, ["one:1"])
    told: list[TopicRoute | NoRoute] = []
    routes.find("T", told.append, 0)
    routes.find("T", told.append, 0)
    client.next(105).answer(body=BODY)
    assert not client.asked
    assert len(told) == 2


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b'{"queueDatas":[{"brokerName":1}],"brokerDatas":[]}',
        route_body(("a", 65_537, {0: "a:1"})),
        route_body(("a", 65_536, {0: "a:1"}), ("b", 1, {0: "b:1"})),
        route_body(("a", 1, {0: "a:1"}), order="a:70000"),
        route_body(("a", 1, {0: "a:1"}), order="a"),
        route_body(("a", 1, {0: "a:1"}), order="a:-1"),
    ],
)
def test_a_route_that_cannot_be_used_is_refused(body: bytes) -> None:
    """HA-C-15 "MUST bound what an answer can make it hold: the queues of a route"."""
    with pytest.raises(RequestInvalid):
        read_route(body)
    client = ScriptedClient()
    routes = Routes(client, ["one:1"])
    told: list[TopicRoute | NoRoute] = []
    routes.find("T", told.append, 0)
    client.next(105).answer(body=body)
    assert isinstance(told[0], NoRoute)


def test_as_many_queues_as_may_be() -> None:
    assert len(publish_queues("T", read_route(route_body(("a", 65_536, {0: "a:1"}))))) == 65_536


def test_ids_that_fastjson_leaves_without_quotes() -> None:
    """HA-MD-21 "MUST accept map keys that are integers without quotes"."""
    body = BODY.replace(b'"0":', b"0:")
    assert body != BODY
    assert read_route(body) == read_route(BODY)
