"""Model and implementation decide a pull alike: every check, outcome, offset, record and suggestion, in memory and on disk.

HA-P-1 to HA-P-16, HA-R-20 to HA-R-31.
"""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_ha.fuzz.lockstep import scratch_directory
from rocketmq_ha.fuzz.worlds.pull_stand import (
    PlayedLog,
    PlayedStore,
    PullStand,
    body_of,
    bytes_of,
    group,
    open_queue,
    subscription,
    topic,
)
from rocketmq_ha.impl.broker.pull import PullSettings
from rocketmq_ha.impl.broker.pull_hold import HoldSettings
from rocketmq_ha.impl.remoting.command import RemotingCommand
from rocketmq_ha.impl.store.derived.consume_queue import ConsumeQueue
from rocketmq_ha.impl.store.derived.queue_entry import Entry as QueueEntry
from rocketmq_ha.impl.store.pull import PullBounds, has_message_for
from rocketmq_ha.reference import pull as model
from rocketmq_ha.reference.consume_queue import Entry
from rocketmq_ha.reference.java_string import hash_code
from rocketmq_ha.spec.role import BrokerRole

FILE_SIZE = 64  # of the log
CODES = {tag: hash_code(tag) for tag in ("a", "b", "c")}


@dataclass(frozen=True)
class World:
    """What both sides are made from. messages: queue offset, offset, size, tags code."""

    file_entries: int
    messages: list[tuple[int, int, int, int]]
    log: tuple[int, int]  # its min and max offset
    broker: model.Broker


