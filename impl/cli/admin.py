"""`rocketmq-ha admin ...`: what name servers and brokers have, and changes of it."""

import json
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from rocketmq_ha.impl.app.client_session import NameServers, client_session
from rocketmq_ha.impl.cli.client_options import name_servers_option
from rocketmq_ha.impl.cli.query import Time
from rocketmq_ha.impl.cli.table import Column, console_for, print_pairs, print_table
from rocketmq_ha.impl.client.admin import Admin, BrokerAddress, QueueProgress
from rocketmq_ha.impl.client.route_data import MessageQueue, subscribe_queues
from rocketmq_ha.impl.errors import ConfigInvalid

_json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
_cluster_option = click.option("--cluster", metavar="CLUSTER", help="Only the brokers of this cluster.")
_broker_option = click.option("--broker", "broker_name", metavar="NAME", help="Only the brokers of this brokerName.")


@click.group()
def admin() -> None:
    """Ask name servers and brokers, and change their topics, groups and offsets.

    Each command ends with exit status 2 and one line if a server does not answer, or answers with an error.
    """


def _show(columns: Sequence[Column], rows: Iterable[dict[str, Any]], as_json: bool) -> None:
    """Print rows as a table; or as JSON lines, whose names are those of the columns in snake case."""
    rows = list(rows)
    if as_json:
        for row in rows:
            click.echo(json.dumps({_snake(name): value for name, value in row.items()}, ensure_ascii=False))
    else:
        print_table(console_for(), columns, [[_cell(row[column.name]) for column in columns] for row in rows])


def _snake(name: str) -> str:
    """The name of a column as one word.

    >>> _snake("last (UTC)")
    'last_utc'
    """
    return "_".join(re.findall("[a-z]+", name.lower()))


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    return "".join(each if each.isprintable() else "·" for each in text)


@admin.command()
@name_servers_option
@_json_option
def topics(name_servers: NameServers, as_json: bool) -> None:
    """List the topics that the name server knows."""
    with client_session(name_servers) as session:
        found = Admin(session.client, session.name_servers).topics()
    _show([Column("topic")], ({"topic": topic} for topic in found), as_json)


@admin.command()
@name_servers_option
@_cluster_option
@_broker_option
@_json_option
def groups(name_servers: NameServers, cluster: str | None, broker_name: str | None, as_json: bool) -> None:
    """List the consumer groups of the masters."""
    rows = []
    with client_session(name_servers) as session:
        asked = Admin(session.client, session.name_servers)
        for broker in asked.masters(cluster, broker_name):
            for name, config in sorted(asked.groups(broker.address).items()):
                fields = config if isinstance(config, dict) else {}
                rows.append(
                    {
                        "group": name,
                        "broker": broker.broker_name,
                        "consumes": fields.get("consumeEnable"),
                        "retry queues": fields.get("retryQueueNums"),
                        "retries": fields.get("retryMaxTimes"),
                    }
                )
    columns = [Column("group", least=16), Column("broker", least=8), Column("consumes")]
    _show([*columns, Column("retry queues", is_number=True), Column("retries", is_number=True)], rows, as_json)


@admin.command()
@name_servers_option
@click.argument("topic")
@_json_option
def routes(name_servers: NameServers, topic: str, as_json: bool) -> None:
    """Show the brokers of a topic, and how many queues each group has."""
    with client_session(name_servers) as session:
        route = Admin(session.client, session.name_servers).route(topic)
    rows: list[dict[str, Any]] = []
    for data in sorted(route.queue_datas, key=lambda data: data.broker_name):
        addrs: list[tuple[int | None, str | None]] = [*sorted(route.addrs(data.broker_name).items())]
        for broker_id, address in addrs or [(None, None)]:
            rows.append(
                {
                    "broker": data.broker_name,
                    "id": broker_id,
                    "address": address,
                    "read": data.read_queue_nums,
                    "write": data.write_queue_nums,
                    "perm": data.perm,
                }
            )
    numbers = [Column(name, is_number=True) for name in ("read", "write", "perm")]
    _show([Column("broker", least=8), Column("id", is_number=True), Column("address"), *numbers], rows, as_json)


