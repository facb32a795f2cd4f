"""A broker process: producers and consumers on one port, slaves on another, and name servers that it registers with."""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from rocketmq_ha.impl.app.broker_answers import config_of, ha_status_of
from rocketmq_ha.impl.app.broker_figures import BrokerFigures
from rocketmq_ha.impl.app.cleaning import RetentionSettings
from rocketmq_ha.impl.app.endpoints import HaTls, Listening, tls_listener
from rocketmq_ha.impl.app.following import Following
from rocketmq_ha.impl.app.producer import POLL_MS
from rocketmq_ha.impl.app.reload import ConfigurationSource, Reload
from rocketmq_ha.impl.app.remoting_tls import RemotingClientTlsFiles, RemotingTlsFiles, remoting_client_tls, remoting_tls
from rocketmq_ha.impl.app.roles import RoleSettings
from rocketmq_ha.impl.app.run_master import MASTER_READ_BUFFER_SIZE
from rocketmq_ha.impl.app.status_publisher import publishing_status, serving_metrics
from rocketmq_ha.impl.app.stop import Stop
from rocketmq_ha.impl.app.thread_faults import ending_with_threads
from rocketmq_ha.impl.broker.broker import BrokerController, BrokerSettings
from rocketmq_ha.impl.clock import clock_ms
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.ha.puts import Puts
from rocketmq_ha.impl.ha.settings import check_batch_size, check_replicas
from rocketmq_ha.impl.net.address import format_address, parse_address
from rocketmq_ha.impl.net.client import Follower
from rocketmq_ha.impl.net.limits import Limits, Network
from rocketmq_ha.impl.net.listeners import listen
from rocketmq_ha.impl.net.server import Master
from rocketmq_ha.impl.net.tls_ends import ClientTls
from rocketmq_ha.impl.net.waker import Waker
from rocketmq_ha.impl.remoting.client import RemotingClient
from rocketmq_ha.impl.remoting.limits import RemotingLimits
from rocketmq_ha.impl.remoting.server import RemotingServer
from rocketmq_ha.impl.store.derived.index_file import Geometry
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.flush import FlushIntervals, GroupCommitService
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.spec.profile import Profile, Settings
from rocketmq_ha.spec.role import BrokerRole

VIP_PORT_OFFSET: Final = 2  # the second port for clients is that much below the first
LEAVE_MS: Final = 3_000  # how long the name servers may take to answer that this broker goes

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """The options of `rocketmq-ha broker`.

    listen: the address for clients. announce: the host that clients and slaves are told of in its place; None: the same.
    tls: of the clients' ports. client_tls: to the name servers, and to a slave's master; None for none. ha: where slaves
    connect. master: the HA address of a slave's master; None: the name servers tell it. ha_tls: in place of the port of that
    address; None: without TLS. limits: of the HA port.
    """

    store: Path
    listen: tuple[str, int]
    announce: str | None
    ha: Listening
    tls: RemotingTlsFiles | None
    client_tls: RemotingClientTlsFiles | None
    ha_tls: HaTls | None
    file_size: int | None
    queue_file_size: int | None
    index_geometry: Geometry | None
    profile: Profile
    roles: RoleSettings
    flush_intervals: FlushIntervals
    retention: RetentionSettings
    master: tuple[str, int] | None
    limits: Limits
    remoting_limits: RemotingLimits
    metrics_address: str | None
    settings: Settings
    broker: BrokerSettings


