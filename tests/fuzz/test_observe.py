"""The comparator sees each field of an observation, and names the actor, the field and both values, the reference's first.

The fields are those of the named tuples, so that a new field is covered by itself.
"""

from typing import Any, get_type_hints

import pytest

from rocketmq_ha.fuzz.differences import Difference, differences
from rocketmq_ha.fuzz.observe import Observation, ObservedLink, ObservedSlave

# For each type of a field: two values, and how a difference shows them.
VALUES: dict[Any, tuple[tuple[Any, str], tuple[Any, str]]] = {
    int: ((3, "3"), (5, "5")),
    bool: ((False, "False"), (True, "True")),
    str: (("ours", "'ours'"), ("theirs", "'theirs'")),
    bytes: ((b"\x01\xff", "01 ff"), (b"\x02", "02")),
    tuple[int, ...]: (((1, 2), "(1, 2)"), ((2, 1), "(2, 1)")),
    tuple[tuple[int, str], ...]: (((((7, "PUT_OK"),)), "((7, 'PUT_OK'),)"), ((), "()")),
}
PARTS = ("links", "slaves")  # compared one by one, each under its own name


def one(kind: Any) -> Any:
    """A value of the first of VALUES in each field; an observation has two links and three slaves."""
    hints = get_type_hints(kind)
    own = {name: VALUES[hints[name]][0][0] for name in kind._fields if name not in PARTS}
    if kind is Observation:
        own |= {"links": (link(3), link(9)), "slaves": (one(ObservedSlave),) * 3}
    return kind(**own)


def link(link_id: int) -> ObservedLink:
    found: ObservedLink = one(ObservedLink)._replace(link_id=link_id)
    return found


def changed(kind: Any, name: str) -> tuple[Any, str, str]:
    """(another value of a field, how the first is shown, how the other is shown)."""
    (_, ours), (value, theirs) = VALUES[get_type_hints(kind)[name]]
    return value, ours, theirs


def names(kind: Any) -> list[str]:
    return [name for name in kind._fields if name not in (*PARTS, "link_id")]


BASE: Observation = one(Observation)


@pytest.mark.parametrize("name", names(Observation))
def test_a_field_of_the_master_alone_gives_one_difference(name: str) -> None:
    value, ours, theirs = changed(Observation, name)
    other = BASE._replace(**{name: value})
    assert differences(BASE, other) == [Difference("master", name, ours, theirs)]
    assert differences(other, BASE) == [Difference("master", name, theirs, ours)]


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("name", names(ObservedLink))
def test_a_field_of_a_link_alone_gives_one_difference(name: str, at: int) -> None:
    value, ours, theirs = changed(ObservedLink, name)
    links = list(BASE.links)
    links[at] = links[at]._replace(**{name: value})
    other = BASE._replace(links=tuple(links))
    assert differences(BASE, other) == [Difference(f"link {(3, 9)[at]}", name, ours, theirs)]
    assert differences(other, BASE) == [Difference(f"link {(3, 9)[at]}", name, theirs, ours)]


@pytest.mark.parametrize("at", [0, 2])
@pytest.mark.parametrize("name", names(ObservedSlave))
def test_a_field_of_a_slave_alone_gives_one_difference(name: str, at: int) -> None:
    value, ours, theirs = changed(ObservedSlave, name)
    slaves = list(BASE.slaves)
    slaves[at] = slaves[at]._replace(**{name: value})
    other = BASE._replace(slaves=tuple(slaves))
    assert differences(BASE, other) == [Difference(f"slave {at}", name, ours, theirs)]
    assert differences(other, BASE) == [Difference(f"slave {at}", name, theirs, ours)]


def test_equal_observations_have_no_difference() -> None:
    assert differences(BASE, one(Observation)) == []


@pytest.mark.parametrize(
    ("links", "told"),
    [
        ((), "[]"),
        ((link(3),), "[3]"),
        ((link(3), link(9), link(10)), "[3, 9, 10]"),
        ((link(9), link(3)), "[9, 3]"),
        ((link(3), link(8)), "[3, 8]"),
    ],
    ids=["none", "one fewer", "one more", "reordered", "another"],
)
def test_other_links_are_one_difference_of_the_master(links: tuple[ObservedLink, ...], told: str) -> None:
    assert differences(BASE, BASE._replace(links=links)) == [Difference("master", "links", "[3, 9]", told)]
    assert differences(BASE._replace(links=links), BASE) == [Difference("master", "links", told, "[3, 9]")]


