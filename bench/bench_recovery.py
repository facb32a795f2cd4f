"""Speed at which recovery walks a log and checks every CRC. The floor is the CRC of the same bytes in one call."""

import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.mapped_file import MappedFile
from rocketmq_ha.impl.store.log.recovery import recover
from rocketmq_ha.impl.wire.message import Message

SIZE = 128 << 20

Pairs = Callable[..., float]


@pytest.mark.benchmark(group="recovery")
@pytest.mark.parametrize("size", [1024, 128])
def test_recover(pairs: Pairs, tmp_path: Path, size: int) -> None:
    body = bytes(range(256)) * (size // 256) or bytes(range(size))
    with CommitLog.open(tmp_path / "store", file_size=SIZE) as log:
        count = 0
        while log.max_offset < SIZE - 2 * size - 200:
            log.append(Message("bench", body, queue_id=count % 4, properties_string="TAGS\x01a"))
            count += 1
        end = log.max_offset
    file = MappedFile(tmp_path / "store" / "commitlog" / f"{0:020d}", 0, SIZE, writable=False)
    view = file.view(0, end)

    def walk() -> None:
        assert recover([file], strict=True).messages == count

    pairs(walk, lambda: zlib.crc32(view), items=end)
    file.close()
