"""The policy: it explains itself, reads back as it is, and says where it contradicts itself and what to change."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from analysis import data_folder
from analysis.curation.fields import fields_of
from analysis.curation.gates import Gate
from analysis.curation.policy import Policy, explain, find_policy, policy_of, read_policy
from analysis.errors import PolicyError

READY = sorted(path.stem for path in (data_folder() / "policies").glob("*.toml"))
SECTIONS = [
    type(getattr(Policy(), name)) for name in Policy.__struct_fields__ if isinstance(getattr(Policy(), name), msgspec.Struct)
]


def test_the_explained_policy_is_a_policy_file_with_all_defaults() -> None:
    assert policy_of(tomllib.loads(explain())) == Policy()


def test_every_field_has_a_meaning_and_stands_in_the_explanation() -> None:
    text = explain()
    for record in (Policy, *SECTIONS, *get_args(Gate)):
        for field in fields_of(record):
            if field.name not in ("sources", "quotas", "weights", "segments", "mixture", "order", "batches", "curriculum"):
                assert field.meaning, f"{record.__name__}.{field.name}"
                assert field.meaning in text, field.name


@pytest.mark.parametrize("name", READY)
def test_a_ready_policy_reads_back_as_it_is_and_keeps_its_digest(name: str, tmp_path: Path) -> None:
    policy = find_policy(name)
    (tmp_path / "p.toml").write_text(policy.toml, encoding="utf-8")
    again = read_policy(tmp_path / "p.toml")
    assert (again, again.digest, again.toml) == (policy, policy.digest, policy.toml)
    assert policy.gates


def test_texts_with_quotes_and_umlauts_survive_and_other_seeds_are_other_policies() -> None:
    policy = policy_of({"sources": {"filter": 'task:"é \\ x"'}, "worlds": ["live"], "curriculum": {"shares": {"warmup": 0.5}}})
    assert policy_of(tomllib.loads(policy.toml)) == policy
    assert Policy(seed=1).digest != Policy().digest


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"gates": [{"gate": "outcome"}, {"gate": "outcome"}]},
         "policy: gates: a gate is there twice (got outcome) - keep the stricter one"),
        ({"gates": [{"gate": "measure", "name": "q", "min": 2, "max": 1}]},
         "policy: gates[0] measure q: min is larger than max, so everything is dropped (got min 2, max 1) - swap them"),
        ({"gates": [{"gate": "measure", "name": "q", "min_quantile": 0.9, "max_quantile": 0.1}]}, "min is larger than max"),
        ({"gates": [{"gate": "measure", "name": "q", "min": 0, "min_quantile": 0.1}]},
         "states both min and min_quantile - keep one of them"),
        ({"gates": [{"gate": "measure", "name": "q"}]}, "needs a bound (expected min, max, min_quantile or max_quantile)"),
        ({"gates": [{"gate": "coherence"}]},
         "policy: gates[0] coherence: needs one threshold (expected max or max_quantile)"),
        ({"gates": [{"gate": "coherence", "max": 0.1, "max_quantile": 0.1}]}, "needs one threshold"),
        ({"gates": [{"gate": "hedging", "min_sharpness": 0.6}]},
         "policy: gates[0] hedging: drops everything (got min_sharpness 0.6) - "
         "probabilities lie at most 0.5 from one half; take less"),
        ({"worlds": []}, "policy: worlds: no world is taken, so everything is dropped - name one, or leave it out"),
        ({"quotas": {"min_per_mode": 5, "max_per_mode": 3}},
         "policy: quotas.min_per_mode: asks for more than the quota allows (got min 5, max 3) - raise max_per_mode"),
        ({"curriculum": {"stages": ["warmup"], "shares": {"integrated": 0.5}}},
         "policy: curriculum.shares: a stage has a share and is not taken (got integrated) - "
         "add it to stages, or take its share away"),
        ({"curriculum": {"shares": {"warmup": 0}}}, "all shares are 0 - give one stage more, or leave shares out"),
        ({"curriculum": {"shares": {"warmup": 0.7, "integrated": 0.6}}}, "the shares add up to more than 1 (got 1.3)"),
        ({"version": 2}, "policy: version: this value is not allowed (got 2, expected 1)"),
        ({"gates": [{"gate": "coherense"}]},
         "policy: gates[0].gate: this value is not allowed (got coherense, expected one of coherence, hedging, outcome, measure, "
         "credit, labels) - did you mean coherence?"),
        ({"gates": [{"max": 0.1}]}, "policy: gates[0]: the field `gate` is missing (expected one of coherence, hedging,"),
        ({"gates": [{"gate": 3}]}, "policy: gates[0].gate: a field does not have its shape (got 3, expected one of coherence,"),
        ({"gates": [{"gate": "measure"}]},
         "policy: gates[0]: the field `name` is missing (expected name of the metric, such as q_work or q_orchestration)"),
        ({"gates": [{"gate": "outcome"}, {"gate": "coherence", "mx": 1}]},
         "policy: gates[1]: no such field (got mx, expected one of gate, max, max_quantile, level, above, near, unknown) - "
         "did you mean max?"),
        ({"gates": [{"gate": "outcome", "unknown": "quue"}]},
         "gates[0].unknown: this value is not allowed (got quue, expected one of keep, drop, queue) - did you mean queue?"),
        ({"gates": [{"gate": "credit", "evidence": ["seen"]}]},
         "policy: gates[0].evidence[0]: this value is not allowed (got seen, expected one of interventional, simulated, "
         "observational) - `counterpoint curate --explain` shows every field"),
        ({"gates": [{"gate": "coherence", "max": 2}]},
         "policy: gates[0].max: a field does not have its shape (got 2, expected a number ≥ 0, ≤ 1)"),
        ({"gates": "all"}, "gates: a field does not have its shape (got \"all\", expected tables that begin with [[gates]])"),
        ({"weight": {}},
         "policy: the file: no such field (got weight, expected one of version, seed, worlds, sources, gates, quotas, weights, "
         "segments, mixture, order, batches, curriculum) - did you mean weights?"),
        ({"weights": 3}, "policy: weights: a field does not have its shape (got 3, expected a table)"),
        ({"worlds": "live"}, "(got \"live\", expected a list of texts among live, simulated, recorded)"),
        ({"order": {"method": "zag"}},
         "policy: order.method: this value is not allowed (got zag, expected one of none, sorted, fo, zig, seg, str, saw) - "
         "did you mean zig?"),
        ({"order": {"front_share": 0.9, "back_share": 0.9}},
         "policy: order: a field does not have its shape (got front_share + back_share is 1.8, more than all rows)"),
        ({"quotas": {"max_per_mood": 3}},
         "policy: quotas: no such field (got max_per_mood, expected one of min_per_mode, min_per_family, min_per_task, "
         "max_per_mode, max_per_family, max_per_task, without_claims, without_claims_share) - did you mean max_per_mode?"),
        ({"curriculum": {"shares": {"warm": 0.5}}},
         "policy: curriculum.shares: this value is not allowed (got warm, expected one of warmup, individual, orchestration, "
         "integrated) - did you mean warmup?"),
        ({"curriculum": {"shares": {"warmup": 3}}},
         "expected a table of stages (warmup, individual, orchestration, integrated) with numbers from 0 to 1)"),
    ],
)  # fmt: skip
def test_a_contradiction_is_one_sentence_that_says_what_to_change(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PolicyError) as error:
        policy_of(values)
    assert sentence in str(error.value)


WRONG = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["gate", "max", "name", "warmup", "x`y"]), inner),
    max_leaves=4,
)
FIELDS = ["seed", "worlds", "sources", "gates", "quotas", "weights", "segments", "order", "batches", "curriculum", "x - at `$.y`"]


@given(st.dictionaries(st.sampled_from(FIELDS), WRONG | st.dictionaries(st.sampled_from(["shares", "stages", "method"]), WRONG)))
@example({"gates": [{"gate": "x' - at `$.order`"}]})
@example({"gates": [{"gate": ["a"]}]})
def test_whatever_stands_in_a_file_is_taken_or_refused_in_one_line(values: dict[str, Any]) -> None:
    said = "policy: "
    try:
        policy_of(values)
    except PolicyError as error:
        said = str(error)
    assert said.startswith("policy: ")
    assert "\n" not in said


def test_files_that_are_none_are_named(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("gates = [", encoding="utf-8")
    for path, problem in ((tmp_path / "bad.toml", "not a TOML file"), (tmp_path / "no.toml", "the policy cannot be read")):
        with pytest.raises(PolicyError, match=problem) as error:
            find_policy(str(path))
        assert str(path) in str(error.value)
    with pytest.raises(PolicyError, match=r"no such policy \(got defalt, .* - did you mean default\?"):
        find_policy("defalt")
    with pytest.raises(PolicyError, match=r"no such policy \(got nope, expected a file \(\*\.toml\), or default, "):
        find_policy("nope")
