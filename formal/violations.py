"""Write the traces of spec/violations.md: each comes from a run of an abstract level, a scenario, or a list of frames.

    python -m formal.violations            exit status 1 if a trace in spec/violations.md is out of date
    python -m formal.violations --write    rewrite all traces; review the diff

A trace stands between `<!-- trace N -->` and `<!-- end of trace -->`, and N is the number of the quirk.
"""

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from formal import graph, scenarios
from formal.level_protocol import PROTOCOL
from formal.level_reading import READING
from rocketmq_ha.fuzz.worlds.world import START_MS
from rocketmq_ha.reference import cluster, invariants, reading_properties, slave, store, wire
from rocketmq_ha.reference.cluster import Cluster
from rocketmq_ha.reference.group_transfer import FLUSH_SLAVE_TIMEOUT, PUT_OK
from rocketmq_ha.reference.protocol_properties import CATALOGUE
from rocketmq_ha.reference.protocol_state import of_profile
from rocketmq_ha.reference.slave import Slave
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile, Settings

ROOT: Final = Path(__file__).resolve().parents[1]
DOCUMENT: Final = ROOT / "spec" / "violations.md"
BLOCK: Final = re.compile(r"(<!-- trace (\d\d) -->\n).*?(<!-- end of trace -->\n)", re.DOTALL)


# --- Scenarios ---------------------------------------------------------------------------------------------------------------

Shows = Callable[[Cluster, Cluster], bool]  # returns True if the step between the two clusters shows the violation


@dataclass(frozen=True, slots=True)
class ByteViolation:
    """A quirk shown by a scenario: its first half runs in classic, its second half in hardened."""

    quirk: int
    scenario: str
    shows: Shows


def transfer_begins_below_0(_: Cluster, after: Cluster) -> bool:
    """The master accepted a valid report, and still transfers from below 0."""
    return any(link.conn.slave_ack_offset >= 0 and link.conn.next_transfer_from_where < -1 for link in after.links)


def slave_is_deaf(_: Cluster, after: Cluster) -> bool:
    return any(node.connected and node.deaf for node in after.slaves)


def slave_is_stalled(_: Cluster, after: Cluster) -> bool:
    return any(node.close_reason == "stalled" for node in after.slaves)


def negative_offset_is_taken(before: Cluster, after: Cluster) -> bool:
    """The slave accepted a header with a negative offset: it has left the link, and the slave has a file now."""
    negative = {link.slave for link in before.links if link.to_slave[:1] >= b"\x80"}
    return any(before.slaves[index].log.base is None and after.slaves[index].log.base is not None for index in negative)


def put_waits_for_more_than_its_own(_: Cluster, after: Cluster) -> bool:
    """A put keeps waiting, although the acknowledgement that ends it has come."""
    return any(request.next_offset <= after.push2_slave_max_offset for request in after.group.requests)


def put_times_out_early(before: Cluster, after: Cluster) -> bool:
    timed_out = {done.request_id for done in after.done if done.status == FLUSH_SLAVE_TIMEOUT}
    return any(request.request_id in timed_out and after.now_ms < request.deadline_ms for request in before.group.requests)


def put_never_ends(before: Cluster, after: Cluster) -> bool:
    """A put no longer waits, but has no status."""
    waiting, ended = ({one.request_id for one in ones} for ones in (after.group.requests, after.done))
    return any(request.request_id not in waiting | ended for request in before.group.requests)


def cut_bytes_stay(_: Cluster, after: Cluster) -> bool:
    return any(node.log.stale for node in after.slaves)


def slave_differs(_: Cluster, after: Cluster) -> bool:
    return not invariants.slave_holds_a_prefix(after, Settings())


def put_ok_is_held_by_no_slave(_: Cluster, after: Cluster) -> bool:
    """A put ends with PUT_OK, although no slave's log holds its message."""
    ended = [done.next_offset for done in after.done if done.status == PUT_OK]
    return any(not any(invariants.holds_up_to(after, node, offset) for node in after.slaves) for offset in ended)


BYTES: Final = (
    ByteViolation(4, "quirk-04-negative-report", transfer_begins_below_0),
    ByteViolation(20, "quirk-20-negative-size", slave_is_deaf),
    ByteViolation(22, "quirk-22-overflowing-size", slave_is_deaf),
    ByteViolation(23, "quirk-23-oversized-frame", slave_is_stalled),
    ByteViolation(24, "quirk-24-unchecked-offset", negative_offset_is_taken),
    ByteViolation(32, "group-transfer-head-of-line", put_waits_for_more_than_its_own),
    ByteViolation(33, "group-transfer-no-drain", put_never_ends),
    ByteViolation(35, "quirk-35-stale-bytes", cut_bytes_stay),
    ByteViolation(40, "quirk-40-torn-record", slave_differs),
    ByteViolation(41, "group-transfer-five-notifications", put_times_out_early),
    ByteViolation(42, "quirk-42-failed-append", put_ok_is_held_by_no_slave),
)


@dataclass(frozen=True, slots=True)
class Half:
    """One profile's half of a scenario: its first cluster, and its steps."""

    profile: Profile
    settings: Settings
    steps: tuple[str, ...]


