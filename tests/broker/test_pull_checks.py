"""What a pull is refused for, in which order, and which subscription counts."""

from collections.abc import Callable

import pytest

from rocketmq_ha.fuzz.worlds.pull_stand import PullStand, group, pull_request, subscription, topic
from rocketmq_ha.impl.broker import filter as subscriptions
from rocketmq_ha.impl.broker.filter import Refusal
from rocketmq_ha.impl.broker.pull import PullSettings
from rocketmq_ha.impl.errors import RequestInvalid
from rocketmq_ha.impl.remoting.command import RemotingCommand
from rocketmq_ha.impl.store.derived.java_hash import java_hash


def answer_of(stand: PullStand, **changed: object) -> RemotingCommand:
    answer = stand.pull(**changed)
    assert answer is not None
    return answer


@pytest.mark.parametrize("code", [11, 361])
def test_both_codes_are_answered_alike(code: int) -> None:
    """HA-P-1 "MUST answer a PULL_MESSAGE (11) and a LITE_PULL_MESSAGE (361) by the same rules"."""
    stand = PullStand()
    answer = stand.processor.pull_message(stand.channel, pull_request(code, opaque=31), 0)
    assert answer is not None
    assert (answer.code, answer.opaque, answer.remark) == (19, 31, "NO_MESSAGE_IN_QUEUE")


REQUIRED = ["queueId", "maxMsgNums", "sysFlag", "queueOffset", "commitOffset", "suspendTimeoutMillis", "subVersion"]


@pytest.mark.parametrize("name", ["consumerGroup", "topic", *REQUIRED])
def test_a_required_field_that_is_missing_is_named(name: str) -> None:
    """HA-P-1 "A field of the table that is required and missing"."""
    with pytest.raises(RequestInvalid, match=f"^field {name}: found nothing"):
        PullStand().pull(**{name: None})


@pytest.mark.parametrize("name", REQUIRED)
def test_a_field_that_is_no_number_is_named(name: str) -> None:
    with pytest.raises(RequestInvalid, match=f"^field {name}: found '1x'"):
        PullStand().pull(**{name: "1x"})


@pytest.mark.parametrize("name", ["queueId", "maxMsgNums", "sysFlag"])
def test_a_small_number_has_32_bits(name: str) -> None:
    with pytest.raises(RequestInvalid, match=f"^field {name}: "):
        PullStand().pull(**{name: 1 << 31})


def test_fields_that_may_be_missing_and_unknown_ones() -> None:
    """HA-P-4 "An expression that is missing, empty or `*` is `*`"."""
    answer = answer_of(PullStand(), subscription=None, expressionType=None, maxMsgBytes="x", requestSource="-1")
    assert answer.code == 19


def no_broker_permission(stand: PullStand) -> None:
    object.__setattr__(stand.processor, "_settings", PullSettings(broker_permission=2))


def without_group(stand: PullStand) -> None:
    del stand.groups["g"]


def with_group(**changed: object) -> Callable[[PullStand], None]:
    def change(stand: PullStand) -> None:
        for name, value in changed.items():
            setattr(stand.groups["g"], name, value)

    return change


def without_topic(stand: PullStand) -> None:
    del stand.topics["t"]


def with_topic(perm: int = 6, read_queue_nums: int = 4) -> Callable[[PullStand], None]:
    def change(stand: PullStand) -> None:
        stand.topics["t"] = topic(perm, read_queue_nums)

    return change


def without_consumers(stand: PullStand) -> None:
    stand.models.clear()


def without_subscription(stand: PullStand) -> None:
    stand.subscriptions.clear()


def with_subscription(**changed: object) -> Callable[[PullStand], None]:
    def change(stand: PullStand) -> None:
        stand.subscriptions["g", "t"] = subscription(**changed)

    return change


HEARTBEAT = {"sysFlag": 0, "subscription": None, "subVersion": 5}
# The rows of HA-P-3 in their order, each with what makes it fail, the fields of the pull, and the code.
CHECKS: list[tuple[Callable[[PullStand], None], dict[str, object], int]] = [
    (no_broker_permission, {}, 16),
    (without_group, {}, 26),
    (with_group(consume_enable=False), {}, 16),
    (without_topic, {}, 17),
    (with_topic(perm=2), {}, 16),
    (with_topic(read_queue_nums=0), {}, 1),
    (without_consumers, HEARTBEAT, 24),
    (with_group(consume_broadcast_enable=False), HEARTBEAT, 16),
    (without_subscription, HEARTBEAT, 24),
    (with_subscription(sub_version=4), HEARTBEAT, 25),
    (with_subscription(sub_version=5, expression_type="SQL92"), HEARTBEAT, 1),
]


def full_stand() -> PullStand:
    """One whose group consumes by broadcast, and is allowed to."""
    stand = PullStand()
    stand.models["g"] = "BROADCASTING"
    stand.subscriptions["g", "t"] = subscription(sub_version=5)
    return stand


@pytest.mark.parametrize("row", range(len(CHECKS)))
def test_each_check_has_its_code(row: int) -> None:
    """HA-P-3 "MUST make the checks of the table in its order"; HA-R-30 "is answered with another code"."""
    breaks, fields, code = CHECKS[row]
    stand = full_stand()
    assert answer_of(stand, **fields).code == 19
    breaks(stand)
    answer = answer_of(stand, **fields)
    assert answer.code == code
    assert answer.remark
    assert (answer.ext_fields, answer.body, answer.buffers) == ({}, b"", ())
    assert stand.committed == []


