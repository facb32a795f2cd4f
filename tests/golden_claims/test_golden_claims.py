"""Every claim about bytes holds of RocketMQ's bytes, and is known to be one that could fail."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from all_claims import CLAIMS
from link_specimens import Connection
from registry import Claim, Held, Lists, claim_of, clause_ids, errors, hold, read_lists
from remoting_specimens import Exchange, RemotingFrame
from specimens import Golden
from store_specimens import Store, StoredRecord

pytestmark = pytest.mark.xdist_group("golden-claims")  # every golden vector is read once


def test_every_claim_holds_and_every_clause_is_accounted_for(held: Held) -> None:
    assert list(errors(held, CLAIMS, read_lists(), clause_ids())) == []


# --- Wordings that RocketMQ's bytes refute ---------------------------------------------------------------------------


def every_properties_text_ends_in_0x02(record: StoredRecord) -> bool:
    """HA-ST-16, as it once was."""
    return record.record.properties.endswith(b"\x02")


def every_request_header_has_remark_and_ext_fields(frame: RemotingFrame) -> bool | None:
    """HA-MD-20, as it once was."""
    return None if frame.is_answer else {"remark", "extFields"} <= set(frame.header)


def a_pull_has_one_of_four_codes(exchange: Exchange) -> bool | None:
    """HA-R-26, as it once was."""
    return None if exchange.code != 11 or exchange.answer is None else exchange.answer.header["code"] in (0, 19, 20, 21)


@pytest.mark.parametrize(
    ("wording", "clause_id", "refuting"),
    [
        (every_properties_text_ends_in_0x02, "HA-ST-16", {"4.9.8"}),
        (every_request_header_has_remark_and_ext_fields, "HA-MD-20", {"4.9.8", "5.3.3", "5.4.0"}),
        (a_pull_has_one_of_four_codes, "HA-R-26", {"4.9.8", "5.3.3", "5.4.0"}),
    ],
    ids=["HA-ST-16", "HA-MD-20", "HA-R-26"],
)
def test_former_wordings_are_refuted(
    goldens: list[Golden], wording: Callable[..., bool | None], clause_id: str, refuting: set[str]
) -> None:
    found = hold(goldens, [claim_of(wording, clause_id)])
    assert {store.partition("/")[0] for _, _, store, _ in found.refuted} >= refuting
    assert all(refuted[0] == clause_id for refuted in found.refuted)


# --- What is wrong with the lists is said ----------------------------------------------------------------------------


NO_CLAUSE = "HA-ST-" + "9999"


def never_met(_: StoredRecord) -> bool | None:
    """The premise of no record."""
    return None


@pytest.mark.parametrize(
    ("claims", "lists", "error"),
    [
        (
            CLAIMS,
            Lists({**read_lists().other, "HA-W-8": "odd"}, {}),
            "HA-W-8 stands in not_held.toml as 'odd', expected one of",
        ),
        (CLAIMS[1:], read_lists(), f"{CLAIMS[0].clause_ids[0]} has no claim"),
        (
            [*CLAIMS, claim_of(never_met, "HA-ST-2", "one record")],
            read_lists(),
            "HA-ST-2 (never_met): no golden byte meets its premise",
        ),
        (CLAIMS, Lists(read_lists().other, {"HA-ST-4": "no reason"}), "HA-ST-4 stands in not_held.toml as unseen, but"),
        (CLAIMS, Lists({**read_lists().other, "HA-ST-4": "time"}, {}), "HA-ST-4 stands in not_held.toml as of another kind"),
        (CLAIMS, Lists({**read_lists().other, NO_CLAUSE: "time"}, {}), f"{NO_CLAUSE} is no clause"),
    ],
    ids=[
        "an unknown kind",
        "a clause is forgotten",
        "a premise is never met",
        "unseen, and seen",
        "of no bytes, and held",
        "no clause",
    ],
)
def test_a_list_that_is_wrong_is_told(held: Held, claims: list[Claim], lists: Lists, error: str) -> None:
    if claims and claims[0] is not CLAIMS[0]:
        claims = [each for each in claims if CLAIMS[0].clause_ids[0] not in each.clause_ids]
    told = list(errors(held, claims, lists, clause_ids()))
    assert any(each.startswith(error) for each in told), told


# --- A changed byte is noticed ---------------------------------------------------------------------------------------

# Of a record in the commit log: the fields, and a byte of each that is no padding.
RECORD_BYTES = {
    "magic": 7,
    "body CRC": 11,
    "queue id": 15,
    "flag": 19,
    "queue offset": 27,
    "physical offset": 35,
    "born timestamp": 47,
    "born host": 51,
    "store timestamp": 63,
    "store host": 67,
    "reconsume times": 75,
    "prepared transaction offset": 83,
    "body": 90,
}


@pytest.fixture(scope="module")
def small(goldens: list[Golden]) -> Golden:
    return next(golden for golden in goldens if golden.stores[0].name == "5.3.3/unusual")


def flipped(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


def with_file(golden: Golden, name: str, data: bytes) -> Golden:
    """The master's store alone, one of its files being another."""
    store = golden.stores[0]
    changed = Store(store.release, store.name, store.files | {name: data}, store.manifest, store.told)
    return Golden(golden.release, [changed], [], [], [])


