"""The distributions hold the files of the tree, and their metadata is right. An editable install would not test this."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import click
import pytest
from packaging.version import Version

from kit.waiting import LONG_S
from rocketmq_ha.impl.cli import main
from rocketmq_ha.impl.net.put_socket import SOCKET_NAME as PUT_SOCKET_NAME
from rocketmq_ha.impl.net.status_socket import SOCKET_NAME
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.store.log.verify import verify

pytestmark = pytest.mark.xdist_group("packaging")  # one wheel is built

ROOT = Path(__file__).resolve().parents[2]
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
FOLDERS = {name.split(".")[1]: folder for name, folder in CONFIG["tool"]["setuptools"]["package-dir"].items()}

# Only for a checkout: test vectors, and the files that TLC reads. But the demo needs one of the stores.
LEFT_OUT = ("spec/vectors/", "spec/tla/")
GOLDEN_STORE = "spec/vectors/rocketmq-4.9.8/store.tar.xz"
DATA_FOLDERS = ("analysis.spark_conf", "analysis.templates", "spec.snapshots", "spec.vectors")
DATA_PACKAGES = {
    f"rocketmq_ha.{name}" for name in ("analysis.spark_conf", "analysis.templates", "spec.snapshots", "spec.vectors")
}
# Files that a source distribution leaves out.
ONLY_IN_A_CHECKOUT = (".types/", ".gitignore", ".pre-commit-config.yaml")


def files_to_ship() -> set[str]:
    """Every file under the packages' folders, but for LEFT_OUT, as paths from the root."""
    found = (path for folder in FOLDERS.values() for path in (ROOT / folder).rglob("*") if path.is_file())
    shipped = {path.relative_to(ROOT).as_posix() for path in found if "__pycache__" not in path.parts}
    return {path for path in shipped if not path.startswith(LEFT_OUT)} | {GOLDEN_STORE}


def files_of_the_tree() -> set[str]:
    """Every file of a checkout, or of an unpacked source distribution."""
    if (ROOT / ".git").exists():
        listed = subprocess.run(
            ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", "-z"],
            capture_output=True,
            text=True,
            check=True,
            timeout=LONG_S,
        )
        return {path for path in listed.stdout.split("\0") if path and (ROOT / path).is_file()}
    found = {path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file()}
    made = {
        "build",
        ".venv",
        "__pycache__",
        ".pytest_cache",
        ".hypothesis",
        ".mypy_cache",
        ".ruff_cache",
        "rocketmq_ha.egg-info",
    }
    return {path.as_posix() for path in found if not made & set(path.parts)} - {"PKG-INFO", "setup.cfg"}


@dataclass(frozen=True)
class Built:
    """A wheel, a source distribution, and the output of their build."""

    wheel: zipfile.ZipFile
    sdist: tarfile.TarFile
    said: str


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build from a copy: in the tree, setuptools would also pack the leftovers of an older build in build/."""
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("out")
    for path in files_of_the_tree():
        if not path.startswith(".types/"):
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, tree / path)
    building = "import sys; from setuptools.build_meta import *; out = sys.argv[1]; build_sdist(out); build_wheel(out)"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", building, str(out)],
        cwd=tree,
        capture_output=True,
        text=True,
        check=True,
        env=environment,
        timeout=LONG_S,
    )
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return Built(zipfile.ZipFile(wheel), tarfile.open(sdist), done.stdout + done.stderr)


@pytest.fixture(scope="module")
def wheel(built: Built) -> zipfile.ZipFile:
    return built.wheel


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return message_from_bytes(wheel.read(name))


def test_nothing_is_warned_of_when_the_distributions_are_built(built: Built) -> None:
    warned = [line for line in built.said.splitlines() if re.search(r"warning|deprecat", line, re.IGNORECASE)]
    assert warned == []


def test_the_source_distribution_is_the_tree(built: Built) -> None:
    held = {name.partition("/")[2] for name in built.sdist.getnames()}
    missing = {path for path in files_of_the_tree() - held if not path.startswith(ONLY_IN_A_CHECKOUT)}
    assert missing == set()
    assert not any(name.endswith((".pyc", ".so")) or "__pycache__" in name for name in held)


def test_the_metadata_names_no_person_and_no_address_that_does_not_exist(metadata: Message) -> None:
    assert metadata["Author"] == "The rocketmq-ha authors"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert [name for name in metadata if name in ("Author-email", "Home-page", "Project-URL")] == []
    classifiers = metadata.get_all("Classifier") or []
    assert len(classifiers) == len(set(classifiers)) > 10
    assert not any("License ::" in classifier for classifier in classifiers)  # the license expression replaces the classifier


def test_the_long_description_is_the_readme_and_links_nowhere_into_the_tree(metadata: Message) -> None:
    assert metadata["Description-Content-Type"] == "text/markdown"
    text = str(metadata.get_payload())
    assert text.startswith("# rocketmq-ha\n")
    assert re.findall(r"\]\((?!https?:)[^)]*\)", text) == []
    readme = (ROOT / "README.md").read_text("utf-8")
    links = re.findall(r"\]\(([^)]*)\)", readme)
    assert len(links) > 5
    for target in links:  # test_documents.py checks that they lead somewhere
        assert target in text
    assert len(text.splitlines()) == len(readme.splitlines())


def test_the_changelog_names_the_version(metadata: Message) -> None:
    """A development version has Unreleased first; then come the releases, newest first."""
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert headings[0] == "Unreleased"
    releases = [Version(heading) for heading in headings[1:]]
    assert releases == sorted(releases, reverse=True)
    version = Version(metadata["Version"])
    assert version == releases[0] if not version.is_devrelease else version > releases[0]


def test_the_security_page_names_options_and_sockets_that_exist() -> None:
    text = (ROOT / "docs" / "security.md").read_text("utf-8")
    commands = [main.get_command(click.Context(main), name) for name in ("master", "slave", "broker", "namesrv")]
    options = {option for command in commands if command for parameter in command.params for option in parameter.opts}
    named = set(re.findall(r"--[a-z][a-z-]+", text))
    assert len(named) > 10
    assert named - options == set()
    assert {SOCKET_NAME, PUT_SOCKET_NAME} <= set(re.findall(r"rocketmq-ha[\w-]*\.sock", text))


def test_the_demo_finds_its_store_in_an_installed_wheel(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    """The wheel is unpacked as by an installer, outside the tree; -S hides an editable install."""
    wheel.extractall(tmp_path / "site")
    libraries = sysconfig.get_path("purelib")
    running = (
        "import sys; from pathlib import Path; sys.path[:0] = sys.argv[1:3]\n"
        "from rocketmq_ha.fuzz import golden; golden.unpack(Path('store')); print(golden.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", running, str(tmp_path / "site"), libraries],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=LONG_S,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path / "site"))
    with LogReader(tmp_path / "store") as reader:
        assert verify(reader).messages > 1000


def test_packages_lists_every_folder_with_an_init() -> None:
    inits = (init for folder in FOLDERS.values() for init in (ROOT / folder).rglob("__init__.py"))
    found = {f"rocketmq_ha.{'.'.join(init.parent.relative_to(ROOT).parts)}" for init in inits}
    assert found | DATA_PACKAGES == set(CONFIG["tool"]["setuptools"]["packages"])


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
        lines = [line for line in lock.splitlines() if line.startswith(f"{requirement.name}==")]
        # Several only where each is for some versions of Python, as numpy's are.
        assert len(lines) == 1 or (lines and all(" ; python_full_version " in line for line in lines)), requirement.name
        assert all(requirement.specifier.contains(line.split("==")[1].split()[0]) for line in lines), lines
