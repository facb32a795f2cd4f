"""The pairing table of ARCHITECTURE.md: each function of the model beside its twin in the implementation.

It is read from the sources. A function or method of `impl/ha` names its twin in the first line of its docstring, as in
`Twin: reference.master.on_reports.`, and has its name, without `on_` and `_`. The twins of a file stand in the order of the
model. Each function without a twin, and each name that differs, has a reason below; a reason that nothing needs is an error.

    python -m rocketmq_ha.spec.pairing           print the table
    python -m rocketmq_ha.spec.pairing --check   exit status 1 if ARCHITECTURE.md differs, or a rule is broken
    python -m rocketmq_ha.spec.pairing --write   write the table into ARCHITECTURE.md
"""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
FILES: Final = {  # reference/ -> impl/ha/
    "master.py": "master.py",
    "slave.py": "slave.py",
    "overlap.py": "overlap.py",
    "file_size.py": "file_size.py",
    "group_transfer.py": "group_transfer.py",
    "five_waits.py": "five_waits.py",
    "puts.py": "puts.py",
    "cluster.py": "service.py",
}
# Of cluster.py the implementation has the master's part alone: fuzz/world.py plays the network and the processes.
PARTLY: Final = frozenset({"cluster.py"})
BEGIN, END = "<!-- pairing -->", "<!-- end of pairing -->"
TWIN: Final = re.compile(r"Twin: ((?:reference\.\w+\.\w+(?:, )?)+)\.")

NAMES_A_STATE: Final = "gives a state its name, for the diagrams and the event log"
LINK_CLOSES: Final = "the link closes, with the reason `end_of_stream`"

# Why a function has no twin.
WITHOUT_TWIN: Final = {
    "reference.master.classify": NAMES_A_STATE,
    "reference.master.build_frame": "`on_transfer` builds up to 16 frames at once",
    "reference.master.transfer_data": "`impl/net/link.py` writes, and `on_transferred` learns how many bytes the socket took",
    "reference.master.sent_offset": "an attribute of the connection",
    "reference.master.on_end_of_stream": LINK_CLOSES,
    "impl.ha.master.MasterConnection.needed_offset": "for retention, which the cluster does not have",
    "impl.ha.master.MasterConnection.last_write_over": "a field of the model's connection",
    "impl.ha.master.MasterConnection.unparsed": "the length of two fields of the model's connection",
    "reference.slave.classify": NAMES_A_STATE,
    "reference.slave.ends_in_its_file": "`_check_frame` asks this too",
    "reference.slave.parsing_throws": "one comparison, in `dispatch`",
    "reference.slave.reallocate_byte_buffer": "`recv_buffer` moves the bytes within one buffer (HA-S-9)",
    "reference.slave.on_end_of_stream": LINK_CLOSES,
    "reference.slave.on_restart": "the process itself restarts, and opens its store",
    "impl.ha.slave.SlaveClient.unparsed_size": "the length of `unparsed`, without a copy",
    "impl.ha.slave.SlaveClient.stalled": "a comparison in the model's `on_frames`",
    "reference.overlap.last_record": "`find_overlap` walks to it",
    "impl.ha.overlap.recovered_end": "for the text of an error",
    "reference.file_size.is_known": "an attribute of the slave",
    "reference.file_size.adopt": "`impl/ha/slave.py` adopts a size, with its log",
    "reference.group_transfer.classify": NAMES_A_STATE,
    "reference.five_waits.classify": NAMES_A_STATE,
    "reference.five_waits.service_of": "an attribute",
    "reference.puts.refusal": "a slave has no `Puts` (`impl/ha/puts.py`)",
    "reference.puts.waits": "`impl/store/pending_put.py`, which the embedded store uses too",
    "reference.puts.outcome": "`impl/store/log/results.py`, which the embedded store uses too",
    "reference.puts.on_ack": "`FlushedPut.status` reads the status of the request that the slave's acknowledgement ends",
    "reference.puts.tick_slaves": "the first half of `on_tick`: `HAService.on_tick`",
    "reference.puts.tick_disk": "the second half of `on_tick`: `on_turn`",
    "reference.puts.shut_disk": "the first half of `on_shutdown`: `shutdown`",
    "reference.puts.shut_slaves": "the second half of `on_shutdown`: `HAService.shutdown`",
    "reference.puts.statuses": "each put has its status",
    "impl.ha.puts.FlushedPut.next_offset": "an attribute of its request",
    "impl.ha.puts.FlushedPut.append": "an attribute of its request",
    "impl.ha.puts.FlushedPut.status": "a waiting put of the model is told by an output",
    "impl.ha.puts.Puts.flushing": "for `status` and metrics",
    "impl.ha.puts.Puts.after_append": "the second half of a put, for a broker that has appended the message itself",
    "impl.ha.service.HAService.append": "the first half of a put, for a producer that has another wait before the second",
    "impl.ha.service.HAService.close": "a step of a connection closes it in the model",
    "impl.ha.service.HAService.count_replicas": "for `status` and metrics",
    "impl.ha.service.HAService.count_connected": "for `status` and metrics",
    "impl.ha.service.HAService.needed_offset": "for retention, which the cluster does not have",
}
# Why a twin has another name.
OTHER_NAME: Final = {
    "reference.slave.report_slave_max_offset": "the link writes the report, and `on_report_written` learns how much",
    "reference.overlap.first_report": "`find_overlap` finds the end of the overlap too",
    "reference.overlap.differs": "it says where, for the error",
    "reference.file_size.walk": "`Walk.take` takes the bytes in pieces",
    "reference.puts.on_flush": "`on_turn` reads what the thread that flushes has set",
    "reference.puts.on_tick": "`on_turn` ends late waits in the same turn",
    "reference.cluster.resume": "`handle_ha` is RocketMQ's name",
    "reference.cluster.connect": "`on_accept` is the master's part of it",
    "reference.cluster.restart_master": "`shutdown` is the end of it",
    "reference.cluster._on_ack": "`on_ack` is one of two methods, chosen once",
}