def run_broker(options: BrokerOptions, configuration: ConfigurationSource, print_line: Callable[[str], object]) -> None:
    """Serve until SIGINT or SIGTERM. Raises: ConfigInvalid, before any store is touched; as MessageStore.open does."""
    profile, retention, role = options.profile, options.retention, options.roles.role
    _check_id(role, options.broker.broker_id)
    check_replicas(options.settings.replicas, profile)
    check_batch_size(options.settings.ha_transfer_batch_size)
    stopped, reload = Stop(), Reload(configuration)
    with ExitStack() as stack:
        stack.enter_context(ending_with_threads())
        listeners = _listen_for_clients(options.listen)
        for listener in listeners:
            stack.enter_context(listener)
        ha_listener = None if options.ha.address is None else listen(*options.ha.address, "--ha-listen")
        stack.enter_context(ha_listener or nullcontext())
        tls = stack.enter_context(tls_listener(options.ha.tls, profile))
        metrics = stack.enter_context(serving_metrics(options.metrics_address))
        clients_tls = remoting_tls(options.tls)
        clients = RemotingServer(listeners, options.remoting_limits, clients_tls)
        stack.callback(clients.close)
        client_tls = remoting_client_tls(options.client_tls)
        master_tls = None if options.ha_tls is None else options.ha_tls.client_tls(profile)
        client = RemotingClient(tls=client_tls)
        stack.callback(client.close)
        broker_addr = options.announce or options.listen[0], clients.addresses[0][1]
        store_options = StoreOptions(
            file_size=options.file_size,
            queue_file_size=options.queue_file_size,
            index_geometry=options.index_geometry,
            role=role,
            store_host=broker_addr,
            floor_size=retention.floor_size,
            retention=retention.retention,
            expiry_interval_s=retention.interval_s,
            flush_intervals=options.flush_intervals,
            notes_topics=False,
            clear_tail=profile.clears_tail,
        )
        waker = Waker()  # the dispatch may call it until the store is closed
        stack.callback(waker.close)
        store = stack.enter_context(MessageStore.open(options.store, store_options))
        ha_settings = replace(
            options.settings, mapped_file_size=store.log.file_size, master_read_buffer_size=MASTER_READ_BUFFER_SIZE
        )
        # HA-R-27 "MUST start all of HAService, whatever its role": slaves can follow a slave
        master = Master(store.log, ha_listener, ha_settings, profile, options.limits, tls)
        stack.callback(master.close)
        if not retention.delete_unacknowledged:
            store.needed_offset = master.service.needed_offset
        reload.serve(tls, clients_tls, client_tls, master_tls, master=AllPorts(master, clients))
        is_slave = role is BrokerRole.SLAVE
        puts = None if is_slave else stack.enter_context(_putting(master, store, options.roles))
        settings = replace(options.broker, role=role, profile=profile)
        settings = replace(settings, broker_addr=broker_addr, ha_server_addr=_ha_address(options, master))
        if not is_slave:  # HA-R-2 "A master's `brokerId` MUST be 0, whatever is configured"
            if settings.broker_id:
                log.warning("broker id %d of a %s: a master has 0, and so has this one", settings.broker_id, role.value)
            settings = replace(settings, broker_id=0)
        settings = replace(settings, config=config_of(settings, options.roles.flush, store))
        now_ms = clock_ms()
        master.wake_by(waker)
        following = Following(store, partial(_follower, ha_settings, profile, store, master_tls))
        stack.callback(following.shutdown)
        ha_status = partial(ha_status_of, master, following if is_slave else None)
        connected = following.is_connected
        broker = BrokerController(settings, store, puts, clients, client, waker.wake, ha_status, connected, now_ms)
        master.wake_by(clients)
        master.wake_by(client)
        figures = BrokerFigures(broker, master, profile.name, following)
        status_publisher = stack.enter_context(publishing_status(options.store, figures, metrics))
        _print_addresses(print_line, clients, master)
        if metrics is not None:
            print_line(f"metrics={metrics.address}")
        broker.start(now_ms)
        if is_slave:
            following.start()

        def turn() -> None:
            now_ms = clock_ms()
            broker.turn(now_ms)
            if is_slave:
                following.follow(_master_of(options, broker))
                following.check()
            status_publisher.turn()
            reload.poll()

        while not stopped():
            turn()
            master.poll(max(0, min(POLL_MS, broker.next_turn_ms - clock_ms())))
        _leave(broker, client)
        following.shutdown()
        if puts is not None:
            puts.shutdown(clock_ms())
        master.close()
        broker.finish()


