"""`counterpoint curate`: a data set by a policy, and one line for every mistake."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import pytest

from analysis.model import Trace
from tests.cli.conftest import Run
from tests.pipeline.corpus import write_traces


@pytest.fixture
def curate(run: Run, failing: Path, tmp_path: Path) -> Run:
    shutil.copytree(failing, tmp_path / "store")
    return lambda *arguments: run("curate", *arguments)


def policy(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_explain_prints_a_policy_file_and_needs_no_workspace(run: Run) -> None:
    ran = run("curate", "--explain")
    assert (ran.code, ran.err) == (0, "")
    assert tomllib.loads(ran.out)["weights"] == {"h": 0.3}


def test_json_is_the_counts_and_what_each_gate_did(curate: Run, tmp_path: Path) -> None:
    file = policy(
        tmp_path / "p.toml", '[[gates]]\ngate = "measure"\nname = "n_agents"\nmax = 2\n\n[segments]\nambiguous = "keep"\n'
    )
    ran = curate("--policy", file, "--name", "small", "--json")
    found = ran.json
    assert list(found) == ["dataset", "input", "kept", "masked", "dropped", "queued", "by_gate", "notes", "gist"]
    assert (ran.code, found["dataset"], found["input"]) == (1, "small", 42)
    assert found["by_gate"][0]["gate"] == "measure n_agents"
    assert ran.err.startswith(
        "Nothing stays of 42 traces: the gate `measure n_agents` dropped 42 of the 42 that came to it (n_agents is too"
    )


def test_without_a_policy_the_ready_one_is_used_and_it_says_so(curate: Run) -> None:
    ran = curate()
    assert ran.err.startswith("no --policy given: the ready policy `default` is used; `counterpoint curate --explain` shows")
    assert (ran.code, ran.out.split()[:2]) == (1, ["gate", "entered"])  # every run of this workspace failed
    assert "the gate `outcome` dropped 42 of the 42" in ran.err
    assert "entered = passed + masked + returned + queued + dropped; of those that entered, an earlier gate had" in ran.err


def test_a_data_set_is_made_and_said(curate: Run) -> None:
    ran = curate("--policy", "orchestration-first", "--json")
    assert ran.code == 0
    assert ran.json["kept"] + ran.json["masked"] + ran.json["dropped"] + ran.json["queued"] == 42
    assert ran.json["notes"][-1].startswith("No effect on passed is confirmed: the gate `credit passed` keeps every trace")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("gates = [", "not a TOML file"),
        ('[[gates]]\ngate = "coherence"\n', "gates[0] coherence: needs one threshold"),
        ('worlds = ["live"]', "policy: worlds: no trace of the sources is of this world (got live, expected recorded)"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(curate: Run, tmp_path: Path, text: str, line: str) -> None:
    ran = curate("--policy", policy(tmp_path / "p.toml", text))
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert line in ran.err


def test_several_worlds_are_named_with_their_counts_and_how_one_is_chosen(curate: Run, run: Run, tmp_path: Path) -> None:
    assert run("import", write_traces(tmp_path / "live.jsonl", [Trace(trace_id="counterpoint:live", world="live")])).code == 0
    ran = curate("--policy", "orchestration-first")
    assert (ran.code, ran.out, ran.err) == (
        2, "", "policy: worlds: the data hold several worlds, and the policy does not say which (got live (1 traces), recorded "
        '(42 traces)) - write worlds = ["recorded"] at the top of the policy, or name several to mix them\n',
    )  # fmt: skip


def test_a_data_set_is_removed_by_its_name(curate: Run) -> None:
    assert curate("--name", "mine", "--policy", "orchestration-first").code == 0
    assert curate("--name", "mine", "--remove").code == 0
    again = curate("--name", "mine", "--remove")
    assert (again.code, again.err.strip()) == (2, "dataset: no data set has this name (got mine)")
