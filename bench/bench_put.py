"""Append 10,000 messages of 1 KiB; the floor is a copy of as many bytes into a mapped file."""

import mmap
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from rocketmq_ha.impl.store.commit_log import CommitLog
from rocketmq_ha.impl.wire.message import Message, encode

COUNT = 10_000
MESSAGE = Message(topic="bench", body=bytes(range(256)) * 4, properties_string="KEYS\x01k")
FILE_SIZE = 16 * 1024 * 1024


@pytest.fixture
def paths(tmp_path: Path) -> Iterator[Path]:
    """A fresh name for each round."""
    return (tmp_path / str(index) for index in range(1_000_000))


@pytest.mark.benchmark(group="put")
def test_copy_into_a_mapping(benchmark: BenchmarkFixture, paths: Iterator[Path]) -> None:
    record = encode(MESSAGE)

    def copy() -> None:
        with next(paths).open("w+b") as file:
            file.truncate(FILE_SIZE)
            with mmap.mmap(file.fileno(), FILE_SIZE) as mapping:
                for index in range(COUNT):
                    mapping[index * len(record) : (index + 1) * len(record)] = record

    benchmark.pedantic(copy, rounds=7)


@pytest.mark.benchmark(group="put")
def test_append(benchmark: BenchmarkFixture, paths: Iterator[Path]) -> None:
    def append() -> None:
        with CommitLog.open(next(paths), file_size=FILE_SIZE) as log:
            for _ in range(COUNT):
                log.append(MESSAGE)

    benchmark.pedantic(append, rounds=7)
