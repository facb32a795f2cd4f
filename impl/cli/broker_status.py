"""The lines of `rocketmq-ha status` that only a broker has: its clients, its name servers, and the master that it follows."""

from typing import Any

from rocketmq_ha.impl.cli.quantities import ago, duration, number, size

Pairs = list[tuple[str, str]]


def broker_lines(snapshot: dict[str, Any], lines: Pairs) -> Pairs:
    """Add a broker's lines to those of its log and of its slaves; a slave has those of its master in the latter's place."""
    clients, followed = snapshot["clients"], snapshot["following"]
    refused = clients["refused_connections"]
    listens = f"{', '.join(clients['listen'])}, for slaves {dict(lines)['listens']}"
    name = f"{snapshot['broker_name']} of {snapshot['cluster']}, id {snapshot['broker_id']}"
    kept = [pair for pair in lines[1:] if followed is None or pair[0] not in ("slaves", "replicas")]
    kept = [(pair[0], listens) if pair[0] == "listens" else pair for pair in kept]
    parts = [
        f"{number(clients['connections'])} connections: {number(clients['producers'])} producers,"
        f" {number(clients['consumers'])} consumers in {number(clients['consumer_groups'])} groups",
        *([f"{number(refused)} refused"] if refused else []),
    ]
    rate, total = round(clients["requests_per_second"], 1), sum(clients["requests"].values())
    return [
        lines[0],
        ("broker", name),
        *kept,
        *(() if followed is None else _followed(followed)),
        ("tables", f"{number(snapshot['topics'])} topics, {number(snapshot['groups'])} groups"),
        ("clients", "; ".join(parts)),
        ("requests", f"{rate:,} a second, {number(total)} so far"),
        ("waiting", f"{number(clients['parked_pulls'])} pulls, {number(clients['waiting_puts'])} sends"),
        *_name_servers(snapshot["name_servers"]),
    ]


def _followed(followed: dict[str, Any]) -> Pairs:
    state = followed["state"]
    master = ", ".join(filter(None, (followed["master"], followed["certificate"])))
    if followed["master"] is None:
        state = "none is known yet"
    elif state == "connected":
        state = f"{master}, connected for {duration(followed['connected_ms'])}, heard {ago(followed['silent_ms'])}"
    else:
        ended = followed["last_close_reason"]
        state = f"{master}, {state}" + (f"; the last connection ended: {ended}" if ended else "")
    lag = "unknown: its master has not said where its log ends"
    if followed["lag_bytes"] is not None:
        lag = f"{size(followed['lag_bytes'])} behind, {ago(followed['lag_told_ms'])}"
    synced = "never taken"
    if followed["tables_ms"] is not None:
        behind = f"at most {duration(followed['tables_lag_ms'])} behind"
        synced = f"{followed['tables_by']} taken from {followed['tables_of']} {ago(followed['tables_ms'])}, {behind}"
    if followed["tables_error"]:
        synced += f"; since then: {followed['tables_error']}"
    return [("master", state), ("lag", lag), ("synced", synced)]


def _name_servers(found: list[dict[str, Any]]) -> Pairs:
    if not found:
        return [("namesrv", "none: clients cannot find this broker")]
    lines = []
    for each in found:
        text = f"{each['address']}, registered {ago(each['registered_ms'])}"
        if each["registered_ms"] is None:
            text = f"{each['address']}, not registered yet"
        lines.append(text + (f"; it failed: {each['error']}" if each["error"] else ""))
    return [("namesrv" if at == 0 else "", line) for at, line in enumerate(lines)]
