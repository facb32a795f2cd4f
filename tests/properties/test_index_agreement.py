"""Index files and query answers of the implementation equal those of the model, byte for byte. HA-ST-39 to HA-ST-44."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_ha.impl.store.derived.delay import DelayLevels
from rocketmq_ha.impl.store.derived.dispatch_request import DispatchRequest, RequestMaker
from rocketmq_ha.impl.store.derived.index_file import Geometry
from rocketmq_ha.impl.store.derived.index_service import IndexService
from rocketmq_ha.impl.store.derived.java_hash import index_key_hash, java_hash, java_text
from rocketmq_ha.impl.wire.message import Message, encode
from rocketmq_ha.reference import dispatch_request as model_request
from rocketmq_ha.reference import index_file as model_file
from rocketmq_ha.reference import index_service as model
from rocketmq_ha.reference import java_string
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec.profile import HARDENED

NOW_MS = 1_700_000_000_000
MADE_AT = "20240131235959123"
KEYS = ["Aa", "BB", "k", "é", "订", "polygenelubricants", "a" * 40]

properties = st.builds(
    lambda keys, uniq_key: "\x02".join(
        f"{name}\x01{value}" for name, value in (("KEYS", " ".join(keys)), ("UNIQ_KEY", uniq_key)) if value
    ),
    st.lists(st.sampled_from([*KEYS, ""]), max_size=4),
    st.sampled_from(["", "u", "Aa", "0A" * 16]),
)
messages = st.builds(
    Message,
    topic=st.sampled_from(["t", "тема", "%RETRY%g"]),
    body=st.just(b""),
    sys_flag=st.sampled_from([0, 0, 0, 4, 8, 12]),
    store_timestamp=st.sampled_from([0, *range(NOW_MS, NOW_MS + 20_000, 700)]),
    properties_string=properties,
)


class World:
    """A log of messages, indexed by the model and by the implementation."""

    def __init__(self, store: Path, geometry: Geometry) -> None:
        self.store, self.geometry = store, geometry
        self.ours = IndexService(store, geometry, writable=True)
        self.theirs: model.Index = ()
        self.log = Log(1 << 20, 0)
        self.offsets: list[int] = []
        self._make = RequestMaker(DelayLevels.parse())

    def put(self, batch: Sequence[Message]) -> None:
        for message in batch:
            self.offsets.append(len(self.log.data))
            self.log = replace(self.log, data=self.log.data + encode(message, None, len(self.log.data)))

    def dispatch(self, start: int = 0) -> None:
        """Dispatch all messages from an offset on, to both sides; each skips the keys that it has."""
        requests: list[DispatchRequest] = []
        for offset in self.offsets:
            if offset < start:
                continue
            found = model_request.check_message_and_return_size(self.log, offset)
            assert isinstance(found, model_request.DispatchRequest)
            self.theirs = model.build_index(
                self.theirs, found, MADE_AT, HARDENED, self.geometry.hash_slot_num, self.geometry.index_num
            )
            record, size = model_request.record_at(self.log, offset) or (None, 0)
            assert record is not None
            requests.append(
                self._make(
                    *(record.topic, record.queue_id, offset, size, record.properties, record.store_timestamp),
                    *(record.queue_offset, record.sys_flag, record.prepared_transaction_offset),
                )
            )
        self.ours.put(requests)

    def stored_ms(self, offset: int) -> int:
        return model_request.pickup_store_timestamp(self.log, offset)

    def assert_equal(self) -> None:
        assert [file.path.read_bytes() for file in self.ours.files] == [file.data for file in self.theirs]
        assert self.ours.end_phy_offset == model.end_phy_offset(self.theirs)
        names = [path.name for path in sorted(self.ours.directory.iterdir())] if self.theirs else []
        assert [file.path.name for file in self.ours.files] == names

    def assert_answers_equal(self, topic: str, key: str, max_num: int, begin: int, end: int) -> None:
        expected = sorted(model.query_offset(self.theirs, topic, key, max_num, begin, end))
        assert self.ours.query_offset(topic, key, max_num, begin, end) == expected


@given(st.integers(1, 9), st.integers(2, 9), st.data())
@settings(max_examples=150, deadline=None)
def test_the_same_files_and_answers(
    tmp_path_factory: pytest.TempPathFactory, slots: int, index_num: int, data: st.DataObject
) -> None:
    world = World(tmp_path_factory.mktemp("index"), Geometry(slots, index_num))
    for _ in range(data.draw(st.integers(1, 4))):
        before = len(world.log.data)
        world.put(data.draw(st.lists(messages, max_size=8)))
        match data.draw(st.sampled_from(("on", "again", "cut", "delete", "reopen"))):
            case "on":
                world.dispatch(before)
            case "again":
                world.dispatch()
            case "cut":
                world.dispatch(before)
                end = data.draw(st.sampled_from([*world.offsets, len(world.log.data)]))
                assert world.ours.truncate(end, world.stored_ms) == end
                world.theirs, in_order = model.cut(world.theirs, world.log, end, 0)
                assert in_order == end
                world.assert_equal()
                world.log = replace(world.log, data=world.log.data[:end])
                world.offsets = [offset for offset in world.offsets if offset < end]
            case "delete":
                world.dispatch(before)
                gone = data.draw(st.sampled_from([0, *world.offsets]))
                world.ours.delete_expired(gone)
                world.theirs = model.delete_expired_file(world.theirs, gone)
            case "reopen":
                world.dispatch(before)
                world.ours.close()
                world.ours = IndexService(world.store, world.geometry, writable=True)
        world.assert_equal()
    for key in KEYS:
        span = data.draw(st.tuples(st.integers(-1000, 21_000), st.integers(-1000, 21_000)))
        begin, end = (NOW_MS + at for at in sorted(span))
        topic = data.draw(st.sampled_from(["t", "тема"]))
        world.assert_answers_equal(topic, key, data.draw(st.integers(1, 70)), begin, end)
        world.assert_answers_equal(topic, key, 64, 0, 1 << 62)
    world.ours.close()


@given(st.binary(max_size=30) | st.text(max_size=30).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_text_and_hash_are_those_of_the_model(data: bytes) -> None:
    text = java_text(data)
    assert text == java_string.text(data)
    assert java_hash(text) == java_string.hash_code(text)
    assert index_key_hash(text) == model_file.index_key_hash(text)
