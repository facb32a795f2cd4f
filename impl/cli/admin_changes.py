"""`rocketmq-ha admin`: the commands that change topics, groups and offsets."""

from collections.abc import Sequence
from typing import Any

import click

from rocketmq_ha.impl.app.client_session import NameServers, client_session
from rocketmq_ha.impl.cli.admin_output import broker_option, cell, cluster_option, json_option, show
from rocketmq_ha.impl.cli.client_options import name_servers_option
from rocketmq_ha.impl.cli.query import Time
from rocketmq_ha.impl.cli.table import Column
from rocketmq_ha.impl.client.admin import Admin, BrokerAddress
from rocketmq_ha.impl.client.route_data import MessageQueue, subscribe_queues
from rocketmq_ha.impl.errors import ConfigInvalid


@click.command("create-topic")
@name_servers_option
@click.argument("topic")
@click.option("--queues", type=click.IntRange(min=1), default=8, show_default=True, metavar="N", help="Queues of each broker.")
@click.option(
    "--perm", type=click.IntRange(0, 7), default=6, show_default=True, metavar="N", help="4 to read, 2 to write, or 6 for both."
)
@cluster_option
@broker_option
@json_option
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


@click.command("delete-topic")
@name_servers_option
@click.argument("topic")
@json_option
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


@click.command("create-group")
@name_servers_option
@click.argument("group")
@click.option(
    "--retries", type=click.IntRange(min=-1), default=16, show_default=True, metavar="N", help="Before the dead letters."
)
@cluster_option
@broker_option
@json_option
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


@click.command("reset-offset")
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
@json_option
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
                found = f"{len(consumers)} connected to {name}, {cell(consumers[0])} for one"
                raise ConfigInvalid(f"group {group}: found consumers, {found}; expected none")
        is_known = any(group in asked.groups(masters[name]) for name in names)
        offsets: list[tuple[MessageQueue, int]] = [(mq, asked.offset_of(masters[mq.broker_name], mq, place)) for mq in queues]
        for mq, offset in offsets:
            asked.reset_offset(masters[mq.broker_name], group, mq, offset)
            rows.append({"topic": topic, "broker": mq.broker_name, "queue": mq.queue_id, "offset": offset})
    columns = [Column("topic", least=8), Column("broker", least=8)]
    show([*columns, Column("queue", is_number=True), Column("offset", is_number=True)], rows, as_json)
    if not is_known:
        click.echo(
            f"group {group}: no broker of {topic} knew it; a consumer of this name will begin at these offsets", err=True
        )


def _show_changed(changed: Sequence[BrokerAddress], fields: dict[str, Any], as_json: bool) -> None:
    rows = [{**fields, "broker": broker.broker_name, "address": broker.address} for broker in changed]
    columns = [Column(name, least=8) for name in (*fields, "broker")]
    show([*columns, Column("address")], rows, as_json)
