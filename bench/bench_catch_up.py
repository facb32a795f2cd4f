"""How fast a slave catches up. Master and slave are two processes on loopback; frames have 32 KiB.

The measurement takes turns with two others. The raw ceiling is the faster of two plain copies of the log's first file, in
frames of the same size, into a new file on the same file system. The other is RocketMQ 4.9.8's own master and slave.
`--catch-up-mib` sets the size of the log. A log of more than 1 GiB has several files.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from .conftest import Figures
from .ha_kit import Compared, JavaMaster, JavaSlave, OurMaster, OurSlave, Sides, fill, first_file, link, seed
from .java_store import Rates
from .line_process import LineProcess, python

SHM = Path("/dev/shm")
RAW = ("pwritev", "mmap")


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder on the disk, or on tmpfs."""
    if request.param == "disk":
        yield tmp_path
        return
    if not SHM.is_dir():
        pytest.skip(f"{SHM} does not exist")
    with tempfile.TemporaryDirectory(dir=SHM, prefix="rocketmq-ha-bench.") as folder:
        yield Path(folder)


@pytest.mark.benchmark(group="catch-up")
@pytest.mark.parametrize("place", ["disk", "tmpfs"], indirect=True)
def test_catch_up(
    sides: Sides,
    figure: Figures,
    java_if_any: str | None,
    note: Callable[[str], None],
    request: pytest.FixtureRequest,
    place: Path,
) -> None:
    where = request.node.callspec.params["place"]
    size = request.config.getoption("catch_up_mib") << 20
    end = fill(place / "master", size)
    raw_size = min(end, first_file(place / "master").stat().st_size)
    note(f"catch-up, {where}: a log of {end >> 20} MiB; the raw copies move {raw_size >> 20} MiB")
    with ExitStack() as stack:
        sender = stack.enter_context(
            LineProcess(python("raw_copy", "send", first_file(place / "master"), raw_size), place / "sender.log")
        )
        port = int(sender.answer()["port"])
        receiver = stack.enter_context(
            LineProcess(python("raw_copy", "receive", port, raw_size, place / "copy"), place / "receiver.log")
        )
        master = stack.enter_context(OurMaster(place / "master"))

        def raw() -> Rates:
            rates = {how: raw_size / receiver.ask(how)["seconds"] for how in RAW}
            return rates | {"raw": max(rates.values())}

        def ours() -> Rates:
            with OurSlave(seed(place / "slave", place / "master"), master.port, end) as slave:
                found = slave.ask("start")
            shutil.rmtree(place / "slave")
            return found | {"ours": end / found["seconds"]}

        turns = [raw, ours]
        if java_if_any:
            java_master = stack.enter_context(
                JavaMaster(java_if_any, link(place / "master", place / "java-master"), "ASYNC_MASTER")
            )
            java_slave = stack.enter_context(JavaSlave(java_if_any, place, java_master.port))

            def theirs() -> Rates:
                rate = java_slave.ask("catch_up", seed(place / "java-slave", place / "master"), end)["per_second"]
                shutil.rmtree(place / "java-slave")
                return {"java": rate}

            turns.insert(0, theirs)
        rows = [
            Compared(f"catch-up, {where}", "raw ceiling", "ours", "raw", "B/s"),
            Compared(f"catch-up, {where}", "java", "ours", "java", "B/s"),
        ]
        found = sides(rows, turns, warm_up_rounds=1)
    figure(f"first byte after connect, {where}", "ms", [rates["first_byte_ms"] for rates in found], 20)
    before, most = ([rates[name] / 1024 for rates in found] for name in ("rss_before_kib", "rss_most_kib"))
    figure(f"slave's own memory before, {where}", "MiB of RssAnon", before, None)
    figure(
        f"more of it in catch-up, {where}", "MiB of RssAnon", [high - low for high, low in zip(most, before, strict=True)], 40
    )
