"""Failure modes: what a profile holds, when modes are named and when refused, how they outlive a run and leave a workspace."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.coherence.modes import (
    Modes,
    apply_decisions,
    breakdown,
    carry_over,
    find_modes,
    orchestration_profiles,
    residual_profiles,
)
from analysis.coherence.modes.categories import role_of, stop_reason
from analysis.coherence.modes.decisions import Decision, read_decisions
from analysis.coherence.modes.library import library_of, load, match, save, transfer
from analysis.coherence.modes.naming import TopCell, in_words, name_of
from analysis.coherence.modes.partition import adjusted_rand, k_means, nearest, shuffled, stabilities
from analysis.coherence.modes.profiles import Profiles
from analysis.errors import CounterpointError, UnknownNameError

PAIRS = ("planner–worker", "verifier–worker", "worker–worker", "aggregator–worker")
CELLS = tuple(sorted(f"{kind} | {pair} | {phase}" for kind in ("iff", "xor") for pair in PAIRS for phase in ("early", "late")))


def planted(n: int, seed: int, *, k: int = 4, first: int = 0, prefix: str = "t") -> tuple[Profiles, np.ndarray]:
    """Profiles around k templates, each with most of its mass in two cells of its own; `first` is where those begin."""
    rng = np.random.default_rng(seed)
    templates = np.full((k, len(CELLS)), 0.1)
    for mode in range(k):
        templates[mode, (first + 2 * mode) % len(CELLS)] = 6
        templates[mode, (first + 2 * mode + 1) % len(CELLS)] = 4
    truth = rng.integers(k, size=n)
    matrix = np.stack([rng.dirichlet(templates[mode]) for mode in truth]).astype(np.float32)
    return Profiles(tuple(f"{prefix}{i:04d}" for i in range(n)), CELLS, matrix, "residual"), truth


def structureless(n: int, seed: int) -> Profiles:
    matrix = np.random.default_rng(seed).dirichlet(np.full(len(CELLS), 0.25), n).astype(np.float32)
    return Profiles(tuple(f"t{i:04d}" for i in range(n)), CELLS, matrix, "residual")


def found(profiles: Profiles, seed: int = 0) -> Modes:
    return find_modes(profiles, rng=np.random.default_rng(seed))


def as_bytes(modes: Modes) -> bytes:
    rows = modes.members.to_csv(index=False)
    facts = (modes.refusal, modes.stability, modes.null_stability, modes.spread_left, modes.by_k, modes.agreement)
    return msgspec.json.encode((modes.modes, rows, facts))


def labels_of(modes: Modes) -> np.ndarray:
    return modes.members["mode_id"].to_numpy(dtype=str)


EARLY = {"trace_id": "t", "level": "component", "turn_phase": "early"}
LATE = {"trace_id": "t", "level": "final", "turn_phase": "late"}


def test_a_hand_computed_residual_profile() -> None:
    """ε*² is 0.09 early and 0.16 late. Early: drops 2 : 1, energies 2 : 1, so pairs 4 : 2 : 1. Late: no drops, two violated."""
    violations = pd.DataFrame([
        EARLY | {"kind": "implies", "drop": 0.06, "is_violated": True, "residual": 0.3},
        EARLY | {"kind": "iff", "drop": 0.03, "is_violated": True, "residual": 0.3},
        LATE | {"kind": "equal", "drop": 0.0, "is_violated": True, "residual": 0.4},
        LATE | {"kind": "xor", "drop": 0.0, "is_violated": True, "residual": 0.4},
        LATE | {"kind": "or", "drop": 0.0, "is_violated": False, "residual": 0.4},
    ])  # fmt: skip
    attribution = pd.DataFrame([
        EARLY | {"component": "planner", "energy": 0.06},
        EARLY | {"component": "coder", "energy": 0.03},
        LATE | {"component": "critic", "energy": 0.16},
        LATE | {"component": "planner", "energy": 0.0},
    ])  # fmt: skip
    profiles = residual_profiles(violations, attribution)
    assert (profiles.trace_ids, profiles.source) == (("t",), "residual")
    assert dict(zip(profiles.cells, profiles.matrix[0], strict=True)) == pytest.approx({
        "implies | planner alone | early": 0.36 * 2 / 3 * 4 / 7,
        "implies | planner–worker | early": 0.36 * 2 / 3 * 2 / 7,
        "implies | worker alone | early": 0.36 * 2 / 3 * 1 / 7,
        "iff | planner alone | early": 0.36 / 3 * 4 / 7,
        "iff | planner–worker | early": 0.36 / 3 * 2 / 7,
        "iff | worker alone | early": 0.36 / 3 * 1 / 7,
        "equal | verifier alone | late": 0.32,
        "xor | verifier alone | late": 0.32,
    }, abs=1e-6)  # fmt: skip


def test_a_relation_is_shared_by_those_who_quote_it_where_that_is_known() -> None:
    rows = [EARLY | {"kind": "iff", "drop": 0.04, "is_violated": True, "residual": 0.2, "components": ["planner", "judge"]}]
    energies = {"planner": 0.02, "coder": 0.02, "judge": 0.0}
    attribution = pd.DataFrame([EARLY | {"component": name, "energy": energy} for name, energy in energies.items()])
    profiles = residual_profiles(pd.DataFrame(rows), attribution)
    assert dict(zip(profiles.cells, profiles.matrix[0].tolist(), strict=True)) == {"iff | planner alone | early": 1.0}


def test_what_nobody_is_attributed_to_is_said_so_and_coherent_traces_have_no_profile() -> None:
    row = {"kind": "a | b", "drop": 0.01, "is_violated": True, "residual": 0.1}
    calm = EARLY | row | {"trace_id": "calm", "drop": 0.0, "is_violated": False, "residual": 0.0}
    nobody = pd.DataFrame(
        {name: pd.Series(dtype=str) for name in ("trace_id", "level", "turn_phase", "component")} | {"energy": []}
    )
    profiles = residual_profiles(pd.DataFrame([EARLY | row, calm]), nobody)
    assert (profiles.trace_ids, profiles.cells) == (("t",), ("a | b | not attributed | early",))


@settings(max_examples=25)
@given(st.lists(st.tuples(st.sampled_from("tuv"), st.sampled_from("kl"), st.floats(0, 1), st.booleans()), max_size=12))
def test_residual_profiles_sum_to_one_and_do_not_depend_on_the_order_of_rows(rows: list[tuple[str, str, float, bool]]) -> None:
    violations = pd.DataFrame(
        [(t, "final", "late", kind, drop, bad, 0.5) for t, kind, drop, bad in rows],
        columns=["trace_id", "level", "turn_phase", "kind", "drop", "is_violated", "residual"],
    )
    attribution = pd.DataFrame(
        [
            (t, "final", "late", name, energy)
            for t in "tuv"
            for name, energy in (("planner", 0.1), ("tester", 0.2), ("coder", 0.3))
        ],
        columns=["trace_id", "level", "turn_phase", "component", "energy"],
    )
    one = residual_profiles(violations, attribution)
    assert one.matrix.sum(axis=1) == pytest.approx(np.ones(len(one.trace_ids)), abs=1e-5)
    other = residual_profiles(violations.iloc[::-1], attribution.iloc[::-1])
    assert (one.trace_ids, one.cells) == (other.trace_ids, other.cells)
    assert one.matrix == pytest.approx(other.matrix, abs=1e-6)


def orchestration_frames() -> dict[str, pd.DataFrame]:
    """a failed; b passed with a low q_work; c passed and is good; d has no known outcome and no known Q."""
    return {
        "findings": pd.DataFrame({"trace_id": ["a", "a", "a", "c"], "name": ["retry storm"] * 2 + ["stuck call", "echo"]}),
        "endings": pd.DataFrame({
            "trace_id": list("abcd"), "passed": [False, True, True, None],
            "condition": ["max rounds", None, "done", None], "final_state": [None] * 4,
        }),
        "components": pd.DataFrame({
            "trace_id": ["a", "a", "b"], "component": ["Planner", "terminal", "coder"],
            "n_errors": [0, 3, 0], "critical_share": [0.25, 0.75, 1.0],
        }),
        "metrics": pd.DataFrame({
            "trace_id": ["a", "a", "b", "c", "b"], "name": ["q_work", "q_split", "q_work", "q_work", "tokens"],
            "value": [0.5, 1.0, 0.2, 0.9, 9000.0],
        }),
        "labels": pd.DataFrame({
            "trace_id": ["a", "a", "c"], "category": ["drift", "guess", "drift"], "is_root_cause": [True, False, None],
        }),
    }  # fmt: skip


def test_a_hand_computed_orchestration_profile() -> None:
    profiles = orchestration_profiles(**orchestration_frames())
    assert (profiles.trace_ids, profiles.source) == (("a", "b"), "orchestration")
    rows = [
        {cell: round(float(value), 6) for cell, value in zip(profiles.cells, row, strict=True) if value}
        for row in profiles.matrix
    ]
    assert rows[0] == pytest.approx({
        "anti-pattern | retry storm": 1 / 12, "anti-pattern | stuck call": 1 / 12, "stop | limit reached": 1 / 6,
        "errors | tool": 1 / 6, "critical path | planner": 1 / 24, "critical path | tool": 3 / 24,
        "deficit | q_work": 1 / 24, "deficit | held": 3 / 24, "label | drift": 1 / 6,
    }, abs=1e-6)  # fmt: skip
    assert rows[1] == pytest.approx({
        "anti-pattern | none found": 1 / 4, "errors | none": 1 / 4, "critical path | worker": 1 / 4,
        "deficit | q_work": 0.2, "deficit | held": 0.05,
    }, abs=1e-6)  # fmt: skip


def test_nothing_failed_is_no_profile_and_a_missing_column_is_named() -> None:
    frames = orchestration_frames()
    empty = orchestration_profiles(**frames | {"endings": frames["endings"][2:3], "metrics": frames["metrics"][:0]})
    assert (empty.trace_ids, empty.matrix.shape) == ((), (0, 0))
    with pytest.raises(
        UnknownNameError, match=r"^endings: a column is missing \(got trace_id, passed, condition, expected final_s"
    ):
        orchestration_profiles(**frames | {"endings": frames["endings"].drop(columns="final_state")})


@pytest.mark.parametrize("seed", range(3))
def test_planted_modes_are_found_without_their_number(seed: int) -> None:
    profiles, truth = planted(400, seed)
    modes = found(profiles, seed)
    assert (modes.refusal, modes.n_modes) == ("", 4)
    assert adjusted_rand(truth, labels_of(modes)) >= 0.97
    assert (modes.stability or 0) >= 0.9 > 0.6 > (modes.null_stability or 1)
    assert (modes.agreement or 0) >= 0.9
    assert all(mode.is_firm for mode in modes.modes)
    assert sum(mode.size for mode in modes.modes) == len(modes.members) == 400
    sizes = modes.members["mode_id"].value_counts()
    assert all(sizes[mode.mode_id] == mode.size for mode in modes.modes)
    nearest_first = modes.members[modes.members["mode_id"] == modes.modes[0].mode_id].sort_values(["distance", "trace_id"])
    assert modes.modes[0].exemplars == tuple(nearest_first["trace_id"][:5])


@pytest.mark.parametrize("seed", range(3))
def test_no_structure_is_refused_and_so_are_shuffled_cells(seed: int) -> None:
    flat = found(structureless(300, seed), seed)
    assert (flat.n_modes, len(flat.members)) == (0, 0)
    assert flat.refusal.startswith("No modes: groups found in one half of the traces do not come back in the other (stability 0.")
    assert "at least 0.6 is needed; with shuffled cells 0." in flat.refusal
    real, _ = planted(400, seed)
    mixed = shuffled(real.matrix, np.random.default_rng(seed)).astype(np.float32)
    assert found(Profiles(real.trace_ids, real.cells, mixed, "residual"), seed).n_modes == 0


def test_one_long_cloud_cut_into_pieces_comes_with_a_caution() -> None:
    rng = np.random.default_rng(0)
    share = rng.uniform(0.05, 0.95, 400)[:, None]
    matrix = np.column_stack([share, (1 - share) * rng.dirichlet(np.full(10, 5), 400)])
    profiles = Profiles(
        tuple(f"t{i:03d}" for i in range(400)), tuple(f"c{i:02d} | user–worker | late" for i in range(11)),
        matrix.astype(np.float32), "residual",
    )  # fmt: skip
    modes = found(profiles)
    assert modes.n_modes > 1
    assert modes.caution.startswith("The second view, by density, agrees little (adjusted Rand index 0.")
    assert found(planted(400, 0)[0]).caution == ""


def test_the_order_of_traces_does_not_matter_and_the_same_seed_gives_the_same_bytes() -> None:
    profiles, _ = planted(200, 1)
    mixed = profiles.take(np.random.default_rng(5).permutation(200))
    assert as_bytes(found(profiles)) == as_bytes(found(profiles)) == as_bytes(found(mixed))


def test_modes_are_learned_from_a_sample_and_all_traces_are_assigned() -> None:
    profiles, truth = planted(2_000, 3)
    modes = find_modes(profiles, rng=np.random.default_rng(0), max_sample=300)
    assert (modes.n_sampled, len(modes.members)) == (300, 2_000)
    assert adjusted_rand(truth, labels_of(modes)) >= 0.97


def test_identical_profiles_are_one_mode() -> None:
    row, _ = planted(1, 0)
    same = Profiles(tuple(f"t{i}" for i in range(30)), row.cells, np.repeat(row.matrix, 30, axis=0), "residual")
    modes = found(same)
    assert (modes.refusal, modes.n_modes, modes.modes[0].size, modes.stability) == ("", 1, 30, None)
    assert modes.members["distance"].max() == pytest.approx(0, abs=1e-6)


def test_profiles_of_one_kind_are_one_mode() -> None:
    profiles, _ = planted(300, 2, k=1)
    modes = found(Profiles(profiles.trace_ids, CELLS, np.float32(0.5) * (profiles.matrix + profiles.matrix[:1]), "residual"))
    assert modes.n_modes == 1


@pytest.mark.parametrize(("n", "said"), [(0, "0 profiles"), (1, "1 profile"), (19, "19 profiles")])
def test_too_few_traces_get_a_sentence(n: int, said: str) -> None:
    modes = found(planted(30, 0)[0].take(range(n)))
    assert (modes.n_modes, modes.refusal) == (0, f"No modes: {said}, and at least 20 are needed.")


def test_a_few_odd_traces_are_no_mode() -> None:
    profiles, _ = planted(300, 0, k=2)
    matrix = profiles.matrix.copy()
    matrix[:3] = 0
    matrix[:3, -1] = 1
    modes = found(Profiles(profiles.trace_ids, CELLS, matrix, "residual"))
    assert modes.n_modes == 2
    assert min(mode.size for mode in modes.modes) > 100


def test_known_boundaries_have_names_and_others_are_named_after_their_cells() -> None:
    def cells(*given: tuple[str, float]) -> list[TopCell]:
        return [TopCell(name, share, 0.1) for name, share in given]

    named = {
        "plan–execution boundary": cells(("implies | planner–worker | early", 0.5), ("implies | planner alone | early", 0.5)),
        "verify–revise drift": cells(("iff | verifier–worker | late", 0.6), ("iff | planner–user | early", 0.4)),
        "shared-state conflict": cells(("shared | user–verifier | early", 0.8)),
        "worker contradicts itself": cells(("xor | worker alone | late", 0.9), ("xor | user–worker | late", 0.1)),
        "a | b between tool–user, middle": cells(("a | b | tool–user | middle", 1.0)),
    }
    assert {name_of(given, "residual") for given in named.values()} == set(named)
    odd = cells(("anti-pattern | none found", 0.3), ("critical path | other", 0.25), ("deficit | q_work", 0.15))
    assert name_of(odd, "orchestration") == "time spent in other components, low q_work"
    assert in_words(odd[:1]) == "30 % anti-pattern, none found (10 % over all)"


def test_two_modes_of_one_name_are_numbered() -> None:
    names = [mode.name for mode in found(planted(400, 0)[0]).modes]
    assert len(set(names)) == len(names)


def test_roles_and_stop_reasons_follow_from_words() -> None:
    roles = {
        "Verification_Expert": "verifier", "WebSurfer": "worker", "Computer_terminal": "tool", "agent12": "worker",
        "EnginePlanner": "planner", "Orchestrator": "aggregator", "main": "aggregator", "maintenance": "other",
        "explanation": "other", "user_proxy": "user", "QA": "verifier", "": "other", "規劃者": "other",
    }  # fmt: skip
    assert {name: role_of(name) for name in roles} == roles
    assert [stop_reason(None, "ok"), stop_reason("nothing submitted"), stop_reason("iteration limit 5", "done")] == [
        "finished", "nothing handed in", "limit reached",
    ]  # fmt: skip


def test_a_mode_is_spread_over_facts_with_intervals() -> None:
    members = pd.DataFrame({"trace_id": list("abcd"), "mode_id": ["m", "m", "m", "n"]})
    facts = pd.DataFrame({"trace_id": list("abc"), "domain": ["coding", "coding", None]})
    table = breakdown(members, facts)
    assert table[["mode_id", "fact", "value", "n", "n_mode"]].to_numpy().tolist() == [
        ["m", "domain", "coding", 2, 3], ["m", "domain", "not known", 1, 3], ["n", "domain", "not known", 1, 1],
    ]  # fmt: skip
    assert table.loc[0, ["share", "low", "high"]].tolist() == pytest.approx([2 / 3, 0.2077, 0.9385], abs=1e-4)


def test_a_library_goes_round_and_recognises_its_own(tmp_path: Path) -> None:
    profiles, _ = planted(400, 0)
    modes = found(profiles)
    library = library_of(modes)
    save(library, tmp_path / "one.json")
    save(load(tmp_path / "one.json"), tmp_path / "two.json")
    assert load(tmp_path / "one.json") == library
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()
    mine = match(modes.profiles, library)
    assert (mine["mode_id"] == modes.members["mode_id"]).all()
    assert mine["distance"].to_numpy() == pytest.approx(modes.members["distance"].to_numpy(), abs=1e-5)
    assert mine["is_match"].mean() == pytest.approx(0.95, abs=0.02)


def test_other_cells_are_laid_beside_the_librarys_by_name() -> None:
    """The library's mode is all mass in cell a. Half of a profile lies in an unknown cell: distance² = (1 - √½)² + ½."""
    matrix = np.zeros((20, 2), np.float32)
    matrix[:, 0] = 1
    known = Profiles(
        tuple(f"t{i:02d}" for i in range(20)), ("a | user alone | late", "b | user alone | late"), matrix, "residual"
    )
    library = library_of(found(known))
    there = Profiles(
        ("x", "y"), ("a | user alone | late", "new | tool alone | late"), np.float32([[0.5, 0.5], [1, 0]]), "residual"
    )
    rows = match(there, library)
    assert rows["distance"].tolist() == pytest.approx([((1 - 0.5**0.5) ** 2 + 0.5) ** 0.5, 0.0], abs=1e-6)
    assert rows["is_match"].tolist() == [False, True]


