"""Bodies that are larger than a record may be, since they are compressed: shown whole up to 64 MiB, and as stored beyond."""

import json
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from kit.command_line import invoke
from kit.damaged import OPTIONS
from rocketmq_ha.impl.app.message_json import message_line
from rocketmq_ha.impl.errors import MessageMalformed
from rocketmq_ha.impl.store.message_store import MessageStore
from rocketmq_ha.impl.wire.message import Message, decompress_body

MIB = 1 << 20
SIZE = 5 * MIB  # more than the 4 MiB of a record


def compressed(size: int) -> Message:
    packer = zlib.compressobj(1)
    data = b"".join(packer.compress(b"x" * MIB) for _ in range(size // MIB)) + packer.compress(b"x" * (size % MIB))
    return Message("t", data + packer.flush(), sys_flag=1, properties_string="KEYS\x01k")


def test_each_command_shows_a_body_of_5_mib_whole(tmp_path: Path) -> None:
    message = compressed(SIZE)
    with MessageStore.open(tmp_path / "s", replace(OPTIONS, file_size=MIB)) as store:
        store.put(message)
    for words in (("inspect", tmp_path / "s", "--json"), ("query", tmp_path / "s", "--topic", "t", "--key", "k", "--json")):
        found = json.loads(invoke(*words).stdout)
        assert found["body"] == "x" * SIZE
    assert json.loads(message_line(0, 1, message, "text"))["body"] == "x" * SIZE  # as tail prints it


@pytest.mark.parametrize(("size", "is_shown"), [(64 * MIB, True), (64 * MIB + 1, False)])
def test_a_body_of_more_than_64_mib_is_left_compressed(size: int, is_shown: bool) -> None:
    message = compressed(size)
    if is_shown:
        assert len(decompress_body(message)) == size
        return
    with pytest.raises(MessageMalformed):
        decompress_body(message)
