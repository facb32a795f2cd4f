"""A slave's tables with its questions, over a real store and without sockets: the test is the network."""

from contextlib import ExitStack
from pathlib import Path

from kit.asked import Asked
from kit.broker_tables import BrokerTables
from rocketmq_ha.impl.broker.config_file import ConfigFile
from rocketmq_ha.impl.broker.slave_synchronize import SlaveSynchronize
from rocketmq_ha.impl.broker.slave_tables import SlaveTables
from rocketmq_ha.impl.remoting.command import RemotingCommand
from rocketmq_ha.spec.profile import Profile

OWN, MASTER = ("10.0.0.2", 10911), ("10.0.0.1", 10911)
PLAIN, VIP = "10.0.0.1:10911", "10.0.0.1:10909"


class SlaveStand:
    """A slave: its tables are `tables`, and its questions go to `client`."""

    def __init__(self, directory: Path, resources: ExitStack, profile: Profile) -> None:
        self.tables = BrokerTables(directory, resources)
        self.topics, self.groups, self.offsets = self.tables.topics, self.tables.groups, self.tables.offsets
        for table in (self.topics, self.groups, self.offsets):
            table.load()
        self.tables.deleted.load(forgets=not profile.asks_changes)
        if profile.serves_topics_of_log:
            self.topics.queue_nums_of = self.tables.queues.queue_nums_of
        self.delay_offset = directory / "config" / "delayOffset.json"
        self.client = Asked()
        own = self.topics, self.groups, self.offsets, self.tables.deleted, ConfigFile(self.delay_offset)
        self.taken = SlaveTables(*own, lambda: self.tables.store.max_offset, profile, 0)
        self.rounds = SlaveSynchronize("10.0.0.2:10911", self.taken, self.client, 0)

    def begin(self, now_ms: int = 3_000) -> None:
        """The slave learns of its master, and asks for the first time."""
        self.rounds.master_addr = PLAIN
        self.rounds.on_turn(now_ms)

    def answer(self, address: str, body: bytes, code: int = 0, now_ms: int = 3_000) -> None:
        """Answer the oldest question to an address; the slave goes on."""
        self.client.answer(address, code, body)
        self.rounds.on_turn(now_ms)

    def asked(self) -> RemotingCommand:
        """The only question that has no answer yet."""
        [(_, command, _, _)] = self.client.requests
        return command

    def synchronize(self, master: BrokerTables, now_ms: int = 3_000) -> None:
        """Let a master answer until the slave asks no more."""
        self.begin(now_ms)
        while self.client.requests:
            [(address, command, _, _)] = self.client.requests
            answer = master.ask(command.code, body=command.body)
            self.answer(address, answer.body, answer.code, now_ms)
