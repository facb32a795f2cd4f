"""kill -9 of a broker and of a name server under load: nothing acknowledged is missing. HA-ST-5, HA-BT-33, HA-R-53.

`PYTHONPATH=tests python tests/crash/broker_kills.py --rounds 100` is the long run.
"""

import json
import random
from pathlib import Path

import broker_kills
import pytest
from broker_kills import GROUP, TOPIC, Kills, Load, Place, Values
from judge import Broken

from kit.waiting import LONG_S


def test_a_broker_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    kills = broker_kills.run(3, 1, tmp_path, long=False)
    assert kills.rounds == {"load": 1, "open": 1, "close": 1}
    assert kills.acknowledged > 100


def test_a_name_server_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    kills = broker_kills.run_namesrv(2, 1, tmp_path)
    assert kills.rounds == {"name server": 2}
    assert kills.acknowledged > 100
    assert kills.values >= 2


def test_a_message_and_an_offset_that_a_broker_lacks_are_noticed(tmp_path: Path) -> None:
    place, store = Place(tmp_path), tmp_path / "store"
    load = Load(place.broker, "x")
    broker_kills.kill_broker(place, store, load, "load", random.Random(1), Kills())
    (store / "config").mkdir(exist_ok=True)
    table = {"offsetTable": {f"{TOPIC}@{GROUP}": {"0": 7, "1": 1, "2": 2, "3": 3}}}
    (store / "config" / "consumerOffset.json").write_text(json.dumps(table))
    written = broker_kills.written_offsets(store)
    assert written == {0: 7, 1: 1, 2: 2, 3: 3}
    broker = place.start_broker(store)
    try:
        broker.line("listening", LONG_S)
        broker_kills.check_messages(load)
        number, (queue_id, queue_offset, body) = next(iter(load.acknowledged.items()))
        for wrong in (
            (queue_id, queue_offset, body + b"."),
            (queue_id, queue_offset + 1, body),
            (queue_id ^ 1, queue_offset, body),
        ):
            load.acknowledged[number] = wrong
            with pytest.raises(Broken, match=f"message {number}: acknowledged"):
                broker_kills.check_messages(load)
        load.acknowledged[number] = (queue_id, queue_offset, body)
        load.acknowledged[1 << 40] = (0, 1 << 40, b"")
        with pytest.raises(Broken, match="the broker has None"):
            broker_kills.check_messages(load)
        # The rounds that live until a broker writes this file are in the long run alone: here the test has written it.
        broker_kills.check_offsets(load, written, 0)
        with pytest.raises(Broken, match="queue 3: the group is at 3, the file had 4"):
            broker_kills.check_offsets(load, written | {3: 4}, 0)
    finally:
        broker.kill()
        load.client.close()


def test_a_value_that_a_name_server_lacks_is_noticed(tmp_path: Path) -> None:
    place = Place(tmp_path)
    load = Load(place.broker, "x")
    values = Values(load, place, random.Random(1))
    namesrv = place.start_namesrv()
    try:
        namesrv.line("listening", LONG_S)
        values.acknowledged["key-1"] = "5"
        with pytest.raises(Broken, match="key-1: acknowledged 5, the name server has None"):
            values.check()
    finally:
        namesrv.kill()
        load.client.close()