def refuted_clauses(golden: Golden) -> set[str]:
    return {refuted[0] for refuted in hold([golden], CLAIMS).refuted}


@pytest.fixture(scope="module")
def plain_record(small: Golden) -> StoredRecord:
    """A record with IPv4 hosts whose body is not compressed, in the first file."""
    return next(
        part
        for part in small.stores[0].parts
        if isinstance(part, StoredRecord) and not part.record.sys_flag and len(part.record.body) > 20 and part.told
    )


@pytest.mark.parametrize("field", RECORD_BYTES)
def test_a_changed_byte_of_a_record_is_refuted(small: Golden, plain_record: StoredRecord, field: str) -> None:
    store = small.stores[0]
    name = store.names("commitlog")[plain_record.offset // store.log.file_size]
    position = plain_record.offset % store.log.file_size + RECORD_BYTES[field]
    try:
        refuted = refuted_clauses(with_file(small, name, flipped(store.files[name], position)))
    except ValueError as error:  # the model reads no record there any more
        refuted = {str(error)}
    assert refuted


@pytest.mark.parametrize(("field", "position"), [("offset", 7), ("size", 11), ("tags code", 19)])
def test_a_changed_byte_of_a_queue_is_refuted(small: Golden, field: str, position: int) -> None:
    store = small.stores[0]
    name = next(name for name in store.names("consumequeue") if "/Unusual/" in name)
    assert refuted_clauses(with_file(small, name, flipped(store.files[name], position))), field


@pytest.mark.parametrize(
    ("field", "clause_id", "position"),
    [
        ("begin timestamp", "HA-ST-39", 7),
        ("end timestamp", "HA-ST-39", 15),
        ("begin offset", "HA-ST-39", 23),
        ("end offset", "HA-ST-39", 31),
        ("used slots", "HA-ST-39", 35),
        ("entries", "HA-ST-39", 39),
        ("hash", "HA-ST-42", 40 + 4 * 50 + 20 + 3),
        ("offset of an entry", "HA-ST-42", 40 + 4 * 50 + 20 + 11),
        ("seconds", "HA-ST-41", 40 + 4 * 50 + 20 + 15),
        ("entry before", "HA-ST-40", 40 + 4 * 50 + 20 + 19),
    ],
)
def test_a_changed_byte_of_an_index_is_refuted(small: Golden, field: str, clause_id: str, position: int) -> None:
    store = small.stores[0]
    name = store.names("index")[0]
    assert clause_id in refuted_clauses(with_file(small, name, flipped(store.files[name], position))), field


def test_a_changed_byte_of_a_checkpoint_is_refuted(small: Golden) -> None:
    for position in (7, 15, 23):
        changed = flipped(small.stores[0].files["checkpoint"], position)
        assert refuted_clauses(with_file(small, "checkpoint", changed)) == {"HA-ST-24"}


def test_a_changed_byte_of_the_link_is_refuted(small: Golden) -> None:
    """Of a report, of a frame's offset, of its size, of its body, and of a heartbeat's offset."""
    first, *others = small.connections
    body_size = first.frames[0].body_size
    for name, position in (
        ("from_slave", 15),
        ("from_master", 7),
        ("from_master", 11),
        ("from_master", 40),
        ("from_master", 12 + body_size + 7),
    ):
        changed: Connection = replace(first, **{name: flipped(getattr(first, name), position)})
        try:
            refuted = refuted_clauses(replace(small, connections=[changed, *others], exchanges=[], slave_configs=[]))
        except ValueError as error:  # what the master sent cannot be parted into frames any more
            refuted = {str(error)}
        assert refuted, (name, position)
