"""The search for the size of a master's files: which question follows which answer, and what each answer rules out."""

from collections.abc import Iterator

import pytest

from rocketmq_ha.impl.ha import size_search as module
from rocketmq_ha.impl.ha.size_search import MOST_QUESTIONS, CannotTell, Contradiction, _divisors, _Search, find_file_size
from rocketmq_ha.impl.store.log.layout import MAX_FILE_SIZE


class Master:
    """Has `left` files before its last one, of `size` bytes. asked: how far before the last file each question was."""

    def __init__(self, size: int, count: int, left: int) -> None:
        self.size, self.last_file, self.first = size, size * count, size * (count - left)
        self.asked: list[int] = []

    def __call__(self, offset: int) -> int | None:
        self.asked.append(self.last_file - offset)
        return None if offset < self.first else min(32_768, self.size - offset % self.size)


@pytest.mark.parametrize(
    ("size", "count", "left", "likely", "asked"),
    [
        (4096, 8, 8, 4096, [2, 4097, 2049]),
        (4096, 8, 8, None, [2, 32767, 16385, 8193, 4097, 2049]),
        (4096, 8, 1, 4096, [2, 4097, 4096, 4097, 2049]),
        (4096, 8, 1, None, [2, 32767, 257, 2049, 4097, 4097, 4096, 4097]),
        (4096, 8, 3, None, [2, 32767, 257, 2049, 4097]),
        (4096, 4, 4, 16_384, [2, 16383, 8193, 4097, 2049]),  # not tried: file 0 is asked for by its byte 1
        (4096, 4, 2, 2048, [2, 2049, 16383, 4097]),
        (1000, 6, 6, None, [2, 5999, 1201, 2001, 1001, 501]),
        (1000, 6, 1, 512, [2, 5999, 2001, 241, 601, 751, 1001, 401, 501, 1001, 1000, 1001]),  # 512 does not divide 6000
        (1000, 1, 1, None, [2, 999, 201, 501]),
        (720, 7, 2, 8192, [2, 5039, 841, 721, 145, 241, 361]),
    ],
)
def test_each_question_halves_what_is_possible(size: int, count: int, left: int, likely: int | None, asked: list[int]) -> None:
    """The likely size first, then file 0, then a known distance by its primes; the end of the search is one size."""
    master = Master(size, count, left)
    assert find_file_size(master.last_file, master, likely) == size
    assert master.asked == asked


SIZES = [8, 9, 12, 18, 24, 36, 72]  # of a last file at 72


@pytest.mark.parametrize(
    ("closely", "answers", "sizes", "nearest", "gone"),
    [
        (False, [1], [8, 12, 24], 24, set()),
        (False, [2], [9, 18, 36, 72], None, set()),
        (False, [None], [8, 9, 12, 18, 24], None, {24}),
        (True, [None, None], [8, 9, 12, 18], None, {24}),
        (True, [None, 3, None], [8, 12, 24], 24, set()),  # the log begins there
        (True, [None, 3, 1], [8, 12, 24], 24, set()),
        (True, [None, 3, 5], [9, 18, 36, 72], None, set()),  # it was just starting
        (True, [1], [8, 12, 24], 24, set()),
    ],
)
def test_what_an_answer_rules_out(
    closely: bool, answers: list[int | None], sizes: list[int], nearest: int | None, gone: set[int]
) -> None:
    """About the distance 24: a file begins there; none does; the master has nothing before it."""
    asked: list[int] = []
    left: Iterator[int | None] = iter(answers)

    def answer(offset: int) -> int | None:
        asked.append(offset)
        return next(left)

    search = _Search(72, answer)
    assert (search.sizes, search.nearest) == (SIZES, None)
    search.ask_about(24, closely=closely)
    assert asked == [47, 48, 47][: len(answers)]
    assert (search.sizes, search.nearest, search._gone) == (sizes, nearest, gone)


def test_what_was_there_and_is_gone_contradicts() -> None:
    search = _Search(72, lambda _: None)
    search.nearest = 36
    with pytest.raises(Contradiction, match=r"^what it had before 48 it has no longer$"):
        search.ask_about(24, closely=True)


@pytest.mark.parametrize(("answer", "sizes", "nearest"), [(7, SIZES, 72), (None, SIZES[:-1], None)])
def test_file_0_is_asked_for_by_its_second_byte(answer: int | None, sizes: list[int], nearest: int | None) -> None:
    asked: list[int] = []
    search = _Search(72, lambda offset: (asked.append(offset), answer)[1])
    search.ask_about_file_0()
    assert (asked, search.sizes, search.nearest) == ([1], sizes, nearest)


def test_64_questions_are_asked_and_no_more() -> None:
    asked: list[int] = []
    search = _Search(72, asked.append)
    for offset in range(MOST_QUESTIONS):
        search.ask(offset)
    with pytest.raises(CannotTell, match=r"^64 questions about what is before 72 were not enough$"):
        search.ask(1)
    assert len(asked) == 64


@pytest.mark.parametrize(
    ("last_file", "answer", "told"),
    [
        (7, 2, "its last file begins at 7, which is no multiple of any size that a file can have"),
        (72, None, "it has nothing before its last file, which begins at 72"),
        (72, 1, "it sends its log byte by byte, so that the end of a file looks like any other place"),
        (72, 3, "a frame of 3 bytes from 70, and its last file begins at 72"),
        (8, 2, None),
    ],
)
def test_the_first_answer_says_whether_a_search_is_possible(last_file: int, answer: int | None, told: str | None) -> None:
    if told is None:
        assert find_file_size(last_file, lambda _: answer) == 8  # the only size there is
        return
    with pytest.raises((CannotTell, Contradiction)) as found:
        find_file_size(last_file, lambda _: answer)
    assert str(found.value) == told


@pytest.mark.parametrize(
    ("primes", "sizes"),
    [
        ({2: 3}, [8]),
        ({7: 1}, []),
        ({3: 2}, [9]),
        ({MAX_FILE_SIZE: 1}, [MAX_FILE_SIZE]),
        ({MAX_FILE_SIZE + 1: 1}, []),
        ({2: 1, MAX_FILE_SIZE: 1}, [MAX_FILE_SIZE]),
    ],
)
def test_a_file_has_8_bytes_and_2_gib_less_one_at_most(primes: dict[int, int], sizes: list[int]) -> None:
    assert _divisors(primes) == sizes
    assert MAX_FILE_SIZE == 2**31 - 1


def test_a_factor_is_looked_for_up_to_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rest behind it counts as a prime."""
    monkeypatch.setattr(module, "_TRIED_FACTORS", 7)
    assert [module.factors(number) for number in (49, 121, 2 * 49 * 121, 1, 9 * 5)] == [
        {7: 2}, {121: 1}, {2: 1, 7: 2, 121: 1}, {}, {3: 2, 5: 1},
    ]  # fmt: skip
