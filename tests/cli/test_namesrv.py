"""`rocketmq-ha namesrv` as a process: its lines, its file, its configuration, its status and its metrics."""

import json
import re
import signal
import socket
import ssl
from pathlib import Path

import click
import pytest

from kit.certificates import Certificates
from kit.command_line import Process, Start, invoke
from kit.name_server import body_of, registration, topic_config
from kit.option_tables import NAMESRV_BY_DEFAULT, received
from kit.remoting import Client
from kit.scrapes import get, samples
from kit.waiting import PATIENCE_S, wait_for
from rocketmq_ha.impl.app.run_namesrv import NamesrvOptions
from rocketmq_ha.impl.cli.namesrv_conf import options_of
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.net.address import parse_address
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode
from rocketmq_ha.impl.remoting.command import RemotingCommand, encode_whole

ROOT = Path(__file__).resolve().parents[2]


def connect(address: str) -> Client:
    def wait() -> None:
        """Until something comes, or a moment has passed."""
        sock.settimeout(0.05)
        try:
            sock.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            pass
        finally:
            sock.setblocking(False)

    sock = socket.create_connection(parse_address(address), timeout=PATIENCE_S)
    return Client(sock, wait)


def ask(client: Client, code: int, **fields: str) -> RemotingCommand:
    return client.ask(RemotingCommand(code, ext_fields=fields))


