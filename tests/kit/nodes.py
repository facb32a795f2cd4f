"""Start masters and slaves as processes, or a master in a thread."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kit.waiting import await_end, wait_for
from rocketmq_ha.fuzz.processes import Node
from rocketmq_ha.impl.net.listeners import listen
from rocketmq_ha.impl.net.server import Master
from rocketmq_ha.impl.net.status_socket import SOCKET_NAME
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.spec.profile import PROFILES, Settings


def serve(nodes: ExitStack, store: Path, *more: str, file_size: int, port: str = "0") -> tuple[Node, str]:
    """Start a master process. Returns: the process, and the address that it listens on."""
    serving = ("master", "--store", str(store), "--listen", f"127.0.0.1:{port}", "--file-size", str(file_size))
    node = Node(store.parent / f"{store.name}.log", *serving, *more)
    nodes.callback(node.stop)
    return node, node.line("listening")


def follow(nodes: ExitStack, store: Path, address: str, *more: str) -> Node:
    """Start a slave process, and wait until it answers questions about its status."""
    node = Node(store.parent / f"{store.name}.log", "slave", "--store", str(store), "--master", address, *more)
    nodes.callback(node.stop)
    wait_for((store / SOCKET_NAME).exists)
    return node


@contextmanager
def serving(
    store: Path, file_size: int, profile: str = "hardened", on_report: Callable[[int], None] = lambda _: None
) -> Iterator[Master]:
    """Run a master in a thread, with a heartbeat every 100 ms."""
    settings = Settings(file_size, ha_send_heartbeat_interval_ms=100, master_read_buffer_size=4096)
    stopped = threading.Event()
    with CommitLog.open(store, file_size=file_size) as log:
        master = Master(log, listen("127.0.0.1", 0), settings, PROFILES[profile])

        def run() -> None:
            while not stopped.is_set():
                master.poll(10)
                for conn in master.service.connections:
                    on_report(conn.slave_ack_offset)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield master
        finally:
            stopped.set()
            await_end(thread)
            master.close()
