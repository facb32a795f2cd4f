"""The golden store of the demo, and what is said where it is missing."""

import re
from pathlib import Path

import pytest

import rocketmq_ha.spec
from rocketmq_ha.fuzz import golden
from rocketmq_ha.fuzz.errors import FuzzError


def test_the_store_is_unpacked_with_its_directory_as_root(tmp_path: Path) -> None:
    golden.unpack(tmp_path / "a" / "store")
    assert {"commitlog", "consumequeue", "index"} <= {path.name for path in (tmp_path / "a" / "store").iterdir()}
    assert all(file.name.isdigit() for file in (tmp_path / "a" / "store" / "commitlog").iterdir())


def test_an_installation_without_the_store_says_what_it_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(golden, "ARCHIVE", Path("vectors") / "none.tar.xz")
    wanted = Path(rocketmq_ha.spec.__file__).parent / "vectors" / "none.tar.xz"
    told = f"{wanted}: not found, expected the golden store, which the distribution holds"
    with pytest.raises(FuzzError, match=re.escape(told)):
        golden.unpack(tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_a_store_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    with pytest.raises(FileExistsError):
        golden.unpack(tmp_path)
