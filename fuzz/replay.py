"""Show a schedule step by step: a line for each event, a column for each node; a failing line comes last, with both sides."""

from collections import Counter

from rich.console import Console

from rocketmq_ha.fuzz import lockstep
from rocketmq_ha.fuzz.lockstep import Lockstep, StepOutcome
from rocketmq_ha.fuzz.schedule import START_MS, Schedule, fault_of
from rocketmq_ha.impl.cli.table import Column, print_table
from rocketmq_ha.reference import events, master, slave, store
from rocketmq_ha.reference.cluster import Cluster
from rocketmq_ha.spec.constants import TRANSFER_HEADER_SIZE
from rocketmq_ha.spec.event_log import NO_FAULT, VERDICT_OK

LEGEND = """\
ms      model time since the start
event   what the schedule does; sN is slave N, a fault is marked !; dim where nothing came of it
master  max offset; wN: puts that wait for a slave; then how many ended in this step, and how
sN      max offset, and what its client holds: . nothing, h+n part of a header, b+n part of a body, - no connection
link    the master's end: ? awaits a report, @n next transfer offset, =n bytes of a pending frame taken, x closed
        >n bytes in flight to the slave, <n to the master; ~ severed; +n stale: connections that only the master still holds
Every column shows the reference model after the event; the implementation agrees unless the last line says otherwise."""


def show(schedule: Schedule, console: Console) -> StepOutcome:
    """Run a schedule and print its table. Returns: the last step; if the run fails, the failing one."""
    columns = [Column("op", is_number=True), Column("ms", is_number=True), Column("event"), Column("master")]
    for index in range(schedule.slaves):
        columns += [Column(f"s{index}"), Column(f"link of s{index}")]
    columns.append(Column("verdict"))
    rows: list[list[str]] = []
    styles: list[str] = []
    with lockstep.scratch_directory() as directory:
        worlds = Lockstep(schedule.slaves, schedule.settings, schedule.profile, directory)
        try:
            for event in schedule.events:
                outcome = worlds.apply(event)
                styles.append("bold red" if outcome.verdict != VERDICT_OK else "" if outcome.transitions else "dim")
                rows.append(_row(outcome, worlds.reference.cluster))
                if outcome.verdict != VERDICT_OK:
                    break
        finally:
            worlds.close()
    console.print(
        f"seed {schedule.seed}: {schedule.profile.name}, {schedule.slaves} slave(s), files of "
        f"{schedule.settings.mapped_file_size}, batches of {schedule.settings.ha_transfer_batch_size}, read buffers "
        f"{schedule.settings.master_read_buffer_size} and {schedule.settings.slave_read_buffer_size} bytes"
    )
    console.print(LEGEND, style="dim", highlight=False)
    print_table(console, columns, rows, styles)
    if outcome.verdict == VERDICT_OK:
        console.print(f"{outcome.op_index + 1} operations, both sides agree after every one")
    else:
        console.print(f"{outcome.verdict} at operation {outcome.op_index}: {_event(outcome.event)}", style="bold red")
        for line in outcome.detail.split("; "):
            console.print(f"  {line}", highlight=False, soft_wrap=True)
    return outcome


def _row(outcome: StepOutcome, cluster: Cluster) -> list[str]:
    mark = "" if fault_of(outcome.event) == NO_FAULT else "! "
    waiting = f" w{len(cluster.group.requests)}" if cluster.group.requests else ""
    ended = "".join(f" {n}x{status}" for status, n in Counter(done.status for done in cluster.done).items())
    row = [
        str(outcome.op_index),
        str(outcome.now_ms - START_MS),
        mark + _event(outcome.event),
        f"{store.max_offset(cluster.log)}{waiting}{ended}",
    ]
    for index, node in enumerate(cluster.slaves):
        held = len(slave.unparsed(node))
        kind = "-" if not node.connected else "." if not held else f"h+{held}"
        if held >= TRANSFER_HEADER_SIZE:
            kind = f"b+{held - TRANSFER_HEADER_SIZE}"
        row += [f"{store.max_offset(node.log)} {kind}", _links(cluster, index)]
    return [*row, outcome.verdict]


def _links(cluster: Cluster, index: int) -> str:
    """Format the slave's own link, and the number of links whose slave's end is closed."""
    text, stale = "", 0
    for link in cluster.links:
        if link.slave != index:
            continue
        if not link.slave_open:
            stale += 1
            continue
        conn = link.conn
        if conn.close_reason:
            text = "x"
        elif conn.next_transfer_from_where == -1:
            text = "?"
        else:
            text = f"@{conn.next_transfer_from_where}" + ("" if conn.last_write_over else f" ={master.taken(conn)}")
        text += f" >{len(link.to_slave)}" if link.to_slave else ""
        text += f" <{len(link.to_master)}" if link.to_master else ""
        text += " ~" if link.severed else ""
    return text + (f" +{stale} stale" if stale else "")


def _amount(nbytes: int) -> str:
    return f"all but {-nbytes} B" if nbytes < 0 else f"up to {nbytes} B"


def _event(event: events.Event) -> str:
    match event:
        case events.Put():
            pauses = ", but pause first" if event.pauses else ""
            return f"put {len(event.body)} B{f' and wait{pauses}' if event.wait else ''}"
        case events.Resume():
            return f"paused put {event.nth} goes on"
        case events.Tick():
            return f"{event.ms} ms pass"
        case events.Connect():
            return f"s{event.slave} connects"
        case events.Grant():
            return f"socket to s{event.slave} takes {event.room} B"
        case events.DeliverFrames():
            return f"s{event.slave} receives {_amount(event.nbytes)}"
        case events.DeliverReports():
            return f"master receives {_amount(event.nbytes)} of s{event.slave}"
        case events.ForgeReport():
            return f"forged report {event.offset} on s{event.slave}"
        case events.ForgeHeader():
            return f"forged header of size {event.body_size} to s{event.slave}"
        case events.Clog():
            return f"socket of s{event.slave} takes {event.room} B, no more"
        case events.DiskFull():
            return f"disk of s{event.slave} {'is full' if event.is_full else 'has room again'}"
        case events.Cut():
            return f"link of s{event.slave} cut, told: {event.tell}"
        case events.RestartSlave():
            return f"s{event.slave} killed and restarted"
        case events.RestartMaster():
            cut = f", without its last {event.lost} records" if event.lost else ""
            return f"master {'stopped' if event.clean else 'killed'} and restarted{cut}"
