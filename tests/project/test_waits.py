"""Each wait in the tests, and in what fuzz and formal start, has a limit: a mistake makes a test fail, and never hang.

The sources are parsed. What cannot be seen in a source (a loop that never ends) is ended by pytest-timeout.
"""

import ast
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

from kit import command_line, hangs
from kit.children import Child
from kit.command_line import invoke
from kit.waiting import PATIENCE_S, accepted, await_end, limited

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("tests", "fuzz", "formal")

# (file, what is called): why it needs no limit
EXCEPTIONS = {
    ("tests/kit/waiting.py", "accept"): "the one place that accepts, with a limit",
    ("tests/kit/scheduler.py", "join"): "Scheduler.run says whether it is over",
    ("tests/kit/scheduler.py", "acquire"): "threads under the scheduler; Scheduler.run has a limit, and ends them",
    ("tests/stateful/test_put_threads.py", "wait"): "under the scheduler, whose StuckError is the test",
    ("tests/net/test_put_socket.py", "waitpid"): "the child's only wait has a limit, and then it ends",
    ("tests/crash/kill9.py", "Popen"): "a program without pytest; both are killed once the ledger's limit is over",
    ("tests/crash/disk_death.py", "Popen"): "a program without pytest; all are killed once the ledger's limit is over",
    ("tests/crash/writer.py", "join"): "a process that kill9.py kills",
    ("tests/crash/ledger.py", "join"): "a timer, which ends by itself",
    ("tests/hostile/hostile_masters.py", "accept"): "its listener has a limit",
    ("tests/hostile/hostile_masters.py", "settimeout"): "the ends of a relay, which closes them",
    ("tests/interop/fake_peers.py", "accept"): "its listener has a limit",
    ("tests/interop/servers.py", "Popen"): "a process for the session; each question to it has a limit",
    ("tests/modes/java_traffic.py", "Popen"): "each wait for its sends and its end has a limit, and `close` kills it",
    ("tests/interop/golden/golden_cluster.py", "Popen"): "a program without pytest, which watches its brokers itself",
    ("tests/interop/golden/golden_wire.py", "accept"): "daemon threads for the life of the program",
    ("tests/interop/golden/golden_wire.py", "settimeout"): "daemon threads for the life of the program",
    ("fuzz/processes.py", "Popen"): "Node has a limit for each line and for the end",
    ("fuzz/java_clients.py", "Popen"): "JavaClients has a limit for the end, and the program one for its messages",
    ("fuzz/proxy.py", "accept"): "its listener has a limit",
    ("fuzz/standalone.py", "Popen"): "SparkCluster has a limit for the start and for each end, and kills what is left",
    ("fuzz/cluster_demo.py", "Popen"): "each command has a limit, and is killed behind it",
    ("fuzz/second_verdict/spark.py", "Thread"): "the check of a log may last as long as its user wants",
    ("fuzz/limits.py", "waitpid"): "the child's run has a limit of time",
    ("formal/run_formal.py", "result"): "TLC has a limit in each process of the pool",
    ("formal/tiny.py", "result"): "as many schedules as there are, and no wait in them",
    ("formal/mutants.py", "result"): "the threads of the pool wait for processes that have limits",
    ("formal/mutants.py", "run"): "the child sets an alarm for each check",
}


def called(call: ast.Call) -> tuple[str, str]:
    """The last name of what stands before the last dot, and the name behind it."""
    if not isinstance(call.func, ast.Attribute):
        return "", getattr(call.func, "id", "")
    before = call.func.value
    return getattr(before, "attr", getattr(before, "id", "")), call.func.attr


