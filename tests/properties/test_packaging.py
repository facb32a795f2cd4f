"""The wheel holds what the tree holds. An editable install would not show the difference."""

import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
FOLDERS = {name.split(".")[1]: folder for name, folder in CONFIG["tool"]["setuptools"]["package-dir"].items()}

# Read by the tests and by other programs, in a checkout; the installed program does without.
LEFT_OUT = ("spec/vectors/", "spec/tla/")  # for a checkout: test vectors, and what TLC reads


def files_to_ship() -> set[str]:
    """Every file under the packages' folders, but for LEFT_OUT, as paths from the root."""
    found = (path for folder in FOLDERS.values() for path in (ROOT / folder).rglob("*") if path.is_file())
    shipped = {path.relative_to(ROOT).as_posix() for path in found if "__pycache__" not in path.parts}
    return {path for path in shipped if not path.startswith(LEFT_OUT)}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built from a copy: in the tree, setuptools would pack what an older build left in build/."""
    tree = tmp_path_factory.mktemp("tree")
    for folder in FOLDERS.values():
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__", "vectors"), symlinks=True)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, tree)
    out = tmp_path_factory.mktemp("wheel")
    build = ("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(out), str(tree))
    subprocess.run([sys.executable, "-m", "pip", *build], check=True)
    (built,) = out.glob("*.whl")
    return zipfile.ZipFile(built)


def test_packages_lists_every_folder_with_an_init() -> None:
    inits = (init for folder in FOLDERS.values() for init in (ROOT / folder).rglob("__init__.py"))
    found = {f"rocketmq_ha.{'.'.join(init.parent.relative_to(ROOT).parts)}" for init in inits}
    assert found == set(CONFIG["tool"]["setuptools"]["packages"])


def test_type_checkers_see_every_package() -> None:
    links = {link.name: link.resolve() for link in (ROOT / ".types" / "rocketmq_ha").iterdir()}
    assert links == {name: ROOT / folder for name, folder in FOLDERS.items()}


def test_wheel_holds_every_file_of_the_packages(wheel: zipfile.ZipFile) -> None:
    held = {name.removeprefix("rocketmq_ha/") for name in wheel.namelist() if name.startswith("rocketmq_ha/")}
    assert files_to_ship() - held == set(), "in the tree, not in the wheel"
    assert held - files_to_ship() == set(), "in the wheel, not in the tree"


def test_wheel_holds_the_licence_and_the_commands(wheel: zipfile.ZipFile) -> None:
    (entry_points,) = (name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt"))
    text = wheel.read(entry_points).decode()
    for name in ("rocketmq-ha", *CONFIG["project"]["entry-points"]["rocketmq_ha.commands"]):
        assert f"\n{name} = rocketmq_ha." in text
    (licence,) = (name for name in wheel.namelist() if name.endswith("/LICENSE"))
    assert wheel.read(licence) == (ROOT / "LICENSE").read_bytes()


def test_lock_names_every_dependency_with_hashes_and_no_index() -> None:
    from packaging.requirements import Requirement

    lock = (ROOT / "requirements.lock").read_text("utf-8")
    assert "://" not in lock
    assert "--index" not in lock
    entries = lock.split("\n    # via")[0:1] + [part.split("\n", 1)[1] for part in lock.split("\n    # via")[1:]]
    assert all("--hash=sha256:" in entry for entry in entries if "==" in entry)
    wanted = [
        *CONFIG["project"]["dependencies"],
        *CONFIG["project"]["optional-dependencies"]["fuzz"],
        *CONFIG["dependency-groups"]["dev"],
    ]
    for requirement in map(Requirement, wanted):
        (line,) = (line for line in lock.splitlines() if line.startswith(f"{requirement.name}=="))
        assert requirement.specifier.contains(line.split("==")[1].split()[0]), line
