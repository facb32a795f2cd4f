"""A send processor over a real store, with a table of topics and puts that a test commands; and the same for the model."""

import ipaddress
from collections.abc import Callable, Iterable
from pathlib import Path

from kit.channels import Channel
from rocketmq_ha.impl.broker.send import SendMessageProcessor, SendSettings
from rocketmq_ha.impl.broker.table_settings import TableSettings
from rocketmq_ha.impl.broker.topic_config import TopicConfig, TopicConfigManager
from rocketmq_ha.impl.remoting.command import RemotingCommand
from rocketmq_ha.impl.store.log.results import AppendResult, PutMessageStatus
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.wire.message import Host
from rocketmq_ha.reference import message as reference_message
from rocketmq_ha.reference import sending

MIB = 1 << 20
STORE_HOST: Host = ("10.9.8.7", 10911)
LONG_NAMES = tuple(long for long, _, _ in sending.FIELDS)
SHORT_NAMES = tuple(short for _, short, _ in sending.FIELDS)
_GOOD = ("group", "orders", "TBW102", "4", "1", "0", "1700000000000", "7", "TAGS\x01a", "0", "false", None, "false")


def fields_of(code: int, **changed: str | None) -> dict[str, str]:
    """The header of a send that is stored, with some fields changed; None leaves one out. Names: those of code 10."""
    values = dict(zip(LONG_NAMES, _GOOD, strict=True)) | changed
    names = LONG_NAMES if code == 10 else SHORT_NAMES
    return {name: value for name, value in zip(names, values.values(), strict=True) if value is not None}


def item(body: bytes, properties: bytes = b"", flag: int = 0) -> bytes:
    """One message of a batch, as a client writes it."""
    rest = b"".join(
        (bytes(8), flag.to_bytes(4, "big", signed=True), len(body).to_bytes(4, "big"), body, len(properties).to_bytes(2, "big"))
    )
    return (4 + len(rest) + len(properties)).to_bytes(4, "big") + rest + properties


class MemoryFile:
    """The file of a table, which keeps nothing."""

    is_unsaved = False

    def load(self, decode: Callable[[bytes], None]) -> bool:
        del decode
        return False

    def persist(self, content: bytes) -> bool:
        del content
        return True


def topic(name: str, read: int, write: int, *, order: bool = False, multi_tag: bool = False) -> TopicConfig:
    """The settings of a topic."""
    return TopicConfig(name, read, write, topic_filter_type="MULTI_TAG" if multi_tag else "SINGLE_TAG", order=order)


def table_of(topics: Iterable[TopicConfig]) -> TopicConfigManager:
    """A table of topics: these, and those that every broker begins with."""
    table = TopicConfigManager(Path(), TableSettings(), file=MemoryFile())
    for config in topics:
        table.update_topic_config(config)
    return table


class CommandedPut:
    """A put that ends when the test says so."""

    def __init__(self, append: AppendResult, waits: bool) -> None:
        self.append, self.waits = append, waits
        self.next_offset = append.next_offset
        self.status: PutMessageStatus | None = None


class CommandedPuts:
    """status: how a put ends at once; None: it waits, and `made` has it."""

    def __init__(self) -> None:
        self.status: PutMessageStatus | None = PutMessageStatus.PUT_OK
        self.made: list[CommandedPut] = []

    def after_append(self, append: AppendResult, _now_ms: int, *, waits: bool) -> CommandedPut:
        put = CommandedPut(append, waits)
        put.status = self.status
        self.made.append(put)
        return put


def model_topic(found: TopicConfig | None) -> sending.Topic | None:
    """A topic of the table as the model has it."""
    if found is None:
        return None
    is_multi_tag = found.topic_filter_type == "MULTI_TAG"
    return sending.Topic(found.read_queue_nums, found.write_queue_nums, found.order, is_multi_tag)


class SendStand:
    """One processor, its store, and the model's broker of the same settings."""

    def __init__(self, directory: Path, topics: Iterable[TopicConfig], settings: SendSettings | None = None) -> None:
        self.settings = settings or SendSettings("DefaultCluster", STORE_HOST)
        self.store = MessageStore.open(directory, StoreOptions(file_size=64 * MIB, store_host=self.settings.store_host))
        self.puts, self.channel = CommandedPuts(), Channel("10.1.2.3:41000")
        self.draw = 0
        self.begin_anew(topics)
        host = self.settings.store_host
        self.broker = sending.Broker(
            self.settings.broker_cluster_name,
            host_bytes(host),
            permission=self.settings.broker_permission,
            max_message_size=self.settings.max_message_size,
            region_id=self.settings.region_id,
            trace_on=self.settings.trace_on,
        )

    def begin_anew(self, topics: Iterable[TopicConfig]) -> None:
        """Have these topics alone."""
        self.table = table_of(topics)
        self.processor = SendMessageProcessor(
            self.settings, self.store, self.puts, self.table, choose=lambda number: self.draw % number
        )

    def send(
        self, code: int = 310, body: bytes = b"body", channel: Channel | None = None, **changed: str | None
    ) -> RemotingCommand:
        """Send at once. Returns: the answer, which must not come later."""
        request = RemotingCommand(code, opaque=77, ext_fields=fields_of(code, **changed), body=body)
        answer = self.processor.send_message(channel or self.channel, request, 0)
        assert answer is not None
        return answer

    def record_at(self, offset: int) -> reference_message.Record:
        """The record at an offset of the log, as the model reads it."""
        data = self.store.log.data_at(offset, MIB * 17)
        assert data is not None
        read = reference_message.decode(bytes(data))
        assert read is not None
        return read[0]


def host_bytes(host: Host) -> bytes:
    """A host as a record has it."""
    return ipaddress.ip_address(host[0]).packed + host[1].to_bytes(4, "big")
