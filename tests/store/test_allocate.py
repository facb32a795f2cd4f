"""The thread that prepares files touches each stretch of pages once."""

import mmap
from pathlib import Path

import pytest

from rocketmq_ha.impl.store.log import allocate
from rocketmq_ha.impl.store.log.allocate import AllocateService
from rocketmq_ha.impl.store.log.mapped_file import MappedFile

PAGE = mmap.PAGESIZE


@pytest.mark.parametrize("size", [8, 900, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE, 3 * PAGE + 100])
@pytest.mark.parametrize("wrote", [0, 1, 8])
def test_a_file_of_any_size_is_touched_once_to_its_end(
    size: int, wrote: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files whose size is no multiple of a page kept the thread busy for as long as they were the last ones."""
    touched: list[tuple[int, int]] = []

    def populate(_: object, start: int, length: int) -> bool:
        assert len(touched) < 2, "touched again and again"
        touched.append((start, length))
        return True

    monkeypatch.setattr(allocate, "populate", populate)
    (tmp_path / "commitlog").mkdir()
    file = MappedFile.create(tmp_path / "commitlog", 0, size)
    file.wrote_position = wrote
    service = AllocateService()
    service.watch(file)
    for _ in range(3):
        service._touch_ahead(file)
    assert touched == ([(0, size)] if wrote < size else [])
    file.close()