def test_files_that_are_no_library_are_refused_with_a_reason(tmp_path: Path) -> None:
    save(library_of(found(planted(200, 0)[0])), tmp_path / "good.json")
    good = json.loads((tmp_path / "good.json").read_text("utf-8"))
    broken = {
        "not a mode library .got JSON is malformed": "{]",
        "not a mode library .got Invalid enum value 'counterpoint-modes/9'": json.dumps(
            good | {"format": "counterpoint-modes/9"}
        ),
        "the centre of a mode does not fit the cells": json.dumps(good | {"cells": good["cells"][1:]}),
        "not a mode library .got no modes": json.dumps(good | {"modes": []}),
    }
    for said, text in broken.items():
        (tmp_path / "bad.json").write_text(text, "utf-8")
        with pytest.raises(CounterpointError, match=said):
            load(tmp_path / "bad.json")
    with pytest.raises(CounterpointError, match=r"cannot be read \(got No such file"):
        load(tmp_path / "absent.json")
    with pytest.raises(CounterpointError, match=r"no modes to save \(got No modes: 1 profile, and"):
        library_of(found(planted(1, 0)[0]))
    profiles, _ = planted(5, 0)
    with pytest.raises(UnknownNameError, match=r"made from another source \(got residual, expected orchestration\)$"):
        match(Profiles(profiles.trace_ids, CELLS, profiles.matrix, "orchestration"), load(tmp_path / "good.json"))


