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
    """Raises: ConfigInvalid where there is no store; OSError where it cannot be read."""
    try:
        reader = stack.enter_context(LogReader(store))
    except StoreCorrupt as error:
        findings.finding(
            "store",
            str(error),
            "a broker refuses such a store; move that file aside if it is not the store's, else " + START_ANEW,
        )
        return None
    looked = probe_store(reader)
    if not looked.has_files:
        findings.note("store", f"{store} is empty: its slave asks for 0, the start of the master's last file")
    elif looked.damage is not None:
        findings.finding(
            "store", f"its log is damaged: {looked.damage}", f"see `rocketmq-ha recover --dry-run {store}`; " + START_ANEW
        )
    else:
        files = f"{len(reader.files)} file{'s' if len(reader.files) > 1 else ''} of {looked.file_size:,} bytes"
        findings.ok("store", f"its log holds {looked.min_offset:,} to {looked.end:,}, {files}")
        if looked.tail_size:
            findings.note(
                "store", f"{looked.tail_size:,} bytes of a message that is not whole follow; the next start cuts them off"
            )
    if looked.has_files:
        there = os.statvfs(store)
        free = there.f_bavail * there.f_frsize
        if free < looked.file_size:
            findings.finding(
                "disk", f"{free:,} bytes are free, less than one file of the log", "make room: the next file cannot be made"
            )
    check_process(store, address, findings)
    return looked


def check_process(store: Path, address: str, findings: Findings) -> None:
    """What a slave of ours says of itself, if one serves the store."""
    try:
        told = ask(store, 2.0)
    except (NotRunning, ConfigInvalid, OSError) as error:
        if "has not answered" in str(error):
            findings.finding("process", str(error), "look at it: is it stopped, or does its disk hang?")
        return
    if told.get("role") != "slave":
        findings.finding(
            "process", f"the store is served by a {told.get('role')}, pid {told.get('pid')}", "no slave follows with it"
        )
    elif told.get("master") != address:
        text = f"the slave, pid {told.get('pid')}, follows {told.get('master')}, not {address}"
        findings.finding("process", text, "start it with the address of this master, or ask about the other")
    elif told.get("state") in (ASKING, WAITING):
        findings.note("process", f"a slave, pid {told.get('pid')}, is {told.get('state')}")
    elif told.get("state") != CONNECTED:
        text = f"the slave, pid {told.get('pid')}, is not connected; {told.get('failed_connects')} tries have failed"
        ended = told.get("last_close_reason")
        advice = "see its log"
        if told.get("disk_full"):
            advice = "make room: it goes on by itself"
            text += f"; its disk is full: {told['disk_full']}"
        findings.finding("process", text + (f", its last connection ended: {ended}" if ended else ""), advice)
    else:
        findings.ok("process", f"a slave, pid {told.get('pid')}, is connected and has reported {told.get('reported_offset'):,}")
