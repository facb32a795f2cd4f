"""Draw docs/evidence.svg and docs/journey.svg.

    python docs/pictures.py --check   exit status 1 if a picture differs from its file
    python docs/pictures.py --write   write both

The pictures have a background of their own, so they are legible on light and dark pages. Readers have different fonts: each
text is asserted to fit its box in DejaVu Sans, one of the widest that are common.
"""

import sys
from html import escape
from pathlib import Path
from typing import NamedTuple

from rocketmq_ha.impl.ha.group_transfer import GroupTransfer
from rocketmq_ha.impl.ha.master import MasterConnection
from rocketmq_ha.impl.ha.slave import SlaveClient
from rocketmq_ha.impl.net.link import MasterLink
from rocketmq_ha.impl.store.log.commit_log import CommitLog

HERE = Path(__file__).parent
CHARACTER_WIDTH = {"text": 0.62, "code": 0.61, "bold": 0.69}  # of the font size, an upper estimate of the mean in DejaVu

STYLE = """\
<style>
  text { font-family: sans-serif; fill: #1b2733; }
  .bold { font-weight: bold; }
  .code { font-family: monospace; }
  .quiet { fill: #52616f; }
  .page { fill: #fbfcfd; stroke: #c9d2da; }
  .box { fill: #e6eef5; stroke: #5b7c99; }
  .ours { fill: #e3f1e6; stroke: #5d8f68; }
  .outside { fill: #f8ead8; stroke: #ab7f3d; }
  .line { fill: none; stroke: #40566b; stroke-width: 1.5; }
  .dashed { stroke-dasharray: 4 4; stroke: #8fa1b1; }
  .head { fill: #40566b; }
</style>"""

Point = tuple[float, float]


def words(x: float, y: float, text: str, kind: str = "text", size: int = 13, room: float = 1000, middle: bool = False) -> str:
    """A line of text whose estimated width is asserted to be less than `room`. x: its left end, or its middle."""
    estimate = len(text) * size * CHARACTER_WIDTH[kind.split(maxsplit=1)[0]]
    assert estimate <= room, f"{text!r} needs {estimate:.0f}, expected at most {room:.0f}"
    anchor = ' text-anchor="middle"' if middle else ""
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" class="{kind}"{anchor}>{escape(text)}</text>'


def box(x: float, y: float, width: float, height: float, kind: str) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" class="{kind}"/>'


def arrow(*points: Point, both: bool = False) -> str:
    """A line through points, each straight above or beside the one before, with a head at its end, or at both ends."""
    path = "M" + "L".join(f"{x:g} {y:g}" for x, y in points)
    heads = [head(points[-2], points[-1]), *([head(points[1], points[0])] if both else [])]
    return f'<path d="{path}" class="line"/>' + "".join(heads)


def head(behind: Point, tip: Point) -> str:
    """A triangle at `tip`. SVG's own markers are drawn differently by different programs."""
    (x, y), along = tip, (sign(tip[0] - behind[0]), sign(tip[1] - behind[1]))
    bases = ((x - 9 * along[0] + 4.5 * side * along[1], y - 9 * along[1] + 4.5 * side * along[0]) for side in (-1, 1))
    return f'<path d="M{x:g} {y:g}' + "".join(f"L{left:g} {top:g}" for left, top in bases) + 'z" class="head"/>'


def sign(number: float) -> int:
    return (number > 0) - (number < 0)


