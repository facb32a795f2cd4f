"""The cutting proxy knows where a frame begins and cuts exactly there where the plan says, in any reads."""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_ha.fuzz.proxy import Frames, PlannedCut
from rocketmq_ha.impl.wire.frame import HEADER


def frames_of(*sizes: int) -> bytes:
    return b"".join(HEADER.pack(7, size) + bytes([at % 250 + 1 for at in range(size)]) for size in sizes)


def pieces_of(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in itertools.pairwise(places)]


@given(sizes=st.lists(st.integers(0, 300), min_size=1, max_size=5), cuts=st.lists(st.integers(0, 2000), max_size=8))
def test_without_a_cut_all_passes_and_the_bodies_are_counted(sizes: list[int], cuts: list[int]) -> None:
    frames, bodies, passed = Frames(), 0, 0
    ends, at = {0}, 0
    for size in sizes:
        at += 12 + size
        ends.add(at)
    starts = sorted(ends)
    for piece in pieces_of(frames_of(*sizes), cuts):
        n, body, stopped = frames.take(piece, None)
        assert (n, stopped) == (len(piece), False)
        bodies, passed = bodies + body, passed + n
        start = max(start for start in starts if start <= passed)
        assert frames.position == passed - start
        assert frames.in_header == (0 < passed - start < 12)
        assert frames.in_body == (passed - start > 12)
    assert bodies == sum(sizes)


@pytest.mark.parametrize("header_bytes", range(1, 12))
@given(cuts=st.lists(st.integers(0, 200), max_size=6))
def test_a_cut_in_a_header_passes_so_many_bytes_of_it(header_bytes: int, cuts: list[int]) -> None:
    """The cut becomes due when the first frame, of 30 bytes of body, has passed."""
    frames = Frames()
    assert frames.take(frames_of(30), None) == (42, 30, False)
    passed, cut, bodies = 0, PlannedCut(0, header_bytes), 0
    for piece in pieces_of(frames_of(20, 5), cuts):
        n, body, stopped = frames.take(piece, cut)
        passed, bodies = passed + n, bodies + body
        if stopped:
            break
    assert (passed, bodies, frames.in_header, frames.in_body) == (header_bytes, 0, True, False)
    assert frames.position == header_bytes


@pytest.mark.parametrize(
    ("position", "header_bytes", "passed"),
    [(3, 5, 2), (5, 5, 0), (6, 5, 6 + 20 + 5), (11, 5, 1 + 20 + 5), (12, 5, 20 + 5), (13, 5, 19 + 5), (31, 5, 1 + 5)],
)
def test_a_cut_that_is_due_behind_its_byte_waits_for_the_next_frame(position: int, header_bytes: int, passed: int) -> None:
    frames, data = Frames(), frames_of(20, 20)
    frames.take(data[:position], None)
    n, _, stopped = frames.take(data[position:], PlannedCut(0, header_bytes))
    assert (n, stopped, frames.in_header) == (passed, True, True)


@pytest.mark.parametrize(
    ("position", "size", "passed", "bodies"),
    [
        (0, 20, 22, 10),
        (0, 21, 22, 10),
        (5, 20, 17, 10),
        (12, 20, 10, 10),
        (13, 20, 0, 0),
        (31, 20, 0, 0),
        (0, 3, 13, 1),
        (0, 2, 13, 1),
    ],
)
def test_a_cut_in_a_body_is_in_its_middle_or_at_once(position: int, size: int, passed: int, bodies: int) -> None:
    frames, data = Frames(), frames_of(size, 0)
    frames.take(data[:position], None)
    assert frames.take(data[position:], PlannedCut(0, 0)) == (passed, bodies, True)
    assert frames.in_body
    assert not frames.in_header
    assert frames.position < 12 + size


def test_a_body_of_one_byte_and_a_heartbeat_have_no_middle() -> None:
    frames = Frames()
    assert frames.take(frames_of(1, 0, 10), PlannedCut(0, 0)) == (13 + 12 + 12 + 5, 6, True)


@given(sizes=st.lists(st.integers(0, 60), min_size=1, max_size=4), cuts=st.lists(st.integers(0, 300), max_size=6))
def test_a_cut_in_a_body_is_never_at_a_boundary(sizes: list[int], cuts: list[int]) -> None:
    frames, passed = Frames(), 0
    data = frames_of(*sizes)
    for piece in pieces_of(data, cuts):
        n, _, stopped = frames.take(piece, PlannedCut(0, 0))
        passed += n
        if stopped:
            assert frames.in_body
            break
        assert n == len(piece)
    else:
        assert passed == len(data)
        assert all(size < 2 for size in sizes)


@pytest.mark.parametrize(
    ("position", "in_header", "in_body"),
    [(0, False, False), (1, True, False), (11, True, False), (12, False, False), (13, False, True), (31, False, True)],
)
def test_directly_behind_a_header_is_neither_in_the_header_nor_in_the_body(
    position: int, in_header: bool, in_body: bool
) -> None:
    frames = Frames()
    frames.take(frames_of(20)[:position], None)
    assert (frames.position, frames.in_header, frames.in_body) == (position, in_header, in_body)
