"""What the commands of `rocketmq-ha admin` have in common: options, and tables or JSON lines."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import click

from rocketmq_ha.impl.cli.table import Column, console_for, print_table
from rocketmq_ha.impl.client.admin import BrokerAddress

json_option: Final = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
cluster_option: Final = click.option("--cluster", metavar="CLUSTER", help="Only the brokers of this cluster.")
broker_option: Final = click.option("--broker", "broker_name", metavar="NAME", help="Only the brokers of this brokerName.")


def show(columns: Sequence[Column], rows: Iterable[dict[str, Any]], as_json: bool) -> None:
    """Print rows as a table; or as JSON lines, whose names are those of the columns in snake case."""
    rows = list(rows)
    if as_json:
        for row in rows:
            click.echo(json.dumps({_snake(name): value for name, value in row.items()}, ensure_ascii=False))
    else:
        print_table(console_for(), columns, [[cell(row[column.name]) for column in columns] for row in rows])


def _snake(name: str) -> str:
    """The name of a column as one word.

    >>> _snake("last (UTC)")
    'last_utc'
    """
    return "_".join(re.findall("[a-z]+", name.lower()))


def cell(value: object) -> str:
    """A value as one cell of a table."""
    text = "" if value is None else str(value)
    return "".join(each if each.isprintable() else "·" for each in text)


def broker_fields(broker: BrokerAddress) -> dict[str, Any]:
    """The cells of a broker, by their columns."""
    return {
        "cluster": broker.cluster,
        "broker": broker.broker_name,
        "id": broker.broker_id,
        "address": broker.address,
    }
