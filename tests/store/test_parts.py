"""What the writer remembers of topics, hosts, shapes and properties has bounds, and what is not remembered is made right."""

import pytest

from kit.variants import BORN
from rocketmq_ha.impl.errors import MessageIllegal
from rocketmq_ha.impl.wire import parts as parts_module
from rocketmq_ha.impl.wire.parts import Parts


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Parts:
    """Remembers two of each kind."""
    monkeypatch.setattr(parts_module, "_REMEMBERED", 2)
    return Parts()


def test_two_topics_are_remembered_and_any_number_is_made(parts: Parts) -> None:
    for topic in ("a", "bc", "def", "a", "def"):
        made = parts.topic(topic)
        assert (made.topic, made.prefix) == (topic.encode(), bytes([len(topic)]) + topic.encode())
        assert made.tails == {"": (b"", made.prefix + bytes(2))}
    assert list(parts.topics) == ["a", "bc"]
    assert parts.topics["bc"].topic == b"bc"


def test_two_hosts_are_remembered_and_any_number_is_made(parts: Parts) -> None:
    first, last = bytes.fromhex("00000001 00000002"), bytes.fromhex("ff000000 ffffffff")
    hosts = [BORN[0], (("0.0.0.1", 2), first), (("255.0.0.0", -1), last)]
    for host, expected in hosts * 2:
        assert parts.host(host) == expected
    assert parts.hosts == dict(hosts[:2])
    with pytest.raises(MessageIllegal):
        parts.host(("::1", 5))


def test_two_shapes_are_remembered_and_any_number_is_made(parts: Parts) -> None:
    for sizes in ((0, 4), (300, 4), (0, 300)):
        _, size, begin, rest = parts.shape(*sizes)
        assert size == 88 + sum(sizes)
        assert begin == size.to_bytes(4, "big") + bytes.fromhex("daa320a7")
        assert rest == bytes(12) + sizes[0].to_bytes(4, "big")
    assert list(parts.shapes) == [(0, 4), (300, 4)]
    assert parts.shape(4 << 20, 4)[1] == (4 << 20) + 92
    with pytest.raises(MessageIllegal, match="body: found 4194305 bytes, expected at most 4194304 bytes"):
        parts.shape((4 << 20) + 1, 4)


def test_properties_are_remembered_of_all_topics_together(parts: Parts) -> None:
    first, second = parts.topic("a"), parts.topic("b")
    for topic, text in ((first, "x\x011"), (second, "y\x012"), (first, "z\x013")):
        properties, tail = parts.tail(topic, text)
        assert (properties, tail) == (text.encode(), topic.prefix + b"\0\x03" + text.encode())
    assert (list(first.tails), list(second.tails)) == (["", "x\x011"], ["", "y\x012"])


@pytest.mark.parametrize(
    ("text", "is_remembered"),
    [
        ("v" * 256, True),
        ("v" * 257, False),
        ("ß" * 128, True),
        ("ß" * 129, False),  # bytes count
        ("KEYS\x01k", False),  # keys do not come again
        ("TAGS\x01a\x02UNIQ_KEY\x01u", False),
        ("TAGS\x01a", True),
    ],
    ids=("256", "257", "256-of-two-bytes", "258", "keys", "unique-key", "tags"),
)
def test_properties_that_come_again_are_remembered(text: str, is_remembered: bool) -> None:
    parts = Parts()
    topic = parts.topic("t")
    encoded = text.encode()
    assert parts.tail(topic, text) == (encoded, b"\x01t" + len(encoded).to_bytes(2, "big") + encoded)
    assert (text in topic.tails) == is_remembered
