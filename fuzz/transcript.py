"""The transcript of a link: all bytes between one slave and its master, in order, as seen by the proxy between them."""

import base64
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from rocketmq_ha.fuzz.errors import FuzzError


@dataclass(frozen=True, slots=True)
class Piece:
    """The bytes of one read of the proxy, sent by one end."""

    link: int  # number of the connection, from 0
    source: Literal["master", "slave"]
    data: bytes
    passed: int  # bytes passed on to the other end: fewer than all only at a cut


@dataclass(frozen=True, slots=True)
class Restarted:
    """The slave's process ended; the next connection comes from another process with the same files."""


Transcript = list[Piece | Restarted]


def save(transcript: Iterable[Piece | Restarted], path: Path) -> None:
    """Write one JSON object on each line, with bytes in base64."""
    with path.open("w", encoding="utf-8") as file:
        for entry in transcript:
            row = {"restarted": "slave"} if isinstance(entry, Restarted) else asdict(entry)
            if isinstance(entry, Piece):
                row["data"] = base64.b64encode(entry.data).decode()
            file.write(json.dumps(row) + "\n")


def _checked(piece: Piece) -> Piece:
    """Raises: ValueError."""
    if type(piece.link) is not int or piece.link < 0:
        raise ValueError("link: expected a number from 0 on")
    if piece.source not in ("master", "slave"):
        raise ValueError("source: expected master or slave")
    if type(piece.passed) is not int or not 0 <= piece.passed <= len(piece.data):
        raise ValueError(f"passed: expected 0 to {len(piece.data)}, the size of its data")
    return piece


def load(path: Path) -> Transcript:
    """Read a transcript. Raises: FuzzError for a line that `save` did not write."""
    transcript: Transcript = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
            if "restarted" in row:
                transcript.append(Restarted())
            else:
                row["data"] = base64.b64decode(row["data"], validate=True)
                transcript.append(_checked(Piece(**row)))
        except (ValueError, TypeError, KeyError) as error:
            raise FuzzError(f"{path}:{number}: expected a piece of a transcript, found {line[:80]!r} ({error})") from None
    return transcript