@pytest.mark.parametrize(
    ("first", "second"), [(i, j) for i in range(len(CHECKS)) for j in range(i + 1, len(CHECKS)) if CHECKS[i][2] != CHECKS[j][2]]
)
def test_the_first_check_that_fails_counts(first: int, second: int) -> None:
    """HA-P-3 "the code of the first that fails"."""
    stand = full_stand()
    CHECKS[second][0](stand)
    CHECKS[first][0](stand)
    fields = CHECKS[second][1] or CHECKS[first][1]
    assert answer_of(stand, **fields).code == CHECKS[first][2]


@pytest.mark.parametrize(("queue_id", "code"), [(-1, 1), (0, 19), (3, 19), (4, 1)])
def test_a_queue_id_is_one_of_the_topic(queue_id: int, code: int) -> None:
    assert answer_of(PullStand(), queueId=queue_id).code == code


def test_a_negative_number_of_messages_is_refused() -> None:
    """HA-P-13 "MUST be answered with SYSTEM_ERROR (1)"."""
    assert answer_of(PullStand(), maxMsgNums=-1).code == 1
    assert answer_of(PullStand(), maxMsgNums=0).code == 19


@pytest.mark.parametrize("model", ["CLUSTERING", "BROADCASTING"])
def test_a_group_that_may_not_broadcast_may_cluster(model: str) -> None:
    stand = full_stand()
    stand.models["g"] = model
    stand.groups["g"] = group(consume_broadcast_enable=False)
    assert answer_of(stand, **HEARTBEAT).code == (19 if model == "CLUSTERING" else 16)


@pytest.mark.parametrize(("sub_version", "code"), [(4, 19), (5, 19), (6, 25)])
def test_a_newer_subscription_than_that_of_the_heartbeat_is_refused(sub_version: int, code: int) -> None:
    assert answer_of(full_stand(), **HEARTBEAT | {"subVersion": sub_version}).code == code


def hashes(*tags: str) -> frozenset[int]:
    return frozenset(map(java_hash, tags))


@pytest.mark.parametrize(
    ("sub_string", "codes"),
    [
        (None, None),
        ("", None),
        ("*", None),
        ("a", hashes("a")),
        ("a||b", hashes("a", "b")),
        (" a || b\t", hashes("a", "b")),
        ("a||", hashes("a")),
        ("||a", hashes("a")),
        ("a||||b", hashes("a", "b")),
        ("a|b", hashes("a|b")),
        ("|||", hashes("|")),
        ("a||*", hashes("a", "*")),
        ("* ", hashes("*")),
        (" ", hashes()),
        ("a b", hashes("a b")),
        ("\u3000a", hashes("\u3000a")),  # no blank for Java's trim
        ("\x00a\x1f", hashes("a")),
    ],
)
def test_an_expression_is_split_into_tags(sub_string: str | None, codes: frozenset[int] | None) -> None:
    """HA-P-4 "split at `||`; blanks around a tag are dropped, and so are empty tags"."""
    assert subscriptions.of_request(sub_string, "TAG") == codes
    assert subscriptions.of_request(sub_string, None) == codes


@pytest.mark.parametrize(
    ("sub_string", "expression_type", "code"),
    [
        ("||", "TAG", 23),
        ("||||", None, 23),
        ("", "SQL92", 23),
        (None, "SQL92", 23),
        (None, "", 23),
        ("a > 1", "SQL92", 1),
        ("a", "tag", 1),
    ],
)
def test_a_subscription_that_cannot_be_served(sub_string: str | None, expression_type: str | None, code: int) -> None:
    """HA-P-4 "with an `expressionType` other than TAG"; HA-P-6 "MUST answer a pull that has one with SYSTEM_ERROR (1)"."""
    found = subscriptions.of_request(sub_string, expression_type)
    assert isinstance(found, Refusal)
    assert found.code == code
    answer = answer_of(PullStand(), subscription=sub_string, expressionType=expression_type)
    assert answer.code == code


@pytest.mark.parametrize(("sub_string", "codes"), [("*", None), ("a", frozenset())])
def test_an_empty_type_is_tags_without_any(sub_string: str, codes: frozenset[int] | None) -> None:
    """HA-P-6 "An `expressionType` that is missing or empty counts as TAG": but it is not split."""
    assert subscriptions.of_request(sub_string, "") == codes


@pytest.mark.parametrize(
    ("changed", "codes"),
    [
        ({"code_set": {1, 2}}, None),  # its expression is *
        ({"sub_string": "a||b", "code_set": {1, -2}}, frozenset({1, -2})),
        ({"sub_string": "", "code_set": {3}}, frozenset({3})),
        ({"sub_string": "x.Filter", "class_filter_mode": True}, None),
        ({"sub_string": "a", "code_set": {1}, "expression_type": ""}, frozenset({1})),
    ],
)
def test_the_hashes_of_a_heartbeat_are_taken_as_they_are(changed: dict[str, object], codes: frozenset[int] | None) -> None:
    """HA-P-5 "or its subscription is of the class-filter mode"."""
    assert subscriptions.of_heartbeat(subscription(**changed)) == codes


def test_long_texts_of_a_peer_are_cut_in_a_remark() -> None:
    for found in (subscriptions.of_request("||" * 5000, None), subscriptions.of_request("a", "x" * 5000)):
        assert isinstance(found, Refusal)
        assert len(found.remark) < 300
