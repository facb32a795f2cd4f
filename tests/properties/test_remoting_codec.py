"""Remoting: the model and the implementation read and write the same frames, and refuse the same bytes."""

import base64
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rocketmq_ha.impl.errors import FrameInvalid, RequestInvalid
from rocketmq_ha.impl.remoting import command as impl
from rocketmq_ha.impl.remoting import fields
from rocketmq_ha.impl.remoting.codes import RequestCode
from rocketmq_ha.impl.remoting.frames import FrameReader
from rocketmq_ha.reference import remoting as model
from rocketmq_ha.spec.constants import REMOTING_FRAME_MAX, REMOTING_HEADER_MAX

VECTORS = Path(__file__).resolve().parents[2] / "spec" / "vectors"
TRANSCRIPTS = sorted(VECTORS.glob("*/transcripts.json"))

texts = st.text(max_size=8) | st.sampled_from(
    ["", '\x00\x1f\x7f"\\/', "%RETRY%组", "\u2028", "\U0001f680", "\ud800", "a" * 33_000]
)
numbers = st.sampled_from(
    [0, 1, -1, 2**15 - 1, 2**15, -(2**15), -(2**15) - 1, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1]
) | st.integers(0, 400)
commands = st.builds(
    model.Command,
    code=numbers,
    opaque=numbers,
    flag=st.integers(0, 3) | numbers,
    language=st.sampled_from(["JAVA", "PYTHON", "NODE_JS", "COBOL", ""]),
    version=numbers,
    remark=st.none() | texts,
    ext_fields=st.dictionaries(texts, texts, max_size=4).map(lambda fields: tuple(fields.items())),
    body=st.binary(max_size=20),
    serialize_type=st.sampled_from([model.JSON, model.ROCKETMQ]),
)
sound = commands.filter(lambda command: model_frame(command) is not None)


def as_impl(command: model.Command) -> impl.RemotingCommand:
    return impl.RemotingCommand(
        command.code,
        command.opaque,
        command.flag,
        command.language,
        command.version,
        command.remark,
        dict(command.ext_fields),
        command.body,
        impl.SerializeType(command.serialize_type),
    )


def model_frame(command: model.Command) -> bytes | None:
    """None: the model refuses it."""
    try:
        return model.encode(command)
    except model.Refused:
        return None


def impl_frame(command: model.Command) -> bytes | None:
    """None: the implementation refuses it."""
    try:
        return impl.encode_whole(as_impl(command))
    except FrameInvalid:
        return None


def model_reads(frame: bytes) -> impl.RemotingCommand | None:
    try:
        return as_impl(model.decode(frame))
    except model.Refused:
        return None


def impl_reads(frame: bytes) -> impl.RemotingCommand | None:
    try:
        return impl.decode(frame)
    except FrameInvalid:
        return None


@given(commands)
def test_both_write_the_same_bytes_or_both_refuse(command: model.Command) -> None:
    assert impl_frame(command) == model_frame(command)


@given(sound)
def test_a_command_comes_back_as_it_was(command: model.Command) -> None:
    """HA-RM-6 "a length of 0 stands for no text": these do not arrive in the binary form, nor does an unknown language."""
    frame = impl_frame(command)
    assert frame is not None
    found = impl_reads(frame[4:])
    expected = as_impl(command)
    if command.serialize_type == model.ROCKETMQ:
        expected.remark = command.remark or None
        expected.ext_fields = {name: value for name, value in command.ext_fields if name and value}
        if command.language in ("COBOL", ""):
            expected.language = "OTHER"
    assert found == expected
    assert model_reads(frame[4:]) == expected


@st.composite
def changed_frames(draw: st.DrawFn) -> bytes:
    """A sound frame in which a few bytes were changed, put in or taken out."""
    frame = bytearray(model.encode(draw(sound))[4:])
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, min(len(frame), 200)))
        kind = draw(st.integers(0, 2))
        byte = draw(st.integers(0, 255) | st.sampled_from(list(b'"\\{}[]:,0-.eE\xff\x00')))
        if kind == 0 and at < len(frame):
            frame[at] = byte
        elif kind == 1:
            frame.insert(at, byte)
        elif at < len(frame):
            del frame[at]
    return bytes(frame)


