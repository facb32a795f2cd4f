"""Many idle clients of a broker in one process: each sends a heartbeat at its start and then every 30 s, as RocketMQ's do.

Each is a producer, and a consumer in a group of ten. Run as a program with the broker's port. It answers `ready=1`. The command
`connect N` connects N clients; the answer `clients=N` comes when each had its first heartbeat answered. `close` closes all
of them; the answer is `clients=0`.
"""

import json
import socket
import sys
import threading
from itertools import cycle
from typing import Final

from rocketmq_ha.impl.remoting.codes import RequestCode
from rocketmq_ha.impl.remoting.command import encode_whole, request

from .line_process import reply

HEARTBEAT_S: Final = 30.0
GROUP_SIZE: Final = 10
PER_ADDRESS: Final = 500  # a broker takes at most 1,024 connections of one address; all of 127.0.0.0/8 is this machine


class IdleClient:
    """One client. Its heartbeats are made once."""

    def __init__(self, port: int, number: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), 10, (f"127.0.0.{2 + number // PER_ADDRESS}", 0))
        subscription = {"topic": "Bench", "subString": "*", "subVersion": 1}
        consumer = {
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "consumeType": "CONSUME_PASSIVELY",
            "groupName": f"idle-consumers-{number // GROUP_SIZE}",
            "messageModel": "CLUSTERING",
            "subscriptionDataSet": [subscription],
        }
        body = {
            "clientID": f"10.0.0.1@{number}",
            "consumerDataSet": [consumer],
            "producerDataSet": [{"groupName": "idle-producers"}],
        }
        self._heartbeat: Final = encode_whole(request(RequestCode.HEART_BEAT, {}, json.dumps(body).encode()))

    def beat(self) -> None:
        """Send a heartbeat, and wait for some of what the broker sends: the answer, or news of the group."""
        self.sock.sendall(self._heartbeat)
        assert self.sock.recv(65536), "the broker has closed the connection"


def beat_by_turns(clients: list[IdleClient], end: threading.Event) -> None:
    """Send all heartbeats that are due, until the end."""
    for client in cycle(clients):
        if end.wait(HEARTBEAT_S / len(clients)):
            return
        client.beat()


def main() -> None:
    port = int(sys.argv[1])
    clients: list[IdleClient] = []
    end = threading.Event()
    beating = threading.Thread()
    reply(ready=1)
    for line in sys.stdin:
        if line.startswith("connect"):
            clients = [IdleClient(port, number) for number in range(int(line.split()[1]))]
            for client in clients:
                client.beat()
            end.clear()
            beating = threading.Thread(target=beat_by_turns, args=(clients, end), daemon=True)
            beating.start()
        else:
            end.set()
            beating.join()
            for client in clients:
                client.sock.close()
            clients = []
        reply(clients=len(clients))


if __name__ == "__main__":
    main()
