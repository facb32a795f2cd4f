"""Cost of a put that waits for a slave, and cost of a slave to puts that do not wait. Messages have 1 KiB; there is one slave.

Master and slave are separate processes on loopback. Neither dispatches. `alone` is a master without a slave; `store` is the
same log without a master. They are compared with RocketMQ 4.9.8's own SYNC_MASTER and slave: once with K threads that each wait
for their own put, and once with K puts in flight from one thread.
"""

from contextlib import ExitStack
from pathlib import Path

import pytest

from .conftest import Figures
from .ha_kit import Compared, JavaMaster, JavaSlave, OurMaster, OurSlave, Sides
from .java_store import Rates

PUTS = {1: 3_000, 4: 8_000, 16: 24_000, 64: 48_000}  # puts in flight: puts in a round
ASYNC_PUTS = 48_000
SINGLE_PUTS = 3_000
JAVA_WARM_UP = 200_000  # puts before the first round, so that Java has compiled its code


@pytest.mark.benchmark(group="sync")
def test_sync(sides: Sides, figure: Figures, java_if_any: str | None, tmp_path: Path) -> None:
    with ExitStack() as stack:
        alone = stack.enter_context(OurMaster(tmp_path / "alone"))
        master = stack.enter_context(OurMaster(tmp_path / "master"))
        master.ask("append", 1)  # with an empty log the slave would have nothing to report
        slave = stack.enter_context(OurSlave(tmp_path / "slave", master.port))
        slave.start()
        master.ask("slaves", 1)

        def without_slave() -> Rates:
            return {
                "store": alone.ask("append", ASYNC_PUTS)["per_second"],
                "alone": alone.ask("async", ASYNC_PUTS)["per_second"],
            }

        def ours() -> Rates:
            rates = {"async": master.ask("async", ASYNC_PUTS)["per_second"]}
            for in_flight, count in PUTS.items():
                master.ask("slaves", 1)
                rates[f"sync {in_flight}"] = master.ask("sync", count, in_flight)["per_second"]
            p50_us = master.ask("one", SINGLE_PUTS)["p50_us"]
            return rates | {"one": 1e6 / p50_us, "p50_us": p50_us}

        turns = [without_slave, ours]
        if java_if_any:
            java_master = stack.enter_context(JavaMaster(java_if_any, tmp_path / "java-master", "SYNC_MASTER"))
            java_slave = stack.enter_context(JavaSlave(java_if_any, tmp_path, java_master.port))
            java_slave.ask("stay", tmp_path / "java-slave")
            java_master.ask("slaves", 1)
            java_master.ask("pipelined", JAVA_WARM_UP, 64)

            def theirs() -> Rates:
                rates = {f"java {k}": java_master.ask("threads", count, k)["per_second"] for k, count in PUTS.items()}
                rates["java pipelined"] = java_master.ask("pipelined", PUTS[64], 64)["per_second"]
                return rates | {"java one": 1e6 / java_master.ask("one", SINGLE_PUTS)["p50_us"]}

            turns.insert(0, theirs)
        rows = [
            Compared("async puts with a slave", "without slave", "async", "alone"),
            Compared("async puts with a slave", "store alone", "async", "store"),
            *(Compared(f"sync puts, {k} in flight", "async", f"sync {k}", "async") for k in PUTS),
            *(Compared(f"sync puts, {k} in flight", f"java, {k} threads", f"sync {k}", f"java {k}") for k in PUTS),
            Compared("sync puts, 64 in flight", "java, 64 in flight", "sync 64", "java pipelined"),
            Compared("one sync put, by its median time", "java", "one", "java one"),
        ]
        found = sides(rows, turns, warm_up_rounds=1)
    figure("one sync put, median", "us", [rates["p50_us"] for rates in found], 1.2 * 86)