def halves(name: str) -> tuple[Half, Half]:
    """The classic half and the hardened half of a scenario."""
    found: list[Half] = []
    for line in (scenarios.DIRECTORY / f"{name}.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("cluster "):
            profile, _, settings = scenarios.parse_cluster(line.split()[1:])
            found.append(Half(profile, settings, ()))
        elif line and not line.startswith(("#", " ")):
            found[-1] = replace(found[-1], steps=(*found[-1].steps, line))
    classic, hardened = found
    return classic, hardened


def steps_of(half: Half) -> Iterator[tuple[Cluster, Cluster]]:
    """The clusters before and after each step."""
    now = cluster.new_cluster(1, half.settings, half.profile, START_MS)
    for line in half.steps:
        before, now = now, cluster.step(now, scenarios.parse_event(line.split()), half.settings, half.profile)[0]
        yield before, now


def shown_after(half: Half, shows: Shows) -> int | None:
    """The number of steps until the violation shows, or None."""
    return next((number for number, (before, after) in enumerate(steps_of(half), 1) if shows(before, after)), None)


def fewest(half: Half, shows: Shows) -> int | None:
    """The length of the shortest run that shows the violation, over all runs of some of the steps in any order."""
    supply = Counter(half.steps)
    lines = tuple(supply)
    events = [scenarios.parse_event(line.split()) for line in lines]
    start = (cluster.new_cluster(1, half.settings, half.profile, START_MS), tuple(supply.values()))
    frontier, seen, length = [start], {start}, 0
    while frontier:
        length += 1
        reached = []
        for now, left in frontier:
            for index, event in enumerate(events):
                if not left[index]:
                    continue
                after = cluster.step(now, event, half.settings, half.profile)[0]
                if shows(now, after):
                    return length
                node = (after, (*left[:index], left[index] - 1, *left[index + 1 :]))
                if node not in seen:
                    seen.add(node)
                    reached.append(node)
        frontier = reached
    return None


def scenario_trace(name: str) -> str:
    """The classic half of the scenario: its steps, and the nodes after each, without the model's transitions."""
    text = (scenarios.DIRECTORY / f"{name}.txt").read_text(encoding="utf-8")
    lines = text[text.index("cluster ") :].split("\ncluster ")[0].splitlines()
    kept = [line for line in lines if not re.match(r"    .*: \w+ -\w+-> ", line) and not line.startswith("#")]
    return "\n".join(kept).rstrip()


# --- Frames, given to a slave ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FrameViolation:
    """A quirk that needs frames which no master of the model sends."""

    quirk: int
    log: Log  # the slave's log
    frames: tuple[tuple[int, int], ...]  # (offset, body size), complete frames; the slave reconnects between them if it must


FRAMES: Final = (
    # A correct master with a log of 100 bytes, asked for offset 50.
    FrameViolation(18, Log(1000), ((50, 50),)),
    # A master whose files are larger than the slave's 1000 bytes.
    FrameViolation(
        19,
        Log(1000, 0, bytes(900)),
        ((900, 200), (1100, 0), (900, 200), (1100, 0)),
    ),
)


def frame_is_taken_and_not_there(violation: FrameViolation, profile: Profile) -> bool:
    """Return True if the slave keeps the connection after a frame although its log does not end at the frame's end."""
    ends = iter(violation.frames)
    for event, node in frame_steps(violation, profile):
        if event != "connect":
            offset, size = next(ends)
            if size and node.connected and store.max_offset(node.log) != offset + size:
                return True
    return False


def frame_steps(violation: FrameViolation, profile: Profile) -> Iterator[tuple[str, Slave]]:
    """The steps as (event, slave after it)."""
    node = Slave(violation.log)
    for offset, size in violation.frames:
        if not node.connected:
            node = slave.on_connect(node, 8, 0, profile).state
            yield "connect", node
        body = bytes((offset + at) % 251 for at in range(size))
        node = slave.on_frames(node, wire.pack_header(offset, size) + body, 8, 0, Settings(1000), profile).state
        yield f"frame {offset}+{size}" if size else f"heartbeat {offset}", node


def frames_trace(violation: FrameViolation) -> str:
    first = f"{'(start)':<16} {scenarios.describe_log(violation.log)}"
    steps = (f"{event:<16} {scenarios.describe_slave(node)}" for event, node in frame_steps(violation, CLASSIC))
    return "\n".join((first, *steps))


# --- The document ------------------------------------------------------------------------------------------------------------


def protocol_trace(quirk: int) -> str:
    found = next(violation for violation in CATALOGUE if violation.quirk == quirk)
    path = graph.first_violation(graph.explore(of_profile(found.scope, CLASSIC)), found.breaks)
    assert path is not None, f"quirk {quirk} is gone"
    return graph.show(PROTOCOL, path)


def reading_trace(violation: reading_properties.Violation) -> str:
    """In hardened, where it has the quirk too: there no other quirk is in the way."""
    scope = READING.of_profile(violation.scope, HARDENED if violation.kept else CLASSIC)
    path = graph.first_violation(graph.explore(scope), violation.breaks)
    assert path is not None, f"quirk {violation.quirk} is gone"
    return graph.show(READING, path)


def traces() -> dict[int, str]:
    """The traces of all quirks that have one."""
    found = {violation.quirk: protocol_trace(violation.quirk) for violation in CATALOGUE}
    found |= {violation.quirk: reading_trace(violation) for violation in reading_properties.CATALOGUE}
    found |= {violation.quirk: scenario_trace(violation.scenario) for violation in BYTES}
    return found | {violation.quirk: frames_trace(violation) for violation in FRAMES}


def render(text: str) -> str:
    """The text of spec/violations.md with all traces up to date."""
    made = traces()
    return BLOCK.sub(lambda block: f"{block[1]}```text\n{made[int(block[2])]}\n```\n{block[3]}", text)


def main(arguments: Sequence[str]) -> int:
    told = DOCUMENT.read_text(encoding="utf-8")
    happens = render(told)
    if list(arguments) == ["--write"]:
        DOCUMENT.write_text(happens, encoding="utf-8")
        return 0
    if told != happens:
        sys.stderr.write(f"{DOCUMENT}: a trace differs; python -m formal.violations --write writes them anew\n")
    return int(told != happens)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
