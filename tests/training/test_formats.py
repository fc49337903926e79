"""Views: what each target gets of the same rows (golden files), and what each would refuse."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from analysis.errors import TrainingError
from analysis.training.formats import views
from analysis.training.rows import Row
from tests.training.rows import CALL, CHAT, canonical, pair, plain, row

GOLDEN = Path(__file__).parent / "golden"
MASKED = row(keep=[False, False, False, False, True])
FORMATS = sorted(set(views()) - {"trl-tokenized"})


def written(folder: Path) -> dict[str, Any]:
    """Return the files of a view, those of rows as rows."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*.*")):
        name = str(path.relative_to(folder))
        if path.suffix == ".parquet":
            found[name] = [json.loads(json.dumps(r, default=str)) for r in pq.read_table(path).to_pylist()]
        elif path.suffix == ".jsonl":
            found[name] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        elif path.suffix == ".csv":
            found[name] = list(csv.reader(path.read_text(encoding="utf-8-sig").splitlines()))
        else:
            found[name] = path.read_text(encoding="utf-8").splitlines()
    return found


@pytest.mark.parametrize("name", FORMATS)
def test_each_target_gets_what_its_golden_file_says(name: str, tmp_path: Path) -> None:
    view = views()[name]
    given: list[Any] = [row(), plain(1), plain(2, split="test")] if view.takes == "rows" else [pair()]
    fit = [one for one in given if not view.check(one)]
    counts = view.write(iter(fit), tmp_path)
    found = {"counts": counts, "refused": [view.check(one) for one in given if one not in fit], "files": written(tmp_path)}
    golden = GOLDEN / f"{name}.json"
    assert canonical(found) + "\n" == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", FORMATS)
def test_the_same_rows_give_the_same_bytes(name: str, tmp_path: Path) -> None:
    view = views()[name]
    given: list[Any] = [plain(1), plain(2, split="test")] if view.takes == "rows" else [pair()]
    for place in ("a", "b"):
        view.write(iter(given), tmp_path / place)
    a, b = ({p.relative_to(tmp_path / x): p.read_bytes() for p in (tmp_path / x).rglob("*.*")} for x in ("a", "b"))
    assert a == b


@pytest.mark.parametrize(
    ("name", "given", "problem"),
    [
        ("trl-sft", MASKED, "TRL's SFT trains on every assistant message, and message 2 is masked"),
        ("verl-sft", MASKED, "verl's SFT trains on every assistant message, and message 2 is masked"),
        ("openrlhf", row(), "OpenRLHF renders no tool calls"),
        (
            "openrlhf",
            row(messages=[CHAT[4]], keep=[True], weight=[1.0], events=[], tools=None),
            "the agent speaks first: there is no prompt",
        ),
        ("axolotl", row(keep=[False] * 5), "no message of the agent trains"),
        ("trl-grpo", row(reward=None), "the run has no outcome, so no reward"),
        ("trl-prompt-completion", row(messages=CHAT[2:], keep=[True, False, True]), "the agent speaks first: there is no prompt"),
        (
            "ms-swift",
            row(messages=[*CHAT[:2], *CHAT[3:]], keep=[False] * 3 + [True]),
            "message 2: the result of no call before it",
        ),
        ("llama-factory", plain(), None),
        ("trl-prompt-completion", MASKED, None),
    ],
)
def test_a_target_refuses_what_it_would_lose(name: str, given: Row, problem: str | None) -> None:
    assert views()[name].check(given) == ([problem] if problem else [])


def test_llama_factory_takes_strict_alternation_only(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "assistant", "content": "c"}]
    given = row(messages=chat, keep=[False, True, True], weight=[1.0] * 3, events=[], tools=None)
    assert views()["llama-factory"].check(given) == []
    views()["llama-factory"].write(iter([given]), tmp_path)
    turns = written(tmp_path)["train.jsonl"][0]["conversations"]
    assert turns == [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b\n\nc"}]
    chat[2] = {"role": "assistant", "content": "", "tool_calls": [CALL]}
    assert views()["llama-factory"].check(given) == ["a tool call beside another turn of the agent"]


def test_llama_factory_loses_text_beside_a_tool_call() -> None:
    chat = [CHAT[1], {"role": "assistant", "content": "I delegate.", "tool_calls": [CALL]}, *CHAT[3:]]
    given = row(messages=chat, keep=[False, True, False, True], weight=[1.0] * 4, events=[])
    assert views()["llama-factory"].check(given) == ["text beside a tool call is thrown away"]


@pytest.mark.parametrize("parameter", [{"enum": [1, 2]}, True, {"type": "array", "items": True}])
def test_llama_factory_stops_at_a_tool_that_it_cannot_word(parameter: Any) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"properties": {"n": parameter}}}}
    problem = "its loader stops at a tool with a parameter that is no object, or a choice that is no text"
    assert views()["llama-factory"].check(row(tools=[tool])) == [problem]


def test_llama_factory_gets_the_properties_that_a_tool_without_parameters_lacks(tmp_path: Path) -> None:
    for n, function in enumerate(({"name": "f"}, {"name": "f", "parameters": {"type": "object"}})):
        given = row(tools=[{"type": "function", "function": function}])
        assert views()["llama-factory"].check(given) == []
        views()["llama-factory"].write(iter([given]), tmp_path / str(n))
        (record,) = written(tmp_path / str(n))["train.jsonl"]
        schema = json.loads(record["tools"])[0]["function"]["parameters"]
        assert schema == {"type": "object", "properties": {}}


