"""The page Export and train: rows are those an export writes, texts stay texts, and each state says what to do next."""

from __future__ import annotations

import html
import io
import json
import re
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from streamlit.testing.v1 import AppTest

from analysis.pipeline.exporting import Exported, Options, export
from analysis.processes import born
from analysis.training import running
from analysis.training.bundle import read_rows
from analysis.training.formats import views
from analysis.training.plan import prepare, read_plan
from analysis.training.rows import RowEvent
from analysis.workspace import Workspace
from dashboard import downloads, safe
from dashboard.figures.training import curves, steps_of, taken
from dashboard.loading import Version
from dashboard.loading import training as stored
from dashboard.loading.training import Chosen
from dashboard.previewing import message_html
from dashboard.selection import PAGES
from tests.dashboard import exported
from tests.training.rows import plain, row

FILE = PAGES["export"].file
BY_ROWS = [name for name, view in views().items() if view.takes == "rows" and name != "trl-tokenized"]
ARGUMENTS: dict[str, Any] = {"max_steps": 10, "logging_steps": 2}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return exported.make(tmp_path_factory.mktemp("exported"))


@pytest.fixture(scope="module")
def done(workspace: Workspace) -> Exported:
    """The data set, exported below the workspace."""
    out = Path(workspace.location) / "exports" / "mine-1"
    return export(workspace, exported.DATASET, out, formats=BY_ROWS, options=Options(workers=1))


@pytest.fixture
def page(workspace: Workspace, done: Exported, monkeypatch: pytest.MonkeyPatch, app: AppTest) -> AppTest:
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", workspace.location)
    return app.switch_page(FILE)


def opened(page: AppTest, /, **parameters: str) -> AppTest:
    for name, value in parameters.items():
        page.query_params[name] = value
    page.run()
    assert not page.exception
    return page


def pressed(page: AppTest, label: str) -> None:
    next(button for button in page.button if button.label == label).click().run()
    assert not page.exception


def parameter(page: AppTest, name: str) -> str:
    found = page.query_params[name]
    return found if isinstance(found, str) else found[0]


def said(page: AppTest) -> str:
    kinds = (page.markdown, page.caption, page.info, page.warning, page.error, page.success)
    return "\n".join([element.value.replace("\\", "").replace("\u2060", "") for kind in kinds for element in kind])


def drawn(page: AppTest) -> str:
    return "".join([element.proto.body for element in page.main.get("html")])


def version_of(workspace: Workspace) -> Version:
    return Version(workspace.location, workspace.head().number)


def test_previewed_rows_are_those_that_the_export_writes(workspace: Workspace, done: Exported) -> None:
    version, chosen = version_of(workspace), Chosen(exported.DATASET, "")
    ids = stored.chosen_traces(version, *chosen[:2])["trace_id"]
    previewed = [row for name in ids for row in stored.rows_of_trace(version, chosen, name).rows if any(row.keep)]
    assert previewed == list(read_rows(Path(workspace.location) / "exports" / "mine-1", split="train"))
    assert done.manifest["redacted"] == {"email": 2}
    assert stored.rows_of_trace(version, chosen, "counterpoint:alpha").taken == {"email": 1}


def test_the_workspace_leaves_exports_alone_when_it_tidies_up(workspace: Workspace, done: Exported) -> None:
    folder = Path(workspace.location) / "exports" / "mine-1"
    before = sorted(path for path in folder.rglob("*") if path.is_file())
    workspace.vacuum(grace_s=-1.0)
    assert sorted(path for path in folder.rglob("*") if path.is_file()) == before


def test_problems_are_counted_as_the_export_counts_them(workspace: Workspace, done: Exported) -> None:
    found = stored.refusals(version_of(workspace), Chosen(exported.DATASET, ""))
    assert (found.n_traces, found.n_rows, found.n_masked, found.n_pairs) == (2, 3, 1, 2)
    counted = {(name, why): n for name, view in done.views.items() for why, n in view.refused.items()}
    rows = found.found[found.found["target"].isin(BY_ROWS)]
    assert {(r.target, r.reason): r.n for r in rows.itertuples()} == {
        (name, re.sub(r"\bmessage \d+", "a message", why)): n for (name, why), n in counted.items()
    }
    dpo = found.found[found.found["target"] == "trl-dpo"]
    assert dpo[["reason", "n", "trace_id", "event_id"]].to_numpy().tolist() == [
        ["the interval of delta_q covers 0", 1, "counterpoint:alpha", "s"]
    ]


