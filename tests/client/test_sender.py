"""The loop of `rocketmq-ha send`: which lines share a request, what each outcome says, and when all is well. HA-C-9."""

import json
import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kit.remoting import Stand
from kit.scripted_client import route_body
from kit.waiting import await_end, wait_for
from rocketmq_ha.impl.app.client_session import NameServers, client_session, message_ids
from rocketmq_ha.impl.app.put_lines import Line, LineSource
from rocketmq_ha.impl.app.sender import Sender
from rocketmq_ha.impl.app.stdout_writer import StdoutWriter
from rocketmq_ha.impl.client.producer import Producer
from rocketmq_ha.impl.remoting.channel import Channel
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode
from rocketmq_ha.impl.remoting.command import RemotingCommand, response_to

REFUSED = "refused"  # a topic whose messages the broker takes none of


class Broker:
    """A name server and a broker in one, whose topics have 9 queues. requests: topic, queue, number of messages, oneway."""

    def __init__(self, stand: Stand) -> None:
        self.requests: list[tuple[str, int, int, bool]] = []
        host, port = stand.server.addresses[0]
        self.address = f"{host}:{port}"
        route = route_body(("b", 9, {0: self.address}))
        stand.server.handlers |= {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: lambda _channel, asked, _now_ms: response_to(asked, body=route),
            RequestCode.SEND_MESSAGE_V2: self.take,
            RequestCode.SEND_BATCH_MESSAGE: self.take,
        }

    def take(self, _channel: Channel, asked: RemotingCommand, _now_ms: int) -> RemotingCommand:
        fields, count = asked.ext_fields, 1
        if asked.code == RequestCode.SEND_BATCH_MESSAGE:
            at = count = 0
            while at < len(asked.body):
                at += int.from_bytes(asked.body[at : at + 4], "big")
                count += 1
        self.requests.append((fields["b"], int(fields["e"]), count, asked.is_oneway))
        if fields["b"] == REFUSED:
            return response_to(asked, ResponseCode.MESSAGE_ILLEGAL, "no")
        ids = ",".join(f"id{at}" for at in range(count))
        return response_to(asked, ext_fields={"queueId": fields["e"], "queueOffset": "70", "msgId": ids})


@pytest.fixture
def stand() -> Iterator[Stand]:
    with ExitStack() as resources:
        yield Stand(resources)


@pytest.fixture
def broker(stand: Stand) -> Broker:
    return Broker(stand)


class Sends:
    """A run of the loop over some lines. rows: what it wrote."""

    def __init__(self, stand: Stand, broker: Broker, path: Path, lines: list[Line], **more: Any) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        source = LineSource(None, lambda line: line, 1 << 20)
        source.lines = deque(lines)

        def run() -> None:
            with client_session(NameServers((broker.address,))) as session:
                producer = Producer(session.client, session.routes, "g", message_ids(broker.address), max_in_flight=1)
                writer: StdoutWriter[int] = StdoutWriter(fd)

                def row(number: int, outcome: dict[str, Any]) -> str:
                    return json.dumps({"line": number, **outcome})

                self.sender = Sender(session.client, producer, source, writer, row, **more)
                self.sender.run(lambda: False)

        loop = threading.Thread(target=run, daemon=True)
        loop.start()
        wait_for(lambda: not loop.is_alive(), stand.turn)
        await_end(loop)
        stand.turns()
        os.close(fd)
        self.rows = list(map(json.loads, path.read_text().splitlines()))


def message(topic: str = "T", queue_id: int | None = None, body: str = "x", **properties: str) -> bytes:
    fields: dict[str, object] = {"topic": topic, "body": body, "properties": properties}
    return json.dumps(fields if queue_id is None else {**fields, "queue_id": queue_id}).encode()


BIG = "y" * 600_000


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param([message()] * 7, [("T", None, 3), ("T", None, 3), ("T", None, 1)], id="one topic"),
        pytest.param(
            [message(queue_id=queue_id) for queue_id in (2, 2, 5, 5, 5, 5, 2)],
            [("T", 2, 2), ("T", 5, 3), ("T", 5, 1), ("T", 2, 1)],
            id="queues",
        ),
        pytest.param(
            [message(), message(queue_id=0), message(queue_id=0), message(), message()],
            [("T", None, 1), ("T", 0, 2), ("T", None, 2)],
            id="with a queue and without",
        ),
        pytest.param(
            [message("T", 4), message("U", 4), message("U", 4)],
            [("T", 4, 1), ("U", 4, 2)],
            id="topics",
        ),
        pytest.param([message(body=BIG)] * 4, [("T", None, 2), ("T", None, 2)], id="large bodies"),
        pytest.param(
            [message(queue_id=6), message(queue_id=6, DELAY="1"), message(queue_id=6)],
            [("T", 6, 1), ("T", 6, 1), ("T", 6, 1)],
            id="those that may not be in a batch go alone, to their queue",
        ),
    ],
)
def test_lines_that_share_a_request(
    stand: Stand, broker: Broker, tmp_path: Path, lines: list[Line], expected: list[tuple[str, int | None, int]]
) -> None:
    """HA-C-9 "A batch MUST have messages of one topic alone", and it goes to one queue: that of each of its lines, if they name
    one. Here at most 3 messages are in a request.
    """
    done = Sends(stand, broker, tmp_path / "out", lines, batch=3)
    assert done.sender.is_ok
    assert [(topic, count) for topic, _, count, _ in broker.requests] == [(topic, count) for topic, _, count in expected]
    for (_, found, _, _), (_, wanted, _) in zip(broker.requests, expected, strict=True):
        assert wanted in (None, found)
    places = [(queue_id, at) for _, queue_id, count, _ in broker.requests for at in range(count)]
    assert [(row["line"], row["queue_id"], row["queue_offset"], row["msg_id"]) for row in done.rows] == [
        (number, queue_id, 70 + at, f"id{at}") for number, (queue_id, at) in enumerate(places, 1)
    ]


@pytest.mark.parametrize("way", [{}, {"batch": 4}, {"oneway": True}])
@pytest.mark.parametrize("quiet", [False, True])
def test_the_queue_of_a_line_and_the_order_of_the_outcomes(
    stand: Stand, broker: Broker, tmp_path: Path, way: dict[str, Any], *, quiet: bool
) -> None:
    """Whichever way it is sent: a line that is none, or that the broker refuses, has its outcome at its place."""
    lines = [message(queue_id=7), b"nonsense", message(REFUSED, 3), message(queue_id=8), message(queue_id=8)]
    done = Sends(stand, broker, tmp_path / "out", lines, quiet=quiet, **way)
    is_oneway = "oneway" in way
    assert {(topic, queue_id, oneway) for topic, queue_id, _, oneway in broker.requests} == {
        ("T", 7, is_oneway),
        ("T", 8, is_oneway),
        (REFUSED, 3, is_oneway),
    }
    well = "SENT" if is_oneway else "SEND_OK"
    statuses = [well, "MESSAGE_ILLEGAL", "SENT" if is_oneway else "MESSAGE_ILLEGAL", well, well]
    shown = [(number, status) for number, status in enumerate(statuses, 1) if not (quiet and status == "SEND_OK")]
    assert [(row["line"], row["status"]) for row in done.rows] == shown
    assert done.sender.counts == {status: statuses.count(status) for status in statuses}
    assert not done.sender.is_ok