def test_ms_swift_gets_words_after_a_result_as_part_of_it(tmp_path: Path) -> None:
    chat = [*CHAT[:4], {"role": "user", "content": "Go on."}, CHAT[4]]
    given = row(messages=chat, keep=[False, False, True, False, False, True], weight=[1.0] * 6, events=[])
    assert views()["ms-swift"].check(given) == []
    views()["ms-swift"].write(iter([given]), tmp_path)
    (record,) = written(tmp_path)["train.jsonl"]
    told = [(m["role"], m["content"]) for m in record["messages"][3:]]
    assert told == [("tool_response", "part 1 is written\n\nGo on."), ("assistant", "Joined.")]


def test_verl_gets_a_list_of_tools_in_every_file_since_it_stops_at_a_null(tmp_path: Path) -> None:
    views()["verl-sft"].write(iter([row(), plain()]), tmp_path)
    assert sorted(len(r["tools"]) for rows in written(tmp_path).values() for r in rows) == [0, 1]


def test_verl_refuses_tools_that_its_reader_would_fill_up() -> None:
    other = {"type": "function", "function": {"name": "stop", "description": "", "parameters": {"why": "text"}}}
    given = row(tools=[*(row().tools or []), other])
    assert views()["verl-sft"].check(given) == ["its tools differ in shape, and verl's reader would fill them up with nulls"]


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"low": None, "high": None}, "delta_q has no interval"),
        ({"low": -0.2, "high": 0.9}, "the interval of delta_q covers 0"),
        ({"confirmed": False}, "fresh seeds did not confirm it"),
        ({"better": "neither"}, "neither more nor less passed is better"),
        ({"counterfactual": pair().original}, "both arms read alike"),
    ],
)
def test_a_counterfactual_is_a_preference_only_where_its_sign_is_sure(changed: dict[str, Any], problem: str) -> None:
    assert views()["trl-dpo"].check(pair(**changed)) == [problem]


def test_the_better_arm_is_chosen_and_a_swapped_sign_would_show(tmp_path: Path) -> None:
    views()["trl-dpo"].write(iter([pair(), pair(delta_q=-0.4, credit=0.4, low=-0.6, high=-0.2)]), tmp_path)
    gained, lost = pq.read_table(tmp_path / "train.parquet").to_pylist()
    # The alternative passed more often: it is chosen; where it passed less, what was done is.
    assert [json.loads(m)["content"] for m in gained["chosen"]] == [pair().counterfactual[0]["content"]]
    assert [json.loads(m)["content"] for m in lost["chosen"]] == [pair().original[0]["content"]]
    assert gained["margin"] == lost["margin"] == 0.4


def test_arguments_of_tools_never_gain_nulls(tmp_path: Path) -> None:
    other = {**CALL, "id": "c2", "function": {"name": "stop", "arguments": '{"why": "done", "at": 3}'}}
    chat = [*CHAT[:4], {"role": "assistant", "content": "", "tool_calls": [other]}]
    given = [row(), row(messages=chat, events=[])]
    for name in ("trl-sft", "verl-sft", "axolotl", "hf", "verifiers"):
        views()[name].write(iter(given), tmp_path / name)
        text = json.dumps(written(tmp_path / name))
        assert '"to": null' not in text.replace("\\", "")
        assert '"why": null' not in text.replace("\\", "")


def test_line_ends_of_unicode_within_a_text_do_not_end_a_line(tmp_path: Path) -> None:
    said = "one\x85two\u2028three\u2029four\x0bfive"
    chat = [CHAT[1], {"role": "assistant", "content": said}]
    given = row(messages=chat, keep=[False, True], weight=[1.0, 1.0], events=[], tools=None)
    views()["axolotl"].write(iter([given]), tmp_path)
    (line,) = (tmp_path / "train.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["messages"][1]["content"] == said


def test_a_cell_that_a_spreadsheet_would_run_is_disarmed(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "=HYPERLINK(1)"}, {"role": "assistant", "content": "no"}]
    views()["csv"].write(iter([row(messages=chat, keep=[False, True], weight=[1.0, 1.0], events=[], tools=None)]), tmp_path)
    assert "'=HYPERLINK(1)" in (tmp_path / "train.csv").read_text(encoding="utf-8-sig")


def test_tokens_need_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="trl-tokenized: tokens need a tokenizer - give its folder with --tokenizer"):
        views()["trl-tokenized"].write(iter([row()]), tmp_path)


def test_of_what_should_be_low_a_credit_above_0_hurt(tmp_path: Path) -> None:
    # Credit is -delta_q: 0.5 says that the other decision took 0.5 less, which is bad of an outcome and good of tokens.
    for metric, said in (("passed", 0.5), ("tokens", -0.5)):
        views(metric=metric)["trl-grpo"].write(iter([row()]), tmp_path / metric)
        (written_row,) = written(tmp_path / metric)["trajectories/train.jsonl"]
        assert [event["credit"] for event in written_row["events"]] == [said]
