"""The socket by which other processes of this machine put messages into a running master."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rocketmq_ha.impl.app.roles import end_all
from rocketmq_ha.impl.ha.puts import Puts
from rocketmq_ha.impl.net.put_socket import PutSocket
from rocketmq_ha.impl.net.server import Master


@contextmanager
def local_puts(store_dir: Path, server: Master, puts: Puts) -> Iterator[PutSocket]:
    """Take puts at the socket in a store. At the end, end the master's puts and answer each client with their outcomes."""
    put_socket = PutSocket(store_dir, puts)
    server.wake_by(put_socket)
    try:
        yield put_socket
    finally:
        put_socket.finish(lambda: end_all(server, puts, ()))