@admin.command()
@name_servers_option
@click.argument("group")
@click.option("--topic", metavar="TOPIC", help="Only this topic.")
@_json_option
def progress(name_servers: NameServers, group: str, topic: str | None, as_json: bool) -> None:
    """Show how far a group has come in each queue, and how many messages it has still to consume.

    Queues in which the group has never committed count from offset 0. Exit status 1 if the group has no offset anywhere.
    """
    found: list[QueueProgress] = []
    with client_session(name_servers) as session:
        asked = Admin(session.client, session.name_servers)
        for broker in asked.masters():
            found += asked.progress(broker.address, group, topic)
    names = ("queue", "min", "max", "consumer", "lag")
    rows = [
        {
            "topic": each.queue.topic,
            "broker": each.queue.broker_name,
            "queue": each.queue.queue_id,
            "min": each.min_offset,
            "max": each.broker_offset,
            "consumer": each.consumer_offset,
            "lag": each.lag,
            "last (UTC)": _time(each.last_timestamp),
        }
        for each in found
    ]
    numbers = [Column(name, is_number=True) for name in names]
    _show([Column("topic", least=8), Column("broker", least=8), *numbers, Column("last (UTC)", least=8)], rows, as_json)
    if not found:
        click.echo(f"group {group}: no broker has an offset of it{'' if topic is None else f' in {topic}'}", err=True)
        raise click.exceptions.Exit(1)
    if not as_json:
        click.echo(f"lag in all {sum(each.lag for each in found)}")


@admin.command()
@name_servers_option
@_cluster_option
@_broker_option
@_json_option
def status(name_servers: NameServers, cluster: str | None, broker_name: str | None, as_json: bool) -> None:
    """Show the figures of the brokers, and who replicates their logs.

    Brokers of 4.x do not say who replicates.
    """
    with client_session(name_servers) as session:
        asked = Admin(session.client, session.name_servers)
        for broker in _brokers(asked, cluster, broker_name):
            figures = asked.runtime_info(broker.address)
            ha_status = asked.ha_status(broker.address)
            if as_json:
                row = {**_broker_fields(broker), "figures": figures, "ha_status": ha_status}
                click.echo(json.dumps(row, ensure_ascii=False))
                continue
            pairs = [(name, _cell(value)) for name, value in _broker_fields(broker).items()]
            pairs += sorted((_cell(name), _cell(value)) for name, value in figures.items())
            for name, value in (ha_status or {}).items():
                if not isinstance(value, list | dict):
                    pairs.append((f"ha {_cell(name)}", _cell(value)))
            print_pairs(console_for(), pairs)
            slaves = (ha_status or {}).get("haConnectionInfo")
            if isinstance(slaves, list) and slaves:
                columns = [Column("addr"), Column("slaveAckOffset", is_number=True), Column("diff", is_number=True)]
                rows = [{column.name: slave.get(column.name) for column in columns} for slave in slaves]
                _show(columns, rows, as_json=False)
            click.echo()


@admin.command()
@name_servers_option
@_json_option
def clusters(name_servers: NameServers, as_json: bool) -> None:
    """List the brokers by cluster."""
    with client_session(name_servers) as session:
        found = Admin(session.client, session.name_servers).brokers()
    columns = [Column("cluster", least=8), Column("broker", least=8), Column("id", is_number=True), Column("address")]
    _show(columns, map(_broker_fields, found), as_json)


@admin.command("create-topic")
@name_servers_option
@click.argument("topic")
@click.option("--queues", type=click.IntRange(min=1), default=8, show_default=True, metavar="N", help="Queues of each broker.")
@click.option(
    "--perm", type=click.IntRange(0, 7), default=6, show_default=True, metavar="N", help="4 to read, 2 to write, or 6 for both."
)
@_cluster_option
@_broker_option
@_json_option
def create_topic(
    name_servers: NameServers,
    topic: str,
    queues: int,
    perm: int,
    cluster: str | None,
    broker_name: str | None,
    as_json: bool,
) -> None:
    """Make a topic at the masters, or replace its settings."""
    with client_session(name_servers) as session:
        asked = Admin(session.client, session.name_servers)
        changed = asked.masters(cluster, broker_name)
        for broker in changed:
            asked.create_topic(broker.address, topic, queues, perm)
    _show_changed(changed, {"topic": topic, "queues": queues, "perm": perm}, as_json)


@admin.command("delete-topic")
@name_servers_option
@click.argument("topic")
@_json_option
def delete_topic(name_servers: NameServers, topic: str, as_json: bool) -> None:
    """Delete a topic at all masters and name servers.

    Exit status 1 if the name server did not know the topic. It is deleted all the same, since a master may have it.
    Exit status 2 if a name server refuses; the others are asked too. One that does not answer is named, and may list the
    topic until it is started again; a master that no name server lists keeps the topic.
    """
    with client_session(name_servers) as session:
        asked = Admin(session.client, session.name_servers)
        is_known = topic in asked.topics()
        changed = asked.masters()
        for failure in asked.delete_topic(topic, changed):
            click.echo(f"{failure}: if it runs, it lists topic {topic} until it is started again", err=True)
    _show_changed(changed, {"topic": topic}, as_json)
    if not is_known:
        click.echo(f"topic {topic}: no name server knew it", err=True)
        raise click.exceptions.Exit(1)