def _check_id(role: BrokerRole, broker_id: int) -> None:
    """HA-R-2 "a slave with another id MUST NOT start". Raises: ConfigInvalid."""
    if role is BrokerRole.SLAVE and broker_id == 0:
        raise ConfigInvalid("broker id 0 of a SLAVE: expected a greater one, which no other slave of its master has")


def _master_of(options: BrokerOptions, broker: BrokerController) -> tuple[str, int] | None:
    """The HA address to follow; not its own.

    HA-S-100 "MUST connect to that port of its master's host, whoever has told the host, and MUST NOT connect to the port".
    HA-S-16 "uses it and takes no other": that of the options. HA-S-17 "MUST take the master's HA address from each answer to
    its registration": else the one that the name servers have told.
    """
    told = broker.ha_server_addr
    found = options.master
    if found is None and told not in ("", format_address(*broker.settings.ha_server_addr)):
        found = parse_address(told)
    return found if found is None or options.ha_tls is None else (found[0], options.ha_tls.port)


def _follower(
    settings: Settings,
    profile: Profile,
    store: MessageStore,
    tls: ClientTls | None,
    log: CommitLog,
    master: tuple[str, int],
) -> Follower:
    """HA-R-14 "MUST connect to the HA address, `haServerAddr`, of its master". An empty log begins where its master says."""
    own = replace(settings, slave_file_size=log.file_size)
    return Follower(log, *master, own, profile, tls=tls, has_room=lambda: store.kept()["disk_full"] is None)


def _listen_for_clients(address: tuple[str, int]) -> list[Any]:
    """Listen on the port, and on that two below it, where slaves and clients with a VIP channel ask. Raises: ConfigInvalid."""
    host, port = address
    sockets = [listen(host, port, "--listen")]
    try:
        sockets.append(listen(host, port - VIP_PORT_OFFSET if port else 0, "two ports below --listen"))
    except BaseException:
        sockets[0].close()
        raise
    return sockets


@contextmanager
def _putting(master: Master, store: MessageStore, roles: RoleSettings) -> Iterator[Puts]:
    """Run the puts, and the thread that flushes for them, until the context ends. The store flushes at intervals by itself."""
    waker = Waker()
    master.wake_by(waker)
    group_commit = GroupCommitService(store.log_flush, waker.wake) if roles.flush == "sync" else None
    puts = Puts(master.service, roles.role, group_commit)
    if group_commit is not None:
        group_commit.start()
    try:
        yield puts
    finally:
        puts.shutdown(clock_ms())
        waker.close()


def _ha_address(options: BrokerOptions, master: Master) -> tuple[str, int]:
    """HA-R-13 "MUST be `brokerIP2:haListenPort`"."""
    host, port = master.address
    return options.announce or host, port


def _leave(broker: BrokerController, client: RemotingClient) -> None:
    """Unregister. HA-R-18: the name servers have 3 s to answer."""
    until_ms = clock_ms() + LEAVE_MS
    broker.registration.unregister_broker_all(clock_ms())
    while not broker.registration.has_left and clock_ms() < until_ms:
        client.poll(POLL_MS)


def _print_addresses(print_line: Callable[[str], object], clients: RemotingServer, master: Master) -> None:
    for name, address in zip(("listening", "vip_listening"), clients.addresses, strict=True):
        print_line(f"{name}={format_address(*address)}")
    if master.plain_address:
        print_line(f"ha_listening={format_address(*master.plain_address)}")
    if master.tls_address:
        print_line(f"ha_tls_listening={format_address(*master.tls_address)}")


class AllPorts:
    """The ports of a broker, which have one list of networks that may connect."""

    def __init__(self, master: Master, clients: RemotingServer) -> None:
        self._master, self._clients = master, clients
        self.limiter: Final = master.limiter

    def allow(self, networks: tuple[Network, ...] | None) -> None:
        """Let these networks connect from now on; close the connections of peers outside of them. HA-M-80."""
        self._master.allow(networks)
        self._clients.allow(networks)
