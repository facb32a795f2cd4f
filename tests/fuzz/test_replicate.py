"""The first half of the demo, for real: two processes, a cutting proxy, a kill -9; what it says is what the stores have."""

from pathlib import Path

import pytest
from rich.console import Console

from rocketmq_ha.fuzz import demo
from rocketmq_ha.fuzz.demo import replicate
from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.impl.store.log.reader import LogReader

MESSAGES = 1_000


def test_a_replication_under_faults_says_what_the_stores_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = replicate(tmp_path, MESSAGES, Console(width=1_000))
    assert found.problems == ()
    with LogReader(tmp_path / "master") as master, LogReader(tmp_path / "slave") as slave:
        sizes = [size for _, size, _ in master.records()]
        copied = [size for _, size, _ in slave.records()]
        assert copied == sizes[len(sizes) - len(copied) :]
        assert (found.messages, found.nbytes) == (len(copied), slave.max_offset - slave.min_offset)
        assert master.max_offset == slave.max_offset
        start = slave.min_offset
    assert len(sizes) > len(copied) >= MESSAGES  # the slave begins at the last file of the golden store
    assert (found.cuts_in_header, found.cuts_in_body) == (4, 4)
    assert 0 < found.outstanding < found.nbytes
    assert found.seconds > 0
    assert found.statuses.split()[0] == str(MESSAGES)
    assert found.statuses.split()[3:] == [f"PUT_OK={MESSAGES}"]
    assert [line.strip() for line in capsys.readouterr().out.splitlines()] == [
        f"4 cuts in a header, 4 in a body; killed with {found.outstanding} bytes outstanding",
        f"put={found.statuses}",
        f"master {len(sizes)} messages, slave {len(copied)} from offset {start}, {found.nbytes} bytes; "
        "every CRC is right, the logs are byte-identical",
    ]


def test_a_replication_that_takes_too_long_says_how_far_it_has_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "CATCH_UP_SECONDS", 0.0)
    with pytest.raises(FuzzError, match=rf"^{tmp_path}/slave: at -?\d+ after 0 s$"):
        replicate(tmp_path, MESSAGES, Console(width=1_000))
