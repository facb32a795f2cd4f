"""Our processes on one end of a link and a real broker on the other: what the tests of replication share."""

from contextlib import ExitStack
from pathlib import Path

from rocketmq import FILE_SIZE
from servers import wait

from kit.files import end_of
from rocketmq_ha.fuzz.processes import Node
from rocketmq_ha.fuzz.proxy import CuttingProxy, PlannedCut
from rocketmq_ha.fuzz.trace import Checked, check_transcript
from rocketmq_ha.fuzz.transcript import Transcript, save
from rocketmq_ha.impl.net.address import parse_address
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.store.log.verify import compare, verify
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec.profile import Profile, Settings

PUTS_S = 600.0  # for all puts of a test


class RecordedLink:
    """A cutting proxy before a master, and all that goes through it."""

    def __init__(self, nodes: ExitStack, upstream: str, cuts: list[PlannedCut]) -> None:
        self.transcript = Transcript()
        self.proxy = CuttingProxy(parse_address(upstream), cuts, self.transcript)
        nodes.callback(self.proxy.close)

    @property
    def cuts(self) -> tuple[int, int]:
        """How many have been, in a header and in a body."""
        return self.proxy.cuts_in_header, self.proxy.cuts_in_body

    def check(self, work: Path, store: Path, master: Profile, slave: Profile) -> Checked:
        """Hold the transcript against the model, and the master's log in the end; it is kept in `work` as a file."""
        save(list(self.transcript), work / "transcript.jsonl")
        return check_transcript(list(self.transcript), log_of(store), Settings(FILE_SIZE), master, slave)


def log_of(store: Path) -> Log:
    """A store's log as the model has it."""
    with LogReader(store) as reader:
        reader.walk()
        base, end = reader.min_offset, reader.max_offset
    data = b"".join(path.read_bytes() for path in sorted((store / "commitlog").iterdir()) if path.name.isdigit())
    return Log(FILE_SIZE, base, data[: end - base])


def start_slave(nodes: ExitStack, tmp_path: Path, store: Path, master: str, *more: str) -> Node:
    follow = ("slave", "--store", str(store), "--master", master, "--file-size", str(FILE_SIZE))
    node = Node(tmp_path / "our-slave.log", *follow, *more)
    nodes.callback(node.stop)
    return node


def start_master(nodes: ExitStack, tmp_path: Path, store: Path, listen: str, *more: str) -> tuple[Node, str]:
    """Returns: the process, and where it listens."""
    serve = ("master", "--store", str(store), "--listen", listen, "--file-size", str(FILE_SIZE))
    node = Node(tmp_path / "our-master.log", *serve, *more)
    nodes.callback(node.stop)
    return node, node.line("listening")


def statuses_of(master: Node) -> dict[str, int]:
    """What `--put` tells in the end."""
    return puts_of(master)[0]


def puts_of(master: Node) -> tuple[dict[str, int], int]:
    """What `--put` tells in the end, and how many messages it put besides, for which nobody waited."""
    words = dict(pair.split("=") for pair in master.line("put", PUTS_S).split()[1:])
    return {name: int(count) for name, count in words.items() if name.isupper()}, int(words.get("unwaited", 0))


def await_same_end(a: Path, b: Path) -> None:
    wait(f"{a.name} and {b.name} end at one offset", lambda: end_of(a) == end_of(b))


def assert_same_logs(ours: Path, theirs: Path) -> int:
    """Every record of both is right, and they are the same but for padding. Returns: messages."""
    with LogReader(ours) as a, LogReader(theirs) as b:
        summaries = verify(a), verify(b)
        comparison = compare(a, b)
    assert comparison.difference is None, comparison.difference
    assert (summaries[0].min_offset, summaries[0].max_offset) == (summaries[1].min_offset, summaries[1].max_offset)
    assert summaries[0].messages == summaries[1].messages
    return summaries[0].messages