@given(changed_frames() | st.binary(max_size=60))
def test_both_read_the_same_of_any_bytes_or_both_refuse(frame: bytes) -> None:
    """HA-RM-1 "nor 1 (ROCKETMQ's binary form)"; HA-RM-2 "does not end within it"; HA-RM-7 "do not fill it exactly"."""
    assert impl_reads(frame) == model_reads(frame)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**33), 2**33)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts.filter(model.is_text),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts.filter(model.is_text), inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from(["code", "opaque", "flag", "language", "version", "remark", "extFields", "unknown"])
headers = st.dictionaries(names, values, max_size=8).map(lambda fields: {"code": 1, "opaque": 2} | fields)


def nested(levels: int) -> dict[str, object]:
    value: object = 0
    for _ in range(levels):
        value = [value]
    return {"code": 1, "opaque": 2, "unknown": value, "extFields": {"a": "[[[" * 20}}


@pytest.mark.parametrize(
    ("header", "is_read"),
    [
        ('{"code":1,"opaque":2}', True),
        ('{"code":1,"opaque":2,"extFields":{"a":"b"},"remark":null}', True),
        ("[]", False),
        ("7", False),
        ("null", False),
        ("{", False),
        ('{"code":1,"opaque":2,"extFields":[]}', False),
        ('{"code":1,"opaque":2,"extFields":{"a":[]}}', False),
        ('{"code":1,"opaque":2,"extFields":{"a":NaN}}', False),
        ('{"code":Infinity,"opaque":2}', False),
        ('{"code":1,"opaque":2,"remark":"\\ud800"}', False),
        ('{"code":1,"opaque":2,"extFields":{"\\udfff":"a"}}', False),
        ('{"code":1,"opaque":2,"remark":3}', False),
        ('{"code":1,"opaque":2,"language":true}', False),
        ('{"code":"1","opaque":2}', False),
        ('{"code":1.0,"opaque":2}', False),
        ('{"code":2147483648,"opaque":2}', False),
        ('{"code":-2147483648,"opaque":2147483647}', True),
        ('{"opaque":2}', False),
    ],
)
def test_both_refuse_each_kind_of_header(header: str, is_read: bool) -> None:
    """HA-RM-3 "MUST take a JSON header that has `code` and `opaque` alone": each refusal once, since draws do not reach all."""
    frame = len(header).to_bytes(4) + header.encode()
    found = impl_reads(frame)
    assert (found is not None) is is_read
    assert found == model_reads(frame)


@pytest.mark.parametrize("flag", [0, 1])
@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("serialize_type", [model.JSON, model.ROCKETMQ])
def test_both_write_no_longer_header_than_may_be(flag: int, more: int, serialize_type: int) -> None:
    """HA-RM-20: the header of a request has at most 256 KiB here; that of an answer may be as long as a frame."""
    command = model.Command(1, 2, flag, "JAVA", 3, "", (), b"", serialize_type)
    sent = model.encode(command)
    room = REMOTING_HEADER_MAX - (int.from_bytes(sent[4:8]) & 0xFFFFFF)
    command = replace(command, remark="r" * (room + more))
    found = impl_frame(command)
    assert (found is None) is (more == 1 and flag == 0)
    assert found == model_frame(command)


@given(headers | st.builds(nested, st.integers(0, 40)), st.booleans())
@example(nested(31), True)
@example(nested(32), True)
@example({"code": 1, "opaque": 2, "extFields": {"a": -0.0, "b": 1e300, "c": True, "d": None, "e": 10**400}}, True)
def test_both_read_the_same_of_any_json_object_or_both_refuse(header: dict[str, object], escapes: bool) -> None:
    """HA-RM-3 "`code` and `opaque` alone"; HA-RM-5 "count as its text"; HA-RM-21 "of more than 32 levels"."""
    text = json.dumps(header, ensure_ascii=escapes).encode()
    frame = len(text).to_bytes(4) + text
    assert impl_reads(frame) == model_reads(frame)


numerals = st.from_regex(r"[+-]?[0-9]{0,20}", fullmatch=True) | st.integers(-(2**64), 2**64).map(str) | texts


