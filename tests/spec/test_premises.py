"""A property that holds only because its premise never occurs is an error: `make formal` and these tests count premises."""

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from formal import checks, graph, premises, run_formal, scopes
from formal.level_protocol import canonical
from rocketmq_ha.reference import protocol, protocol_durability
from rocketmq_ha.reference.protocol_state import Scope, initial, of_profile, warm
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile

CATALOGUE = scopes.load()
ONE_PUT = of_profile(Scope(slaves=2, max_puts=1, batch=1, sync_puts=True), HARDENED)
ONE_MORE = replace(ONE_PUT, max_puts=2)
DURABLE = of_profile(Scope(slaves=2, max_puts=2, batch=1, file_size=4, sync_puts=True), HARDENED)


def test_a_put_of_a_hardened_pair_that_has_acknowledged_nothing_never_ends_with_put_ok() -> None:
    """The premise of PutOkIsHeld never occurs: before the only put no slave has acknowledged a byte, so it cannot wait."""
    counts = premises.counted(graph.explore(ONE_PUT), ["PutOkIsHeld"])
    assert [count.reached for count in counts["PutOkIsHeld"]] == [0]
    assert premises.too_few(counts, {"PutOkIsHeld": 1}) == ["PutOkIsHeld is reached 0 times, not 1"]


def test_from_a_warm_start_the_same_pair_ends_puts_with_put_ok() -> None:
    counts = premises.counted(graph.explore(ONE_MORE, start=warm(ONE_MORE)), ["PutOkIsHeld"])
    assert counts["PutOkIsHeld"][0].reached > 10
    assert premises.too_few(counts, {"PutOkIsHeld": 10}) == []


def test_a_scope_that_does_not_reach_its_purpose_is_a_surprise() -> None:
    scope = CATALOGUE.scopes["once-hardened"]
    planted = replace(scope, purpose=("PutOkIsHeld",), least={"PutOkIsHeld": 1})
    assert checks.check_python(scope, CATALOGUE.properties).surprise == ""
    told = checks.check_python(planted, CATALOGUE.properties).surprise
    assert told == "PutOkIsHeld is reached 0 times, not 1"


def test_what_is_reached_only_without_a_fault_is_too_little_in_a_scope_with_faults() -> None:
    counts = {"PutOkIsHeld": [premises.Count("", 70, 3)]}
    assert premises.too_few(counts, {"PutOkIsHeld": 50}) == ["PutOkIsHeld is reached 3 times after a fault, not 50"]
    assert premises.too_few(counts, {"PutOkIsHeld": 3}) == []


def test_a_scope_cannot_be_for_what_its_constants_rule_out() -> None:
    counts: dict[str, list[premises.Count]] = {"PutOkIsHeld": []}
    assert premises.too_few(counts, {"PutOkIsHeld": 1}) == [
        "PutOkIsHeld has a premise that the constants of the scope rule out"
    ]


def test_every_property_has_a_premise_or_a_reason_to_have_none() -> None:
    names = {name for kind in asdict(CATALOGUE.properties).values() for name in kind}
    assert names == {*premises.PREMISES, *premises.UNCONDITIONAL}


def planted(edit: tuple[str, str], tmp_path: Path) -> Path:
    """Write scopes.toml with one text replaced."""
    text = scopes.SCOPES_FILE.read_text(encoding="utf-8")
    assert edit[0] in text
    file = tmp_path / "scopes.toml"
    file.write_text(text.replace(*edit), encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (('for = ["FrameIsLog", "WaitersAreBeyondPush2"]', 'for = ["CatchesUp"]'), "is for CatchesUp, and does not claim it"),
        (('for = ["WaitersAreAnswered"]', ""), "patient-classic is there for nothing"),
        (('"DiffersOnlyInLostUnits", ', ""), "claims DiffersOnlyInLostUnits, and no hardened scope is for it"),
        (('"PutOkIsHeldByAll",\n]\nliveness', '"PutOkIsHeldByAll", "Invented",\n]\nliveness'), "Invented has no premise"),
        (('without = "Heartbeat"', 'without = "Reap"'), "the parts of the fairness are"),
    ],
)
def test_a_catalogue_in_which_a_property_could_be_empty_is_refused(edit: tuple[str, str], told: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=told):
        scopes.load(planted(edit, tmp_path))


