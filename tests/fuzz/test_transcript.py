"""A transcript is read as it was saved, and a line that is none is named."""

import json
from pathlib import Path

import pytest

from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.transcript import Piece, Restarted, load, save

TRANSCRIPT = [
    Piece(0, "slave", bytes(8), 8),
    Piece(0, "master", bytes(range(256)), 17),
    Restarted(),
    Piece(1, "slave", b"\xff", 1),
    Piece(1, "master", b"", 0),
]


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    save(TRANSCRIPT, tmp_path / "one")
    assert load(tmp_path / "one") == TRANSCRIPT
    assert len((tmp_path / "one").read_text().splitlines()) == 5
    save([], tmp_path / "none")
    assert load(tmp_path / "none") == []


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        "[]",
        "no JSON",
        json.dumps({"link": 0, "source": "slave", "data": "AA=="}),
        json.dumps({"link": 0, "source": "slave", "data": "A", "passed": 1}),
        json.dumps({"link": 0, "source": "slave", "data": "AA!A=", "passed": 1}),
        json.dumps({"link": 0, "source": "slave", "data": "AA==AA==", "passed": 1}),
        json.dumps({"link": 0, "source": "slave", "data": "AA==", "passed": 1, "more": 1}),
        json.dumps({"link": -4, "source": "slave", "data": "AA==", "passed": 1}),
        json.dumps({"link": 0, "source": "nobody", "data": "AA==", "passed": 1}),
        json.dumps({"link": 0, "source": "slave", "data": "AA==", "passed": 2}),
        json.dumps({"link": 0, "source": "slave", "data": "AA==", "passed": -1}),
    ],
    ids=[
        "empty",
        "a list",
        "text",
        "a field is missing",
        "no base64",
        "garbage in base64",
        "base64 behind its end",
        "a field too many",
        "a negative link",
        "no end of a link",
        "more passed than came",
        "less than none passed",
    ],
)
def test_a_line_that_is_no_piece_is_named(tmp_path: Path, line: str) -> None:
    save(TRANSCRIPT[:2], tmp_path / "file")
    with (tmp_path / "file").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(FuzzError) as caught:
        load(tmp_path / "file")
    told = str(caught.value)
    assert told.startswith(f"{tmp_path / 'file'}:3: expected a piece of a transcript, found {line[:80]!r} (")
