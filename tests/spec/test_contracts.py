"""The contract runner gives the right verdict on known contracts, and its list names only contracts that exist."""

import subprocess
import sys
from pathlib import Path

import pytest

from kit.waiting import LONG_S

ROOT = Path(__file__).resolve().parents[2]

# CrossHair patches the interpreter in which it runs: every verdict runs in its own process.
KNOWN = """
from rocketmq_ha.reference import master
from rocketmq_ha.reference.master import MasterConnection
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec.profile import Settings

def start(max_offset: int, file_size: int) -> int:
    conn = MasterConnection(0, 0, slave_request_offset=0, slave_ack_offset=0)
    return master.on_transfer(conn, Log(file_size, max_offset, b""), 0, 0, Settings(file_size)).state.next_transfer_from_where

def right(max_offset: int, file_size: int) -> None:
    assert max_offset >= 0
    assert file_size > 0
    assert start(max_offset, file_size) % file_size == 0

def wrong(max_offset: int, file_size: int) -> None:
    assert max_offset >= 0
    assert file_size > 0
    assert start(max_offset, file_size) < max_offset  # not so where the last file is just full, and of an empty log

def beyond(text: int) -> None:
    assert text >= 0
    assert len(str(text)) > 0  # CrossHair does not follow an integer into its digits

def idle(max_offset: int) -> None:
    assert max_offset > 0 and max_offset < 0
    assert start(max_offset, 8) == 0
"""
ASK = (
    "import sys; sys.path.insert(0, sys.argv[1]); import known; from formal import contracts; "
    "print(contracts.judge(known.{name}, 3)[0].value)"
)


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=LONG_S)


@pytest.mark.parametrize(
    ("name", "verdict"),
    [("right", "confirmed"), ("wrong", "counterexample"), ("beyond", "not confirmed"), ("idle", "counterexample")],
)
def test_the_verdict_on_a_contract_that_is_known(name: str, verdict: str, tmp_path: Path) -> None:
    """A contract with an impossible precondition proves nothing, and does not count as a pass."""
    (tmp_path / "known.py").write_text(KNOWN, encoding="utf-8")
    done = python("-c", ASK.format(name=name), str(tmp_path))
    assert done.stdout.strip() == verdict, done.stderr


def test_the_run_fails_for_a_counterexample_and_for_what_is_confirmed_no_more() -> None:
    script = """
from formal import contracts
from formal.contracts import Verdict, surprise
expected = contracts.Expected(frozenset({"listed"}), 1, 1)
assert surprise("listed", Verdict.NOT_CONFIRMED, expected)
assert surprise("listed", Verdict.COUNTEREXAMPLE, expected)
assert surprise("other", Verdict.COUNTEREXAMPLE, expected)
assert not surprise("listed", Verdict.CONFIRMED, expected)
assert not surprise("other", Verdict.NOT_CONFIRMED, expected)
assert contracts.Expected.load().confirmed <= contracts.contracts().keys()
assert contracts.main(["a_report_that_the_model_takes_is_taken"]) == 0
assert contracts.main(["no_such_contract"]) == 1
"""
    done = python("-c", script)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "a_report_that_the_model_takes_is_taken  confirmed" in done.stdout
    assert "no such contract: no_such_contract" in done.stdout
