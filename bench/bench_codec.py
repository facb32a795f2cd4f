"""Cost of encoding and decoding a message of 1 KiB. The floor is the CRC of its body."""

import zlib

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from rocketmq_ha.impl.wire.message import Message, decode, encode

MESSAGE = Message(topic="bench", body=bytes(range(256)) * 4, properties_string="KEYS\x01k")
RECORD = encode(MESSAGE)


@pytest.mark.benchmark(group="codec")
def test_crc_of_the_body(benchmark: BenchmarkFixture) -> None:
    benchmark(zlib.crc32, MESSAGE.body)


@pytest.mark.benchmark(group="codec")
def test_encode(benchmark: BenchmarkFixture) -> None:
    assert benchmark(encode, MESSAGE) == RECORD


@pytest.mark.benchmark(group="codec")
def test_decode(benchmark: BenchmarkFixture) -> None:
    assert benchmark(decode, RECORD) == MESSAGE