def test_a_name_server_serves_until_sigterm_and_keeps_its_texts(tmp_path: Path, start: Start) -> None:
    """Killed as well: HA-R-53 "before it is answered"; the routes are not kept (HA-R-47)."""
    file = tmp_path / "state" / "kvConfig.json"

    def run() -> tuple[Process, Client]:
        process = start("namesrv", "--listen", "127.0.0.1:0", "--kv-config", file)
        return process, connect(process.line("listening"))

    process, client = run()
    assert client.ask(registration(body_of(topic_config("T")))).code == ResponseCode.SUCCESS
    assert ask(client, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T").code == ResponseCode.SUCCESS
    assert ask(client, RequestCode.PUT_KV_CONFIG, namespace="n", key="k", value="v").code == ResponseCode.SUCCESS
    assert ask(client, 10).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    process.end(signal.SIGKILL)
    client.await_close()
    process, client = run()
    assert ask(client, RequestCode.GET_KV_CONFIG, namespace="n", key="k").ext_fields == {"value": "v"}
    assert ask(client, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T").code == ResponseCode.TOPIC_NOT_EXIST
    assert f"kvConfigPath={file}\n".encode() in ask(client, RequestCode.GET_NAMESRV_CONFIG).body
    assert process.end(signal.SIGTERM) == 0
    client.await_close()


@pytest.mark.parametrize("kills", [3])
def test_no_acknowledged_text_is_lost_by_kill_9(start: Start, tmp_path: Path, kills: int) -> None:
    """HA-R-53 "before it is answered": whatever was under way."""
    file = tmp_path / "kvConfig.json"
    kept: dict[str, str] = {}
    for life in range(kills):
        process = start("namesrv", "--listen", "127.0.0.1:0", "--kv-config", file)
        client = connect(process.line("listening"))
        for key, value in kept.items():
            assert ask(client, RequestCode.GET_KV_CONFIG, namespace="n", key=key).ext_fields == {"value": value}
        assert client.ask(registration(body_of(topic_config("T")))).code == ResponseCode.SUCCESS
        for number in range(200):
            fields = {"namespace": "n", "key": f"k{number % 20}", "value": f"{life}/{number}"}
            client.send(RemotingCommand(RequestCode.PUT_KV_CONFIG, opaque=number, ext_fields=fields))
        answers = client.await_answers(1 + 61 * life % 150)
        process.end(signal.SIGKILL)
        client.await_close()
        answers += client.received
        assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
        acknowledged = max(answer.opaque for answer in answers)  # they come in order
        found = json.loads(file.read_text())["configTable"]["n"]
        written = max(int(value.partition("/")[2]) for value in found.values() if value.startswith(f"{life}/"))
        assert written >= acknowledged
        kept |= {f"k{number % 20}": f"{life}/{number}" for number in range(written + 1)}
        assert found == kept


def test_status_and_metrics(start: Start, tmp_path: Path) -> None:
    """What docs/namesrv.md names, and nothing else."""
    process = start("namesrv", "--listen", "127.0.0.1:0", "--kv-config", tmp_path / "kv.json", "--metrics", "127.0.0.1:0")
    address, at = process.line("listening"), process.line("metrics")
    client = connect(address)
    assert client.ask(registration(body_of(topic_config("T")))).code == ResponseCode.SUCCESS
    wait_for(lambda: samples(at).get("rocketmq_ha_namesrv_brokers") == {(): 1.0})
    found = samples(at)
    assert found["rocketmq_ha_requests_total"] == {("103",): 1.0}
    assert found["rocketmq_ha_namesrv_topics"] == {(): 1.0}
    page = (ROOT / "docs" / "namesrv.md").read_text("utf-8")
    documented = set(re.findall(r"`(rocketmq_ha_[a-z0-9_]+)`", page))
    assert {name for name in found if name.startswith("rocketmq_ha_") and not name.endswith("_created")} == documented
    assert (get(at, "/readyz"), get(at, "/healthz")) == ((200, "ok\n"), (200, "ok\n"))
    shown = invoke("status", "--from", at).stdout
    for words in (f"listens  {address}", "1 brokers, 1 groups, 1 clusters, 1 topics", "10.0.0.1:10911  a"):
        assert words in shown
    assert json.loads(invoke("status", "--from", at, "--json").stdout)["listed"][0]["broker_name"] == "a"


def test_a_status_without_brokers(start: Start, tmp_path: Path) -> None:
    process = start("namesrv", "--listen", "127.0.0.1:0", "--kv-config", tmp_path / "kv.json", "--metrics", "127.0.0.1:0")
    process.line("listening")
    at = process.line("metrics")
    wait_for(lambda: get(at, "/readyz")[0] == 200)
    assert "no brokers" in invoke("status", "--from", at).stdout


# --- TLS ---------------------------------------------------------------------------------------------------------------------


def test_tls_is_spoken_on_the_same_port(start: Start, certs: Certificates, tmp_path: Path) -> None:
    """HA-RM-19 "a connection whose first byte is 0x16 MUST be served with TLS, and every other without it"."""
    files = certs.issue("namesrv", "localhost")
    said = ("--tls-cert", files.cert, "--tls-key", files.key)
    process = start("namesrv", "--listen", "127.0.0.1:0", "--kv-config", tmp_path / "kv.json", *said)
    address = process.line("listening")
    context = ssl.create_default_context(cafile=files.ca)
    question = encode_whole(RemotingCommand(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))
    with (
        socket.create_connection(parse_address(address), timeout=PATIENCE_S) as bare,
        context.wrap_socket(bare, server_hostname="localhost") as sock,
    ):
        sock.sendall(question)
        assert b'"topicList":[]' in sock.recv(4096)
    assert ask(connect(address), RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).body == b'{"topicList":[]}'


def test_sighup_reads_the_file_and_the_certificates_again(start: Start, certs: Certificates, tmp_path: Path) -> None:
    """HA-M-81 "MUST go on, with what it had": after a mistake nothing has changed."""
    file, files = tmp_path / "namesrv.conf", certs.issue("renewed", "localhost")
    file.write_text("orderMessageEnable=false\nlistenPort=0\n")
    said = ("--tls-cert", files.cert, "--tls-key", files.key)
    process = start("namesrv", "--config", file, "--kv-config", tmp_path / "kv.json", *said)
    address = process.line("listening")
    client = connect(address)

    def hang_up(says: str) -> None:
        before = process.log.read_text().count("SIGHUP: ")
        process.process.send_signal(signal.SIGHUP)
        wait_for(lambda: process.log.read_text().count("SIGHUP: ") > before)
        assert process.log.read_text().rstrip("\n").rpartition("SIGHUP: ")[2] == says

    def is_ordered() -> bool:
        config = ask(client, RequestCode.GET_NAMESRV_CONFIG).body
        assert ask(client, RequestCode.PUT_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="T", value="a:4").code == 0
        told = b"a:4" in ask(client, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T").body
        assert f"orderMessageEnable={str(told).lower()}\n".encode() in config
        return told

    def certificate() -> bytes | None:
        context = ssl.create_default_context(cafile=files.ca)
        with (
            socket.create_connection(parse_address(address), timeout=PATIENCE_S) as bare,
            context.wrap_socket(bare, server_hostname="localhost") as sock,
        ):
            return sock.getpeercert(binary_form=True)

    assert client.ask(registration(body_of(topic_config("T")))).code == ResponseCode.SUCCESS
    renewed, old = "certificates read anew, for new connections", certificate()
    hang_up(renewed)
    assert not is_ordered()
    file.write_text("orderMessageEnable=true\nlistenPort=1\n")
    certs.issue("renewed", "localhost")
    hang_up(f"order_message_enable = true; {renewed}; only after a restart: listen")
    assert is_ordered() and certificate() not in (old, None)
    file.write_text("orderMessageEnable=maybe\n")
    hang_up(f"all stays as it is: {file}: orderMessageEnable=maybe: expected true or false")
    assert is_ordered()
    file.write_text("")  # the default
    hang_up(f"order_message_enable = false; {renewed}; only after a restart: listen")
    assert not is_ordered()
    assert process.end() == 0


@pytest.mark.parametrize("said", [(), ("--order-message-enable",)])
def test_an_option_of_the_command_line_stays_after_sighup(start: Start, tmp_path: Path, said: tuple[str, ...]) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text("orderMessageEnable=false\n")
    process = start("namesrv", "--listen", "127.0.0.1:0", "--config", file, "--kv-config", tmp_path / "kv.json", *said)
    client = connect(process.line("listening"))
    file.write_text("orderMessageEnable=true\n")
    process.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "SIGHUP: " in process.log.read_text())
    assert ("nothing has changed" in process.log.read_text()) == bool(said)
    assert b"orderMessageEnable=true\n" in ask(client, RequestCode.GET_NAMESRV_CONFIG).body


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--tls-mode", "enforcing"), "TLS is enforcing: expected --tls-cert and --tls-key"),
        (("--tls-cert", "x"), "TLS is permissive: expected --tls-cert and --tls-key"),
        (("--tls-ca", "x"), "--tls-ca is given: expected --tls-cert and --tls-key with it, and a --tls-mode that has TLS"),
        (("--tls-mode", "disabled", "--tls-key", "x"), "--tls-key is given: expected --tls-cert and --tls-key with it"),
    ],
)
def test_options_of_tls_that_do_not_fit_are_named(words: tuple[str, ...], error: str) -> None:
    result = invoke("namesrv", "--listen", "127.0.0.1:0", *words)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"rocketmq-ha: {error}")


