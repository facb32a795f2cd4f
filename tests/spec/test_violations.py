"""spec/violations.md is true: classic shows each violation by the shortest trace; hardened does not, or names an exception."""

import itertools
import re
import tomllib

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from formal import graph, violations
from formal.violations import BYTES, FRAMES, ByteViolation, FrameViolation
from rocketmq_ha.fuzz import lockstep
from rocketmq_ha.fuzz.channel import ScriptedSocket
from rocketmq_ha.impl.ha.slave import SlaveClient
from rocketmq_ha.impl.net.link import SlaveLink
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.reference import slave, store, wire
from rocketmq_ha.reference.protocol_properties import CATALOGUE, EXCEPTIONS, Violation
from rocketmq_ha.reference.protocol_state import of_profile
from rocketmq_ha.reference.slave import Slave
from rocketmq_ha.reference.step import sent
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec.constants import TRANSFER_HEADER_SIZE
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile, Settings

TEXT = violations.DOCUMENT.read_text(encoding="utf-8")
REQUIRED = {1, 2, 3, 4, 7, 8, 9, 17, 20, 22, 23, 32, 33, *range(43, 49)}
KEPT_IN_HARDENED = {8}  # a named exception: no compatible endpoint can fix it
FILE_SIZE = 100
SETTINGS = Settings(FILE_SIZE, slave_read_buffer_size=64)


def sections() -> dict[int, str]:
    """The text of each section, by the number of its quirk."""
    parts = re.split(r"^### (\d+)\. ", TEXT, flags=re.MULTILINE)
    return {int(number): body for number, body in zip(parts[1::2], parts[2::2], strict=True)}


# --- The document ------------------------------------------------------------------------------------------------------------


def test_the_traces_are_those_that_are_made() -> None:
    assert violations.render(TEXT) == TEXT, "python -m formal.violations --write, and look at the diff"


def test_every_trace_that_is_made_is_told_once() -> None:
    told = [int(number) for number in re.findall(r"^<!-- trace (\d\d) -->$", TEXT, re.MULTILINE)]
    assert sorted(told) == sorted(violations.traces())
    assert set(told) >= REQUIRED


def test_every_section_says_what_it_must() -> None:
    for number, text in sections().items():
        for field in ("Trigger", "Breaks", "Versions", "Hardened"):
            assert text.count(f"**{field}.**") == 1, (number, field)


def test_the_table_leads_to_every_section() -> None:
    titles = dict(re.findall(r"^### (\d+)\. (.+)$", TEXT, re.MULTILINE))
    links = dict(re.findall(r"^\| \[(\d+)\]\(#([a-z0-9-]+)\) \|", TEXT, re.MULTILINE))
    anchors = {
        number: re.sub(r"[^a-z0-9 -]", "", f"{number}. {title}".lower()).replace(" ", "-") for number, title in titles.items()
    }
    assert links == anchors


def test_the_record_of_real_releases_is_of_quirks_that_have_sections() -> None:
    """spec/violations.toml, which `make interop VIOLATIONS=1` compares with real brokers."""
    shown = tomllib.loads((violations.DOCUMENT.parent / "violations.toml").read_text(encoding="utf-8"))["shown"]
    assert {item["quirk"] for item in shown} == {1, 3, 4, 17, 20, 22, 23, 42, 43, 44, 45, 46, 49}
    for item in shown:
        assert set(item) >= {"quirk", "4.5.2", "4.9.8", "5.3.3"}
        told = sections()[item["quirk"]].partition("**Versions.**")[2]
        assert re.search(r"\[R in [^]]*\b4\.9\.8\b", told), item["quirk"]


# --- In units ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("violation", CATALOGUE, ids=lambda violation: f"quirk-{violation.quirk}")
def test_units_show_it_in_classic_and_not_in_hardened(violation: Violation) -> None:
    """The same scope, the same property; a violation that hardened keeps is an exception with a reason."""
    assert graph.first_violation(graph.explore(of_profile(violation.scope, CLASSIC)), violation.breaks)
    in_hardened = graph.first_violation(graph.explore(of_profile(violation.scope, HARDENED)), violation.breaks)
    assert bool(in_hardened) == (violation.quirk in KEPT_IN_HARDENED)
    if in_hardened:
        (excused,) = (one for one in EXCEPTIONS if one.holds is violation.breaks)
        assert f"quirk {violation.quirk}:" in excused.reason


# --- In bytes ----------------------------------------------------------------------------------------------------------------

of_bytes = pytest.mark.parametrize("violation", BYTES, ids=lambda violation: violation.scenario)


@of_bytes
def test_bytes_show_it_in_classic_and_not_in_hardened(violation: ByteViolation) -> None:
    """The steps are the same; hardened may need more of them, to have anything to lose."""
    classic, hardened = violations.halves(violation.scenario)
    assert (classic.profile, hardened.profile) == (CLASSIC, HARDENED)
    assert classic.settings == hardened.settings
    remaining = iter(hardened.steps)
    assert all(step in remaining for step in classic.steps)
    assert violations.shown_after(classic, violation.shows)
    assert violations.shown_after(hardened, violation.shows) is None


@of_bytes
def test_no_fewer_steps_show_it(violation: ByteViolation) -> None:
    classic, hardened = violations.halves(violation.scenario)
    length = violations.shown_after(classic, violation.shows)
    trigger = violations.Half(classic.profile, classic.settings, classic.steps[:length])
    assert violations.fewest(trigger, violation.shows) == length
    # Hardened does not show it in any order of the steps.
    same = violations.Half(hardened.profile, hardened.settings, trigger.steps)
    assert violations.fewest(same, violation.shows) is None


