"""A few of the inputs of `make hostile`, against live processes. tests/hostile/ has all of them, and explains the rows."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import hostile_masters
import hostile_slaves
import pytest
from hostile_stand import Stand
from run_hostile import SLAVES_AT_A_TIME, Row, against_master, against_slave, stopped

# all share one master and one slave, and the last test checks the result of all others
pytestmark = pytest.mark.xdist_group("hostile")

SLAVES = (
    "first report the greatest i64 (quirk 1)",
    "an ack of a gigabyte more than was sent",
    "64 KiB of noise",
    "all the connections there are, held from many addresses",
    "twenty readers that read nothing",
    "half-closed within a report",
    "a stranger",
    "TLS: no certificate",
    "TLS: half a hello, and silence",
    "TLS: a record that nobody has encrypted",
)
MASTERS = (
    "body size 2^31 - 1 (quirk 22)",
    "a gap of one byte",
    "a body byte by byte",
    "closed within a body, five times",
    "a body of noise",
    "to an empty slave: the last offsets there are",
)


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """The master puts as fast as it can, but leaves a processor for the other tests."""
    made = Stand(tmp_path_factory.mktemp("hostile"), behind=("nice",))
    yield made
    made.kill()


@pytest.fixture(scope="module")
def hostile_master_rows(stand: Stand, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Row]:
    """Run all hostile masters at once, each with its own slave."""
    given = [each for each in hostile_masters.INPUTS if each.name in MASTERS]
    directories = [tmp_path_factory.mktemp("victim") for _ in given]
    with ThreadPoolExecutor(SLAVES_AT_A_TIME) as pool:
        rows = pool.map(lambda directory, each: against_slave(directory, stand, each, 0), directories, given)
        return {row.name: row for row in rows}


def test_there_are_more_than_sixty_inputs() -> None:
    """Every input that this file names exists."""
    names = [*hostile_slaves.INPUTS, *(given.name for given in hostile_masters.INPUTS)]
    assert len(names) == len(set(names)) >= 60
    assert {*SLAVES, *MASTERS} <= {*names}


@pytest.mark.parametrize("name", SLAVES)
def test_a_hostile_slave_changes_nothing_for_an_honest_one(name: str, stand: Stand) -> None:
    """HA-M-11 "MUST close the connection and MUST NOT be used", HA-M-50 to HA-M-55."""
    row = against_master(stand, name, SLAVES.index(name))
    assert not row.problem
    assert row.sha256


@pytest.mark.parametrize("name", MASTERS)
def test_a_hostile_master_leaves_the_slave_as_it_was(name: str, hostile_master_rows: dict[str, Row]) -> None:
    """HA-S-11, HA-S-4, HA-S-50, HA-S-52: the slave returns to the honest master, with the same log."""
    row = hostile_master_rows[name]
    assert not row.problem
    assert row.sha256


def test_every_put_among_them_ended_with_put_ok(stand: Stand) -> None:
    """HA-G-1 during all attacks; both logs verify. This is the file's last test, and it ends both processes."""
    assert stopped(stand) is None
