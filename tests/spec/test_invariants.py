"""Each invariant of a cluster is broken by a state made to break it, and by no state that comes close to it."""

from dataclasses import replace
from typing import Any, Final

import pytest

from rocketmq_ha.reference import group_transfer_service, invariants, message, store
from rocketmq_ha.reference.cluster import Cluster, Link
from rocketmq_ha.reference.master import MasterConnection
from rocketmq_ha.reference.message import Record
from rocketmq_ha.reference.slave import Slave
from rocketmq_ha.reference.step import Done
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec.profile import HARDENED, Settings

FILE_SIZE: Final = 240  # two records of 112 bytes and a BLANK of 16
RECORD: Final = 112
END: Final = FILE_SIZE + RECORD  # of the master's three records


def three_records() -> Log:
    log = Log(FILE_SIZE)
    for _ in range(3):
        log = store.append_record(log, Record(b"T", bytes(range(1, 21))))[0]
    assert (len(message.encode(Record(b"T", bytes(20)))), store.max_offset(log)) == (RECORD, END)
    return log


LOG: Final = three_records()
# The slave has the first two records, and has acknowledged them; the master has sent it everything.
SLAVE: Final = Slave(replace(LOG, data=LOG.data[: 2 * RECORD]), connected=True, current_reported_offset=2 * RECORD)
CONN: Final = MasterConnection(0, 0, slave_request_offset=0, slave_ack_offset=2 * RECORD, next_transfer_from_where=END)
LINK: Final = Link(0, 0, CONN, room=0, slave_room=0)
CLUSTER: Final = Cluster(0, LOG, (SLAVE,), group_transfer_service.new_group(HARDENED), (LINK,))
WITHOUT_FIRST_FILE: Final = Log(FILE_SIZE, FILE_SIZE, LOG.data[FILE_SIZE:])


def changed(data: bytes, at: int) -> bytes:
    return data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]


FLAG: Final = RECORD + 16  # a byte of the second record that no CRC covers
DIFFERENT: Final = replace(SLAVE, log=replace(SLAVE.log, data=changed(SLAVE.log.data, FLAG)))
PUT_OK, TIMEOUT = "PUT_OK", "FLUSH_SLAVE_TIMEOUT"


def with_slave(**changes: Any) -> Cluster:
    return replace(CLUSTER, slaves=(replace(SLAVE, **changes),))


def with_conn(**changes: Any) -> Cluster:
    return replace(CLUSTER, links=(replace(LINK, conn=replace(CONN, **changes)),))


def with_link(**changes: Any) -> Cluster:
    """A slave that differs behind a loss of its master's, and its connection with these changes."""
    return replace(CLUSTER, has_lost=True, slaves=(DIFFERENT,), links=(replace(LINK, **changes),))


def ended(*outcomes: tuple[int, str]) -> Cluster:
    return replace(CLUSTER, done=tuple(Done(number, offset, status) for number, (offset, status) in enumerate(outcomes)))


PREFIX, AHEAD, WITHIN, APPENDED, REPLICATED, OPENS, BOUNDARY = (invariant.__name__ for invariant in invariants.INVARIANTS)