def test_a_record_is_what_the_view_writes_without_its_configuration() -> None:
    messages = [{"role": "user", "content": "What is 1 + 1?"}, {"role": "assistant", "content": "2"}]
    one = plain(1)
    same = {"row_id": one.row_id, "stage": one.stage, "tools": "[]"}
    assert stored.record("trl-sft", one) == {"train.parquet": [{"messages": messages, **same}]}
    assert stored.record("trl-prompt-completion", one) == {
        "train.parquet": [{**same, "prompt": messages[:1], "completion": messages[1:], "row_id": f"{one.row_id}/1"}]
    }
    trained = [{**message, "training": n == 1} for n, message in enumerate(messages)]
    assert stored.record("axolotl", one) == {"train.jsonl": [{"messages": trained, "tools": "[]", "row_id": one.row_id}]}
    assert [len(lines) for lines in stored.record("csv", one).values()] == [2]
    assert list(stored.record("trl-grpo", one)) == ["train.parquet", "trajectories/train.jsonl"]


def test_a_message_shows_what_trains_and_what_it_was_worth() -> None:
    sure = RowEvent("e", 0, "stop", 2, 4, 0.5, 0.1, 20, "interventional")
    unsure = RowEvent("f", 0, "act", 4, 5, -0.25, 0.2, 8, "simulated")
    one = row(messages=[{"role": "assistant", "content": "a <b>&"}], events=[sure, unsure], keep=[True], weight=[2.0])
    green, orange = "--credit:#009e73", "--credit:#bd6d2e"
    words = ("stop +0.5 ± 0.2, n 20, interventional: helped", "act -0.25 ± 0.39, n 8, simulated: not sure")
    assert message_html(one, 0) == (
        '<article class="cp-message trains"><header><b>assistant</b><span>trains, weight 2</span>'
        f'<span class="cp-credit" style="{green}">{words[0]}</span>'
        f'<span class="cp-credit unsure" style="{orange}">{words[1]}</span></header><pre>a '
        f'<span class="cp-credit" style="{green}" title="e: {words[0]}">&lt;b</span>'
        f'<span class="cp-credit unsure" style="{orange}" title="f: {words[1]}">&gt;</span>&amp;</pre></article>'
    )
    masked = row(messages=one.messages, events=[], keep=[False], weight=[1.0])
    assert message_html(masked, 0) == (
        '<article class="cp-message apart"><header><b>assistant</b><span>masked</span></header>'
        "<pre>a &lt;b&gt;&amp;</pre></article>"
    )


@given(text=st.text(max_size=60), data=st.data())
def test_a_message_shows_exactly_its_text_whatever_it_and_its_spans_are(text: str, data: st.DataObject) -> None:
    place = st.integers(0, len(text))
    spans = data.draw(st.lists(st.tuples(place, place).map(sorted), max_size=4))
    events = [RowEvent(f"e{n}", 0, "act", a, b, 1.0 - n, 0.1, 4, "simulated") for n, (a, b) in enumerate(spans)]
    one = row(messages=[{"role": "user", "content": text}], events=events, keep=[False], weight=[1.0])
    body = "".join(re.findall(r"<pre>(.*)</pre>", message_html(one, 0), re.DOTALL))
    tags = re.findall(r"<[^>]*>", body)
    assert all(tag == "</span>" or tag.startswith('<span class="cp-credit') for tag in tags)
    if "\r" not in text and all(safe.visible(char) == char for char in text):
        assert html.unescape(re.sub(r"<[^>]*>", "", body)) == text


def test_shares_taken_and_curves_say_what_their_frames_say() -> None:
    refused = pd.DataFrame({"target": ["a", "a", "c"], "reason": ["x", "y", "z"], "n": [1, 2, 9]})
    figure = taken({"a": (4, "rows"), "b": (2, "pairs")}, refused)
    assert {bar.name: list(bar.x) for bar in figure.data} == {"taken": [0.25, 1.0], "refused": [0.75, 0.0]}
    assert list(figure.data[1].text) == ["3 of 4 rows refused", "0 of 2 pairs refused"]
    metrics = [{"loss": 3.0, "orch/weight": 0.3, "epoch": 0.5}, {"loss": 2.0, "orch/weight": 0.1, "epoch": 1.0}, {"epoch": 1.0}]
    steps = steps_of(metrics, 5)
    assert steps == [5, 10, 10]
    figure = curves(metrics, steps)
    assert {line.name: (list(line.x), list(line.y)) for line in figure.data} == {
        "loss": ([5, 10], [3.0, 2.0]), "orch/weight": ([5, 10], [0.3, 0.1]),
    }  # fmt: skip
    assert [note.text for note in figure.layout.annotations] == ["Does the loss fall?", "How much does event credit count?"]
    assert (steps_of([{"loss": 1.0}], 5), steps_of(metrics, None)) == (None, None)
    assert curves([{"loss": 1.0}], None).layout.xaxis.title.text == "entry of the log"