# --- In frames ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("violation", FRAMES, ids=lambda violation: f"quirk-{violation.quirk}")
def test_frames_show_it_in_classic_and_not_in_hardened(violation: FrameViolation) -> None:
    assert violations.frame_is_taken_and_not_there(violation, CLASSIC)
    assert not violations.frame_is_taken_and_not_there(violation, HARDENED)


def frame(offset: int, size: int) -> bytes:
    """A frame with as much of its body as a peer would really send."""
    body = bytes((offset + at) % 251 for at in range(min(size, 2 * FILE_SIZE)))
    return wire.pack_header(offset, size) + body


I32_MIN, I32_MAX = -(1 << 31), (1 << 31) - 1
LARGEST = I32_MAX - TRANSFER_HEADER_SIZE
sizes = st.sampled_from((-1, -4, -12, -13, I32_MIN, 0, 1, 10, 52, 53, FILE_SIZE + 1, LARGEST, LARGEST + 1, I32_MAX))
offsets = st.sampled_from((0, 0, 1, 10, -5, -FILE_SIZE, FILE_SIZE, 2 * FILE_SIZE))
streams = st.lists(st.tuples(offsets, sizes).map(lambda told: frame(*told)) | st.binary(max_size=14), max_size=6).map(b"".join)


@pytest.mark.parametrize("profile", [CLASSIC, HARDENED], ids=lambda profile: profile.name)
@hypothesis_settings(max_examples=400, deadline=None)
@given(st.integers(0, 12), streams, st.lists(st.integers(1, 30), max_size=8))
@example(10, frame(10, -4) + frame(10, 5), [12])
@example(0, frame(0, I32_MIN), [5])
@example(10, frame(10, I32_MAX), [])
@example(10, frame(10, LARGEST), [])
def test_model_and_implementation_take_hostile_frames_alike(
    profile: Profile, begun: int, stream: bytes, cuts: list[int]
) -> None:
    """HA-S-36 "of negative size, or of a size above 2,147,483,635, leaves the slave deaf"; quirks 17 to 24."""
    with lockstep.scratch_directory() as directory:
        log = CommitLog.open(directory / "slave", file_size=FILE_SIZE, clear_tail=profile.clears_tail)
        try:
            client, sock = SlaveClient("master", log, SETTINGS, profile), ScriptedSocket(1 << 20)
            link = SlaveLink(sock, client)
            node = Slave(Log(FILE_SIZE))
            if begun:
                log.append_data(0, [bytes(begun)])
                node = Slave(store.append_data(node.log, 0, bytes(begun)))
            step = slave.on_connect(node, 1 << 20, 0, profile)
            node, reports = step.state, sent(step)
            link.on_connect(0)
            places = [0, *(sum(cuts[: at + 1]) for at in range(len(cuts))), len(stream)]
            for begin, end in itertools.pairwise(places):
                if node.connected and (part := stream[begin:end]):
                    step = slave.on_frames(node, part, 1 << 20, 0, SETTINGS, profile)
                    node, reports = step.state, reports + sent(step)
                    sock.arrived += part
                    while sock.arrived and client.connected:
                        link.on_frames(0)
                    assert (client.connected, client.close_reason) == (node.connected, node.close_reason)
                    assert (client.deaf, client.unparsed) == (node.deaf, slave.unparsed(node))
                    assert (log.min_offset, log.max_offset) == (store.min_offset(node.log), store.max_offset(node.log))
                    assert sock.in_flight == reports
        finally:
            log.close()


@pytest.mark.parametrize("size", [-1, -4, -12, I32_MIN, LARGEST + 1, I32_MAX])
@pytest.mark.parametrize("cut", [12, 20, 44])
def test_a_deaf_slave_reports_until_its_connection_ends(size: int, cut: int) -> None:
    """HA-S-36 "until its connection ends, it reports when its interval has passed, and takes no frame" (quirks 20 to 22)."""
    stream = frame(10, size)[:TRANSFER_HEADER_SIZE] + frame(10, 20)
    node = slave.on_connect(Slave(Log(FILE_SIZE, 0, bytes(10))), 8, 0, CLASSIC).state
    for part in (stream[:cut], stream[cut:]):
        if part:
            node = slave.on_frames(node, part, 8, 0, SETTINGS, CLASSIC).state
    assert (node.connected, store.max_offset(node.log), slave.classify(node).value) == (True, 10, "deaf")
    step = slave.on_tick(node, 8, 5001, SETTINGS, CLASSIC)
    assert sent(step) == wire.pack_report(10)
    node = slave.on_connect(slave.on_end_of_stream(step.state).state, 8, 0, CLASSIC).state
    assert store.max_offset(slave.on_frames(node, frame(10, 20), 8, 0, SETTINGS, CLASSIC).state.log) == 30


@pytest.mark.parametrize("size", [-1, -4, -12, I32_MIN, 53, LARGEST, LARGEST + 1, I32_MAX])
def test_hardened_refuses_the_header(size: int) -> None:
    """HA-S-11 "of negative size, or of a size that the read buffer cannot hold" (quirks 20 to 23)."""
    node = slave.on_connect(Slave(Log(FILE_SIZE, 0, bytes(10))), 8, 0, HARDENED).state
    step = slave.on_frames(node, wire.pack_header(node.current_reported_offset, size), 8, 0, SETTINGS, HARDENED)
    assert (step.state.connected, step.state.close_reason) == (False, "frame")