def test_decisions_survive_an_analysis_of_more_traces() -> None:
    profiles, _ = planted(300, 0)
    old = found(profiles)
    first, second, third, _ = old.modes
    off = tuple(old.members["trace_id"][old.members["mode_id"] == third.mode_id][:10])
    decisions = [
        Decision(what="rename mode", mode_id=first.mode_id, text="hand-over lost"),
        Decision(what="annotate mode", mode_id=second.mode_id, text="seen since May"),
        Decision(what="merge modes", mode_id=first.mode_id, mode_ids=(second.mode_id,)),
        Decision(what="split mode", mode_id=third.mode_id, text="odd ones", trace_ids=off),
    ]
    more, _ = planted(150, 99, prefix="u")
    both = Profiles(profiles.trace_ids + more.trace_ids, CELLS, np.concatenate([profiles.matrix, more.matrix]), profiles.source)
    again = carry_over(old, found(both, seed=7))
    assert {mode.mode_id for mode in again.modes} == {mode.mode_id for mode in old.modes}
    was = old.members.merge(again.members, on="trace_id")
    assert (was["mode_id_x"] == was["mode_id_y"]).mean() >= 0.98
    decided = apply_decisions(again, decisions)
    assert decided.unapplied == ()
    by_id = {mode.mode_id: mode for mode in decided.modes.modes}
    whole = by_id[first.mode_id]
    assert (whole.name, whole.is_named, whole.notes, whole.jaccard) == ("hand-over lost", True, ("seen since May",), None)
    assert second.mode_id not in by_id
    (odd,) = [mode for mode in decided.modes.modes if mode.name == "odd ones"]
    assert odd.size == 10
    assert set(decided.modes.members["trace_id"][decided.modes.members["mode_id"] == odd.mode_id]) == set(off)
    assert sum(mode.size for mode in decided.modes.modes) == 450
    sizes = decided.modes.members["mode_id"].value_counts()
    assert {mode.mode_id: mode.size for mode in decided.modes.modes} == sizes.to_dict()


