"""The socket for puts of a running master: who is still waiting when the master ends has an answer."""

from contextlib import ExitStack
from pathlib import Path

from kit.put_stand import FILE_SIZE, Stand, message
from rocketmq_ha.impl.app.local_puts import local_puts
from rocketmq_ha.impl.app.roles import putting
from rocketmq_ha.impl.net.listeners import listen
from rocketmq_ha.impl.net.put_socket import SOCKET_NAME
from rocketmq_ha.impl.net.server import Master
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.flush import FlushIntervals
from rocketmq_ha.spec.profile import HARDENED, Settings
from rocketmq_ha.spec.role import BrokerRole


class LocalPuts(Stand):
    """A stand whose socket is the one that `local_puts` makes. `end` leaves that context."""

    def __init__(self, stack: ExitStack, store: Path) -> None:
        self.store, self.stack = store, stack
        self.log = stack.enter_context(CommitLog.open(store, file_size=FILE_SIZE))
        settings = Settings(FILE_SIZE, sync_flush_timeout_ms=3_600_000)
        self.master = Master(self.log, listen("127.0.0.1", 0), settings, HARDENED)
        stack.callback(self.master.close)
        role = BrokerRole.SYNC_MASTER
        self.puts = stack.enter_context(putting(self.master, self.log, role, "async", FlushIntervals()))
        context = ExitStack()
        self.socket = context.enter_context(local_puts(store, self.master, self.puts))
        self.end = context.close
        stack.callback(self.end)


def test_a_put_that_waits_for_a_slave_is_answered_at_the_end(tmp_path: Path) -> None:
    """Nobody acknowledges it, and its time would end in an hour."""
    with ExitStack() as stack:
        stand = LocalPuts(stack, tmp_path / "s")
        stand.slave()
        client, end = stand.client(), stand.log.max_offset
        client.send(message())
        stand.until(lambda: stand.log.max_offset > end)
        stand.turn()
        assert client.lines() == []
        stand.end()
        assert client.receive()  # the socket has closed behind its answer
        answer, last = client.lines()
        assert (answer["status"], answer["commit_log_offset"]) == ("FLUSH_SLAVE_TIMEOUT", end)
        assert last == {"end": "the master has ended: what it has not answered it has not put"}
        assert len(stand.master.service.group_transfer) == 0
        assert not (tmp_path / "s" / SOCKET_NAME).exists()