@pytest.mark.parametrize(
    ("cluster", "broken"),
    [
        pytest.param(CLUSTER, (), id="all hold"),
        pytest.param(with_slave(log=LOG), (), id="a slave with everything"),
        pytest.param(with_slave(log=Log(FILE_SIZE)), (APPENDED,), id="a slave with less than it acknowledged"),
        # The log of a slave.
        pytest.param(replace(CLUSTER, slaves=(DIFFERENT,)), (PREFIX,), id="a byte differs"),
        pytest.param(replace(CLUSTER, slaves=(SLAVE, DIFFERENT)), (PREFIX,), id="a byte of the second slave differs"),
        pytest.param(with_slave(log=WITHOUT_FIRST_FILE), (), id="a slave that begins at the second file"),
        pytest.param(
            with_slave(log=replace(WITHOUT_FIRST_FILE, data=changed(WITHOUT_FIRST_FILE.data, 16))),
            (PREFIX,),
            id="a byte of that slave differs",
        ),
        pytest.param(
            replace(CLUSTER, log=WITHOUT_FIRST_FILE, slaves=(replace(SLAVE, log=WITHOUT_FIRST_FILE),)),
            (),
            id="master and slave begin at the second file",
        ),
        pytest.param(
            replace(CLUSTER, log=replace(LOG, data=LOG.data[: END - 1]), slaves=(replace(SLAVE, log=LOG),)),
            (PREFIX, AHEAD, WITHIN),
            id="a slave has a byte more",
        ),
        pytest.param(with_slave(log=Log(FILE_SIZE, 2 * FILE_SIZE)), (AHEAD,), id="an empty file beyond the master's end"),
        # What the master sends and what it is told.
        pytest.param(with_conn(next_transfer_from_where=END + 1), (WITHIN,), id="one byte too much is promised"),
        pytest.param(
            with_conn(next_transfer_from_where=END + 1, close_reason="x"), (), id="a closed connection promises nothing"
        ),
        pytest.param(with_conn(slave_ack_offset=2 * RECORD + 1), (APPENDED,), id="one byte too much is acknowledged"),
        pytest.param(with_conn(slave_ack_offset=END, close_reason="x"), (), id="a closed connection acknowledges nothing"),
        pytest.param(
            replace(CLUSTER, links=(replace(LINK, slave_open=False, conn=replace(CONN, slave_ack_offset=END)),)),
            (),
            id="a slave that has gone acknowledges nothing",
        ),
        # Puts that end.
        pytest.param(ended((2 * RECORD, PUT_OK)), (), id="a put that the slave has"),
        pytest.param(ended((2 * RECORD + 1, PUT_OK)), (REPLICATED,), id="a put of which the slave lacks a byte"),
        pytest.param(ended((END, TIMEOUT)), (), id="a put that ended otherwise"),
        pytest.param(ended((RECORD, PUT_OK), (END, PUT_OK)), (REPLICATED,), id="the second of two puts"),
        pytest.param(
            replace(ended((2 * RECORD, PUT_OK)), slaves=(DIFFERENT,)), (PREFIX, REPLICATED), id="a put of another content"
        ),
        pytest.param(replace(ended((RECORD, PUT_OK)), slaves=(DIFFERENT,)), (PREFIX,), id="a put before what differs"),
        pytest.param(
            replace(ended((END, PUT_OK)), slaves=(replace(SLAVE, log=WITHOUT_FIRST_FILE),)),
            (),
            id="a slave that begins at the second file has the put",
        ),
        pytest.param(
            replace(ended((END, PUT_OK)), log=WITHOUT_FIRST_FILE, slaves=(replace(SLAVE, log=WITHOUT_FIRST_FILE),)),
            (),
            id="both begin at the second file",
        ),
        pytest.param(
            replace(ended((RECORD, PUT_OK)), slaves=(Slave(Log(FILE_SIZE)), SLAVE), links=()), (), id="the second slave has it"
        ),
        # The next start of a slave.
        pytest.param(with_slave(log=replace(SLAVE.log, file_size=128)), (OPENS,), id="a record crosses the slave's file"),
        pytest.param(
            replace(
                CLUSTER,
                links=(),
                slaves=(replace(SLAVE, log=replace(SLAVE.log, file_size=128, data=LOG.data[: 2 * RECORD - 1])),),
            ),
            (),
            id="a part of a record crosses it",
        ),
        # Bytes that are no whole frame.
        pytest.param(with_slave(byte_buffer_read=b"x"), (), id="a connected slave holds a part of a frame"),
        pytest.param(with_slave(byte_buffer_read=b"x", connected=False), (BOUNDARY,), id="a slave alone holds one"),
        pytest.param(
            replace(CLUSTER, slaves=(SLAVE, replace(SLAVE, byte_buffer_read=b"x", connected=False))),
            (BOUNDARY,),
            id="the second slave alone holds one",
        ),
        # After a loss, only the slaves count that have compared their overlap with this master's.
        pytest.param(with_link(), (PREFIX,), id="loss: a slave on an intact connection"),
        pytest.param(with_link(slave_open=False), (), id="loss: the slave's end is closed"),
        pytest.param(with_link(severed=True), (), id="loss: a severed connection"),
        pytest.param(with_link(conn=replace(CONN, close_reason="x")), (), id="loss: the master's end is closed"),
        pytest.param(with_link(conn=replace(CONN, slave_request_offset=-1)), (), id="loss: nothing is reported yet"),
        pytest.param(
            replace(with_link(), slaves=(replace(DIFFERENT, current_reported_offset=RECORD),)),
            (),
            id="loss: the overlap is not compared yet",
        ),
        pytest.param(replace(with_link(), links=()), (), id="loss: no connection"),
        pytest.param(
            replace(with_link(slave=1), slaves=(SLAVE, DIFFERENT)), (PREFIX,), id="loss: the connection of the second slave"
        ),
        pytest.param(replace(with_link(slave=0), slaves=(SLAVE, DIFFERENT)), (), id="loss: the connection of the first slave"),
    ],
)
def test_a_state_breaks_these_invariants_and_no_other(cluster: Cluster, broken: tuple[str, ...]) -> None:
    assert invariants.broken(cluster, Settings(FILE_SIZE)) == broken


@pytest.mark.parametrize(("replicas", "slaves", "holds"), [(1, 1, True), (2, 1, False), (2, 2, True), (3, 2, False)])
def test_a_put_is_on_as_many_slaves_as_it_needs(replicas: int, slaves: int, holds: bool) -> None:
    """HA-G-30; a further slave, which has nothing, does not count."""
    cluster = replace(ended((2 * RECORD, PUT_OK)), slaves=(*(SLAVE,) * slaves, Slave(Log(FILE_SIZE))))
    found = invariants.broken(cluster, Settings(FILE_SIZE, replicas=replicas))
    assert found == (() if holds else (REPLICATED,))