def test_old_modes_that_are_gone_leave_their_decisions_unapplied_and_their_ids_unused() -> None:
    old, new = found(planted(300, 0, k=2)[0]), found(planted(300, 1, k=2, first=8, prefix="v")[0])
    again = carry_over(old, new)
    assert {mode.mode_id for mode in again.modes}.isdisjoint(mode.mode_id for mode in old.modes)
    lost = Decision(what="rename mode", mode_id=old.modes[0].mode_id, text="gone")
    assert apply_decisions(again, [lost]).unapplied == (lost,)
    assert as_bytes(apply_decisions(again, [lost]).modes) == as_bytes(again)


def test_the_same_modes_keep_their_ids_and_a_refusal_carries_nothing() -> None:
    modes = found(planted(300, 0)[0])
    assert as_bytes(carry_over(modes, modes)) == as_bytes(modes)
    refused = found(structureless(100, 0))
    assert carry_over(modes, refused) is refused
    assert carry_over(refused, modes) is modes


def test_decisions_are_rows_of_the_workspace_table() -> None:
    rename = Decision(what="rename mode", mode_id="m", text="slow hand-over")
    rows = pd.DataFrame(
        [("2", rename.what, msgspec.json.encode(rename).decode(), "2026-05-02"), ("1", "tag", "odd", "2026-05-01")],
        columns=["decision_id", "what", "value", "made_at"],
    )
    assert read_decisions(rows) == [rename]
    with pytest.raises(CounterpointError, match=r"^decision 2: is not a decision about modes"):
        read_decisions(rows.assign(value='{"what": "rename mode"}'))


