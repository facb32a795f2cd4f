"""The map of the tests: which lines each test runs, and how long it takes.

It only orders tests, so an old map costs time and no truth. The tests of a file are recorded again when that file has changed.
A line of a source that has changed since is looked up where it stood then.
"""

import hashlib
import json
import re
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from coverage.numbits import numbits_union

from formal.tree_copy import ROOT, copy_tree, environment

MAP: Final = ROOT / "build" / "mutants" / "map.sqlite"
MEASURED: Final = ("impl", "fuzz", "analysis", "reference", "spec")

_TABLES: Final = """
create table if not exists tests (name text primary key, file text, setup real, seconds real);
create table if not exists files (file text primary key, digest text);
create table if not exists touched (source text, version text, test text, lines blob, primary key (source, version, test));
create table if not exists versions (version text primary key, text text);
create index if not exists by_test on touched (test);
"""
_CONFIGURATION: Final = """[run]
parallel = true
context = ${{MUTANTS_TEST-}}
data_file = {folder}/lines
source =
{sources}
disable_warnings = no-data-collected,module-not-imported,module-not-measured
sigterm = true
"""


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def open_map(path: Path = MAP) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path)
    connection.executescript(_TABLES)
    return connection


def test_files(root: Path = ROOT) -> list[str]:
    """The files with the tests of `make test`."""
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(r"^testpaths = \[(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    folders = re.findall(r'"([^"]+)"', found[1])
    return sorted(path.relative_to(root).as_posix() for folder in folders for path in (root / folder).rglob("test_*.py"))


def stale_files(path: Path = MAP) -> list[str]:
    """The files of tests that are not in the map as they are now."""
    with closing(open_map(path)) as connection:
        known = dict(connection.execute("select file, digest from files"))
    return [file for file in test_files() if known.get(file) != digest(ROOT / file)]


def record(files: Sequence[str], path: Path = MAP, processes: str = "auto") -> int:
    """Run the tests of some files on a copy of the tree, and put what they touch into the map.

    Returns: pytest's exit status. What a failing run has recorded is kept: the map only orders tests.
    """
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        folder = Path(directory)
        root = copy_tree(folder)
        (folder / "data").mkdir()
        sources = "\n".join(f"    {root / name}" for name in MEASURED)
        configuration = folder / "coveragerc"
        configuration.write_text(_CONFIGURATION.format(folder=folder / "data", sources=sources), encoding="utf-8")
        seconds = folder / "seconds.json"
        variables = {"COVERAGE_PROCESS_START": str(configuration), "MUTANTS_SECONDS": str(seconds)}
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-n",
            processes,
            "-p",
            "mutants.record_plugin",
            "-p",
            "no:cacheprovider",
        ]
        basetemp = ["--basetemp", str(folder / "t")]
        env = environment(root) | variables
        status = subprocess.run([*command, *basetemp, *files], cwd=root, env=env, stdout=sys.stderr, check=False).returncode
        if not seconds.exists():
            sys.stderr.write(f"mutants: nothing was recorded: pytest ended with status {status}\n")
            return status
        with closing(open_map(path)) as connection, connection:
            forget(connection, files)
            keep_times(connection, json.loads(seconds.read_text(encoding="utf-8")))
            for data in sorted((folder / "data").iterdir()):
                keep_lines(connection, data, root)
            connection.executemany("replace into files values (?, ?)", [(file, digest(root / file)) for file in files])
    return status


def forget(connection: sqlite3.Connection, files: Iterable[str]) -> None:
    """Remove the tests of some files, and what they touched."""
    for file in files:
        connection.execute("delete from touched where test in (select name from tests where file = ?)", (file,))
        connection.execute("delete from tests where file = ?", (file,))


def keep_times(connection: sqlite3.Connection, seconds: dict[str, tuple[float, float]]) -> None:
    rows = [(name, name.partition("::")[0], *taken) for name, taken in seconds.items()]
    connection.executemany("replace into tests values (?, ?, ?, ?)", rows)


def keep_lines(connection: sqlite3.Connection, data: Path, root: Path) -> None:
    """Add what one process has measured. A process that was killed may have left a file that cannot be read."""
    query = """select file.path, context.context, line_bits.numbits from line_bits join file on file.id = line_bits.file_id
               join context on context.id = line_bits.context_id where context.context != ''"""
    try:
        with closing(sqlite3.connect(f"file:{data}?mode=ro", uri=True)) as measured:
            rows = measured.execute(query).fetchall()
    except sqlite3.DatabaseError:
        return
    versions = {path: _version(connection, Path(path), root) for path in {row[0] for row in rows}}
    for path, test, lines in rows:
        source = Path(path).relative_to(root).as_posix()
        keep(connection, source, versions[path], test, lines)


def keep(connection: sqlite3.Connection, source: str, version: str, test: str, lines: bytes) -> None:
    """Add lines to those that a test touches."""
    place = (source, version, test)
    known = connection.execute("select lines from touched where source = ? and version = ? and test = ?", place).fetchone()
    connection.execute("replace into touched values (?, ?, ?, ?)", (*place, numbits_union(known[0], lines) if known else lines))


def _version(connection: sqlite3.Connection, path: Path, root: Path) -> str:
    assert path.is_relative_to(root), path
    version = digest(path)
    connection.execute("insert or ignore into versions values (?, ?)", (version, path.read_text(encoding="utf-8")))
    return version