def test_a_folder_is_sent_as_one_zip_to_whoever_has_its_link(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    (folder / "data").mkdir(parents=True)
    contents = {"README.md": b"x" * 3_000_000, "data/train.parquet": bytes(range(256)) * 9000}
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    sent = b"".join(downloads.zipped(folder))
    assert sent == b"".join(downloads.zipped(folder))
    with zipfile.ZipFile(io.BytesIO(sent)) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == {f"mine/{n}": c for n, c in contents.items()}
    route = downloads.route()
    address = downloads.link(folder)
    assert address is not None

    def answer(query: str) -> tuple[int, str | None]:
        found = route.endpoint(Request({"type": "http", "query_string": query.encode()}))
        return found.status_code, found.headers.get("content-disposition")

    query = address.partition("?")[2]
    assert answer(query) == (200, "attachment; filename*=UTF-8''mine.zip")
    assert answer(query.replace("mine", "other"))[0] == answer(query[:-1])[0] == answer("folder=/etc")[0] == 403
    gone = (downloads.link(tmp_path / "gone") or "").partition("?")[2]
    assert answer(gone)[0] == 404


def test_rows_are_walked_through_and_their_texts_stay_texts(page: AppTest) -> None:
    opened(page, trace="counterpoint:alpha", target="trl-sft,openrlhf", raw="trl-sft")
    body = drawn(page)
    assert "&lt;img src=x onerror=&quot;alert(1)&quot;&gt; **Do** it, [redacted:email]" in body
    assert "delegate +0.5 ± 0.3, n 8, interventional: helped" in body
    assert "stop -0.25 ± 0.35, n 8, interventional: not sure" in body
    assert "Taken out of this trace: 1 email." in said(page)
    assert '"row_id": "counterpoint:alpha#lead#0"' in page.code[0].value
    page.button(key="rows.next").click().run()
    assert parameter(page, "row") == "2"
    assert "openrlhf refuses it: OpenRLHF renders no tool calls" in said(page)
    assert "<i>calls read </i>{&quot;path&quot;: &quot;a.txt&quot;}" in drawn(page)


def test_a_long_row_is_shown_in_parts_and_the_next_one_from_its_beginning(page: AppTest) -> None:
    opened(page, trace="counterpoint:beta", page="2")
    assert "Hint 29." in drawn(page)
    assert "Please do beta." not in drawn(page)
    page.button(key="rows.previous").click().run()
    assert (parameter(page, "trace"), "page" in page.query_params) == ("counterpoint:alpha", False)
    page.number_input(key="rows.place").set_value(2).run()
    assert parameter(page, "trace") == "counterpoint:beta"
    assert "Please do beta." in drawn(page)


def test_what_is_masked_whole_is_left_out_and_secrets_stay_where_a_person_says_so(page: AppTest) -> None:
    opened(page, trace="counterpoint:beta", row="2", secrets="stay", raw="trl-sft")
    assert "Every message of this row is masked: it is left out of the export." in said(page)
    assert "trl-sft is not given this row." in said(page)
    assert "ann@firm.com" in drawn(page)


def test_problems_lead_to_a_row_that_is_refused(page: AppTest) -> None:
    opened(page, view="refused", target="openrlhf,trl-dpo")
    assert "Asked of 3 rows of all 2 traces; 1 more are masked whole" in said(page)
    page.button(key="refused.example").click().run()
    assert (parameter(page, "view"), parameter(page, "target")) == ("rows", "openrlhf,trl-dpo")
    assert "openrlhf refuses it" in said(page)


def test_an_export_shows_what_it_holds_and_leads_to_training(page: AppTest, workspace: Workspace, done: Exported) -> None:
    opened(page, view="export", export="mine-1")
    assert {metric.label: metric.value for metric in page.metric if metric.label != "Size"} == {
        "Rows": "3", "Left out": "2", "Secrets taken out": "2",
    }  # fmt: skip
    steps = next(table.value for table in page.dataframe if "Step" in table.value)
    assert steps[["Traces", "Rows"]].astype(object).where(steps[["Traces", "Rows"]].notna(), None).to_numpy().tolist() == [
        [2, None], [0, None], [0, None], [2, 4], [0, 1], [2, 3]
    ]  # fmt: skip
    out = Path(workspace.location) / "exports" / "mine-1"
    assert page.code[0].value == f"{out}\nmanifest {done.manifest['id']}"
    page.button(key="export.train").click().run()
    assert parameter(page, "view") == "train"
    assert [field.label for field in page.text_input] == ["Name", "Model: a folder, or its name at a hub"]


def test_a_run_is_planned_in_its_folder_and_what_is_wrong_is_said(page: AppTest, workspace: Workspace) -> None:
    opened(page, view="train", export="mine-1", kind="trl-grpo")
    page.text_input[0].input("first")
    pressed(page, "Plan only")
    assert "Model: a plan needs one - give a folder, or the name at a hub" in said(page)
    page.text_input(key="train.model").input("org/model")
    page.text_area(key="train.more").input("seed=7\nname")
    pressed(page, "Plan only")
    assert "a line is not of the form name=value" in said(page)
    page.text_area(key="train.more").input("seed=7\nbf16=true")
    pressed(page, "Plan only")
    plan = read_plan(Path(workspace.location) / "runs" / "first")
    assert (plan.target, plan.model, plan.orch_weight) == ("trl-grpo", "org/model", 0.3)
    assert {name: plan.arguments[name] for name in ("seed", "bf16", "report_to")} == {
        "seed": 7,
        "bf16": True,
        "report_to": "none",
    }
    assert "**first** planned: trl-grpo on org/model, λ 0.3 until 1" in said(page)


def test_a_run_under_way_is_drawn_cancelled_and_gone_on_with(page: AppTest, workspace: Workspace) -> None:
    root = Path(workspace.location)
    folder = root / "runs" / "second"
    prepare(root / "exports" / "mine-1", "trl-sft", folder, model="m", arguments=ARGUMENTS)
    entries = [{"loss": 2.0, "epoch": 0.5}, {"loss": 1.5, "epoch": 1.0}]
    (folder / "metrics.jsonl").write_text("".join([json.dumps(entry) + "\n" for entry in entries]), encoding="utf-8")
    (folder / "log.txt").write_text("<b>loading</b>\n", encoding="utf-8")
    (folder / "out" / "checkpoint-4").mkdir(parents=True)
    trainer = subprocess.Popen(["sleep", "60"], start_new_session=True)
    (folder / "state.json").write_text(json.dumps({"pid": trainer.pid, "born": born(trainer.pid)}), encoding="utf-8")
    opened(page, view="train", run="second")
    assert "**second** running: trl-sft on m; max_steps 10, logging_steps 2" in said(page)
    assert [code.value for code in page.code][:1] == ["<b>loading</b>"]
    page.button(key="train.cancel").click().run()
    trainer.wait(10)
    page.run()
    assert running.status(folder).state == "cancelled"
    assert "Cancelled. Its checkpoints are kept." in said(page)
    assert {"train.resume", "train.start"} <= {button.key for button in page.button}


def test_a_trainer_that_failed_says_its_error_and_a_missing_environment_how_it_comes(
    page: AppTest, workspace: Workspace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COUNTERPOINT_TRAIN_ENV", str(tmp_path / "none"))
    root = Path(workspace.location)
    folder = root / "runs" / "third"
    prepare(root / "exports" / "mine-1", "trl-sft", folder, model="m", arguments=ARGUMENTS)
    (folder / "log.txt").write_text("Traceback\nValueError: no such *model*\n  0%|  | 0/10\n", encoding="utf-8")
    (folder / "state.json").write_text('{"code": 1}', encoding="utf-8")
    opened(page, view="train", run="third")
    assert "ValueError: no such *model*" in [error.value.replace("\\", "") for error in page.error]
    assert "The training environment is not installed." in said(page)
    assert page.button(key="train.start").label == "Install the environment and start"


def test_without_a_data_set_or_an_export_each_view_leads_on(samples: Workspace, app: AppTest) -> None:
    page = opened(app.switch_page(FILE))
    assert "No data set is curated yet" in said(page)
    opened(page, filter="nothing-is-called-so")
    assert "No trace is chosen" in said(page)
    opened(page, view="export")
    assert "Nothing is exported yet. Start above." in said(page)
    opened(page, view="train")
    assert "A run needs an export of a target that a command trains: trl-sft" in said(page)


def test_a_workspace_in_an_object_store_asks_for_a_folder(
    workspace: Workspace, done: Exported, monkeypatch: pytest.MonkeyPatch, app: AppTest
) -> None:
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", f"file://{workspace.location}")
    page = opened(app.switch_page(FILE), view="export")
    assert "name a folder of this machine" in said(page)
    opened(page, out=workspace.location, export="mine-1")
    assert [metric.value for metric in page.metric][:2] == ["3", "2"]
