"""The comparison of the slave's log with the master's: lag, range and differences."""

from rocketmq_ha.impl.app.doctor.advice import START_ANEW
from rocketmq_ha.impl.app.doctor.findings import Findings
from rocketmq_ha.impl.app.doctor.probe import MasterProbe, StoreProbe


def compare_logs(master: MasterProbe, store: StoreProbe, findings: Findings) -> None:
    """Compare what was observed of both ends. Nothing is said of a store whose log is damaged."""
    if not store.has_files:
        if master.last_file:
            findings.note(
                "history", f"a new slave will not get what is before {master.last_file:,} (quirk 8), but ours with --from min"
            )
    elif store.damage is None and store.end == 0:
        _check_empty_file(master, findings)
    elif store.damage is None:
        _check_range(master, store, findings)
        _check_overlap(master, store, findings)
        _report_lag(master, store, findings)


def _check_empty_file(master: MasterProbe, findings: Findings) -> None:
    if master.last_file:
        text = f"the store has a file and no message, and the master starts at {master.last_file:,}"
        text += ": a RocketMQ slave writes that at 0, and then refuses all (quirk 17); ours, hardened, takes it for a new store"
        findings.finding("phantom", text, START_ANEW)


def _check_range(master: MasterProbe, store: StoreProbe, findings: Findings) -> None:
    if master.is_end and store.end > master.end:
        text = f"the slave ends at {store.end:,}, {store.end - master.end:,} bytes ahead of the master"
        findings.finding("ahead", text + ": the master has lost what it had sent, or is another (quirk 9)", START_ANEW)
    if master.out_of_range is not None:
        text = f"the master does not have what the slave wants next to {store.overlap:,}: {master.out_of_range.found}"
        findings.finding("range", text + " (quirk 7)", START_ANEW)


def _check_overlap(master: MasterProbe, store: StoreProbe, findings: Findings) -> None:
    if master.difference is not None:
        text = f"the logs differ at {master.difference:,}: the slave's is not the master's log"
        findings.finding("diverged", text, START_ANEW)
    elif master.compared:
        findings.ok("overlap", f"{master.compared:,} messages that both have are the same")
    elif master.out_of_range is None and master.last_file <= store.end:
        findings.note(
            "overlap", "no message is in both what was read and the store: whether they are the same log was not seen"
        )


def _report_lag(master: MasterProbe, store: StoreProbe, findings: Findings) -> None:
    if master.end >= store.end and master.out_of_range is None and master.difference is None:
        behind = master.end - store.end
        so_far = "" if master.is_end else " so far"
        findings.ok("lag", f"the store is {behind:,} bytes behind{so_far}" if behind else "the store has all")
