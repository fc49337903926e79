"""Team files: what a wrong one says, and that the ready ones do what their names promise."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from analysis.counterfactual.judging import Judge
from analysis.counterfactual.runs import jobs_of, recipes, run_job
from analysis.counterfactual.teams import Team, find_team, read_team, ready_teams
from analysis.errors import TeamError, UnknownNameError
from analysis.model import Trace
from analysis.orchestration.cost import baselines
from analysis.orchestration.findings import findings
from tests.counterfactual.players import planned, task_of, team

TEAMS = ready_teams()
GOOD = {"single", "best-of-three", "hierarchical", "parallel"}
BAD = {
    "chatty", "dominant-agent", "echoing-verifier", "late-aggregation", "overconfident-planner", "pseudo-parallelism",
    "serial-collapse", "stops-too-early",
}  # fmt: skip
#: Team -> the finding that its style is, and in which share of its runs it must be found.
STYLES = {
    "chatty": ("over-communication", 1.0),
    "dominant-agent": ("dominant agent", 1.0),
    "echoing-verifier": ("verifier echo", 1.0),
    "overconfident-planner": ("claimed success on failure", 0.5),
    "pseudo-parallelism": ("pseudo-parallelism", 1.0),
    "serial-collapse": ("serial collapse", 0.9),
    "stops-too-early": ("stopped too early", 0.5),
}


@pytest.fixture(scope="module")
def traces(judge: Judge) -> dict[str, list[Trace]]:
    """Runs of all ready teams, by team."""
    tasks = [recipe for shape in ("fan-4", "diamond") for recipe in recipes(shape, 1, seed=7)]
    found: dict[str, list[Trace]] = {}
    for job in jobs_of(tasks, list(TEAMS.values()), n_trials=3, seed=7):
        found.setdefault(job.team.name, []).append(run_job(job, judge))
    return found


def test_the_ready_teams_are_these() -> None:
    assert {name for name, team in TEAMS.items() if team.is_good} == GOOD
    assert {name for name, team in TEAMS.items() if not team.is_good} == BAD
    assert all(team.about.endswith(".") for team in TEAMS.values())


@pytest.mark.parametrize("name", STYLES)
def test_a_planted_style_is_found(name: str, traces: dict[str, list[Trace]]) -> None:
    finding, share = STYLES[name]
    n_found = sum(finding in {found.name for found in findings(trace)} for trace in traces[name])
    assert n_found >= share * len(traces[name])


@pytest.mark.parametrize("name", sorted(GOOD))
def test_well_led_teams_show_none_of_the_styles(name: str, traces: dict[str, list[Trace]]) -> None:
    styles = {finding for finding, _ in STYLES.values()}
    counts = Counter(found.name for trace in traces[name] for found in findings(trace) if found.name in styles)
    assert sum(counts.values()) <= 0.2 * len(traces[name]), counts


def test_well_led_teams_pass_more_often(traces: dict[str, list[Trace]]) -> None:
    def share(names: set[str]) -> float:
        outcomes = [bool(trace.outcome.passed) for name in names for trace in traces[name]]
        return sum(outcomes) / len(outcomes)

    assert share(GOOD - {"single"}) > share(BAD) + 0.3


def test_the_single_agent_is_the_baseline_of_every_task(traces: dict[str, list[Trace]]) -> None:
    every = [trace for runs in traces.values() for trace in runs]
    found = baselines(every)
    assert found.keys() == {("simulated", trace.groups.task) for trace in every}
    assert {baseline.n_runs for baseline in found.values()} == {3}


def test_results_that_lie_about_cost_their_time(traces: dict[str, list[Trace]]) -> None:
    for trace in traces["late-aggregation"]:
        merge = next(event for event in trace.events if event.kind == "aggregate")
        reports = [event.t_end_s or 0.0 for event in trace.events if event.action == "return"]
        assert (merge.t_start_s or 0.0) == pytest.approx(max(reports) + 60)


def test_workers_are_spread_asked_for_or_one_does_all() -> None:
    task = task_of("fan-8")

    def given(crew: Team) -> Counter[str]:
        plan = planned(crew, task)
        return Counter(plan.actor(step.to) for step in plan.steps if step.step_id.startswith("give:"))  # type: ignore[union-attr]

    assert given(team(n_workers=4)) == dict.fromkeys([f"coder-{n}" for n in range(1, 5)], 2)
    assert given(team(n_workers=4, assignment="one")) == {"coder-1": 8}
    asked = given(team({"planner": {"favours": 1.0}}, n_workers=4, assignment="asked"))
    assert asked == {"coder-1": 8}
    assert len(given(team(n_workers=4, assignment="asked"))) > 1


GOOD_FILE = """about = "x"
[components.planner]
[components.coder]
"""
ALONE = """about = "x"
[components.planner]
"""
LIVE = """[live.coder]
base_url = "http://h/v1"
model = "m"
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("about = ", r"odd.toml: not a TOML file"),
        ("[components.planner]", "odd.toml: the file: a field does not have its shape .*missing required field `about`"),
        (f"layuot = 'x'\n{GOOD_FILE}", "odd.toml: the file: .*unknown field `layuot`"),
        (f"layout = 'ring'\n{GOOD_FILE}", r"odd.toml: layout: .*Invalid enum value 'ring'"),
        (f"n_workers = 0\n{GOOD_FILE}", r"odd.toml: n_workers: .*>= 1"),
        (f"{GOOD_FILE}competence = 1.5", r"odd.toml: components\[...\].competence: .*<= 1.0"),
        (f"{GOOD_FILE}effects = {{ luck = 1 }}", r"odd.toml: components.coder.effects: no such entry \(got luck, expected diff"),
        (f"{GOOD_FILE}splits = {{ nonsense = 1 }}", r"odd.toml: components.coder.splits: no such entry \(got nonsense"),
        (f"{GOOD_FILE}splits = {{ 'same part' = 0.7, 'missing part' = 0.7 }}", "coder.splits: the chances add up to more than 1"),
        ("about = 'x'\n[components.planner]", "odd.toml: components.coder: a component that takes part is not described"),
        (f"{GOOD_FILE}[components.critic]", r"components.critic: no such component takes part \(expected planner, coder\)"),
        (f"n_repairs = 1\n{GOOD_FILE}", r"n_repairs: nothing is repaired where nothing is verified \(expected a verifier\)"),
        (f"stop = 'asked'\n{GOOD_FILE}", "stop: the lead is asked after checks, and there are none"),
        (f"durations_s = {{ lunch = 1 }}\n{GOOD_FILE}", r"durations_s: no such entry \(got lunch, expected spawn, delegate,"),
        (f"name = 'Big Team'\n{GOOD_FILE}", "odd.toml: name: a field does not have its shape"),
        (f"{ALONE}[live.coder]\nmodel = 'm'", r"odd.toml: live\[...\]: .*missing required field `base_url`"),
        (f"{ALONE}{LIVE}key = 'sk-1'", r"odd.toml: live\[...\]: .*unknown field `key`"),
        (f"{ALONE}{LIVE}n_tries = 0", r"odd.toml: live\[...\].n_tries: .*>= 1"),
        (f"{GOOD_FILE}{LIVE}", "odd.toml: live.coder: a component that is live is nothing else - take it out of `components`"),
        (
            f"{ALONE}{LIVE}{LIVE.replace('coder', 'critic')}",
            r"odd.toml: live.critic: no such component takes part \(expected planner, c",
        ),
        (
            f"{ALONE}{LIVE.replace('//', '//me:pw@')}",
            r"odd.toml: live.coder.base_url: not the address of an endpoint \(expected http",
        ),
        (f"{ALONE}{LIVE.replace('http://h', 'file:///etc/passwd')}", "odd.toml: live.coder.base_url: not the address"),
        (
            f"{ALONE}[trained]\ncoder = 'gone.json'",
            r"odd.toml: trained.coder: .*gone.json: the file cannot be read \(got No such",
        ),
        (f"{ALONE}[trained]\ncoder = 'odd.toml'", r"odd.toml: trained.coder: .*odd.toml: not a policy"),
        (f"{ALONE}[trained]\ncoder = 3", r"odd.toml: trained\[...\]: a field does not have its shape"),
        (f"{GOOD_FILE}[trained]\ncritic = {{ purposes = ['stop'] }}", "odd.toml: trained.critic: no such component takes part"),
        (
            f"{ALONE}{LIVE}[trained]\ncoder = {{ purposes = ['write'] }}",
            "odd.toml: live.coder: a component that is live is nothing",
        ),
    ],
)
def test_a_wrong_team_file_names_the_file_and_the_field(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.toml"
    path.write_text(text)
    with pytest.raises(TeamError, match=words):
        read_team(path)


def test_a_file_is_named_after_its_team_and_a_missing_one_is_said_to_be(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD_FILE)
    assert find_team(str(path)).name == "mine"
    with pytest.raises(TeamError, match=r"gone.toml: the file cannot be read \(got No such file"):
        find_team(str(tmp_path / "gone.toml"))
    with pytest.raises(UnknownNameError, match=r"no such team \(got parralel, expected a file, or single"):
        find_team("parralel")