@dataclass(frozen=True, slots=True)
class Function:
    """A function or method of a source."""

    name: str  # dotted, from the folder on: impl.ha.master.MasterConnection.on_reports
    twins: tuple[str, ...] = ()

    @property
    def short(self) -> str:
        return self.name.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class Pair:
    """A file of the model and its file of the implementation."""

    model_file: str
    impl_file: str
    model: tuple[Function, ...]
    impl: tuple[Function, ...]

    def twins_of(self, name: str) -> list[Function]:
        return [function for function in self.impl if name in function.twins]


def functions(folder: str, file: str, root: Path = ROOT) -> Iterator[Function]:
    """The functions and methods of a file, in order; of a Protocol none, and no dunder but `__init__`."""
    module = ast.parse((root / folder / file).read_text(encoding="utf-8"))
    prefix = f"{folder.replace('/', '.')}.{file.removesuffix('.py')}"
    for node in module.body:
        match node:
            case ast.FunctionDef():
                yield _function(prefix, node)
            case ast.ClassDef(name=name, bases=bases) if "Protocol" not in map(ast.unparse, bases):
                yield from (_function(f"{prefix}.{name}", child) for child in node.body if isinstance(child, ast.FunctionDef))


def _function(prefix: str, node: ast.FunctionDef) -> Function:
    first_line = (ast.get_docstring(node) or "").partition("\n")[0]
    found = TWIN.search(first_line)
    return Function(f"{prefix}.{node.name}", tuple(found[1].split(", ")) if found else ())