@st.composite
def worlds(draw: st.DrawFn) -> World:
    at, number = draw(st.integers(0, 70)), draw(st.integers(0, 5))
    messages = []
    for _ in range(draw(st.sampled_from([0, 1, 5, 8, 12]))):
        size = draw(st.integers(1, 20))
        at += draw(st.sampled_from([0, 0, 0, 1, 30]))
        if at // FILE_SIZE != (at + size - 1) // FILE_SIZE:
            at += FILE_SIZE - at % FILE_SIZE
        number += draw(st.sampled_from([0, 0, 0, 0, 1, 3]))
        code = CODES[draw(st.sampled_from("abc"))] + draw(st.sampled_from([0, 0, 1 << 32, -(1 << 40)]))
        messages.append((number, at, size, code))
        at, number = at + size, number + 1
    max_offset = at + draw(st.sampled_from([0, 0, 5]))
    min_offset = draw(st.integers(0, max_offset // FILE_SIZE)) * FILE_SIZE if draw(st.booleans()) else 0
    distances = [max_offset - offset - part for _, offset, size, _ in messages for part in (-1, 0, 1, size)] or [0]
    memory = draw(st.one_of(st.sampled_from(distances), st.integers(0, 200)))
    bounds = model.Bounds(memory, *(draw(st.integers(0, most)) for most in (6, 80, 4, 40)))
    return World(draw(st.integers(1, 8)), messages, (min_offset, max_offset), draw(brokers(bounds)))


@st.composite
def brokers(draw: st.DrawFn, bounds: model.Bounds) -> model.Broker:
    """Most of them refuse nothing that their topics and groups could refuse."""
    refuses = draw(st.sampled_from([False, False, False, True]))
    permissions = st.sampled_from([6, 6, 4, 2] if refuses else [6, 4])
    groups = st.builds(
        model.Group,
        st.sampled_from([True, not refuses]),
        st.sampled_from([True, not refuses]),
        st.integers(0, 2),
        st.integers(0, 2),
    )
    subscriptions = st.builds(
        model.Subscription,
        st.sampled_from(["*", "a||b", "x"]),
        st.frozensets(st.sampled_from(sorted(CODES.values()))),
        st.integers(0, 2) if refuses else st.just(2),
        st.sampled_from(["TAG", "", "SQL92"] if refuses else ["TAG", ""]),
        st.sampled_from([False, False, True]),
    )
    least = 0 if refuses else 1
    told = st.dictionaries(st.just("t"), subscriptions, min_size=least, max_size=1)
    topics = st.builds(model.Topic, permissions, st.sampled_from([1, 0] if refuses else [1]))
    return model.Broker(
        bounds,
        draw(st.sampled_from(BrokerRole)),
        draw(permissions),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.dictionaries(st.just("g"), groups, min_size=least, max_size=1)),
        draw(st.dictionaries(st.just("t"), topics, min_size=least, max_size=1)),
        draw(st.dictionaries(st.just("g"), st.builds(model.Consumers, st.booleans(), told), min_size=least, max_size=1)),
    )


requests = st.builds(
    model.PullRequest,
    st.just("g"),
    st.just("t"),
    st.sampled_from([0] * 15 + [1, -1]),
    st.integers(-1, 20),  # from the first entry of the queue on
    st.sampled_from([32] * 5 + [5, 5, 1, 1, 0, 0, -1]),
    st.integers(0, 31),
    st.integers(0, 9),
    st.integers(0, 5),
    st.integers(0, 2),
    st.sampled_from(["*", "*", "*", "a", "a||b", "a||b||c", "b||c", "||", " ", None]),
    st.sampled_from([None, "TAG", "TAG", "TAG", "TAG", "TAG", "", "SQL92"]),
)


def stand_of(world: World, store: PlayedStore) -> PullStand:
    """The implementation of a world; its tables are those of the model, as the implementation has them."""
    broker = world.broker
    bounds = broker.bounds
    stand = PullStand(
        store,
        PullSettings(broker.permission, broker.role, broker.slave_read_enable, broker.offset_check_in_slave),
        HoldSettings(),
        PullBounds(
            bounds.memory,
            bounds.messages_in_memory,
            bounds.bytes_in_memory,
            bounds.messages_on_disk,
            bounds.bytes_on_disk,
        ),
        is_connected_to_master=broker.is_connected_to_master,
    )
    stand.topics = {name: topic(each.perm, each.read_queue_nums) for name, each in broker.topics.items()}
    stand.groups = {
        name: group(
            consume_enable=each.consume_enable,
            consume_broadcast_enable=each.consume_broadcast_enable,
            broker_id=each.broker_id,
            which_broker_when_consume_slowly=each.which_broker_when_consume_slowly,
        )
        for name, each in broker.groups.items()
    }
    for name, each in broker.consumers.items():
        stand.models[name] = "BROADCASTING" if each.is_broadcasting else "CLUSTERING"
        for topic_name, told in each.subscriptions.items():
            stand.subscriptions[name, topic_name] = subscription(
                sub_string=told.sub_string,
                code_set=told.codes,
                sub_version=told.sub_version,
                expression_type=told.expression_type,
                class_filter_mode=told.class_filter_mode,
            )
    return stand


def fields_of(request: model.PullRequest) -> dict[str, object]:
    return {
        "consumerGroup": request.consumer_group,
        "topic": request.topic,
        "queueId": request.queue_id,
        "queueOffset": request.queue_offset,
        "maxMsgNums": request.max_msg_nums,
        "sysFlag": request.sys_flag,
        "commitOffset": request.commit_offset,
        "suspendTimeoutMillis": request.suspend_timeout_millis,
        "subVersion": request.sub_version,
        "subscription": request.subscription,
        "expressionType": request.expression_type,
    }


def answered(answer: RemotingCommand) -> model.Answer:
    """An answer in the model's form, without records."""
    if not answer.ext_fields:
        return model.Answer(answer.code)
    names = ("suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset")
    assert answer.remark is not None
    return model.Answer(answer.code, model.Status[answer.remark], *(int(answer.ext_fields[name]) for name in names))


def hold_sees_what_the_model_matches(queue: ConsumeQueue, found: list[tuple[int, QueueEntry]]) -> None:
    """What the hold looks for in a queue, from each offset on: HA-P-17 "matches the tags code of the message"."""
    wanted = model.Subscription("a", frozenset({CODES["a"]}))
    matching = [number for number, entry in found if model.matches(wanted, entry.tags_code)]
    for queue_offset in range(queue.min_offset, queue.max_offset + 2):
        is_there, looked_up_to = has_message_for(queue, queue_offset, wanted.codes)
        assert is_there == any(number >= queue_offset for number in matching)
        assert is_there or looked_up_to == max(queue_offset, queue.max_offset)
        assert has_message_for(queue, queue_offset, None)[0] == (queue_offset < queue.max_offset)


@pytest.mark.parametrize("is_looked_at_again", [False, True])
@settings(max_examples=150, deadline=None)
@given(world=worlds(), asked=st.lists(requests, min_size=4, max_size=8))
def test_model_and_implementation_decide_alike(is_looked_at_again: bool, world: World, asked: list[model.PullRequest]) -> None:
    compare(world, asked, is_looked_at_again=is_looked_at_again)


HEARD = model.Consumers(False, {"t": model.Subscription(sub_version=2)})
SERVES = model.Broker(
    model.Bounds(100), groups={"g": model.Group()}, topics={"t": model.Topic(read_queue_nums=1)}, consumers={"g": HEARD}
)
USUAL = World(4, [(0, 0, 10, CODES["a"])], (0, 10), SERVES)
PULL = model.PullRequest("g", "t", 0, 0)
BY_REQUEST = replace(PULL, sys_flag=model.SUBSCRIPTION, subscription="*", expression_type="TAG")
CHECKED: dict[str, tuple[World, model.PullRequest, int]] = {
    "nothing": (USUAL, PULL, 0),
    "nothing, with its own subscription": (USUAL, BY_REQUEST, 0),
    "a negative number": (USUAL, replace(PULL, max_msg_nums=-1), 1),
    "the broker": (replace(USUAL, broker=replace(SERVES, permission=2)), PULL, 16),
    "no group": (replace(USUAL, broker=replace(SERVES, groups={})), PULL, 26),
    "a group that may not": (replace(USUAL, broker=replace(SERVES, groups={"g": model.Group(consume_enable=False)})), PULL, 16),
    "no topic": (replace(USUAL, broker=replace(SERVES, topics={})), PULL, 17),
    "a topic that may not": (replace(USUAL, broker=replace(SERVES, topics={"t": model.Topic(perm=2)})), PULL, 16),
    "a queue behind the last": (USUAL, replace(PULL, queue_id=1), 1),
    "a negative queue": (USUAL, replace(PULL, queue_id=-1), 1),
    "a subscription that cannot be read": (USUAL, replace(BY_REQUEST, subscription="||"), 23),
    "no consumer was heard of": (replace(USUAL, broker=replace(SERVES, consumers={})), PULL, 24),
    "a broadcast that may not": (
        replace(
            USUAL,
            broker=replace(
                SERVES,
                groups={"g": model.Group(consume_broadcast_enable=False)},
                consumers={"g": replace(HEARD, is_broadcasting=True)},
            ),
        ),
        PULL,
        16,
    ),
    "no subscription was heard of": (replace(USUAL, broker=replace(SERVES, consumers={"g": model.Consumers()})), PULL, 24),
    "a newer subscription": (USUAL, replace(PULL, sub_version=3), 25),
    "an expression of SQL": (USUAL, replace(BY_REQUEST, expression_type="SQL92"), 1),
    "an offset without a file": (replace(USUAL, messages=[(5, 0, 10, CODES["a"])]), replace(PULL, queue_offset=-2), 21),
}


@pytest.mark.parametrize("what", CHECKED)
def test_each_check_of_the_model_is_one_of_the_broker(what: str) -> None:
    """HA-P-3 "MUST make the checks of the table in its order": each once, since draws do not reach all."""
    world, request, code = CHECKED[what]
    [answer] = compare(world, [request], is_looked_at_again=False)
    assert answer.code == code


def compare(world: World, asked: list[model.PullRequest], *, is_looked_at_again: bool) -> list[model.Answer]:
    """Ask both, and hold the answers against each other. Returns: the model's."""
    answers = []
    with scratch_directory() as directory:
        store = PlayedStore(PlayedLog(*world.log, FILE_SIZE))
        queues: dict[tuple[str, int], model.Queue] = {}
        sizes = {offset: size for _, offset, size, _ in world.messages}
        if world.messages:
            queue = open_queue(directory / "q", world.file_entries)
            store.found[b"t", 0] = queue
            for queue_offset, offset, size, tags_code in world.messages:
                queue.put(offset, size, tags_code, queue_offset)
            queue.delete_expired(world.log[0])
            found = list(queue.entries())
            entries = tuple(Entry(*entry) for _, entry in found)
            hold_sees_what_the_model_matches(queue, found)
            queues["t", 0] = model.Queue(entries, found[0][0], queue.min_offset, world.file_entries)
        stand = stand_of(world, store)
        broker = replace(world.broker, queues=queues, log=model.LogRange(*world.log))
        first = queues["t", 0].min_offset if queues else 0
        for each in asked:
            request = replace(each, queue_offset=each.queue_offset + first)
            expected = model.process_request(broker, request, broker_allow_suspend=not is_looked_at_again)
            answers.append(expected)
            stand.committed.clear()
            parked = stand.hold.count
            if is_looked_at_again:
                # Bits 1 and 2 count no more: as a pull that was parked is looked at.
                answer = stand.pull(**fields_of(request) | {"sysFlag": request.sys_flag & ~3})
            else:
                answer = stand.pull(**fields_of(request))
            committed = [row[4] for row in stand.committed]
            assert committed == ([] if expected.commits is None else [expected.commits])
            assert stand.hold.count == parked + expected.is_parked
            if answer is None:
                assert expected.is_parked
                continue
            assert answered(answer) == replace(expected, records=(), commits=None)
            assert body_of(answer) == b"".join(bytes_of(offset, sizes[offset]) for offset in expected.records)
    return answers
