"""Copies of the tree, in which programs plant mistakes. A copy runs by itself, with the packages of this environment."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
LEFT_OUT: Final = {
    "build",
    ".venv",
    ".git",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".hypothesis",
    ".benchmarks",
    "target",
}


def files(tree: Path = ROOT) -> Iterator[str]:
    """The paths of the files of a tree. A checkout has those that git knows or would add."""
    if (tree / ".git").exists():
        command = ("git", "ls-files", "-co", "--exclude-standard", "-z")
        listed = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=True, timeout=60)
        yield from (path for path in listed.stdout.split("\0") if path and os.path.lexists(tree / path))
        return
    for folder, folders, names in os.walk(tree):
        relative = Path(folder).relative_to(tree)
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        folders[:] = [
            name for name in folders if name not in {*LEFT_OUT, *links, "__pycache__"} and not name.endswith(".egg-info")
        ]
        yield from ((relative / name).as_posix() for name in (*names, *links))


def copy_tree(directory: Path, tree: Path = ROOT) -> Path:
    """Copy a tree into a new folder of `directory`. Returns: that folder."""
    root = directory / "tree"
    for path in files(tree):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(tree / path, root / path, follow_symlinks=False)
    return root


def environment(root: Path) -> dict[str, str]:
    """The environment of a process whose packages are those of the copy, not the installed ones."""
    paths = [str(root / ".types"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
