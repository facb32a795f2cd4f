"""The screen of `rocketmq-ha cluster status`: two tables of the nodes, and the links that are cut, in 80 columns."""

from typing import TYPE_CHECKING, Any

from rocketmq_ha.impl.app.cluster.plan import CLIENTS, NAME_SERVER
from rocketmq_ha.impl.cli.quantities import duration, number, size
from rocketmq_ha.impl.cli.table import Column, print_pairs, print_table

if TYPE_CHECKING:
    from rich.console import Console

_ROLES = {"NAMESRV": "name server"}


def show(found: dict[str, Any], console: "Console") -> None:
    """Print a status."""
    print_pairs(
        console,
        [
            ("cluster", f"{found['mode']}, flush {found['flush']}, up {duration(found['up_ms'])}, pid {found['pid']}"),
            ("in", found["directory"]),
            ("namesrv", found["namesrv"]),
        ],
    )
    console.print()
    columns = [Column("node"), Column("role"), Column("state"), Column("since", is_number=True), Column("pid", is_number=True)]
    rows = []
    for node in found["nodes"]:
        role = _ROLES.get(node["role"], node["role"])
        rows.append((node["name"], role, _state(node), duration(node["state_ms"]), str(node["pid"] or "-"), node["address"]))
    print_table(
        console, [*columns, Column("address")], rows, ["" if node["state"] == "up" else "red" for node in found["nodes"]]
    )
    console.print()
    cut = {frozenset(link["ends"]): link for link in found["links"]}
    rows, styles = [], []
    for node in found["nodes"]:
        if node["role"] == "NAMESRV":
            continue
        links = [_link(cut, node["name"], other) for other in (CLIENTS, NAME_SERVER, _partner(found, node["name"]))]
        numbers = (number(node["max_offset"]), size(node["lag_bytes"]))
        rows.append((node["name"], *numbers, _listed(node["listed"]), *links))
        styles.append("red" if "CUT" in links else "")
    numbers_columns = [Column("log end", is_number=True), Column("lag", is_number=True), Column("listed")]
    links_columns = [Column("clients"), Column("namesrv"), Column("group")]
    print_table(console, [Column("broker"), *numbers_columns, *links_columns], rows, styles)
    for link in found["links"]:
        if link["is_cut"]:
            console.print(f"cut for {duration(link['cut_ms'])}: {' - '.join(link['ends'])}")


def _state(node: dict[str, Any]) -> str:
    return f"ended ({node['exit_status']})" if node["state"] == "ended" else str(node["state"])


def _listed(listed: bool | None) -> str:
    return "-" if listed is None else "yes" if listed else "NO"


def _partner(found: dict[str, Any], name: str) -> str | None:
    """The other broker of a group: its master or its slave."""
    ends = (link["ends"] for link in found["links"] if name in link["ends"])
    others = (other for pair in ends for other in pair if other not in (name, CLIENTS, NAME_SERVER))
    return next(others, None)


def _link(cut: dict[frozenset[str], dict[str, Any]], name: str, other: str | None) -> str:
    if other is None:
        return "-"
    return "CUT" if cut[frozenset({name, other})]["is_cut"] else "up"
