"""The sample traces: the maker writes them again, they hold what the pages are for, and the data card counts them rightly."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from analysis import data_folder
from analysis.coherence.claims import extract
from analysis.coherence.levels import TEAM, LevelResidual, residuals
from analysis.counterfactual.judging import Judge
from analysis.counterfactual.runs import replay
from analysis.counterfactual.samples import SAMPLE_SEED, main
from analysis.counterfactual.tasks.shapes import SHAPES
from analysis.counterfactual.teams import ready_teams
from analysis.model import Trace, decode, encode
from analysis.orchestration.cost import baselines
from analysis.orchestration.findings import findings

FILES = sorted((data_folder() / "samples").iterdir())
TEAMS = ready_teams()
#: Team -> the finding that its style is, and in how many of its runs it is.
STYLES = {
    "chatty": ("over-communication", "6 of 6"),
    "dominant-agent": ("dominant agent", "9 of 9"),
    "echoing-verifier": ("verifier echo", "6 of 6"),
    "overconfident-planner": ("claimed success on failure", "12 of 12"),
    "pseudo-parallelism": ("pseudo-parallelism", "9 of 9"),
    "serial-collapse": ("serial collapse", "9 of 9"),
    "stops-too-early": ("stopped too early", "7 of 9"),
}


@pytest.fixture(scope="module")
def samples() -> list[Trace]:
    return [decode(line) for path in FILES for line in path.read_bytes().splitlines()]


def _of(samples: list[Trace], team: str) -> list[Trace]:
    return [trace for trace in samples if trace.groups.condition == team]


def test_the_samples_are_what_the_maker_writes(judge: Judge, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "new")]) == 0
    assert f"{tmp_path / 'new' / 'relay-3.jsonl'}: 24 traces" in capsys.readouterr().out
    assert {path.name: path.read_bytes() for path in (tmp_path / "new").iterdir()} == {
        path.name: path.read_bytes() for path in FILES
    }


def test_the_maker_says_how_to_call_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert capsys.readouterr().err == "usage: python -m analysis.counterfactual.samples FOLDER\n"


def test_the_samples_are_small() -> None:
    assert sum(path.stat().st_size for path in FILES) < 1_900_000


def test_a_sample_of_each_team_is_run_again_byte_for_byte(judge: Judge, samples: list[Trace]) -> None:
    for trace in [_of(samples, team)[-1] for team in TEAMS]:
        assert encode(replay(trace, judge)) == encode(trace)


def test_every_run_is_simulated_judged_in_the_sandbox_and_explicit_throughout(samples: list[Trace]) -> None:
    for trace in samples:
        assert (trace.world, trace.source.format, trace.outcome.source) == ("simulated", "counterpoint", "sandbox")
        assert {record.basis for record in (*trace.events, *trace.claims, *trace.relations)} == {"explicit"}
        assert trace.labels == ()


def test_every_kind_of_event_and_of_merge_is_there(samples: list[Trace]) -> None:
    events = [event for trace in samples for event in trace.events]
    assert {event.kind for event in events} == {"spawn", "delegate", "communicate", "aggregate", "stop", "act"}
    assert {event.strategy for event in events if event.kind == "aggregate"} == {"parallel", "hierarchical", "best-by-tests"}
    assert {event.message_type for event in events if event.kind == "communicate"} == {"status", "interface", "verdict"}


def test_every_ready_team_tries_tasks_of_several_shapes_three_times(samples: list[Trace]) -> None:
    tries: dict[tuple[str | None, str | None], list[str | None]] = {}
    for trace in samples:
        tries.setdefault((trace.groups.task, trace.groups.condition), []).append(trace.groups.trial)
    assert {team for _, team in tries} == TEAMS.keys()
    assert {tuple(trials) for trials in tries.values()} == {("1", "2", "3")}
    shapes = [SHAPES[path.stem].features for path in FILES]
    assert sorted((shape.depth, shape.branching, shape.cross_dep) for shape in shapes) == [
        (1, 3, 2), (1, 4, 0), (1, 4, 3), (2, 3, 2), (3, 1, 0),
    ]  # fmt: skip
    assert {found.n_runs for found in baselines(samples).values()} == {3}
    assert baselines(samples).keys() == {("simulated", task) for task, _ in tries}


@pytest.mark.parametrize("team", STYLES)
def test_a_badly_led_team_shows_its_style(team: str, samples: list[Trace]) -> None:
    finding, share = STYLES[team]
    mine = _of(samples, team)
    assert f"{sum(finding in {f.name for f in findings(trace)} for trace in mine)} of {len(mine)}" == share


def _together(trace: Trace) -> LevelResidual:
    return next(row for row in residuals(trace.claims, trace.relations, np.random.default_rng(0)) if row.level == TEAM)


def test_an_overconfident_planner_contradicts_its_coders_and_well_led_teams_nobody(samples: list[Trace]) -> None:
    for trace in _of(samples, "overconfident-planner"):
        found = _together(trace)
        assert found.final.residual is not None
        assert found.final.residual > 0.05
        energy = found.attribution.energy
        assert max(energy, key=energy.__getitem__) == "planner"
    for trace in samples:
        if TEAMS[trace.groups.condition or ""].is_good:
            assert _together(trace).final.residual == pytest.approx(0, abs=1e-6)


def test_claims_stand_in_fields_and_no_other_is_read_from_the_texts(samples: list[Trace]) -> None:
    for trace in samples:
        assert trace.claims
        found = extract(trace)
        assert (found.claims, found.unlinked) == ((), ())


def test_the_data_card_counts_what_is_in_the_files(samples: list[Trace]) -> None:
    card = (data_folder() / "README.md").read_text(encoding="utf-8")
    rows = {cells[0]: cells[1:] for cells in map(_cells, card.splitlines()) if cells}
    for path in FILES:
        mine = [decode(line) for line in path.read_bytes().splitlines()]
        n_events, n_claims = sum(len(t.events) for t in mine), sum(len(t.claims) for t in mine)
        assert mine[0].groups.task == rows[path.name][0]
        assert rows[path.name][1:] == _numbers(len(mine), _n_passed(mine), n_events, n_claims, path.stat().st_size)
    for name, team in TEAMS.items():
        mine = _of(samples, name)
        shown = " in ".join(STYLES[name]) if name in STYLES else "–"
        rate = f"{_n_passed(mine) / len(mine):.0%}"
        assert rows[name] == [team.about, *_numbers(len(mine), _n_passed(mine)), rate, shown]
    assert f"seed {SAMPLE_SEED}" in card
    assert re.search(rf"\b{len(samples)} runs\b", card)


def _n_passed(traces: list[Trace]) -> int:
    return sum(bool(trace.outcome.passed) for trace in traces)


def _cells(line: str) -> list[str]:
    return [cell.strip().strip("`") for cell in line.strip("|").split("|")] if line.startswith("|") else []


def _numbers(*counts: int) -> list[str]:
    return [f"{count:,}" for count in counts]
