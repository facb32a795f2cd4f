"""The messages of the demo: what is sent, and what consumers make of it."""

import base64
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

NUMBER: Final = "number"  # the property by which a message is known again
LARGEST: Final = 1000  # bytes of a body
KINDS: Final = ("plain", "with tags", "with keys", "delayed by 1 s")


class Row(NamedTuple):
    """A message, as its producer or a consumer describes it. Without tags or keys they are "null", as in Java."""

    number: str
    body: bytes
    tags: str
    keys: str


def made(count: int, seed: int) -> Iterator[tuple[str, Row]]:
    """Yield messages, each with its kind: a delayed one in 32, and the other kinds in turn."""
    drawn = random.Random(seed)
    for number in range(count):
        kind = KINDS[3] if number % 32 == 31 else KINDS[number % 3]
        tags, keys = f"tag-{number % 5}" if kind == KINDS[1] else "null", f"key-{number}" if kind == KINDS[2] else "null"
        yield kind, Row(str(number), drawn.randbytes(drawn.randint(1, LARGEST)), tags, keys)


def line_of(topic: str, kind: str, row: Row) -> str:
    """A message as `rocketmq-ha send --lines json` reads it."""
    properties = {NUMBER: row.number} | ({"DELAY": "1"} if kind == KINDS[3] else {})
    fields = {"topic": topic, "body_base64": base64.b64encode(row.body).decode(), "properties": properties}
    fields |= {name: value for name, value in (("tags", row.tags), ("keys", row.keys)) if value != "null"}
    return json.dumps(fields) + "\n"


def read_lines(file: Path) -> list[Row]:
    """The messages that `rocketmq-ha consume --body base64` has printed; a line that is not whole yet is left."""
    with file.open("rb") as lines:
        return [_row(line) for line in lines if line.endswith(b"\n")]


def _row(line: bytes) -> Row:
    found = json.loads(line)
    number = found["properties"].get(NUMBER, "")
    return Row(number, base64.b64decode(found["body_base64"]), found["tags"] or "null", " ".join(found["keys"]) or "null")


def differences(sent: Iterable[Row], consumed: Iterable[Row]) -> dict[str, int]:
    """How often a message was lost, came twice, came changed, or was never sent; kinds that did not occur are left out."""
    expected, found = {row.number: row for row in sent}, Counter[str]()
    times = Counter[str]()
    for row in consumed:
        times[row.number] += 1
        if row.number not in expected:
            found["never sent"] += 1
        elif times[row.number] > 1:
            found["twice"] += 1
        elif row != expected[row.number]:
            found["changed"] += 1
    lost = len(expected.keys() - times.keys())
    return dict(found) | ({"lost": lost} if lost else {})
