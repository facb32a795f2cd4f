"""Delays, retries, dead letters and transactions of a whole broker over loopback."""

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kit.brokers import LiveBroker
from kit.remoting import Client
from kit.waiting import PATIENCE_S
from rocketmq_ha.impl.broker import broker as broker_module
from rocketmq_ha.impl.broker.broker import BrokerSettings
from rocketmq_ha.impl.broker.transaction_check import CheckSettings
from rocketmq_ha.impl.clock import wall_clock_ms
from rocketmq_ha.impl.remoting.codes import RequestCode
from rocketmq_ha.impl.remoting.command import RemotingCommand, request
from rocketmq_ha.impl.wire.message import Message, decode
from rocketmq_ha.spec.role import BrokerRole

Start = Callable[..., LiveBroker]
HOSTS = ("127.0.0.1", 10911), ("127.0.0.1", 10912)
PREPARED = "TRAN_MSG\x01true\x02PGROUP\x01group\x02UNIQ_KEY\x01U1"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[LiveBroker] = []

    def begin(**changed: object) -> LiveBroker:
        settings = BrokerSettings(BrokerRole.ASYNC_MASTER, *HOSTS, **changed)  # type: ignore[arg-type]
        started.append(LiveBroker(tmp_path / "store", settings))
        return started[-1]

    yield begin
    for broker in started:
        broker.close()


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Set the clock by which the broker's parts judge what is due two hours and a minute ahead."""

    def step() -> None:
        monkeypatch.setattr(broker_module, "wall_clock_ms", lambda: wall_clock_ms() + 7_260_000)

    return step


def await_message(broker: LiveBroker, topic: str, queue_id: int, queue_offset: int = 0) -> Message:
    """Turn until a queue has a message, and pull it."""
    broker.turn_until(lambda: broker.controller.figures.max_offset_in_queue(topic, queue_id) > queue_offset)
    found = broker.pull(queue_offset, topic=topic, queueId=str(queue_id))
    assert found.code == 0
    return decode(found.body)


def test_a_delayed_message_is_pulled_when_it_is_due(start: Start, later: Callable[[], None]) -> None:
    """HA-SE-50 "MUST be put into `SCHEDULE_TOPIC_XXXX` instead"; HA-SE-56 "A delivered record MUST have the topic"."""
    broker = start()
    sent = broker.send(b"later", properties="DELAY\x0199\x02KEYS\x01k")
    assert (sent.code, sent.ext_fields["queueId"]) == (0, "1")
    waiting = await_message(broker, "SCHEDULE_TOPIC_XXXX", 17)
    assert broker.pull().code == 19
    later()
    found = await_message(broker, "orders", 1)
    assert (found.body, dict(found.properties)) == (b"later", dict(waiting.properties))


def test_a_message_is_retried_and_becomes_a_dead_letter(start: Start, later: Callable[[], None]) -> None:
    """HA-SE-67 "MUST be the message at the offset"; HA-SE-68 "MUST go to queue 0 of `%DLQ%` + group instead"."""
    broker = start()
    broker.send(b"poison")
    found = await_message(broker, "orders", 1)
    later()
    for times, topic in ((1, "%RETRY%group"), (2, "%DLQ%group")):
        header = {"offset": str(found.physical_offset), "group": "group", "delayLevel": "0", "maxReconsumeTimes": "1"}
        assert broker.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header).code == 0
        found = await_message(broker, topic, 0)
        assert (found.body, found.reconsume_times, found.properties["RETRY_TOPIC"]) == (b"poison", times, "orders")


def end(broker: LiveBroker, half: Message, kind: int) -> RemotingCommand:
    header = {
        "producerGroup": "group",
        "tranStateTableOffset": str(half.queue_offset),
        "commitLogOffset": str(half.physical_offset),
        "commitOrRollback": str(kind),
        "msgId": "U1",
    }
    return broker.ask(RequestCode.END_TRANSACTION, header)


def test_a_prepared_message_is_pulled_after_its_commit_and_not_before(start: Start) -> None:
    """HA-SE-76 "MUST be put into queue 0 of `RMQ_SYS_TRANS_HALF_TOPIC`"; HA-SE-82 "A commit MUST put the message"."""
    broker = start()
    for body in (b"back", b"forth"):
        assert broker.send(body, properties=PREPARED).code == 0
    assert broker.store.wait_for_dispatch()
    halves = list(broker.store.get("RMQ_SYS_TRANS_HALF_TOPIC", 0, 0).messages())
    assert broker.pull().code == 19
    assert [end(broker, half, kind).code for half, kind in zip(halves, (12, 8), strict=True)] == [0, 0]
    found = await_message(broker, "orders", 1)
    assert (found.body, found.prepared_transaction_offset) == (b"forth", halves[1].physical_offset)
    assert end(broker, found, 8).code == 1


def test_a_producer_is_asked_and_its_answer_ends_the_message(start: Start) -> None:
    """HA-SE-92 "The request to the producer MUST be a oneway 39": over the connection of its heartbeat."""
    broker = start(checks=CheckSettings(transaction_timeout=0, transaction_check_interval=1))
    host, _, port = broker.address.partition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as sock:
        producer = Client(sock, broker.turn)
        heartbeat = {"clientID": "c", "producerDataSet": [{"groupName": "group"}], "consumerDataSet": []}
        assert producer.ask(request(RequestCode.HEART_BEAT, body=json.dumps(heartbeat).encode())).code == 0
        assert broker.send(b"forgotten", properties=PREPARED, bornTimestamp=str(wall_clock_ms())).code == 0
        [question] = producer.await_answers(1)
        assert (question.code, question.is_oneway, question.ext_fields["msgId"]) == (39, True, "U1")
        asked = decode(question.body)
        assert (asked.topic, asked.queue_id, asked.body) == ("orders", 1, b"forgotten")
        header = {name: question.ext_fields[name] for name in ("tranStateTableOffset", "commitLogOffset", "msgId")}
        header |= {"producerGroup": "group", "commitOrRollback": "8", "fromTransactionCheck": "true"}
        producer.send(request(RequestCode.END_TRANSACTION, header, oneway=True))
        assert await_message(broker, "orders", 1).body == b"forgotten"


def test_a_broker_that_rejects_transactions_has_no_part_of_them(start: Start) -> None:
    """HA-SE-14 "MUST answer a message whose property TRAN_MSG is true with 16 (NO_PERMISSION)": and 37 is not known."""
    broker = start(reject_transaction_message=True)
    assert broker.send(b"", properties=PREPARED).code == 16
    assert broker.ask(RequestCode.END_TRANSACTION, {}).code == 3


def test_progress_and_offsets_outlive_the_process(start: Start, later: Callable[[], None]) -> None:
    """HA-SE-59 "and at the stop"; HA-SE-96 "as the consumer offsets of the group `CID_RMQ_SYS_TRANS`"."""
    broker = start(checks=CheckSettings(transaction_timeout=0, transaction_check_interval=1))
    broker.send(b"once", properties="DELAY\x011")
    broker.send(b"half", properties=PREPARED, bornTimestamp=str(wall_clock_ms()))
    later()
    await_message(broker, "orders", 1)
    broker.turn_until(lambda: broker.controller.checks._listener.checked)
    broker.turn_until(lambda: broker.controller.checks.rounds)
    broker.close()
    again = start()
    assert dict(again.controller.delayed.offset_table) == {1: 1}
    assert again.controller.offsets.query_offset("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC", 0) > 0
    again.turn()
    assert again.controller.figures.max_offset_in_queue("orders", 1) == 1
