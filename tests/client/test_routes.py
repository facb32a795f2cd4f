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


@pytest.mark.parametrize(
    ("failures", "asked_ms"),
    [
        ((), 30_000),
        ((5_000,), 6_000),
        ((5_000, 5_500, 5_999), 6_000),
        ((5_000, 5_900, 6_000), 6_000),
        (tuple(range(5_000, 9_000, 300)), 6_000),
        ((29_500,), 30_000),
        ((28_999, 29_500), 29_999),
    ],
)
def test_failures_that_go_on_do_not_put_the_question_off(failures: tuple[int, ...], asked_ms: int) -> None:
    """HA-C-1 "and where a broker of the route does not answer": a second after the first failure, and never later than the
    question that is due anyway.
    """
    client = ScriptedClient()
    routes = Routes(client, ["one:1"])
    routes.find("T", lambda _: None, 0)
    client.next(105).answer(body=BODY)
    for now_ms in sorted({*failures, asked_ms - 1, asked_ms}):
        if now_ms in failures:
            routes.broker_failed("T", now_ms)
        routes.turn(now_ms)
        assert bool(client.asked) is (now_ms >= asked_ms), now_ms
    assert len(client.asked) == 1


def test_a_failure_while_the_question_is_under_way_is_asked_about_again() -> None:
    """The answer may be older than the failure."""
    client = ScriptedClient()
    routes = Routes(client, ["one:1"])
    routes.find("T", lambda _: None, 0)
    asked = client.next(105)
    routes.broker_failed("T", 100)
    routes.turn(2_000)
    assert not client.asked
    asked.answer(body=BODY)
    routes.turn(2_001)
    assert len(client.asked) == 1


def test_a_failure_that_comes_late_does_not_turn_back_to_a_name_server_that_failed() -> None:
    """HA-C-1 "A name server that does not answer MUST be followed by the next one"."""
    client = ScriptedClient()
    routes = Routes(client, ["one:1", "two:2", "three:3"])
    for topic in "TU":
        routes.find(topic, lambda _: None, 0)
    of_t, of_u = client.next(105), client.next(105)
    of_t.fail()
    client.next(105).fail()
    assert client.next(105).address == "three:3"
    of_u.fail()
    assert client.next(105).address == "three:3"


@pytest.mark.parametrize("servers", [1, 2, 3])
def test_every_question_goes_to_each_name_server_once_before_it_fails(servers: int) -> None:
    """HA-C-1 "A name server that does not answer MUST be followed by the next one": also after an earlier question has failed,
    and for two topics at the same time.
    """
    client = ScriptedClient()
    routes = Routes(client, [f"n:{number}" for number in range(1, servers + 1)])
    told: list[TopicRoute | NoRoute] = []
    for round_ms in (0, 3_000):
        routes.find("T", told.append, round_ms)
        addresses = set()
        for _ in range(servers):
            assert len(told) == round_ms // 3_000
            asked = client.next(105)
            addresses.add(asked.address)
            asked.fail()
        assert (len(addresses), len(told), client.asked) == (servers, round_ms // 3_000 + 1, [])
    routes.find("T", told.append, 6_000)
    routes.find("U", told.append, 6_000)
    first, second = client.next(105), client.next(105)
    assert first.address == second.address
    first.fail()
    second.fail()
    if servers > 1:
        assert client.asked[0].address == client.asked[1].address != first.address
    else:
        assert client.asked == []


@pytest.mark.parametrize("wanted", [(True, True), (True, False), (False, True), (False, False)])
def test_whoever_sends_gets_the_route_of_tbw102_and_nobody_else(wanted: tuple[bool, bool]) -> None:
    """HA-C-3: with a name server that did not answer before, and somebody else who waits for the same route."""
    client = ScriptedClient()
    routes = Routes(client, ["one:1", "two:2"])
    told: list[TopicRoute | NoRoute] = []
    for may_make in wanted:
        routes.find("T", told.append, 0, may_make=may_make)
    client.next(105).fail()
    client.next(105).answer(17)
    assert [asked.command.ext_fields["topic"] for asked in client.asked] == ["TBW102"] * any(wanted)
    if any(wanted):
        client.next(105).fail()
        client.next(105).answer(body=BODY)
    assert [isinstance(each, TopicRoute) for each in told] == [any(wanted)] * 2


@pytest.mark.parametrize(
    ("code", "body"), [(0, BODY), (0, route_body(("a", 4, {0: "a:1"}))), (17, b""), (1, b""), (0, b"{"), (None, b"")]
)
def test_a_route_stays_in_use_until_there_is_another(code: int | None, body: bytes) -> None:
    """HA-C-2 "MUST stay in use while no name server answers"; and the same route, told again, is no new one."""
    client = ScriptedClient()
    routes = Routes(client, ["one:1"])
    routes.find("T", lambda _: None, 0)
    client.next(105).answer(body=BODY)
    before = routes.get("T")
    routes.turn(30_000)
    if code is None:
        client.next(105).fail()
    else:
        client.next(105).answer(code, body)
    assert not client.asked
    changed = code == 0 and body not in (BODY, b"{")
    assert (routes.get("T") is before) is not changed
    told: list[TopicRoute | NoRoute] = []
    routes.find("T", told.append, 30_001, may_make=True)
    assert told == [read_route(body if changed else BODY)]


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


def test_the_end_of_the_client_is_no_failure_of_a_name_server(caplog: pytest.LogCaptureFixture) -> None:
    client = ScriptedClient()
    routes = Routes(client, ["one:1"])
    routes.find("T", lambda _: None, 0)
    client.next(105).answer(body=BODY)
    for is_closed in (False, True):
        routes.find_anew("T", lambda _: None, 0)
        asked = client.next(105)
        if is_closed:
            routes.close()
        asked.fail()
        assert ("the last route stays in use" in caplog.text) is not is_closed
        caplog.clear()
