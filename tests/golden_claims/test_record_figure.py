"""The figure of a record agrees with the constants, with versions.toml and with the clause of the IPv6 hosts."""

import re

import record_figure

from rocketmq_ha.spec import clauses, constants, release_table

# Each field of the figure, and its bytes with an IPv4 host.
SIZES = {
    "total size": 4,
    "magic": 4,
    "CRC of the body": 4,
    "queue id": 4,
    "flag": 4,
    "queue offset": 8,
    "physical offset of this record": 8,
    "sysFlag": 4,
    "born timestamp": 8,
    "born host": 8,
    "store timestamp": 8,
    "store host": 8,
    "reconsume times": 4,
    "prepared transaction offset": 8,
    "body length": 4,
}


def test_the_fields_follow_one_another() -> None:
    positions = record_figure.read().positions
    assert list(positions)[:-1] == list(SIZES)
    expected = [sum(list(SIZES.values())[:count]) for count in range(len(SIZES) + 1)]
    assert list(positions.values()) == expected
    # Behind the body length a V1 record has a byte and two bytes for the lengths of topic and properties.
    assert expected[-1] + 1 + 2 == constants.MESSAGE_FIXED_SIZE
    assert record_figure.read().tail == (
        "body ... | topic length (V1: i8, V2: i16) | topic ... | properties length (i16) | properties ..."
    )


def test_the_bits_and_magics_are_the_constants() -> None:
    figure = record_figure.read()
    assert figure.bits == {
        "compressed": constants.SYS_FLAG_COMPRESSED,
        "born v6": constants.SYS_FLAG_BORN_HOST_V6,
        "store v6": constants.SYS_FLAG_STORE_HOST_V6,
    }
    assert figure.magics == {"V1": constants.MESSAGE_MAGIC_CODE, "V2": constants.MESSAGE_MAGIC_CODE_V2}


def test_the_bits_are_those_of_ha_st_14() -> None:
    told = re.search(r"0x([0-9A-F]+) for the born and 0x([0-9A-F]+) for the store host", clauses.load()["HA-ST-14"])
    bits = record_figure.read().bits
    assert told and (int(told[1], 16), int(told[2], 16)) == (bits["born v6"], bits["store v6"])


def test_v2_is_as_old_as_versions_toml_says() -> None:
    rows = next(each for each in release_table.load() if each.name == "records are written as")
    assert next(found.first for found in rows.of() if "V2" in found.value) == record_figure.read().v2_since
