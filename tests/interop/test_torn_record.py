"""The real store takes a last record for whole whose topic or properties have not come whole (quirk 40); ours does not.

HA-ST-10.  The trigger: the last bytes of the last message are zero, as in a slave that stopped before they came.
"""

import json
import re
from pathlib import Path

from results import Results
from rocketmq import Rocketmq

from rocketmq_ha.fuzz.golden import extract
from rocketmq_ha.impl.store.log.commit_log import CommitLog

VECTORS = Path(__file__).parents[2] / "spec" / "vectors"
MISSING = 3  # bytes at the end of the last message


def torn_store(store: Path, release: str) -> tuple[int, int]:
    """A golden store without its last bytes. Returns: where its last message starts, and where it ended."""
    vectors = VECTORS / f"rocketmq-{release}"
    if not vectors.is_dir():
        vectors = VECTORS / "rocketmq-4.9.8"  # its records are those of the first version, which every release reads
    extract(vectors / "store.tar.xz", store)
    end = int(json.loads((vectors / "manifest.json").read_text(encoding="utf-8"))["log"]["commit_log_max_offset"])
    last = sorted((store / "commitlog").iterdir())[-1]
    data = bytearray(last.read_bytes())
    position = end - int(last.name)
    data[position - MISSING : position] = bytes(MISSING)
    last.write_bytes(data)
    with CommitLog.open(store, clear_tail=False) as log:
        assert log.max_offset == end  # classic: as the real store
    with CommitLog.open(store, clear_tail=True) as log:
        start = log.max_offset
    last.write_bytes(data)  # hardened has cleared the part of a record
    return start, end


def test_a_torn_record_is_whole_to_the_real_store(rocketmq: Rocketmq, tmp_path: Path, results: Results) -> None:
    """In a normal recovery and, with the abort file, in an abnormal one."""
    for how in ("normal", "abnormal"):
        store = tmp_path / how
        start, end = torn_store(store, rocketmq.release)
        assert start < end
        if how == "abnormal":
            (store / "abort").touch()
        rocketmq.start_broker("master", store, "ASYNC_MASTER")
        found = re.findall(r"max phy offset = (\d+)", rocketmq.log("master"))
        rocketmq.kill("master")
        results.check(f"max offset, {how} recovery", end, int(found[0]))
        (rocketmq.work / "logs/master.log").unlink()
