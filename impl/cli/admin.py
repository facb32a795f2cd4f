"""`rocketmq-ha admin ...`: what name servers and brokers have; `admin_changes` has the commands that change it."""

import json
from datetime import UTC, datetime
from typing import Any

import click

from rocketmq_ha.impl.app.client_session import NameServers, client_session
from rocketmq_ha.impl.cli.admin_changes import create_group, create_topic, delete_topic, reset_offset
from rocketmq_ha.impl.cli.admin_output import broker_fields, broker_option, cell, cluster_option, json_option, show
from rocketmq_ha.impl.cli.client_options import name_servers_option
from rocketmq_ha.impl.cli.table import Column, console_for, print_pairs
from rocketmq_ha.impl.client.admin import Admin, BrokerAddress, QueueProgress
from rocketmq_ha.impl.errors import ConfigInvalid


@click.group()
def admin() -> None:
    """Ask name servers and brokers, and change their topics, groups and offsets.

    Each command ends with exit status 2 and one line if a server does not answer, or answers with an error.
    """


for _command in (create_topic, delete_topic, create_group, reset_offset):
    admin.add_command(_command)


@admin.command()
@name_servers_option
@json_option
def topics(name_servers: NameServers, as_json: bool) -> None:
    """List the topics that the name server knows."""
    with client_session(name_servers) as session:
        found = Admin(session.client, session.name_servers).topics()
    show([Column("topic")], ({"topic": topic} for topic in found), as_json)


@admin.command()
@name_servers_option
@cluster_option
@broker_option
@json_option
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
    show([*columns, Column("retry queues", is_number=True), Column("retries", is_number=True)], rows, as_json)


@admin.command()
@name_servers_option
@click.argument("topic")
@json_option
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
    show([Column("broker", least=8), Column("id", is_number=True), Column("address"), *numbers], rows, as_json)


@admin.command()
@name_servers_option
@click.argument("group")
@click.option("--topic", metavar="TOPIC", help="Only this topic.")
@json_option
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
    show([Column("topic", least=8), Column("broker", least=8), *numbers, Column("last (UTC)", least=8)], rows, as_json)
    if not found:
        click.echo(f"group {group}: no broker has an offset of it{'' if topic is None else f' in {topic}'}", err=True)
        raise click.exceptions.Exit(1)
    if not as_json:
        click.echo(f"lag in all {sum(each.lag for each in found)}")


@admin.command()
@name_servers_option
@cluster_option
@broker_option
@json_option
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
                row = {**broker_fields(broker), "figures": figures, "ha_status": ha_status}
                click.echo(json.dumps(row, ensure_ascii=False))
                continue
            pairs = [(name, cell(value)) for name, value in broker_fields(broker).items()]
            pairs += sorted((cell(name), cell(value)) for name, value in figures.items())
            for name, value in (ha_status or {}).items():
                if not isinstance(value, list | dict):
                    pairs.append((f"ha {cell(name)}", cell(value)))
            print_pairs(console_for(), pairs)
            slaves = (ha_status or {}).get("haConnectionInfo")
            if isinstance(slaves, list) and slaves:
                columns = [Column("addr"), Column("slaveAckOffset", is_number=True), Column("diff", is_number=True)]
                rows = [{column.name: slave.get(column.name) for column in columns} for slave in slaves]
                show(columns, rows, as_json=False)
            click.echo()


@admin.command()
@name_servers_option
@json_option
def clusters(name_servers: NameServers, as_json: bool) -> None:
    """List the brokers by cluster."""
    with client_session(name_servers) as session:
        found = Admin(session.client, session.name_servers).brokers()
    columns = [Column("cluster", least=8), Column("broker", least=8), Column("id", is_number=True), Column("address")]
    show(columns, map(broker_fields, found), as_json)


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


def _time(timestamp_ms: int) -> str | None:
    if timestamp_ms <= 0:
        return None
    try:
        return f"{datetime.fromtimestamp(timestamp_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