@admin.command("create-group")
@name_servers_option
@click.argument("group")
@click.option(
    "--retries", type=click.IntRange(min=-1), default=16, show_default=True, metavar="N", help="Before the dead letters."
)
@_cluster_option
@_broker_option
@_json_option
def create_group(
    name_servers: NameServers,
    group: str,
    retries: int,
    cluster: str | None,
    broker_name: str | None,
    as_json: bool,
) -> None:
    """Make a consumer group at the masters, or replace its settings."""
    with client_session(name_servers) as session:
        asked = Admin(session.client, session.name_servers)
        changed = asked.masters(cluster, broker_name)
        for broker in changed:
            asked.create_group(broker.address, group, retries)
    _show_changed(changed, {"group": group, "retries": retries}, as_json)


class _Place(Time):
    """first, last or a time."""

    name = "place"

    def convert(  # type: ignore[override]
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | int:
        return str(value) if value in ("first", "last") else super().convert(value, param, ctx)


@admin.command("reset-offset")
@name_servers_option
@click.argument("group")
@click.argument("topic")
@click.option(
    "--to",
    "place",
    required=True,
    type=_Place(),
    metavar="first|last|TIME",
    help="The first message, the end, or a time: ms since 1970, or like 2024-01-31T12:00:00 (UTC).",
)
@_json_option
def reset_offset(name_servers: NameServers, group: str, topic: str, place: str | int, as_json: bool) -> None:
    """Set the offset of a group in all queues of a topic.

    The group's consumers have to be stopped, because they would commit over it: exit status 2 if one is connected. A group that
    no broker knows gets its offsets, too, and begins there; a line says so. If one of the topic's broker groups has no master,
    exit status 2 and nothing is changed: nobody else takes offsets.
    """
    rows = []
    with client_session(name_servers) as session:
        asked = Admin(session.client, session.name_servers)
        route = asked.route(topic)
        masters = {broker.broker_name: broker.address for broker in asked.masters()}
        queues = subscribe_queues(topic, route)
        if not queues:
            raise ConfigInvalid(f"topic {topic}: found no queue that may be read, expected one")
        names = sorted({mq.broker_name for mq in queues})
        for name in names:
            if name not in masters:
                raise ConfigInvalid(f"topic {topic}: brokerName {name}: found no master, expected one to take the offsets")
        for name in names:
            if consumers := asked.consumers(masters[name], group):
                found = f"{len(consumers)} connected to {name}, {_cell(consumers[0])} for one"
                raise ConfigInvalid(f"group {group}: found consumers, {found}; expected none")
        is_known = any(group in asked.groups(masters[name]) for name in names)
        offsets: list[tuple[MessageQueue, int]] = [(mq, asked.offset_of(masters[mq.broker_name], mq, place)) for mq in queues]
        for mq, offset in offsets:
            asked.reset_offset(masters[mq.broker_name], group, mq, offset)
            rows.append({"topic": topic, "broker": mq.broker_name, "queue": mq.queue_id, "offset": offset})
    columns = [Column("topic", least=8), Column("broker", least=8)]
    _show([*columns, Column("queue", is_number=True), Column("offset", is_number=True)], rows, as_json)
    if not is_known:
        click.echo(
            f"group {group}: no broker of {topic} knew it; a consumer of this name will begin at these offsets", err=True
        )


def _brokers(asked: Admin, cluster: str | None, broker_name: str | None) -> list[BrokerAddress]:
    """The brokers of a cluster or of a group, or all. Raises: ConfigInvalid if there is none."""
    found = [
        broker for broker in asked.brokers() if cluster in (None, broker.cluster) and broker_name in (None, broker.broker_name)
    ]
    if not found:
        raise ConfigInvalid(f"the name server lists no broker{_of(' of the cluster ', cluster)}{_of(' named ', broker_name)}")
    return found


def _of(words: str, name: str | None) -> str:
    return "" if name is None else words + name


def _broker_fields(broker: BrokerAddress) -> dict[str, Any]:
    return {
        "cluster": broker.cluster,
        "broker": broker.broker_name,
        "id": broker.broker_id,
        "address": broker.address,
    }


def _show_changed(changed: Sequence[BrokerAddress], fields: dict[str, Any], as_json: bool) -> None:
    rows = [{**fields, "broker": broker.broker_name, "address": broker.address} for broker in changed]
    columns = [Column(name, least=8) for name in (*fields, "broker")]
    _show([*columns, Column("address")], rows, as_json)


def _time(timestamp_ms: int) -> str | None:
    if timestamp_ms <= 0:
        return None
    try:
        return f"{datetime.fromtimestamp(timestamp_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