def test_modes_carry_to_domains_that_fail_alike_and_to_no_others() -> None:
    alike, _ = planted(240, 0)
    other, _ = planted(120, 1, first=8, prefix="x")
    profiles = Profiles(alike.trace_ids + other.trace_ids, CELLS, np.concatenate([alike.matrix, other.matrix]), "residual")
    domain = ["coding"] * 120 + ["research"] * 120 + ["database"] * 110 + [None] * 10
    table = transfer(profiles, pd.DataFrame({"trace_id": profiles.trace_ids, "domain": domain}), np.random.default_rng(0))
    shares = table.set_index(["learned_in", "recognised_in"])
    assert len(shares) == 9
    assert shares.loc[("coding", "research"), "share"] >= 0.85
    assert shares.loc[("coding", "research"), ["low", "high"]].between(0.75, 1).all()
    assert shares.loc[("coding", "coding"), "n"] == 24
    assert shares.loc[("coding", "database"), "share"] <= 0.05
    assert shares.loc[("coding", "research"), "null_share"] <= 0.5


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=30))
def test_agreement_is_scikit_learns_adjusted_rand_index(pairs: list[tuple[int, int]]) -> None:
    from sklearn.metrics import adjusted_rand_score

    first, second = zip(*pairs, strict=True)
    assert adjusted_rand(first, second) == pytest.approx(adjusted_rand_score(first, second), abs=1e-9)


def test_groups_far_apart_are_found_exactly_and_come_back() -> None:
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1, 2], 40)
    points = np.eye(3)[truth] + 0.01 * rng.random((120, 3))
    labels, distance = nearest(points, k_means(points, 3, rng))
    assert adjusted_rand(truth, labels) == 1.0
    assert distance.max() < 0.02
    assert stabilities(points, [3], rng, n_splits=3) == {3: 1.0}