def is_none(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def is_endless(call: ast.Call, uses_futures: bool) -> bool:
    """Return True if the call may wait for ever, or does not say whether it has waited long enough."""
    before, name = called(call)
    limits = {keyword.arg: keyword.value for keyword in call.keywords}
    if is_none(limits.get("timeout")):
        return True
    match name:
        case "Popen":
            return True
        case "run" | "call" | "check_call" | "check_output":
            return before == "subprocess" and "timeout" not in limits
        case "communicate":
            return "timeout" not in limits
        case "create_connection":
            return before == "socket" and len(call.args) < 2 and "timeout" not in limits
        case "settimeout":
            return is_none(call.args[0])
        case "accept":
            return before.endswith("listener")
        case "Thread":
            return "daemon" not in limits  # a thread that hangs would keep the whole run from ending
        case "waitpid":
            return True
        case "join" if call.args:  # such a join leaves open whether the thread has ended
            return getattr(call.args[0], "id", "").endswith("PATIENCE_S")
        case "result":  # of a future; the one of a put has its own limit
            return uses_futures and not call.args and not limits
        case "wait" | "join" | "get" | "acquire" | "select":
            return not call.args and not limits
    return False


def open_sockets(tree: ast.Module) -> Iterator[str]:
    """The functions that make a socket, wait at it, and give it no limit."""
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        calls = [called(call) for call in ast.walk(function) if isinstance(call, ast.Call)]
        makes = ("socket", "socket") in calls or ("socket", "socketpair") in calls
        names = {name for _, name in calls}
        if makes and {"recv", "connect", "makefile"} & names and not {"settimeout", "setblocking"} & names:
            yield function.name


def endless(source: str) -> Iterator[str]:
    """The names of what may wait for ever in a source."""
    tree = ast.parse(source)
    uses_futures = "concurrent.futures" in source
    yield from (called(call)[1] for call in ast.walk(tree) if isinstance(call, ast.Call) and is_endless(call, uses_futures))
    if "socket.socket" in source:
        yield from open_sockets(tree)


def test_every_wait_has_a_limit() -> None:
    """A new one takes a limit, or a line above with the reason; a line that is no longer needed goes."""
    found = set()
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            found |= {(name, what) for what in endless(path.read_text(encoding="utf-8"))}
    assert found == EXCEPTIONS.keys()


@pytest.mark.parametrize(
    "line",
    [
        "subprocess.run(command, check=True)",
        "subprocess.check_output(command, timeout=None)",
        "subprocess.Popen(command)",
        "process.communicate()",
        "process.communicate(b'input')",
        "process.wait()",
        "event.wait(timeout=None)",
        "barrier.wait()",
        "thread.join()",
        "thread.join(PATIENCE_S)",
        "threading.Thread(target=print)",
        "waiting.get()",
        "lock.acquire()",
        "selector.select()",
        "import concurrent.futures; running.result()",
        "socket.create_connection(address)",
        "self._listener.accept()",
        "sock.settimeout(None)",
        "os.waitpid(child, 0)",
        "def f() -> None:\n    socket.socketpair()[0].recv(1)",
        "def f() -> None:\n    socket.socket().connect(address)",
    ],
)
def test_a_wait_without_a_limit_is_found(line: str) -> None:
    assert len(list(endless(line))) == 1


@pytest.mark.parametrize(
    "line",
    [
        "subprocess.run(command, timeout=PATIENCE_S)",
        "runner.run()",
        "process.communicate(timeout=1)",
        "process.wait(PATIENCE_S)",
        "','.join(words)",
        "await_end(thread)",
        "threading.Thread(target=print, daemon=True)",
        "table.get(key)",
        "lock.acquire(blocking=False)",
        "put.result()",
        "import concurrent.futures; running.result(1)",
        "socket.create_connection(address, 5)",
        "accepted(listener)",
        "sock.settimeout(5)",
        "def f() -> None:\n    a, b = socket.socketpair()\n    b.setblocking(False)\n    a.recv(1)",
    ],
)
def test_a_wait_with_a_limit_is_left_alone(line: str) -> None:
    assert list(endless(line)) == []


# --- The limits --------------------------------------------------------------------------------------------------------------


def test_a_child_is_killed_after_its_limit(capfd: pytest.CaptureFixture[str]) -> None:
    """So a read of its output ends too."""
    with Child(["sleep", "60"], stdout=subprocess.PIPE, limit_s=0.01) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b""
        assert child.wait(PATIENCE_S) == -signal.SIGKILL
    await_end(child._timer)
    assert capfd.readouterr().err == "killed, because it has not ended within 0.01 s: ['sleep', '60']\n"


@pytest.mark.parametrize("ends", [lambda child: child.wait(PATIENCE_S), lambda child: child.communicate(timeout=PATIENCE_S)])
def test_a_child_that_ends_has_no_timer_left(ends: Callable[[Child], object]) -> None:
    child = Child(["true"])
    ends(child)
    assert (child.poll(), child._timer.finished.is_set()) == (0, True)
    await_end(child._timer)


def test_a_thread_that_does_not_end_is_named() -> None:
    ends = threading.Event()
    thread = threading.Thread(target=ends.wait, args=(PATIENCE_S,), name="slow", daemon=True)
    thread.start()
    with pytest.raises(AssertionError, match=r"the thread slow has not ended within 0\.01 s"):
        await_end(thread, 0.01)
    ends.set()
    await_end(thread)


@pytest.mark.parametrize(("given", "kept"), [(None, PATIENCE_S), (5.0, 5.0)])
def test_a_listener_and_what_it_accepts_have_a_limit(given: float | None, kept: float) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(given)
        with socket.create_connection(listener.getsockname(), PATIENCE_S), accepted(listener) as sock:
            assert (listener.gettimeout(), sock.gettimeout()) == (kept, PATIENCE_S)


def test_a_command_that_serves_though_it_should_end_fails_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of the limit of the whole test goes on afterwards."""
    handler, before = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)
    monkeypatch.setattr(command_line, "PATIENCE_S", 1)
    with pytest.raises(pytest.fail.Exception, match=r"rocketmq-ha master .* has not ended within 1 s"):
        invoke("master", "--store", tmp_path / "s", "--listen", "127.0.0.1:0")
    assert signal.getsignal(signal.SIGALRM) is handler
    left = signal.getitimer(signal.ITIMER_REAL)
    assert left[0] < before[0] - 0.9 if before[0] else left == before


def test_a_limit_that_is_kept_leaves_the_timer_as_it_was() -> None:
    for left_s in (0.0, 500.0):
        was = signal.setitimer(signal.ITIMER_REAL, left_s)
        try:
            with limited("nothing", 0.5):
                assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 0.5
            assert left_s - 100 < signal.getitimer(signal.ITIMER_REAL)[0] <= left_s
        finally:
            signal.setitimer(signal.ITIMER_REAL, *was)


@pytest.mark.parametrize(("quick", "limits"), [({"project"}, [(hangs.QUICK_S,)]), ({"store"}, [])])
def test_a_test_of_a_quick_folder_has_a_lower_limit(
    quick: set[str], limits: list[tuple[int]], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hangs, "QUICK", quick)
    request.config.hook.pytest_itemcollected(item=request.node)
    assert [mark.args for mark in request.node.iter_markers("timeout")] == limits
    request.config.hook.pytest_itemcollected(item=request.node)
    assert [mark.args for mark in request.node.iter_markers("timeout")] == limits  # one of its own is kept


def test_an_example_of_a_property_may_take_any_time() -> None:
    """A loaded machine makes no test fail; Hypothesis allows 200 ms by itself."""
    assert hypothesis.settings.default.deadline is None
    assert hypothesis.HealthCheck.too_slow in hypothesis.settings.default.suppress_health_check