@given(numerals)
@example(str(2**31 - 1))
@example(str(2**31))
@example(str(-(2**31)))
@example(str(-(2**31) - 1))
@example(str(2**63 - 1))
@example(str(2**63))
@example(str(-(2**63)))
@example(str(-(2**63) - 1))
@example("0" * 30 + "1")
@example("٣")
def test_both_read_the_same_number_of_a_field_or_both_none(text: str) -> None:
    """HA-RM-14 "an optional sign and decimal digits, within the range of an i32 or an i64"."""
    for read, bits in ((fields.i32, 32), (fields.i64, 64)):
        try:
            found: int | None = read(impl.RemotingCommand(10, ext_fields={"it": text}), "it")
        except RequestInvalid:
            found = None
        assert found == model.read_number(text, bits)


@given(st.sampled_from(["true", "TRUE", "tRue", "false", "1", "", "truE ", "true1"]) | texts)
@example("ﬆrue")
def test_both_read_the_same_truth_value_of_a_field(text: str) -> None:
    found = fields.boolean(impl.RemotingCommand(10, ext_fields={"it": text}), "it")
    assert found is model.read_boolean(text)


def model_splits(pieces: Sequence[bytes]) -> tuple[list[bytes], bool]:
    frames, _, is_broken = model.split(b"".join(pieces))
    return list(frames), is_broken


def impl_splits(pieces: Sequence[bytes]) -> tuple[list[bytes], bool]:
    reader = FrameReader()
    frames = [frame for piece in pieces for frame in reader.feed(piece)]
    return frames, reader.error is not None


@st.composite
def streams(draw: st.DrawFn) -> list[bytes]:
    """Frames, perhaps a bad length and bytes behind it, cut anywhere."""
    bodies = draw(st.lists(st.binary(min_size=4, max_size=30), max_size=6))
    stream = b"".join(len(body).to_bytes(4) + body for body in bodies)
    bad = [b"", b"\0\0\0\3abc", b"\xff\xff\xff\xff", (REMOTING_FRAME_MAX - 3).to_bytes(4), (REMOTING_FRAME_MAX - 4).to_bytes(4)]
    stream += draw(st.sampled_from(bad)) + draw(st.binary(max_size=9))
    cuts = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    return [stream[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]


@pytest.mark.parametrize("there", range(1, 17))
def test_a_frame_that_has_begun_says_how_many_bytes_it_needs(there: int) -> None:
    """Of its length first, and then of all of it; also behind a whole frame."""
    for before in (b"", (4).to_bytes(4) + b"abcd"):
        reader = FrameReader()
        frame = (13).to_bytes(4) + bytes(13)
        assert len(reader.feed(before + frame[:there])) == bool(before)
        assert (reader.buffered, reader.wanted) == (there, (4 if there < 4 else 17) - there)
        assert [*map(len, reader.feed(frame[there:]))] == [13]
        assert (reader.buffered, reader.wanted) == (0, 0)


@given(streams())
def test_a_stream_cut_anywhere_gives_the_same_frames(pieces: list[bytes]) -> None:
    """HA-MD-19 "of more than 16 MiB, its length of 4 bytes included, MUST be refused"; the frames before it are read."""
    assert impl_splits(pieces) == model_splits(pieces)


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda path: path.parent.name)
def test_what_real_brokers_and_clients_sent_is_read_and_written_again(transcript: Path) -> None:
    """Each recorded frame means the same after it was read and written.

    HA-RM-9 "MUST use the codes that RocketMQ has for it": its codes have their names.
    """
    rows = json.loads(transcript.read_text(encoding="utf-8"))
    seen = 0
    for row in rows:
        for side in ("request", "response"):
            if not row[side]:
                continue
            raw = base64.b64decode(row[side])
            ((frame,), left, is_broken) = model.split(raw)
            assert (left, is_broken) == (b"", False)
            found = impl.decode(frame)
            assert found == model_reads(frame)
            header = row[f"{side}_header"]
            assert (found.code, found.opaque, found.flag, found.language, found.version) == tuple(
                header[name] for name in ("code", "opaque", "flag", "language", "version")
            )
            assert (found.ext_fields, found.remark) == (header.get("extFields") or {}, header.get("remark"))
            assert len(found.body) == row[f"{side}_body_size"]
            again = impl.encode_whole(found)
            assert impl.decode(again[4:]) == found
            if header.get("extFields") != {}:  # RocketMQ writes an empty table of fields; we write none
                assert again == raw
            if side == "request":
                assert RequestCode(found.code).name == row["name"]
            seen += 1
    assert seen > 50