def pairs(root: Path = ROOT) -> list[Pair]:
    """The pairs of files, with the public functions of the model, and those of the implementation that are public or twins."""
    found = []
    for model_file, impl_file in FILES.items():
        model = tuple(
            Function(re.sub(r"\._Work\.", ".", function.name))
            for function in functions("reference", model_file, root)
            if not function.short.startswith("_") or function.name in OTHER_NAME or model_file in PARTLY
        )
        impl = tuple(
            function
            for function in functions("impl/ha", impl_file, root)
            if function.twins or not function.short.startswith("_")
        )
        found.append(Pair(model_file, impl_file, model, impl))
    return found


def problems(found: list[Pair]) -> list[str]:
    """The rules that are broken, a line each."""
    lines: list[str] = []
    reasons, other_names = dict(WITHOUT_TWIN), dict(OTHER_NAME)
    for pair in found:
        names = [function.name for function in pair.model]
        for function in pair.impl:
            lines += (f"{function.name}: no function {twin} in the model" for twin in function.twins if twin not in names)
            if not function.twins and reasons.pop(function.name, None) is None:
                lines.append(f"{function.name}: names no twin, and WITHOUT_TWIN has no reason")
        for name in names:
            twins = pair.twins_of(name)
            if not twins and pair.model_file not in PARTLY and reasons.pop(name, None) is None:
                lines.append(f"{name}: has no twin, and WITHOUT_TWIN has no reason")
            is_same = any(twin.short == "__init__" or _bare(twin.short) == _bare(name.rpartition(".")[2]) for twin in twins)
            if twins and not is_same and other_names.pop(name, None) is None:
                lines.append(f"{name}: its twin is {twins[0].short}, and OTHER_NAME has no reason")
        order = [names.index(function.twins[0]) for function in pair.impl if function.twins and function.twins[0] in names]
        if order != sorted(order):
            lines.append(f"impl/ha/{pair.impl_file}: its functions stand in another order than reference/{pair.model_file}")
    lines += (f"{name}: its reason is needed no more" for name in (*reasons, *other_names))
    return lines


def _bare(name: str) -> str:
    return name.removeprefix("_").removeprefix("on_")


def table(found: list[Pair]) -> str:
    """The text between the markers."""
    lines = []
    for pair in found:
        lines += ["", f"| `reference/{pair.model_file}` | `impl/ha/{pair.impl_file}` | |", "|---|---|---|"]
        for function in pair.model:
            twins = ", ".join(f"`{twin.short}`" for twin in pair.twins_of(function.name))
            why = OTHER_NAME.get(function.name, "") if twins else WITHOUT_TWIN.get(function.name, "")
            if twins or why:
                lines.append(f"| `{function.short}` | {twins or '-'} | {why} |".replace("|  |", "| |"))
        lines += (f"| - | `{one.short}` | {WITHOUT_TWIN[one.name]} |" for one in pair.impl if one.name in WITHOUT_TWIN)
    return "\n".join(lines[1:])


def inserted(text: str, rows: str) -> str:
    """The text with the table between its markers.

    >>> inserted("a\\n<!-- pairing -->\\nold\\n<!-- end of pairing -->\\n", "new")
    'a\\n<!-- pairing -->\\nnew\\n<!-- end of pairing -->\\n'
    """
    before, found, rest = text.partition(f"{BEGIN}\n")
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise ValueError(f"no line {BEGIN}, or no {END} behind it")
    return f"{before}{BEGIN}\n{rows}\n{END}{after}"


def main(arguments: list[str]) -> int:
    found = pairs()
    rows, file = table(found), ROOT / "ARCHITECTURE.md"
    if not arguments:
        sys.stdout.write(f"{rows}\n")
        return 0
    wrong = problems(found)
    try:
        text = file.read_text(encoding="utf-8")
        new = inserted(text, rows)
    except (OSError, ValueError) as error:
        wrong.append(f"{file.name}: its pairing table cannot be written: {error}")
    else:
        if arguments == ["--write"]:
            file.write_text(new, encoding="utf-8")
        elif new != text:
            wrong.append(f"{file.name}: its pairing table differs from the code; make transitions writes it anew")
    sys.stderr.writelines(f"{line}\n" for line in wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
