"""The loop of `rocketmq-ha consume` at its end, with a broker that the test turns. HA-C-14."""

import logging
import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from kit.remoting import Stand
from kit.scripted_client import route_body
from kit.waiting import PATIENCE_S, await_end, wait_for
from rocketmq_ha.impl.app import run_consume as consume_loop
from rocketmq_ha.impl.app.client_session import NameServers
from rocketmq_ha.impl.app.run_consume import ConsumeOptions, run_consume
from rocketmq_ha.impl.client.decisions import ConsumeFromWhere
from rocketmq_ha.impl.client.pull_consumer import ConsumerSettings
from rocketmq_ha.impl.remoting.channel import Channel
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode
from rocketmq_ha.impl.remoting.command import RemotingCommand, response_to
from rocketmq_ha.impl.wire.message import Message, encode

Answer = Callable[[RemotingCommand], RemotingCommand]


class Broker:
    """A name server and a broker in one, with one message in the one queue of a topic. commits: the requests 15."""

    def __init__(self, stand: Stand, on_commit: Answer) -> None:
        self.commits: list[RemotingCommand] = []
        host, port = stand.server.addresses[0]
        self.address = f"{host}:{port}"

        def commit(request: RemotingCommand) -> RemotingCommand:
            self.commits.append(request)
            return on_commit(request)

        answers: dict[int, Answer] = {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: lambda asked: response_to(asked, body=route_body(("b", 1, {0: self.address}))),
            RequestCode.QUERY_CONSUMER_OFFSET: lambda asked: response_to(asked, ext_fields={"offset": "0"}),
            RequestCode.PULL_MESSAGE: lambda asked: response_to(
                asked,
                ext_fields={"nextBeginOffset": "1", "minOffset": "0", "maxOffset": "1", "suggestWhichBrokerId": "0"},
                body=encode(Message("T", b"x"), 0, 0),
            ),
            RequestCode.UPDATE_CONSUMER_OFFSET: commit,
        }
        for code, answer in answers.items():

            def handler(_channel: Channel, request: RemotingCommand, _now_ms: int, answer: Answer = answer) -> RemotingCommand:
                return answer(request)

            stand.server.handlers[code] = handler


def consume_one(stand: Stand, broker: Broker, path: Path) -> None:
    """Consume the message, to a file, up to the end of the loop."""
    settings = ConsumerSettings("g", "T", start=ConsumeFromWhere.FIRST)
    options = ConsumeOptions(NameServers((broker.address,)), settings, "text", 1, False)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        loop = threading.Thread(target=run_consume, args=(options, lambda: False, fd), daemon=True)
        loop.start()
        wait_for(lambda: not loop.is_alive(), stand.turn)
        await_end(loop)
    finally:
        os.close(fd)


def test_the_end_waits_for_the_answer_to_its_commit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HA-C-14 "SHOULD send what it has consumed (15)": a refusal is told, so its answer has been awaited."""
    monkeypatch.setattr(consume_loop, "_LAST_MS", int(PATIENCE_S * 1000))  # however slow the machine is
    with ExitStack() as resources, caplog.at_level(logging.WARNING):
        stand = Stand(resources)
        broker = Broker(stand, lambda asked: response_to(asked, ResponseCode.SYSTEM_ERROR, "no room"))
        consume_one(stand, broker, tmp_path / "out")
    assert len((tmp_path / "out").read_bytes().splitlines()) == 1
    [commit] = broker.commits
    assert not commit.is_oneway
    assert commit.ext_fields == {"consumerGroup": "g", "topic": "T", "queueId": "0", "commitOffset": "1"}
    assert "b T queue 0: offset 1 not committed: answer 1 (SYSTEM_ERROR): no room" in caplog.messages


def test_a_commit_that_is_taken_is_worth_no_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume_loop, "_LAST_MS", int(PATIENCE_S * 1000))  # however slow the machine is
    with ExitStack() as resources, caplog.at_level(logging.WARNING):
        stand = Stand(resources)
        broker = Broker(stand, response_to)
        consume_one(stand, broker, tmp_path / "out")
    assert len(broker.commits) == 1
    assert [each for each in caplog.messages if "committed" in each] == []