def picture(width: int, height: int, title: str, parts: list[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">'
    )
    page = f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8" class="page"/>'
    return "\n".join([head, f"<title>{escape(title)}</title>", STYLE, page, *parts, "</svg>"]) + "\n"


# --- The chain of evidence -------------------------------------------------------------------------------------------


class Station(NamedTuple):
    name: str
    place: str
    kind: str
    check: str = ""  # what holds it together with the next station
    command: str = ""


CHAIN = (
    Station("Clauses", "spec/*.md", "box", "each is quoted in model, code and tests", "make check"),
    Station("TLA+", "spec/tla/", "box", "equal state graphs, edge by edge", "make formal"),
    Station(
        "Protocol-level model", "reference/protocol.py", "ours", "each byte step is protocol steps, or none", "make formal"
    ),
    Station("Byte-level model", "reference/master.py, slave.py", "ours", "lock-step: same bytes, logs and state", "make test"),
    Station("Implementation", "impl/", "ours", "real brokers on either end, real stores", "make interop"),
    Station("Apache RocketMQ", "its brokers; spec/vectors/", "outside"),
)


def evidence() -> str:
    left, width, height, gap = 170, 250, 54, 46
    parts = []
    for number, station in enumerate(CHAIN):
        y = 24 + number * (height + gap)
        middle = left + width / 2
        parts.append(box(left, y, width, height, station.kind))
        parts.append(words(middle, y + 23, station.name, "bold", 14, width - 10, middle=True))
        parts.append(words(middle, y + 42, station.place, "code", 12, width - 10, middle=True))
        if station.check:
            below = y + height
            parts.append(arrow((middle, below + 2), (middle, below + gap - 2), both=True))
            parts.append(words(middle + 16, below + 20, station.check, room=370))
            parts.append(words(middle + 16, below + 36, station.command, "code quiet", 12, 370))
    first, last = 24 + height / 2, 24 + 5 * (height + gap) + height / 2
    parts.append(arrow((left - 2, first), (128, first), (128, last), (left - 2, last), both=True))
    for number, text in enumerate(("each clause", "about bytes,", "against all", "RocketMQ bytes")):
        parts.append(words(14, (first + last) / 2 - 36 + number * 17, text, size=12, room=112))
    for number, text in enumerate(("make", "golden-claims")):
        parts.append(words(14, (first + last) / 2 + 34 + number * 16, text, "code quiet", 12, 112))
    aside = 24 + 4 * (height + gap) + height / 2
    parts.append(arrow((552, aside), (left + width + 2, aside)))
    parts.append(words(560, aside - 4, "hostile peers", room=120))
    parts.append(words(560, aside + 13, "make hostile", "code quiet", 12, 120))
    foot = 24 + 6 * (height + gap) - gap + 34
    parts.append(
        words(
            24,
            foot,
            "Faults planted in copies test the checks themselves: make demo-bug, make formal-breaks.",
            "text quiet",
            12,
            660,
        )
    )
    return picture(690, int(foot + 18), "The chain of evidence, from the clauses to Apache RocketMQ", parts)


# --- The journey of a byte -------------------------------------------------------------------------------------------

PRODUCER, MASTER, SLAVE = "producer", "master", "slave"
LANES = {PRODUCER: 80, MASTER: 330, SLAVE: 690}


class Step(NamedTuple):
    """An arrow from one lane to another, or, where both are the same, work within it."""

    source: str
    target: str
    text: str
    code: str = ""


def method(owner: type, name: str) -> str:
    """The qualified name of a method, which is asserted to exist."""
    assert hasattr(owner, name), f"{owner.__name__} has no {name}"
    return f"{owner.__name__}.{name}"


JOURNEY = (
    Step(PRODUCER, MASTER, "put"),
    Step(MASTER, MASTER, "append to the mapped file", method(CommitLog, "append")),
    Step(MASTER, MASTER, "SYNC_MASTER: let the put wait", method(GroupTransfer, "on_put")),
    Step(MASTER, MASTER, "gather up to 16 frames, no copy", method(MasterConnection, "on_transfer")),
    Step(MASTER, SLAVE, "frames: 12-byte header, then body", method(MasterLink, "on_transfer")),
    Step(SLAVE, SLAVE, "parse in the read buffer", method(SlaveClient, "dispatch")),
    Step(SLAVE, SLAVE, "write the bodies: one pwritev", method(CommitLog, "append_data")),
    Step(SLAVE, MASTER, "report: 8 bytes, the log's max offset", method(SlaveClient, "report_slave_max_offset_plus")),
    Step(MASTER, MASTER, "take the last complete report", method(MasterConnection, "on_reports")),
    Step(MASTER, MASTER, "enough slaves have it: end the put", method(GroupTransfer, "on_ack")),
    Step(MASTER, PRODUCER, "PUT_OK"),
)


def journey() -> str:
    bottom = 76 + len(JOURNEY) * 54
    parts = []
    for lane, x in LANES.items():
        parts.append(f'<path d="M{x} 60V{bottom}" class="line dashed"/>')
        parts.append(box(x - 62, 22, 124, 38, "outside" if lane == PRODUCER else "ours"))
        parts.append(words(x, 46, lane, "bold", 14, 120, middle=True))
    for number, step in enumerate(JOURNEY):
        y = 76 + number * 54
        source, target = LANES[step.source], LANES[step.target]
        if source == target:
            width = 300
            parts.append(box(source - width / 2, y, width, 42, "box"))
            parts.append(words(source, y + 17, f"{number + 1}. {step.text}", "text", 12, width - 8, middle=True))
            parts.append(words(source, y + 34, step.code, "code quiet", 11, width - 8, middle=True))
        else:
            away = 4 if target > source else -4
            parts.append(arrow((source + away, y + 26), (target - away, y + 26)))
            middle, room = (source + target) / 2, abs(target - source) - 10
            parts.append(words(middle, y + 19, f"{number + 1}. {step.text}", "text", 12, room, middle=True))
            if step.code:
                parts.append(words(middle, y + 42, step.code, "code quiet", 11, room, middle=True))
    return picture(860, bottom + 14, "The journey of a byte, from put to acknowledgement", parts)


PICTURES = {"evidence.svg": evidence, "journey.svg": journey}


def main(arguments: list[str]) -> int:
    status = 0
    for name, draw in PICTURES.items():
        text, file = draw(), HERE / name
        if arguments == ["--write"]:
            file.write_text(text, encoding="utf-8")
        elif not file.exists() or file.read_text(encoding="utf-8") != text:
            sys.stderr.write(f"docs/{name} differs from its source: run python docs/pictures.py --write\n")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
