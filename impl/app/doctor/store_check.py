"""The check of a slave's store, and of the process that serves it."""

import os
from contextlib import ExitStack
from pathlib import Path

from rocketmq_ha.impl.app.doctor.advice import START_ANEW
from rocketmq_ha.impl.app.doctor.findings import Findings
from rocketmq_ha.impl.app.doctor.probe import StoreProbe, probe_store
from rocketmq_ha.impl.errors import ConfigInvalid, StoreCorrupt
from rocketmq_ha.impl.net.figures import CONNECTED
from rocketmq_ha.impl.net.fresh import ASKING, WAITING
from rocketmq_ha.impl.net.status_socket import NotRunning, ask
from rocketmq_ha.impl.store.log.reader import LogReader


def check_store(store: Path, address: str, findings: Findings, stack: ExitStack) -> StoreProbe | None:
    """Check the files of a store. Returns: its observation; None if the store cannot be opened.

    Args:  address: of the master, as the store's slave should name it. stack: closes the store's reader.
    Raises: ConfigInvalid if there is no store; OSError if it cannot be read.
    """
    try:
        reader = stack.enter_context(LogReader(store))
    except StoreCorrupt as error:
        findings.finding(
            "store",
            str(error),
            "a broker refuses such a store; move that file aside if it is not the store's, else " + START_ANEW,
        )
        return None
    found = probe_store(reader)
    _check_log(store, found, findings)
    if found.has_files:
        _check_disk(store, found.file_size, findings)
    check_process(store, address, findings)
    return found


def _check_log(store: Path, found: StoreProbe, findings: Findings) -> None:
    if not found.has_files:
        findings.note("store", f"{store} is empty: its slave asks for 0, the start of the master's last file")
    elif found.damage is not None:
        findings.finding(
            "store", f"its log is damaged: {found.damage}", f"see `rocketmq-ha recover --dry-run {store}`; " + START_ANEW
        )
    else:
        count = len(found.reader.files)
        files = f"{count} file{'s' if count > 1 else ''} of {found.file_size:,} bytes"
        findings.ok("store", f"its log holds {found.min_offset:,} to {found.end:,}, {files}")
        if found.tail_size:
            findings.note(
                "store", f"{found.tail_size:,} bytes of a message that is not whole follow; the next start cuts them off"
            )


def _check_disk(store: Path, file_size: int, findings: Findings) -> None:
    file_system = os.statvfs(store)
    free = file_system.f_bavail * file_system.f_frsize
    if free < file_size:
        findings.finding(
            "disk", f"{free:,} bytes are free, less than one file of the log", "make room: the next file cannot be made"
        )


def check_process(store: Path, address: str, findings: Findings) -> None:
    """Ask the slave of ours that serves the store, if there is one, for its status."""
    try:
        status = ask(store, 2.0)
    except (NotRunning, ConfigInvalid, OSError) as error:
        if "has not answered" in str(error):
            findings.finding("process", str(error), "look at it: is it stopped, or does its disk hang?")
        return
    if status.get("role") != "slave":
        findings.finding(
            "process", f"the store is served by a {status.get('role')}, pid {status.get('pid')}", "no slave follows with it"
        )
    elif status.get("master") != address:
        text = f"the slave, pid {status.get('pid')}, follows {status.get('master')}, not {address}"
        findings.finding("process", text, "start it with the address of this master, or ask about the other")
    elif status.get("state") in (ASKING, WAITING):
        findings.note("process", f"a slave, pid {status.get('pid')}, is {status.get('state')}")
    elif status.get("state") != CONNECTED:
        text = f"the slave, pid {status.get('pid')}, is not connected; {status.get('failed_connects')} tries have failed"
        ended = status.get("last_close_reason")
        advice = "see its log"
        if status.get("disk_full"):
            advice = "make room: it goes on by itself"
            text += f"; its disk is full: {status['disk_full']}"
        findings.finding("process", text + (f", its last connection ended: {ended}" if ended else ""), advice)
    else:
        findings.ok(
            "process", f"a slave, pid {status.get('pid')}, is connected and has reported {status.get('reported_offset'):,}"
        )
