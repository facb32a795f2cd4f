"""What became of each edit, kept as JSON lines, so that a run that was stopped can be taken up again."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from formal.tree_copy import ROOT, files
from mutants.edits import Edit

RESULTS: Final = ROOT / "build" / "mutants" / "results.jsonl"
KILLED: Final = "killed"
SURVIVED: Final = "survived"
UNDECIDED: Final = "undecided"
STALE: Final = "stale"
VERDICTS: Final = (KILLED, SURVIVED, UNDECIDED, STALE)


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one edit.

    verdict: killed, if a test fails with the edit that passes without it; survived, if all pass; undecided, if the runner's
        bound has ended a test; stale, if the edit no longer fits its file.
    test: the test that failed, or that the bound has ended. message: what it said.
    tests: how many have run. seconds: how long that took.
    """

    edit: Edit
    verdict: str
    test: str = ""
    message: str = ""
    stage: str = ""
    tests: int = 0
    seconds: float = 0.0


def digest_of(paths: Iterable[str], tree: Path = ROOT) -> str:
    """A hash of files of a tree; of one that is missing, of its name alone."""
    total = hashlib.sha256()
    for path in sorted(paths):
        file = tree / path
        total.update(path.encode() + b"\0" + (file.read_bytes() if file.is_file() else b""))
    return total.hexdigest()[:16]


def tree_digest(tree: Path = ROOT) -> str:
    """A hash of all that a test may run or read."""
    return digest_of((path for path in files(tree) if not path.startswith("mutants/")), tree)


class Store:
    """The results of earlier runs that still hold.

    A kill holds while neither the edited file nor the file of the test has changed, a survival while nothing has; what is
    undecided does not hold.
    """

    def __init__(self, path: Path = RESULTS, tree: Path = ROOT) -> None:
        self.path, self._root = path, tree
        self._tree = tree_digest(tree)

    def _basis(self, result: Result) -> str:
        if result.verdict == KILLED:
            return digest_of((result.edit.file, result.test.partition("::")[0]), self._root)
        return self._tree

    def add(self, result: Result) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        row = asdict(result) | {"key": result.edit.key, "basis": self._basis(result)}
        with self.path.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(row) + "\n")

    def read(self) -> dict[str, Result]:
        """The last result of each edit, by its key, where it still holds."""
        found: dict[str, Result] = {}
        if not self.path.exists():
            return found
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue  # the run was stopped while it wrote
            key, basis = row.pop("key"), row.pop("basis")
            result = Result(Edit(**row.pop("edit")), **row)
            found.pop(key, None)
            if result.verdict in (KILLED, SURVIVED) and basis == self._basis(result):
                found[key] = result
        return found
