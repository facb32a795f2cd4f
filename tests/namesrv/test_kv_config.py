"""The texts of a name server, and their file: `kvConfig.json` as RocketMQ has it. HA-R-52, HA-R-53."""

import json
import os
from pathlib import Path

import pytest

from kit.name_server import NameServer
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.namesrv import kv_config as impl
from rocketmq_ha.impl.namesrv.kv_config import KVConfigManager
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode
from rocketmq_ha.reference import kv_config as model

T = {"namespace": "n", "key": "k"}


def test_texts_are_kept_by_namespace_and_key(name_server: NameServer) -> None:
    """HA-R-52 "MUST keep texts by namespace and key, and answer the codes of the table as it says"."""
    ask = name_server.ask
    assert ask(RequestCode.GET_KV_CONFIG, **T).code == ResponseCode.QUERY_NOT_FOUND
    assert ask(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="n").code == ResponseCode.QUERY_NOT_FOUND
    assert ask(RequestCode.PUT_KV_CONFIG, **T, value="é").code == ResponseCode.SUCCESS
    assert ask(RequestCode.GET_KV_CONFIG, **T).ext_fields == {"value": "é"}
    assert name_server.json(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="n") == {"table": {"k": "é"}}
    assert ask(RequestCode.DELETE_KV_CONFIG, **T).code == ResponseCode.SUCCESS
    assert ask(RequestCode.DELETE_KV_CONFIG, **T).code == ResponseCode.SUCCESS
    assert ask(RequestCode.GET_KV_CONFIG, **T).code == ResponseCode.QUERY_NOT_FOUND
    assert name_server.json(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="n") == {"table": {}}


def test_a_change_is_in_the_file_and_synced_before_it_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HA-R-53 "MUST be in the file kvConfigPath, and synced, before it is answered"."""
    path = tmp_path / "new" / "kvConfig.json"
    synced: list[str] = []
    fsync = os.fsync

    def watched(fd: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", watched)
    NameServer(path).ask(RequestCode.PUT_KV_CONFIG, **T, value="v")
    assert synced == [f"{path}.tmp", str(path.parent)]
    assert json.loads(path.read_text()) == {"configTable": {"n": {"k": "v"}}}
    assert NameServer(path).ask(RequestCode.GET_KV_CONFIG, **T).ext_fields == {"value": "v"}


def test_a_change_that_cannot_be_written_has_no_effect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HA-R-53 "a change that cannot be written MUST be refused with SYSTEM_ERROR, and take no effect"."""
    path = tmp_path / "kvConfig.json"
    name_server = NameServer(path)
    name_server.ask(RequestCode.PUT_KV_CONFIG, **T, value="v")
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for code, more in ((RequestCode.PUT_KV_CONFIG, {"value": "w"}), (RequestCode.DELETE_KV_CONFIG, {})):
        answer = name_server.ask(code, **T, **more)
        assert (answer.code, answer.remark) == (1, f"{path}: No space left on device: nothing was changed")
    assert name_server.ask(RequestCode.GET_KV_CONFIG, **T).ext_fields == {"value": "v"}
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["kvConfig.json"]


def test_a_file_of_rocketmq_is_read(tmp_path: Path) -> None:
    """As KVConfigSerializeWrapper.toJson writes it, with indents."""
    path = tmp_path / "kvConfig.json"
    path.write_text('{\n\t"configTable":{\n\t\t"ORDER_TOPIC_CONFIG":{\n\t\t\t"T":"a:4;b:4"\n\t\t}\n\t}\n}')
    assert KVConfigManager(path).get_kv_config("ORDER_TOPIC_CONFIG", "T") == "a:4;b:4"


def test_what_a_newer_release_has_in_the_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text('{"configTable":{},"of":{"a newer":["release"]}}')
    KVConfigManager(path).put_kv_config("n", "k", "v")
    assert json.loads(path.read_text()) == {"configTable": {"n": {"k": "v"}}, "of": {"a newer": ["release"]}}


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (b"", "an end before that of the JSON"),
        (b"{", "an end before that of the JSON"),
        (b"[]", "an array"),
        (b"{}", "null"),
        (b'{"configTable":1}', "a number"),
        (b'{"configTable":{"n":{"k":1}}}', "a number at [...][...]"),
        (b"\xff", "no JSON at byte 0"),
        (b'{"\xff":1}', "bytes that are no UTF-8"),
        (b'{"a":' + b"[" * 100_000, "too many levels of arrays and objects"),
    ],
)
def test_a_damaged_file_is_refused_or_its_backup_read(
    tmp_path: Path, damage: bytes, found: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_bytes(damage)
    with pytest.raises(ConfigInvalid) as error:
        KVConfigManager(path)
    assert str(error.value) == f"{path}: found {found}, expected JSON with a configTable of texts, by namespace and key"
    assert path.read_bytes() == damage
    backup = tmp_path / "kvConfig.json.bak"
    backup.write_text('{"configTable":{"n":{"k":"v"}}}')
    assert KVConfigManager(path).get_kv_config("n", "k") == "v"
    assert f"{backup} is read instead of kvConfig.json" in caplog.text


def test_a_file_that_is_being_replaced_by_rocketmq_is_read_from_its_backup(tmp_path: Path) -> None:
    """RocketMQ renames in steps: for a moment there is the backup alone."""
    (tmp_path / "kvConfig.json.bak").write_text('{"configTable":{"n":{"k":"v"}}}')
    assert KVConfigManager(tmp_path / "kvConfig.json").get_kv_config("n", "k") == "v"


def test_an_equal_value_is_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = KVConfigManager(tmp_path / "kvConfig.json")
    texts.put_kv_config("n", "k", "v")

    def refused(*_: object) -> None:
        raise AssertionError("it is written")

    monkeypatch.setattr(impl, "_replace", refused)
    texts.put_kv_config("n", "k", "v")
    texts.delete_kv_config("n", "other")
    texts.delete_kv_config("other", "k")


def test_the_model_reads_what_the_implementation_writes(tmp_path: Path) -> None:
    """And both have the same answers on the way."""
    path = tmp_path / "kvConfig.json"
    texts, config = KVConfigManager(path), model.KVConfig()
    for namespace, key, value in (
        ("n", "k", "v"),
        ("n", "é", "\n"),
        ("m", "k", "w"),
        ("n", "k", None),
        ("x", "k", None),
        ("m", "k", None),
    ):
        if value is None:
            texts.delete_kv_config(namespace, key)
            config = model.delete(config, namespace, key)
        else:
            texts.put_kv_config(namespace, key, value)
            config = model.put(config, namespace, key, value)
        for name in ("n", "m", "x"):
            assert texts.get_kv_list_by_namespace(name) == model.list_by_namespace(config, name)
            assert texts.get_kv_config(name, "k") == model.get(config, name, "k")
        assert model.of_file(path.read_text()) == config
    path.write_text(model.to_file(config))
    assert KVConfigManager(path).get_kv_list_by_namespace("n") == {"é": "\n"}
