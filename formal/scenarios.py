"""Scenarios in plain text: events and their outcome, played in lock-step by model and implementation.

A file of tests/stateful/scenarios/ has its description, in lines that begin with #, and one step on each line. The indented
lines below a step show what the model does (the actor, its states before and after, the clauses) and then every node that
changed:

    cluster PROFILE [slaves=N] [SETTING=N ...]       begin with new nodes
    put SIZE [wait [pause]] [topic=NAME]             a body of SIZE bytes; a record is 91 more, and the topic's
    resume N                                         the Nth paused put, counted from 0, begins to wait
    tick MS
    connect SLAVE [room=N] [slave_room=N]            bytes that the two sockets take; default: all
    grant SLAVE N                                    the master's socket takes N more bytes
    frames SLAVE N|all     reports SLAVE N|all       N bytes arrive at the slave, at the master
    forge SLAVE OFFSET     clog SLAVE N              a report that no slave sent; the slave's socket takes only N bytes
    forge-header SLAVE SIZE                          a header that no master sent, with the next offset and SIZE
    disk-full SLAVE        disk-room SLAVE           the slave's disk is full; it has room again
    cut SLAVE both|slave|master                      the link breaks, and which end notices
    restart-slave SLAVE    restart-master [clean] [lost=N]
    delete-file                                      the master deletes its first file

A node's line shows min..max offset. A link's line shows the master's end: the `next` transfer offset, the `pending` frame as
offset+size, `>n` bytes in flight to the slave and `<n` bytes in flight to the master.

`pytest tests/stateful --rewrite-scenarios` rewrites the indented lines; review the diff as you review code.
"""

from contextlib import ExitStack
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

from rocketmq_ha.fuzz import lockstep
from rocketmq_ha.fuzz.lockstep import of_link
from rocketmq_ha.fuzz.schedule import UNBOUNDED_ROOM
from rocketmq_ha.reference import events, five_waits, master, slave, store
from rocketmq_ha.reference.cluster import Cluster, Link
from rocketmq_ha.reference.slave import Slave
from rocketmq_ha.reference.step import Transition
from rocketmq_ha.spec.event_log import VERDICT_OK
from rocketmq_ha.spec.profile import PROFILES, Profile, Settings

DIRECTORY: Final = Path(__file__).resolve().parents[1] / "tests" / "stateful" / "scenarios"
SCENARIOS: Final = sorted(DIRECTORY.glob("*.txt"))
INDENT: Final = "    "


def parse_cluster(words: list[str]) -> tuple[Profile, int, Settings]:
    """Parse the words behind `cluster`: the profile, the number of slaves, the settings."""
    numbers: dict[str, Any] = {name: int(value) for name, value in (word.split("=") for word in words[1:])}
    slaves = numbers.pop("slaves", 1)
    assert numbers.keys() <= {field.name for field in fields(Settings)}, words
    return PROFILES[words[0]], slaves, replace(Settings(mapped_file_size=1000), **numbers)


def parse_event(words: list[str]) -> events.Event:
    """Parse the event of one line.

    >>> parse_event("frames 0 all".split())
    DeliverFrames(slave=0, nbytes=262144)
    """
    options = dict(word.split("=") for word in words if "=" in word)
    number = [
        UNBOUNDED_ROOM if word == "all" else int(word) for word in words[1:] if word == "all" or word.lstrip("-").isdigit()
    ]
    match words[0]:
        case "put":
            return events.Put(options.get("topic", "T"), b"x" * number[0], "", 0, "wait" in words, "pause" in words)
        case "resume":
            return events.Resume(number[0])
        case "tick":
            return events.Tick(number[0])
        case "connect":
            rooms = (int(options.get(name, UNBOUNDED_ROOM)) for name in ("room", "slave_room"))
            return events.Connect(number[0], *rooms)
        case "grant":
            return events.Grant(*number)
        case "frames":
            return events.DeliverFrames(*number)
        case "reports":
            return events.DeliverReports(*number)
        case "forge":
            return events.ForgeReport(*number)
        case "forge-header":
            return events.ForgeHeader(*number)
        case "clog":
            return events.Clog(*number)
        case "disk-full" | "disk-room":
            return events.DiskFull(number[0], words[0] == "disk-full")
        case "cut":
            assert words[2] in ("both", "slave", "master"), words
            return events.Cut(number[0], words[2])  # type: ignore[arg-type]
        case "restart-slave":
            return events.RestartSlave(number[0])
        case "restart-master":
            return events.RestartMaster("clean" in words, int(options.get("lost", 0)))
        case "delete-file":
            return events.DeleteFile()
    raise AssertionError(f"no such step: {' '.join(words)}")


