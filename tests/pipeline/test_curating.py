"""Data sets in a workspace: what the frame holds, what is stored, what people decided and what a data set keeps alive."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from analysis.curation.policy import Policy, policy_of
from analysis.errors import PolicyError, UnknownNameError
from analysis.model import Agent, Claim, Event, Label, Outcome, Relation, Source, Task, Trace
from analysis.pipeline import analyse, import_paths
from analysis.pipeline.curating import (
    TABLES,
    curate_workspace,
    dataset_head,
    dataset_names,
    preview,
    remove_dataset,
    store_review,
)
from analysis.pipeline.curation_frame import frame_of, scope
from analysis.pipeline.curation_parts import parts_of, ties_of
from analysis.workspace import SCHEMAS, Snapshot, Workspace
from tests.pipeline.corpus import contents, write_traces

STRICT = policy_of({"gates": [{"gate": "coherence", "max_quantile": 0.4, "above": "mask"}], "segments": {"ambiguous": "repair"}})
PER_TRACE = ("quality", "claims", "residuals")
PLAN = "counterpoint:plan-00"


def team(name: str, quotes: dict[str, float], *relations: str, world: Any = "recorded", **fields: Any) -> Trace:
    """A run in which each component quotes the proposition of its own name."""
    claims = [Claim(claim_id=who, component=who, proposition=who, p=p) for who, p in quotes.items()]
    return Trace(
        trace_id=f"counterpoint:{name}", world=world, source=Source(format="counterpoint"), task=Task(task_id=name),
        agents=tuple([Agent(agent_id=who, component=who) for who in quotes]),
        events=tuple([Event(event_id=w, kind="act", action="model_call", agent_id=w, order=n) for n, w in enumerate(quotes)]),
        claims=tuple(claims), relations=tuple([Relation(relation_id=text, formula=text) for text in relations]), **fields,
    )  # fmt: skip


def loaded(folder: Path, traces: Iterable[Trace]) -> Workspace:
    workspace = Workspace(folder / "w", create=True)
    import_paths(workspace, [write_traces(folder / "runs.jsonl", traces)])
    analyse(workspace, only=PER_TRACE)
    return workspace


def rows_of(workspace: Workspace, policy: Policy = STRICT) -> dict[str, dict[str, Any]]:
    """The frame by the name of the run."""
    snapshot = Snapshot(workspace)
    rows = frame_of(snapshot, policy, scope(snapshot, policy)).to_dict("records")
    return {row["trace_id"].removeprefix("counterpoint:"): row for row in rows}


def outcomes(workspace: Workspace, name: str) -> dict[str, str]:
    rows = Snapshot(workspace).sql("select trace_id, outcome from dataset_rows where dataset = $n", {"n": name})
    return dict(zip(*rows.to_pydict().values(), strict=True))


def added(workspace: Workspace, table: str, rows: list[dict[str, Any]]) -> None:
    workspace.append(table, pa.Table.from_pylist(rows, schema=SCHEMAS[table]))


@pytest.fixture
def store(failing: Path, tmp_path: Path) -> Workspace:
    shutil.copytree(failing, tmp_path / "w")
    return Workspace(tmp_path / "w")


# --- what the frame holds


def test_sharpness_sees_hedging_that_one_half_does_not_show(tmp_path: Path) -> None:
    """A third each of three exclusive outcomes says no more than the relation does; 0.9 and 0.1 of a negation do."""
    third = dict.fromkeys("abc", 1 / 3)
    workspace = loaded(tmp_path, [
        team("thirds", third, "exactly_one(a, b, c)"), team("sharp", {"a": 0.9, "b": 0.1}, "exactly_one(a, b)"),
        team("halves", {"a": 0.5, "b": 0.5}, "exactly_one(a, b)"), team("loose", {"a": 0.5, "b": 0.7}),
    ])  # fmt: skip
    rows = rows_of(workspace)
    assert [round(rows[name]["sharpness"], 6) for name in ("thirds", "sharp", "halves")] == [0, 0.4, 0]
    assert {name: row["is_tied"] for name, row in rows.items()} == {"thirds": True, "sharp": True, "halves": True, "loose": False}
    found = preview(Snapshot(workspace), policy_of({"gates": [{"gate": "hedging"}]}))
    assert dict(zip(found.rows["trace_id"].str[13:], found.rows["outcome"], strict=True)) == {
        "halves": "dropped", "loose": "kept", "sharp": "kept", "thirds": "dropped"
    }  # fmt: skip


def test_the_level_that_ties_the_others_speaks_for_a_trace_unless_the_policy_names_one(tmp_path: Path) -> None:
    claims = [Claim(claim_id=f"{who}{level}", component=who, proposition=p, p=q, level=level) for who, p, q, level in (
        ("a", "x", 0.9, "component"), ("b", "y", 0.1, "component"), ("a", "x", 0.2, "final"))]  # fmt: skip
    trace = msgspec.structs.replace(team("t", {"a": 0.1, "b": 0.1}, "iff(x, y)"), claims=tuple(claims))
    workspace = loaded(tmp_path, [trace])
    level = Snapshot(workspace).sql("select level, residual from residuals where is_last").to_pylist()
    residual = {row["level"]: row["residual"] for row in level}
    assert rows_of(workspace)["t"]["residual"] == residual["team"]
    named = policy_of({"gates": [{"gate": "coherence", "max": 0.1, "level": "component"}]})
    assert rows_of(workspace, named)["t"]["residual"] == residual["component"] != residual["team"]


def test_annotators_who_blame_the_same_agent_agree(tmp_path: Path) -> None:
    def blamed(*labels: tuple[str, str, bool | None]) -> tuple[Label, ...]:
        return tuple([Label(annotator=who, name="mistake", agent_id=agent, is_root_cause=root) for who, agent, root in labels])

    workspace = loaded(tmp_path, [
        team("same", {"a": 0.5}, labels=blamed(("eve", "a", None), ("bob", "A", True), ("bob", "b", False))),
        team("other", {"a": 0.5}, labels=blamed(("eve", "a", None), ("bob", "b", None))),
        team("one", {"a": 0.5}, labels=blamed(("eve", "a", None))),
    ])  # fmt: skip
    rows = rows_of(workspace, policy_of({"gates": [{"gate": "labels"}]}))
    assert (rows["same"]["agreement"], rows["other"]["agreement"], rows["one"]["agreement"] >= 0) == (1.0, 0.0, False)


def test_credit_is_confirmed_and_turned_so_that_more_is_better(store: Workspace) -> None:
    effect = {
        "study": "s",
        "trace_id": PLAN,
        "event_id": "e0",
        "operator": "o",
        "parameters": "{}",
        "n": 16,
        "evidence": "interventional",
    }
    rows = [
        {"metric": "passed", "seed_block": "screen", "confirmed": True, "credit": 0.9},
        {"metric": "passed", "seed_block": "confirm", "confirmed": True, "credit": 0.4},
        {"metric": "passed", "seed_block": "confirm", "confirmed": False, "credit": -0.9},
        {"metric": "tokens", "seed_block": "confirm", "confirmed": True, "credit": 30.0},
        {"metric": "tokens", "seed_block": "confirm", "confirmed": True, "credit": -99.0, "evidence": "simulated"},
        {"metric": "passed", "seed_block": "confirm", "confirmed": True, "credit": 9.0, "study": "unsound"},
    ]
    added(store, "effects", [{**effect, **row, "delta_q": -row["credit"]} for row in rows])
    added(store, "effect_runs", [{"study": "s", "is_sound": True}, {"study": "unsound", "is_sound": False}])
    row = rows_of(store, policy_of({"gates": [{"gate": "credit"}, {"gate": "credit", "metric": "tokens"}]}))["plan-00"]
    assert (row["credit passed (interventional)"], row["credit tokens (interventional)"]) == (0.4, -30.0)
    policy = policy_of({"segments": {"metric": "passed"}})
    parts = parts_of(Snapshot(store), policy, scope(Snapshot(store), policy))[PLAN]
    assert sorted(credit.credit for credit in parts.credits) == [-0.9, 0.4]  # none of the study whose controls failed


def test_parts_and_ties_are_those_of_the_traces_that_are_taken(store: Workspace) -> None:
    policy = policy_of({"sources": {"filter": "plan-0"}, **{"segments": {"share": "energy"}}})
    snapshot = Snapshot(store)
    taken = scope(snapshot, policy)
    parts = parts_of(snapshot, policy, taken)
    assert (
        sorted(parts)
        == [f"counterpoint:plan-{n:02d}" for n in range(10)]
        == sorted({tie.trace_id for tie in ties_of(snapshot, taken)})
    )
    assert dict(parts[PLAN].n_events) == {"coder": 1, "planner": 2, "tester": 1}
    energy = snapshot.sql("select component, energy from attribution where trace_id = $id and is_last", {"id": PLAN}).to_pylist()
    assert dict(parts[PLAN].shares) == {row["component"]: row["energy"] for row in energy}
    stored = snapshot.sql("select minimal_repairs from residuals where trace_id = $id and is_last", {"id": PLAN})
    assert [list(repair.components) for repair in parts[PLAN].repairs or ()] == [
        repair["components"] for repair in msgspec.json.decode(stored["minimal_repairs"][0].as_py())
    ]


# --- policies that do not fit the data


def test_several_worlds_are_never_mixed_silently(tmp_path: Path) -> None:
    workspace = loaded(tmp_path, [team("a", {"x": 0.5}, world="live"), team("b", {"x": 0.5}), team("c", {"x": 0.5})])
    with pytest.raises(
        PolicyError, match=r'several worlds.*live \(1 traces\), recorded \(2 traces\).*write worlds = \["recorded"\] at the top'
    ):
        curate_workspace(workspace, Policy(), name="d")
    assert curate_workspace(workspace, policy_of({"worlds": ["live"]}), name="d")["counts"]["input"] == 1
    assert curate_workspace(workspace, policy_of({"worlds": ["live", "recorded"]}), name="d")["counts"]["input"] == 3
    assert curate_workspace(workspace, policy_of({"sources": {"filter": "world:live"}}), name="d")["counts"]["input"] == 1


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"worlds": ["live"]}, "policy: worlds: no trace of the sources is of this world (got live, expected recorded)"),
        ({"sources": {"formats": ["nope"]}},
         "policy: sources.formats: no trace has this format (got nope, expected counterpoint)"),
        ({"gates": [{"gate": "measure", "name": "q_wrok", "min": 0}]},
         "no metric has this name (got q_wrok) - did you mean q_work?"),
        ({"curriculum": {"stages": ["warmup"]}},
         "policy: curriculum: no task has a stage or a difficulty yet - run `counterpoint curriculum`"),
        ({"order": {"score": "joint"}}, "policy: order.score joint: no task has a stage or a difficulty yet"),
        ({"curriculum": {"model": "m9"}},
         "policy: curriculum.model: nothing is known of this model or condition (got m9, expected none is known)"),
        ({"gates": [{"gate": "credit", "metric": "depth"}]}, "neither more nor less of this metric is better (got depth, "
         "expected one of passed, "),
        ({"gates": [{"gate": "credit", "metric": "pased"}]}, "did you mean passed?"),
        ({"sources": {"formats": ["counterpont"]}}, "did you mean counterpoint?"),
    ],
)  # fmt: skip
def test_a_policy_that_does_not_fit_the_data_says_what_to_change(store: Workspace, values: dict[str, Any], sentence: str) -> None:
    store.commit(store.head(), {"difficulty": []})
    with pytest.raises(PolicyError) as error:
        preview(Snapshot(store), policy_of(values))
    assert sentence in str(error.value)


def test_stages_come_from_the_difficulties_of_the_model_that_is_named(store: Workspace) -> None:
    store.commit(store.head(), {"difficulty": []})
    rows = [{"task_id": "plan-00", "model": model, "stage": stage, "d_req": 0.2, "d_orch": 0.3, "joint": 0.25}
            for model, stage in (("m1", "warmup"), ("m2", "integrated"))]  # fmt: skip
    added(store, "difficulty", rows)
    wanted = {"curriculum": {"stages": ["warmup"]}}
    with pytest.raises(PolicyError, match=r"several models or conditions have difficulties \(got m1, m2\) - name one"):
        curate_workspace(store, policy_of(wanted), name="d")
    curate_workspace(store, policy_of({"curriculum": {"model": "m1", "stages": ["warmup"]}}), name="d")
    assert {name for name, outcome in outcomes(store, "d").items() if outcome == "kept"} == {PLAN}
    stored = Snapshot(store).sql("select stage from dataset_rows where trace_id = $id", {"id": PLAN})
    assert stored["stage"].to_pylist() == ["warmup"]


# --- what is stored


def test_the_tables_say_what_became_of_each_trace(store: Workspace) -> None:
    before = contents(store, ["texts", "events", "claims"])
    report = curate_workspace(store, STRICT, name="strict")
    snapshot = Snapshot(store)
    (stored,) = snapshot.sql("select * from datasets").to_pylist()
    counts = report["counts"]
    assert {name: stored[f"n_{name}"] for name in counts} == counts
    assert (stored["policy"], stored["policy_digest"], stored["data_version"]) == (
        STRICT.toml,
        STRICT.digest,
        store.head().data_version,
    )
    assert msgspec.json.decode(stored["report"])["gist"] == report["gist"]
    totals = snapshot.sql("select outcome, count(*) as n from dataset_rows group by outcome").to_pydict()
    assert dict(zip(totals["outcome"], totals["n"], strict=True)) == {k: n for k, n in counts.items() if n and k != "input"}
    masks = snapshot.sql("select distinct trace_id from dataset_segments where not keep")
    assert set(masks["trace_id"].to_pylist()) == {
        name for name, outcome in outcomes(store, "strict").items() if outcome == "masked"
    }
    kept = snapshot.sql(
        "select position, weight from dataset_rows where outcome in ('kept', 'masked') order by position"
    ).to_pydict()
    assert kept["position"] == list(range(counts["kept"] + counts["masked"]))
    assert sum(kept["weight"]) == pytest.approx(len(kept["weight"]), abs=1e-6)
    assert contents(store, ["texts", "events", "claims"]) == before  # masks change no text


def test_the_same_policy_and_data_give_the_same_files_and_other_data_sets_stay(store: Workspace) -> None:
    def files() -> dict[str, bytes]:
        head = store.head()
        return {t: b"".join(Path(path).read_bytes() for path in store.paths(head.tables.get(t, ()))) for t in TABLES}

    curate_workspace(store, STRICT, name="one")
    first = files()
    curate_workspace(store, STRICT, name="one")
    assert files() == first
    curate_workspace(store, Policy(), name="two")
    curate_workspace(store, Policy(seed=3), name="two")
    assert (dataset_names(Snapshot(store)), len(outcomes(store, "one"))) == (["one", "two"], 42)
    remove_dataset(store, "two")
    assert files() == first
    with pytest.raises(PolicyError, match=r"no data set has this name \(got two\)"):
        remove_dataset(store, "two")


def test_nothing_never_replaces_a_data_set(store: Workspace) -> None:
    curate_workspace(store, Policy(), name="good")
    nothing = policy_of({"gates": [{"gate": "outcome", "unknown": "drop"}]})
    assert "Nothing stays of 42 traces" in curate_workspace(store, nothing, name="good")["gist"]
    assert len(outcomes(store, "good")) == 42
    with pytest.raises(PolicyError, match="this is no name of a data set"):
        curate_workspace(store, Policy(), name="../x")


def test_the_version_of_a_data_set_outlives_a_vacuum_until_it_is_removed(store: Workspace) -> None:
    number = store.head().number
    curate_workspace(store, Policy(), name="kept")
    events = store.head_at(number).tables["events"]
    added(store, "events", [{"trace_id": "x"}])
    whole = store.write("events", store.read(store.head().tables["events"]))
    store.commit(store.head(), {"events": [whole]})
    for _ in range(25):
        store.commit(store.head(), {})
    store.vacuum(grace_s=0)
    assert dataset_head(store, "kept").number == number
    assert store.read(events).num_rows > 0
    remove_dataset(store, "kept")
    store.vacuum(grace_s=0)
    assert not any(Path(path).exists() for path in store.paths(events))
    with pytest.raises(
        PolicyError, match=r"no data set has this name \(got kept, expected none: `counterpoint curate` makes one\)"
    ):
        dataset_head(store, "kept")


# --- what people decided


def test_a_review_outlives_other_curations_and_an_analysis(store: Workspace, tmp_path: Path) -> None:
    drops = policy_of({"gates": [{"gate": "outcome"}]})
    store_review(store, "plan-00", "keep", author="eve", note="a good failure")
    store_review(store, "plan-01", "keep", author="eve")
    store_review(store, "plan-01", "edit", author="bob", mask=["coder"])
    for _ in range(2):
        curate_workspace(store, drops, name="d")
        found = {name: outcome for name, outcome in outcomes(store, "d").items() if outcome != "dropped"}
        assert found == {PLAN: "kept", "counterpoint:plan-01": "masked"}
        import_paths(store, [write_traces(tmp_path / "more.jsonl", [team("more", {"a": 0.5}, outcome=Outcome(passed=False))])])
        analyse(store, only=PER_TRACE)
    said = Snapshot(store).sql("select reason from funnel where gate = 'review' order by trace_id")["reason"].to_pylist()
    assert said[0].startswith("kept by eve at 20")
    assert said[0].endswith(": a good failure")
    assert said[1].startswith("edited by bob at 20")
    masked = Snapshot(store).sql("select component from dataset_segments where not keep")["component"].to_pylist()
    assert masked == ["coder"]


def test_a_review_that_says_nothing_clear_is_refused(store: Workspace) -> None:
    with pytest.raises(PolicyError, match=r"no such component .*got nobody, expected coder, planner, tester"):
        store_review(store, PLAN, "edit", author="eve", mask=["nobody"])
    with pytest.raises(PolicyError, match="an edit, and nothing else, names the components that are masked"):
        store_review(store, PLAN, "edit", author="eve")
    with pytest.raises(PolicyError, match="a review says keep, drop or edit, not maybe"):
        store_review(store, PLAN, "maybe", author="eve")
    with pytest.raises(UnknownNameError, match="no trace has this id"):
        store_review(store, "nope", "keep", author="eve")


def test_a_preview_draws_the_same_traces_again_and_stores_nothing(store: Workspace) -> None:
    number = store.head().number
    one, again = (preview(Snapshot(store), STRICT, 10) for _ in range(2))
    assert one.report == again.report
    assert (one.report["counts"]["input"], store.head().number) == (10, number)
