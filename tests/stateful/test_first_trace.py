"""The trace at the start of chapter 0: model and implementation, in lock-step, send exactly its bytes."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rocketmq_ha.fuzz.lockstep import LinkLockstep, of_link, scratch_directory
from rocketmq_ha.fuzz.schedule import UNBOUNDED_ROOM
from rocketmq_ha.reference import slave
from rocketmq_ha.reference.cluster import Link
from rocketmq_ha.reference.events import Connect, Cut, DeliverFrames, DeliverReports, Event, Put, Tick
from rocketmq_ha.spec.event_log import VERDICT_OK
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile, Settings

CHAPTER = Path(__file__).parents[2] / "spec" / "0-terms.md"
HEADER_SIZE = 12
CUT_BEHIND = 7  # bytes of the third message's header
WIRE = re.compile(r"(slave  -> master|master -> slave) +([0-9a-f]+(?: [0-9a-f]+)*)(?:  \+ (\d+) bytes of the log)?")


def told_in_the_chapter() -> list[tuple[str, str, int]]:
    """(direction, bytes of reports and headers in hex, how many bytes of the log follow) for each line of the trace."""
    text = CHAPTER.read_text(encoding="utf-8")
    trace = text.partition("<!-- trace -->")[2].partition("<!-- end of trace -->")[0]
    return [(way, digits, int(size or 0)) for way, digits, size in WIRE.findall(trace)]


class Trace:
    """Two worlds in lock-step, and the bytes that have arrived at each end."""

    def __init__(self, worlds: LinkLockstep) -> None:
        self.worlds = worlds
        self.arrived: list[tuple[str, str, int]] = []

    def do(self, *events: Event) -> None:
        for event in events:
            outcome = self.worlds.apply(event)
            assert outcome.verdict == VERDICT_OK, outcome

    @property
    def link(self) -> Link:
        return next(link for link in self.worlds.reference.cluster.links if link.slave_open)

    @property
    def outcomes(self) -> list[str]:
        return [done.status for done in self.worlds.reference.cluster.done]

    def report(self) -> None:
        self.arrived.append(("slave  -> master", self.link.to_master.hex(" ", -4), 0))
        self.do(DeliverReports(0, UNBOUNDED_ROOM))

    def frame(self, nbytes: int = UNBOUNDED_ROOM) -> None:
        data = self.link.to_slave[:nbytes]
        body = data[HEADER_SIZE:]
        offset = int.from_bytes(data[:8], "big") if body else 0
        log = self.worlds.reference.cluster.log
        assert body == log.data[offset - (log.base or 0) :][: len(body)]  # the bytes of the log at the frame's offset
        self.arrived.append(("master -> slave", data[:HEADER_SIZE].hex(" ", -4), len(body)))
        self.do(DeliverFrames(0, nbytes))


MESSAGE = Put("T", b"x" * 8, "", 0, wait=False)  # 100 bytes of log: 91, the topic, the body
AWAITED = Put("T", b"x" * 8, "", 0, wait=True)
CONNECT = Connect(0, UNBOUNDED_ROOM, UNBOUNDED_ROOM)


@contextmanager
def trace(profile: Profile) -> Iterator[Trace]:
    with scratch_directory() as directory:
        worlds = of_link(1, Settings(mapped_file_size=1000), profile, directory)
        try:
            yield Trace(worlds)
        finally:
            worlds.close()


def test_every_byte_of_the_trace_is_on_the_wire_of_both_worlds() -> None:
    """HA-S-3 "MUST report at once on connecting"; HA-S-13 for the seven bytes; HA-S-61, HA-S-62 for the last two frames."""
    with trace(HARDENED) as run:
        run.do(MESSAGE, MESSAGE, CONNECT)
        run.report()  # 1
        run.frame()  # 2
        run.report()  # 3
        run.do(AWAITED)
        run.frame(CUT_BEHIND)  # 4
        assert len(slave.unparsed(run.worlds.reference.cluster.slaves[0])) == CUT_BEHIND
        run.do(Cut(0, "both"))  # 5
        assert slave.unparsed(run.worlds.reference.cluster.slaves[0]) == b""
        assert run.outcomes == []
        run.do(CONNECT)
        run.report()  # 6
        run.frame()  # 7
        run.report()  # 8
        assert run.outcomes == ["PUT_OK"]
        assert run.worlds.reference.cluster.slaves[0].log.data == run.worlds.reference.cluster.log.data
        assert told_in_the_chapter() == run.arrived


def test_as_the_chapter_says_a_put_of_4_5_2_does_not_outlive_the_reconnect() -> None:
    """HA-S-2 "when more than" its interval has passed: a classic slave reports nothing for 5 s, and the put waits only 5 s."""
    with trace(CLASSIC) as run:
        everything = (DeliverReports(0, UNBOUNDED_ROOM), DeliverFrames(0, UNBOUNDED_ROOM), DeliverReports(0, UNBOUNDED_ROOM))
        run.do(MESSAGE, MESSAGE, CONNECT, Tick(5001), *everything)
        run.do(AWAITED, DeliverFrames(0, CUT_BEHIND), Cut(0, "both"), CONNECT)
        outcomes = []
        for _ in range(5):
            run.do(Tick(1000))
            outcomes += run.outcomes
        assert outcomes == ["FLUSH_SLAVE_TIMEOUT"]
        assert run.link.to_master == b""
        run.do(Tick(1))
        assert run.link.to_master == (200).to_bytes(8, "big")
