"""`status --watch`, and `status --from` of a process on another machine."""

import json
import signal
import socket
import subprocess
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import Result

import kit.nodes
from kit.children import Child
from kit.command_line import COMMAND, invoke
from kit.waiting import PATIENCE_S, accepted, await_end, wait_for
from rocketmq_ha.impl.net.status_socket import ask

FILE_SIZE = 1 << 20


def status(*arguments: object) -> Result:
    return invoke("status", *arguments)


def watching(*arguments: object) -> subprocess.Popen[str]:
    command = [*COMMAND, "status", "--watch", "--every", "0.1", *map(str, arguments)]
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a background job of a shell ignores SIGINT, and so would the child
    return Child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_status_is_watched_until_it_is_interrupted_and_over_a_restart(tmp_path: Path, nodes: ExitStack) -> None:
    store = tmp_path / "a"
    node, _ = kit.nodes.serve(nodes, store, "--put", "3", "--sync", "0", file_size=FILE_SIZE)
    assert node.line("put")
    with watching(store, "--json") as watch:
        assert watch.stdout is not None and watch.stderr is not None
        seen = [json.loads(watch.stdout.readline()) for _ in range(3)]
        assert len({snapshot["pid"] for snapshot in seen}) == 1
        assert node.stop() == 0
        while "no process serves it" not in (said := watch.stderr.readline()):
            assert "in the middle of its answer" in said  # the watch asked when the master was about to end
        kit.nodes.serve(nodes, store, file_size=FILE_SIZE)
        assert json.loads(watch.stdout.readline())["max_offset"] == seen[0]["max_offset"] > 0
        watch.send_signal(signal.SIGINT)
        watch.communicate(timeout=PATIENCE_S)
        assert watch.returncode == 130


def test_a_watch_of_no_process_ends_at_once(tmp_path: Path) -> None:
    with watching(tmp_path) as watch:
        out, err = watch.communicate(timeout=PATIENCE_S)
    assert (watch.returncode, out) == (2, "")
    assert "no process serves it" in err and len(err.splitlines()) == 1


@pytest.mark.parametrize("role", ["master", "slave"])
def test_the_status_of_another_machine_is_asked_for_at_its_metrics(role: str, tmp_path: Path, nodes: ExitStack) -> None:
    store = tmp_path / "a"
    if role == "master":
        node, _ = kit.nodes.serve(nodes, store, "--metrics", "127.0.0.1:0", file_size=FILE_SIZE)
    else:
        node = kit.nodes.follow(nodes, store, "127.0.0.1:1", "--metrics", "127.0.0.1:0", "--file-size", str(FILE_SIZE))
    address = node.line("metrics")
    wait_for(lambda: status("--from", address).exit_code == 0)
    told = json.loads(status("--from", address, "--json").stdout)
    here = ask(store)
    assert set(told) == set(here)
    assert [told[name] for name in ("role", "pid", "max_offset")] == [here[name] for name in ("role", "pid", "max_offset")]
    assert status("--from", address).stdout.splitlines()[0] == status(store).stdout.splitlines()[0]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.0 404 Not Found\r\n\r\n", "found no status of format"),
        (b"HTTP/1.0 200 OK\r\n\r\n{}", "found no status of format"),
        (b"HTTP/1.0 200 OK\r\n\r\nno json", "found no status of format"),
        (b"HELLO\r\n", "found no HTTP (BadStatusLine), expected the address of --metrics"),
        (b"", "expected the address of --metrics"),
    ],
)
def test_what_is_no_status_is_one_line_with_status_2(answer: bytes, said: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            peer = accepted(listener)
            with peer:
                peer.recv(1000)
                peer.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        result = status("--from", address)
        await_end(thread)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"rocketmq-ha: {address}: ") and said in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("arguments", [[], ["DIR", "--from", "127.0.0.1:1"]])
def test_status_takes_a_store_or_an_address(arguments: list[str]) -> None:
    result = status(*arguments)
    assert (result.exit_code, result.stderr) == (2, "rocketmq-ha: status: expected either a store's DIR, or --from HOST:PORT\n")