def test_other_links_do_not_hide_what_else_differs_at_the_master() -> None:
    other = BASE._replace(max_offset=5, links=())
    assert differences(BASE, other) == [
        Difference("master", "max_offset", "3", "5"),
        Difference("master", "links", "[3, 9]", "[]"),
    ]


def test_all_differences_are_found_the_masters_first_then_the_links_then_the_slaves() -> None:
    masters = {name: changed(Observation, name)[0] for name in names(Observation)}
    links = {name: changed(ObservedLink, name)[0] for name in names(ObservedLink)}
    slaves = {name: changed(ObservedSlave, name)[0] for name in names(ObservedSlave)}
    other = BASE._replace(
        **masters,
        links=tuple(one_link._replace(**links) for one_link in BASE.links),
        slaves=tuple(node._replace(**slaves) for node in BASE.slaves),
    )
    found = [(difference.actor, difference.field) for difference in differences(BASE, other)]
    expected = [("master", name) for name in masters]
    expected += [(f"link {number}", name) for number in (3, 9) for name in links]
    expected += [(f"slave {number}", name) for number in range(3) for name in slaves]
    assert found == expected


def test_another_number_of_slaves_is_a_difference() -> None:
    found = differences(BASE, BASE._replace(slaves=BASE.slaves[:1]))
    assert [str(each) for each in found] == ["master.slaves: reference [0, 1, 2], implementation [0]"]


SIXTEEN = bytes(range(16))


@pytest.mark.parametrize(
    ("ours", "theirs", "shown"),
    [
        (b"", b"\x00", ("", "00")),
        (SIXTEEN, SIXTEEN[:15], (SIXTEEN.hex(" "), SIXTEEN[:15].hex(" "))),
        (SIXTEEN + b"\x10", SIXTEEN, ("17 bytes, from 16: 10", "16 bytes, from 16: end")),
        (SIXTEEN, SIXTEEN + b"\x10", ("16 bytes, from 16: end", "17 bytes, from 16: 10")),
        (
            b"\x63" + bytes(19),
            bytes(20),
            ("20 bytes, from 0: 63 00 00 00 00 00 00 00", "20 bytes, from 0: " + " ".join(8 * ["00"])),
        ),
        (
            bytes(5) + SIXTEEN,
            bytes(5) + b"\xaa" + SIXTEEN[1:],
            ("21 bytes, from 5: 00 01 02 03 04 05 06 07", "21 bytes, from 5: aa 01 02 03 04 05 06 07"),
        ),
        (b"", bytes(17), ("0 bytes, from 0: end", "17 bytes, from 0: " + " ".join(8 * ["00"]))),
        (bytes(17) + b"\x01", bytes(17) + b"\x02", ("18 bytes, from 17: 01", "18 bytes, from 17: 02")),
    ],
    ids=["short", "16 and 15", "17 and 16", "16 and 17", "at the start", "in the middle", "empty and 17", "at the end"],
)
def test_of_more_than_sixteen_bytes_only_the_length_and_the_place_are_shown(
    ours: bytes, theirs: bytes, shown: tuple[str, str]
) -> None:
    found = differences(BASE._replace(log=ours), BASE._replace(log=theirs))
    assert found == [Difference("master", "log", *shown)]


def test_a_difference_is_told_with_the_reference_first() -> None:
    told = str(Difference("slave 1", "log", "01", "02"))
    assert told == "slave 1.log: reference 01, implementation 02"


def test_of_a_long_value_only_what_is_about_the_first_difference_is_shown() -> None:
    """A queue of a store has thousands of entries: a line of kilobytes says nothing to a reader of runs/."""
    field = next(name for name in names(Observation) if get_type_hints(Observation)[name] == tuple[int, ...])
    many = tuple(range(1000, 4000))
    other = (*many[:2000], 7, *many[2001:])
    (found,) = differences(BASE._replace(**{field: many}), BASE._replace(**{field: other}))
    assert ", 2999, 3000, 3001, " in found.reference
    assert ", 2999, 7, 3001, " in found.implementation
    assert max(len(found.reference), len(found.implementation)) < 200
    assert (found.reference[:2], found.reference[-2:]) == ("… ", " …")
    (short,) = differences(BASE._replace(**{field: (1, 2)}), BASE._replace(**{field: many}))
    assert short.reference == "(1, 2)"
    assert short.implementation.startswith("(1000, 1001, ")