# --- The table ----------------------------------------------------------------------------------------------------------------


def test_the_table_has_lines_of_120_columns_and_the_counts(capsys: pytest.CaptureFixture[str]) -> None:
    scope = CATALOGUE.scopes["once-hardened"]
    run_formal.tell([checks.check_python(scope, CATALOGUE.properties)], traces=False)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= run_formal.WIDTH
    assert any("OnlyReplicasAreWaitedFor " in line for line in lines)


# --- A warm start -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", [CLASSIC, HARDENED], ids=lambda profile: profile.name)
@pytest.mark.parametrize("slaves", [1, 2])
@pytest.mark.parametrize("file_size", [1, 2])
def test_a_warm_start_is_reached_from_the_initial_state(profile: Profile, slaves: int, file_size: int) -> None:
    scope = of_profile(Scope(slaves=slaves, max_puts=1, file_size=file_size), profile)
    state = initial(scope)
    steps = []
    for s in range(1, slaves + 1):
        steps += [f"Connect({s})", *([] if scope.at_once else [f"Report({s})"]), f"DeliverReports({s},1)", f"Begin({s},1)"]
    steps += [
        "Put",
        *(
            f"{step}"
            for s in range(1, slaves + 1)
            for step in (f"Transfer({s},1)", f"DeliverFrames({s})", f"DeliverReports({s},1)")
        ),
    ]
    for step in steps:
        state = dict(protocol.edges(state, scope))[step]
    assert state == warm(scope)


# --- What is left without the master ------------------------------------------------------------------------------------------


def durable(scope: Scope) -> graph.Graph:
    return graph.explore(scope, edges=protocol_durability.edges, start=protocol_durability.remembering(warm(scope)))


def test_what_is_acknowledged_is_in_the_best_log() -> None:
    states = durable(DURABLE).states
    assert any(isinstance(state, protocol_durability.AckedState) and state.acked for state in states)
    assert all(protocol_durability.acked_is_in_the_best_log(state, DURABLE) for state in states)
    assert all(protocol_durability.lost_is_beyond_the_best_log(state, DURABLE) for state in states)


def test_a_slave_that_crashes_may_lose_what_it_acknowledged() -> None:
    scope = replace(DURABLE, slaves=1, max_slave_crashes=1)
    graph_of_one = durable(scope)
    lost = next(
        i for i, state in enumerate(graph_of_one.states) if not protocol_durability.acked_is_in_the_best_log(state, scope)
    )
    labels = [label for label, _ in graph_of_one.path(lost)]
    assert labels[1:4] == ["PutSync", "Transfer(1,1)", "DeliverFrames(1)"]
    assert set(labels[4:]) == {"DeliverReports(1,1)", "SlaveCrash(1)"}


def test_a_slave_that_flushes_before_it_reports_loses_nothing_that_it_acknowledged() -> None:
    scope = replace(DURABLE, slaves=1, max_slave_crashes=1, acks_flushed=True)
    states = durable(scope).states
    assert any(isinstance(state, protocol_durability.AckedState) and state.acked and state.used.scrashes for state in states)
    assert all(protocol_durability.acked_is_in_the_best_log(state, scope) for state in states)


def test_what_is_remembered_changes_nothing_else() -> None:
    plain = graph.explore(ONE_MORE, start=warm(ONE_MORE))
    remembered = graph.explore(ONE_MORE, edges=protocol_durability.edges, start=protocol_durability.remembering(warm(ONE_MORE)))
    lines = {canonical(state).partition(',"acked"')[0].removesuffix("}") for state in remembered.states}
    assert lines == {line.removesuffix("}") for line in plain.lines()}