# --- Configuration ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "values", "left"),
    [
        ("", {}, []),
        ("listenPort=9877", {"listen": "127.0.0.1:9877"}, []),
        ("bindAddress=10.0.0.1", {"listen": "10.0.0.1:9876"}, []),
        ("bindAddress=10.0.0.1\nlistenPort = 1\n", {"listen": "10.0.0.1:1"}, []),
        ("kvConfigPath=/a/kv.json\nrocketmqHome=/r\n", {"kv_config": "/a/kv.json"}, ["rocketmqHome"]),
        ("orderMessageEnable=TRUE", {"order_message_enable": True}, []),
        ("orderMessageEnable=false", {"order_message_enable": False}, []),
        ("tls.server.mode=permissive\na_b-c=\n_d=e", {}, ["_d", "a_b-c", "tls.server.mode"]),
    ],
)
def test_a_namesrv_conf_is_read(text: str, values: dict[str, object], left: list[str]) -> None:
    assert options_of(Path("namesrv.conf"), text) == (values, left)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("listenPort=x", "namesrv.conf: listenPort=x: expected a port"),
        ("listenPort=65536", "namesrv.conf: listenPort=65536: expected a port"),
        ("orderMessageEnable=1", "namesrv.conf: orderMessageEnable=1: expected true or false"),
        ("a=\\u00", "expected a Java properties file"),
        ("[]", "namesrv.conf: found '[]', expected a Java properties file: lines of name=value"),
        ('{"listenPort": 9877}', "namesrv.conf: found '{\"listenPort\"', expected a Java properties file"),
        ("[namesrv]\nlistenPort = 9877", "namesrv.conf: found '[namesrv]', expected a Java properties file"),
        ("listenPort,9877", "namesrv.conf: found 'listenPort,9877', expected a Java properties file"),
        ("<" * 100, "namesrv.conf: found '" + "<" * 40 + "', expected"),
    ],
)
def test_a_mistake_in_a_namesrv_conf_is_named(text: str, error: str) -> None:
    with pytest.raises(ConfigInvalid, match=re.escape(error)):
        options_of(Path("namesrv.conf"), text)


def test_the_command_line_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text("listenPort=9877\nkvConfigPath=/a/kv.json\norderMessageEnable=true\n")
    of_file = received(monkeypatch, "namesrv", "--config", file)
    assert isinstance(of_file, NamesrvOptions)
    assert (of_file.listen, of_file.kv_config, of_file.order_message_enable) == (
        ("127.0.0.1", 9877),
        Path("/a/kv.json"),
        True,
    )
    listen = NAMESRV_BY_DEFAULT.listen[0] + ":1"
    said = ("--listen", listen, "--kv-config", "b", "--no-order-message-enable")
    of_both = received(monkeypatch, "namesrv", "--config", file, *said)
    assert isinstance(of_both, NamesrvOptions)
    assert (of_both.listen, of_both.kv_config, of_both.order_message_enable) == (("127.0.0.1", 1), Path("b"), False)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda _: None, "No such file or directory: expected a configuration file"),
        (lambda file: file.write_bytes(b"\xff"), "byte 0 is not UTF-8: expected a configuration file"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, make: "click.Parameter", error: str) -> None:
    file = tmp_path / "namesrv.conf"
    make(file)  # type: ignore[operator]
    result = invoke("namesrv", "--config", file)
    assert (result.exit_code, result.stderr) == (2, f"rocketmq-ha: {file}: {error}\n")


def test_an_address_that_is_taken_and_a_damaged_file_end_it_with_a_line(tmp_path: Path) -> None:
    file = tmp_path / "kv.json"
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        result = invoke("namesrv", "--listen", taken, "--kv-config", file)
        assert (result.exit_code, result.stderr) == (
            2,
            f"rocketmq-ha: --listen: cannot listen on {taken}: Address already in use\n",
        )
    file.write_text("{")
    result = invoke("namesrv", "--listen", "127.0.0.1:0", "--kv-config", file)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"rocketmq-ha: {file}: ")
    assert result.stderr.endswith("expected JSON with a configTable of texts, by namespace and key\n")
