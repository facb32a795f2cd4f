"""Topics that were deleted: which of their messages a broker still gives, and whether a restart knows the topic.

    messages of a topic in the log:   m0  m1  m2 | m3  m4        delete_topic at |: the queue begins at m3, with the number 3

A message is a pair: its offset in the log, and its queue id. Queue offsets count from 0 in each queue, over all messages.

Spec: HA-BT-77, HA-BT-80, HA-MD-34, HA-MD-35.
"""

from collections.abc import Collection, Mapping, Sequence

Deleted = Mapping[str, int]  # from a topic to where the log ended when the topic was deleted
Stored = tuple[int, int]  # the log offset of a message, and the id of its queue


def delete_topic(deleted: Deleted, topic: str, stored: Sequence[Stored], max_offset: int, *, is_known: bool) -> Deleted:
    """HA-BT-80 "MUST give no message of a deleted topic": none that the log has by now.

    is_known: whether the table of topics has it. A topic that has neither an entry there nor messages is not noted.
    """
    return {**deleted, topic: max_offset} if stored or is_known else deleted


def open_log(deleted: Deleted, max_offset: int) -> Deleted:
    """A program opens the log for writing, and has found its end.

    HA-BT-80 "What the log has lost in a crash MUST NOT hide what is stored in its place", whatever program stores it.
    """
    return {topic: offset if offset < max_offset else max_offset for topic, offset in deleted.items()}


def start(
    deleted: Deleted,
    min_offset: int,
    max_offset: int,
    topics: Collection[str] | None,
    has_messages: Collection[str],
    *,
    forgets: bool = False,
) -> Deleted:
    """A broker starts with what its file has, over a log from one offset to another.

    HA-BT-80 "A restart MUST NOT bring such a topic back": what was delivered to it meanwhile is hidden, too.

    Args:  topics: of a master, those of its `topics.json`; None if there is no such file. has_messages: the topics of the
           store. forgets: of a slave that will not be told of deletions.
    """
    if forgets:
        return {}
    still = {topic: max_offset for topic in deleted if topics is not None and topic not in topics and topic in has_messages}
    return {topic: offset for topic, offset in deleted.items() if offset > min_offset or topic in still} | still


def read_entry(fields: Mapping[str, object]) -> int | None:
    """Where the log ended, by an entry of the file; None for damage. HA-BT-77 "or lacks a `logOffset`"."""
    offset = fields.get("logOffset")
    return offset if type(offset) is int and 0 <= offset < 2**63 else None


def told(deleted: Deleted, theirs: Deleted) -> Deleted:
    """HA-MD-34 "MUST take the deleted topics that its master tells in place of its own"."""
    del deleted
    return dict(theirs)


def on_topics(
    deleted: Deleted, before: Collection[str] | None, now: Collection[str], has_messages: Collection[str], max_offset: int
) -> Deleted:
    """A master that tells no deletions has told all its topics.

    HA-MD-34 "forgets the deletion of each topic that the master's table has"; HA-MD-34 "a topic that has gone from the table
    between two answers over one connection".

    Args:  before: the topics of the answer before, over this connection; None if there was none. has_messages: the topics of
           the slave's log. max_offset: of that log.
    """
    kept = {topic: offset for topic, offset in deleted.items() if topic not in now}
    return kept | {topic: max_offset for topic in before or () if topic not in now and topic in has_messages}


def first_visible(deleted: Deleted, topic: str, stored: Sequence[Stored], queue_id: int) -> int:
    """The queue offset behind the hidden messages of a queue: how many it has before the deletion."""
    return sum(of_queue == queue_id and offset < deleted.get(topic, 0) for offset, of_queue in stored)


def queue_nums(deleted: Deleted, topic: str, stored: Sequence[Stored]) -> int:
    """HA-BT-80 "A restart MUST NOT bring such a topic back": 0 if nothing is visible; else as many queues as the store has.

    A queue counts if it has a message that is not hidden.
    """
    return max((queue_id + 1 for offset, queue_id in stored if offset >= deleted.get(topic, 0)), default=0)


def topic_of_log(deleted: Deleted, topic: str, table: Collection[str], stored: Sequence[Stored]) -> int | None:
    """HA-MD-35 "a topic which its table lacks, and of which its log has messages that are not hidden".

    Returns: "as many read and write queues as the greatest id of its queues says"; None for a topic that is answered as usual.
    """
    nums = queue_nums(deleted, topic, stored)
    return nums if nums and topic not in table else None
