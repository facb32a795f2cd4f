"""All checks of a doctor, in their order."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rocketmq_ha.impl.app.doctor.broker_check import check_broker
from rocketmq_ha.impl.app.doctor.comparison import compare_logs
from rocketmq_ha.impl.app.doctor.file_sizes import compare_file_sizes
from rocketmq_ha.impl.app.doctor.findings import Findings
from rocketmq_ha.impl.app.doctor.master_check import check_master
from rocketmq_ha.impl.app.doctor.store_check import check_store
from rocketmq_ha.impl.app.endpoints import MasterEndpoint
from rocketmq_ha.impl.net.address import format_address


@dataclass(frozen=True, slots=True)
class DoctorOptions:
    """What to look at, and for how long. broker: the master's remoting address. store: the slave's."""

    master: MasterEndpoint
    broker: tuple[str, int] | None
    store: Path | None
    patience_s: float
    settle_s: float


def diagnose(options: DoctorOptions, findings: Findings, stopped: Callable[[], bool]) -> None:
    """Look at the store, the broker and the master, and compare. Raises: Stopped; ConfigInvalid, OSError: it could not look."""
    tls = options.master.client_tls()
    with ExitStack() as stack:
        store = None
        if options.store is not None:
            store = check_store(options.store, format_address(*options.master.address), findings, stack)
        info = check_broker(options.broker, findings) if options.broker else None
        master = check_master(options.master.address, store, options.patience_s, options.settle_s, findings, stopped, tls)
        if store is not None:
            compare_file_sizes(master, store, info, findings)
        if master is not None and store is not None:
            compare_logs(master, store, findings)