def describe_transition(row: Transition) -> str:
    log = "master" if row.instance == 0 else f"s{row.instance - 1}"
    names = {"store": f"log of {log}", "slave_client": f"s{row.instance}", "group_transfer": "waiting puts"}
    actor = names.get(row.actor, f"link {row.instance}")
    return f"{actor}: {row.from_state} -{row.event}-> {row.to_state}  {' '.join(row.clauses)}".rstrip()


def describe(cluster: Cluster) -> dict[str, str]:
    """The lines of all nodes."""
    puts = [f"put to {next_offset} pauses" for _, next_offset in cluster.paused]
    puts += [f"put to {request.next_offset} waits" for request in cluster.group.requests]
    puts += [f"put to {done.next_offset} ends {done.status}" for done in cluster.done]
    service = five_waits.service_of(cluster.group)
    queue = [request.next_offset for request in (*service.requests_read, *service.requests_write)]
    if service.requests_read:
        behind = f", then {', '.join(map(str, queue[1:]))}" if queue[1:] else ""
        puts.append(f"wait {service.waits + 1} is for {queue[0]}{behind}")
    puts += ["a notification is kept"] if service.has_notified else []
    nodes = {"master": ", ".join([describe_log(cluster.log), f"push2 {cluster.push2_slave_max_offset}", *puts])}
    nodes |= {f"s{index}": describe_slave(node) for index, node in enumerate(cluster.slaves)}
    return nodes | {f"link {link.link_id}": describe_link(link) for link in cluster.links}


def describe_log(log: store.Log) -> str:
    return "no files" if log.base is None else f"{store.min_offset(log)}..{store.max_offset(log)}"


def describe_slave(node: Slave) -> str:
    log = describe_log(node.log) + (", disk full" if node.disk_full else "")
    if not node.connected:
        return f"{log}, not connected" + (f": {node.close_reason}" if node.close_reason else "")
    held = len(slave.unparsed(node))
    state = ", deaf" if node.deaf else f", {held} bytes unparsed" if held else ""
    return f"{log}, reported {node.current_reported_offset}{state}"


def describe_link(link: Link) -> str:
    conn = link.conn
    words = [f"to s{link.slave}", master.classify(conn).value]
    if conn.close_reason:
        words[-1] += f" ({conn.close_reason})"
    elif conn.next_transfer_from_where != -1:
        words.append(f"next {conn.next_transfer_from_where}")
        if not conn.last_write_over:
            size = conn.next_transfer_from_where - conn.this_offset
            words.append(f"pending {conn.this_offset}+{size}, {master.taken(conn)} bytes of it taken")
    if conn.slave_request_offset != -1:
        words.append(f"request {conn.slave_request_offset}, ack {conn.slave_ack_offset}")
    words += [f">{len(link.to_slave)}"] if link.to_slave else []
    words += [f"<{len(link.to_master)}"] if link.to_master else []
    words += ["severed"] if link.severed else []
    words += [] if link.slave_open else ["stale: the slave's end is gone"]
    return ", ".join(words)


def play(text: str) -> str:
    """Play a scenario. Returns: its text with the outcome below each step. Raises: AssertionError if the two worlds differ."""
    lines: list[str] = []
    worlds, seen = None, {}
    with ExitStack() as resources:
        for line in text.splitlines():
            if line.startswith(INDENT):
                continue
            lines.append(line)
            words = line.split()
            if not words or line.startswith("#"):
                continue
            if words[0] == "cluster":
                profile, slaves, settings = parse_cluster(words[1:])
                worlds = of_link(slaves, settings, profile, resources.enter_context(lockstep.scratch_directory()))
                resources.callback(worlds.close)
                seen = describe(worlds.reference.cluster)
                continue
            assert worlds is not None, "a scenario begins with its cluster"
            outcome = worlds.apply(parse_event(words))
            assert outcome.verdict == VERDICT_OK, f"{line}: {outcome.verdict} {outcome.signature}: {outcome.detail}"
            now = describe(worlds.reference.cluster)
            changes = [describe_transition(row) for row in outcome.transitions]
            changes += [f"{name:7} {told}" for name, told in now.items() if seen.get(name) != told]
            changes += [f"{name:7} gone" for name in seen if name not in now]
            lines += [INDENT + change for change in changes or ["nothing happens"]]
            seen = now
    return "\n".join(lines) + "\n"
