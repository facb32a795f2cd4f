"""After a crash at any point no flushed byte is lost and no torn record is served; and planted faults make the campaign fail.

HA-ST-5, HA-ST-7, HA-ST-10, HA-ST-19, HA-ST-20, HA-ST-24, HA-ST-28, HA-ST-38. `python tests/crash/campaign.py --points 20000` is
the long run.
"""

import os
import random
from pathlib import Path

import pages
import plants
import pytest
import scripts
from campaign import Outcome, campaign, memory_directory, run_script
from pages import PAGE, SECTOR, Disk, Image, watching
from workload import PHASES

from rocketmq_ha.fuzz.faults import Fault

pytestmark = pytest.mark.xdist_group("crash-pages")  # it takes long: it begins first

TRIES = 60


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "root"
    path.mkdir()
    return path


def crashes(disk: Disk, *, amid: bool = False) -> list[Image]:
    disk.observe()
    rng = random.Random(1)
    return [disk.crash_amid(rng) if amid else disk.crash(rng) for _ in range(TRIES)]


def sync(disk: Disk, path: Path) -> None:
    disk.observe()
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    disk.synced(fd)
    os.close(fd)


# --- The store -------------------------------------------------------------------------------------------------------


def test_a_crash_at_any_point_breaks_no_promise() -> None:
    outcome = campaign(400, seed=1, failures=10)
    assert not outcome.failures, "\n".join(map(str, outcome.failures))
    assert {phase for phase in PHASES if outcome.points[phase]} == set(PHASES), outcome.points


@pytest.mark.parametrize("name", scripts.SCRIPTS)
def test_the_lives_that_are_written_down_break_no_promise(name: str) -> None:
    outcome = Outcome()
    run_script(name, outcome)
    assert not outcome.failures, "\n".join(map(str, outcome.failures))
    assert outcome.points.total() == scripts.CRASHES


@pytest.mark.parametrize("fault", plants.FAULTS, ids=lambda fault: fault.name)
def test_a_store_with_a_fault_breaks_a_promise(fault: Fault) -> None:
    """Each planted fault (flush order, CRC check, tail clearing, checkpoint bound and others) breaks a promise."""
    assert plants.show(fault) is not None


def test_every_fault_applies_and_has_a_name_of_its_own(tmp_path: Path) -> None:
    for fault in plants.FAULTS:
        plants.plant(fault, tmp_path)
    assert {fault.name for fault in plants.FAULTS} == set(scripts.SCRIPTS)
    assert len(plants.FAULTS) == len(scripts.SCRIPTS)


# --- The model of the disk -------------------------------------------------------------------------------------------


def test_what_was_synced_is_there_and_pages_that_were_not_come_in_any_combination(root: Path) -> None:
    file = root / "file"
    file.write_bytes(b"a" * 3 * PAGE)
    disk = Disk(root)
    file.write_bytes(b"b" * 3 * PAGE)
    sync(disk, file)
    with file.open("r+b") as stream:
        stream.write(b"c" * 2 * PAGE)
    seen = set()
    for image in crashes(disk):
        content = image.files["file"]
        assert content is not None
        assert content[2 * PAGE :] == b"b" * PAGE
        seen.add(tuple(content[at : at + PAGE] for at in (0, PAGE)))
    whole = {(one, other) for one in (b"b" * PAGE, b"c" * PAGE) for other in (b"b" * PAGE, b"c" * PAGE)}
    assert whole <= seen
    torn = [page for pair in seen for page in pair if len(set(page)) > 1]
    assert torn
    assert all(len(set(page[at : at + SECTOR])) == 1 for page in torn for at in range(0, PAGE, SECTOR))


def test_a_page_may_come_to_the_disk_as_it_was_at_any_time_since_its_sync(root: Path) -> None:
    file = root / "file"
    file.write_bytes(bytes(PAGE))
    disk = Disk(root)
    for letter in b"abc":
        file.write_bytes(bytes([letter]) * PAGE)
        disk.observe()
    seen = {content[0] for image in crashes(disk) if (content := image.files["file"]) is not None}
    assert seen == {0, *b"abc"}


def test_names_come_in_the_order_in_which_they_were_made_and_all_of_them_with_a_sync_of_their_directory(root: Path) -> None:
    disk = Disk(root)
    for name in ("a", "b"):
        (root / f"{name}.new").write_bytes(name.encode())
        disk.observe()
        (root / f"{name}.new").rename(root / name)
        disk.observe()
    (root / "a").unlink()
    steps = [set(), {"a.new"}, {"a"}, {"a", "b.new"}, {"a", "b"}, {"b"}]
    seen = [set(image.files) for image in crashes(disk)]
    assert all(names in steps for names in seen)
    assert all(names in seen for names in steps)
    sync(disk, root)
    assert all(set(image.files) == {"b"} for image in crashes(disk))


def test_a_sync_of_a_file_does_not_bring_its_name_unless_there_is_one_journal(root: Path) -> None:
    for one_journal in (False, True):
        disk = Disk(root, one_journal=one_journal)
        file = root / f"file-{one_journal}"
        file.write_bytes(b"x")
        sync(disk, file)
        images = crashes(disk)
        assert {image.files.get(file.name) for image in images} == ({b"x"} if one_journal else {b"x", None})


def test_a_length_comes_with_a_name_that_is_younger_and_may_be_missing_under_an_older_one(root: Path) -> None:
    disk = Disk(root)
    (root / "old").touch()
    disk.observe()
    (root / "old").write_bytes(bytes(100))
    disk.observe()
    (root / "old").rename(root / "new")
    lengths = {(name, len(content or b"")) for image in crashes(disk) for name, content in image.files.items()}
    assert lengths == {("old", 0), ("old", 100), ("new", 100)}


def test_a_crash_amid_a_copy_leaves_its_beginning(root: Path) -> None:
    file = root / "file"
    file.write_bytes(bytes(PAGE))
    disk = Disk(root)
    file.write_bytes(bytes(100) + b"x" * 1000 + bytes(PAGE - 1100))
    contents = {content for image in crashes(disk, amid=True) if (content := image.files["file"]) is not None}
    written = [content.rstrip(b"\0") for content in contents]
    assert any(len(part) not in (0, 1100) and set(part[100:]) == {ord("x")} for part in written)
    assert all(len(part) <= 1100 for part in written)


def test_the_hooks_see_syncs_of_files_that_nobody_has_looked_at_and_are_gone_afterwards(root: Path) -> None:
    before = {name: getattr(os, name) for name in ("fsync", "fdatasync", "unlink", "rename")}
    disk = Disk(root)
    calls: list[str] = []
    with watching(lambda: disk, lambda call, path: calls.append(f"{call} {Path(path).name}")):
        with (root / "new").open("wb") as file:
            file.write(b"x")
            file.flush()
            os.fsync(file.fileno())
        (root / "new").rename(root / "file")
        fd = os.open(root, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
    assert calls == ["before fsync new", "fsync new", "rename new", "before fsync root", "fsync root"]
    assert all(image.files == {"file": b"x"} for image in crashes(disk))
    assert {name: getattr(os, name) for name in before} == before


def test_lives_are_in_memory_where_there_is_such_a_place() -> None:
    assert pages.PAGE == 8 * SECTOR
    assert memory_directory() in (None, "/dev/shm")
