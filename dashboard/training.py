"""The drawings of training: the form that plans a run, and a run with its state, its curves and its log.

Hides which arguments a form becomes, and that between a plan and a trainer there is a job.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

import streamlit as st

from analysis.errors import TrainingError
from analysis.training import environment, running
from analysis.training.plan import Argument, Plan, prepare, read_plan, trainable
from dashboard import jobs, safe, selection
from dashboard.figures import training as figures
from dashboard.loading import training as stored

_MANIFESTS = {"slurm.sh": "Slurm", "ray.sh": "Ray", "kubernetes.yaml": "Kubernetes", "plan.json": "Plan"}
_TITLE = "Train "
_BUSY = ("starting", "running")
_N_LINES, _N_BYTES = 25, 32_000
_RAISED = re.compile(r"[\w.]*(?:Error|Exception|Interrupt)\b.*")
_N_ENTRIES, _N_CHECKPOINTS = 100, 5  # that a run of many steps writes
_CPU: dict[str, Argument] = {"use_cpu": True, "bf16": False, "gradient_checkpointing": False}


def draw_form(location: str, root: Path) -> None:
    """Draw the form that plans a run on an export, and starts it."""
    found = {folder.name: [name for name in stored.viewed(folder) if name in trainable()] for folder in stored.exports(root)}
    exports = {name: targets for name, targets in found.items() if targets}
    st.subheader("Plan a run")
    if not exports:
        said = f"A run needs an export of a target that a command trains: {', '.join(trainable())}."
        st.info(safe.markdown(said, 600), icon=":material/info:")
        st.button("Export", key="train.export", icon=":material/output:", on_click=selection.put, kwargs={"view": "export"})
        return
    with st.container(horizontal=True):
        export = selection.choose("export", "Export", {name: name for name in exports})
        target = selection.choose("kind", "Target", {name: name for name in exports[export]})
    with st.form("train.form", border=True):
        fields = st.columns([2, 3])
        usual = f"{target}-{len(stored.runs(root)) + 1}"
        name = fields[0].text_input("Name", usual, key=f"train.name.{usual}").strip()
        model = fields[1].text_input("Model: a folder, or its name at a hub", key="train.model").strip()
        given = _draw_trl_fields() if target.startswith("trl-") else {}
        weights = _draw_weights() if target == "trl-grpo" else {}
        more = st.text_area("More arguments, one a line: name=value", key="train.more", height=70, placeholder="seed=7")
        with st.container(horizontal=True):
            is_planned = st.form_submit_button("Plan only", icon=":material/draft:")
            is_started = st.form_submit_button("Start", type="primary", icon=":material/play_arrow:")
    if not (is_planned or is_started):
        return
    folder = root / "runs" / safe.file_slug(name or target)
    try:
        arguments = {**given, **_named(more.splitlines())}
        if not model:
            raise TrainingError("Model", "a plan needs one", hint="give a folder, or the name at a hub")
        prepare(root / "exports" / export, target, folder, model=model, arguments=arguments, **weights)
    except TrainingError as error:
        st.error(safe.markdown(str(error), 600), icon=":material/error:")
        return
    if is_started:
        _start(location, folder)
    selection.put(run=folder.name)
    st.rerun()


def _draw_trl_fields() -> dict[str, Argument]:
    """Draw what every trainer of TRL asks for; return its arguments. It reports to nobody but its log."""
    sizes = st.columns(3)
    steps = int(sizes[0].number_input("Steps", 1, 10**7, 100, key="train.steps"))
    rate = sizes[1].number_input("Learning rate", 0.0, 1.0, 1e-5, 1e-5, format="%g", key="train.rate")
    batch = int(sizes[2].number_input("Rows in a batch", 1, 4096, 8, key="train.batch"))
    on_cpu = st.checkbox("No GPU: train on the processor", shutil.which("nvidia-smi") is None, key="train.cpu")
    given: dict[str, Argument] = {
        "max_steps": steps, "learning_rate": rate, "per_device_train_batch_size": batch, "report_to": "none",
        "logging_steps": max(1, steps // _N_ENTRIES), "save_steps": max(1, steps // _N_CHECKPOINTS), "save_total_limit": 2,
    }  # fmt: skip
    return {**given, **_CPU} if on_cpu else given


def _draw_weights() -> dict[str, float]:
    """Draw what event credit counts, and until when."""
    left, right = st.columns(2)
    weight = left.slider("λ: how much event credit counts", 0.0, 2.0, 0.3, 0.05, key="train.weight")
    until = right.slider("λ has faded to 0 after this share of the steps; 0: never", 0.0, 1.0, 1.0, 0.05, key="train.until")
    return {"orch_weight": weight, "orch_until": until}


def draw_runs(location: str, root: Path) -> None:
    """Draw the runs there are, and one of them."""
    there = {folder.name: folder for folder in stored.runs(root)}
    if not there:
        return
    st.subheader("Runs")
    jobs_by_run = _newest_jobs(location)
    states = {name: _standing(folder, jobs_by_run.get(name)) for name, folder in there.items()}
    called = {name: f"{name}, {'under way' if state in _BUSY else state}" for name, state in states.items()}
    folder = there[selection.choose("run", "Run", called)]
    plan, job = read_plan(folder), jobs_by_run.get(folder.name)
    if states[folder.name] in _BUSY:
        _follow(location, folder, plan)
    else:
        _draw_end(location, folder, plan, job)
        _draw_status(folder, plan, job)
    _draw_manifests(folder, plan)


def draw_environment() -> None:
    """Say whether the environment that trains is here, and how it comes."""
    if (interpreter := environment.python()) is not None:
        st.caption(safe.markdown(f"Training environment: {interpreter.parents[1]}"))
        return
    st.warning(
        "The training environment is not installed. A run that needs it can be planned now, and started elsewhere or once it is "
        "here; `counterpoint train --setup` installs it: 1.6 GB, some minutes.", icon=":material/deployed_code_alert:",
    )  # fmt: skip


@st.fragment(run_every="2s")
def _follow(location: str, folder: Path, plan: Plan) -> None:
    job = _newest_jobs(location).get(folder.name)
    if _standing(folder, job) not in _BUSY:
        st.rerun()
    # Until the trainer itself has begun there is only the job.
    if st.button("Cancel", key="train.cancel", icon=":material/cancel:") and not running.cancel(folder) and job is not None:
        jobs.cancel(location, job.job_id)
    _draw_status(folder, plan, job)
    st.caption("This goes on when the page is closed; its address finds it again.")


def _draw_end(location: str, folder: Path, plan: Plan, job: jobs.Job | None) -> None:
    """Draw what became of a run that does not run, and what can be done with it."""
    state = running.status(folder).state
    if state == "done":
        st.success(safe.markdown(f"Done. The model is in {folder / 'out'}", 600), icon=":material/check:")
        return
    if state == "cancelled":
        st.warning("Cancelled. Its checkpoints are kept.", icon=":material/cancel:")
    elif state == "failed":
        st.error(safe.markdown(_reason(folder), 1000), icon=":material/error:")
    elif job is not None and job.state == "failed":  # before there was a trainer
        st.error(safe.markdown(job.text, 1000), icon=":material/error:")
    if not plan.environment_digest and shutil.which(plan.command[0]) is None:
        st.info(
            safe.markdown(f"{plan.command[0]} is not installed here: start the run where it is, as slurm.sh says."),
            icon=":material/info:",
        )
        return
    is_missing = bool(plan.environment_digest) and environment.python() is None
    with st.container(horizontal=True):
        goes_on = any((folder / "out").glob("checkpoint-*"))
        if goes_on and st.button("Go on from the last checkpoint", key="train.resume", icon=":material/resume:", type="primary"):
            _start(location, folder, "--resume")
            st.rerun()
        label = "Install the environment and start" if is_missing else "Start from the beginning" if goes_on else "Start"
        if st.button(label, key="train.start", icon=":material/play_arrow:"):
            _start(location, folder, *(["--setup"] if is_missing else []))
            st.rerun()


def _draw_status(folder: Path, plan: Plan, job: jobs.Job | None) -> None:
    found, state = running.status(folder), _standing(folder, job)
    n_steps, n_entry = (_whole(plan.arguments.get(name)) for name in ("max_steps", "logging_steps"))
    st.markdown(f"**{safe.markdown(folder.name, 80)}** {safe.markdown(_told(plan, state), 400)}")
    steps = figures.steps_of(found.metrics, n_entry)
    if n_steps and steps and state == "running":
        st.progress(min(1.0, steps[-1] / n_steps), text=f"{steps[-1]:,} of {n_steps:,} steps")
    if found.metrics:
        figure = figures.curves(found.metrics, steps)
        st.plotly_chart(figure, key="train.curves", config={"displayModeBar": False})
    elif state in _BUSY:
        st.caption("Nothing is logged yet: a trainer loads its libraries and the model first.")
    if tail := _tail(folder / "log.txt"):
        with st.expander("Log, its last lines", icon=":material/terminal:", expanded=state == "failed"):
            safe.text_block(tail, key="train.log")


def _draw_manifests(folder: Path, plan: Plan) -> None:
    with st.expander("The same run on a cluster", icon=":material/cloud_upload:"):
        st.caption(safe.markdown(f"The folder is all that a machine needs, with {', '.join(plan.environment)}: {folder}", 800))
        with st.container(horizontal=True):
            for name, label in _MANIFESTS.items():
                data = (folder / name).read_bytes()
                st.download_button(
                    label, data, name, "text/plain", key=f"train.{name}", icon=":material/download:", on_click="ignore"
                )
        safe.text_block((folder / "slurm.sh").read_text(encoding="utf-8"), key="train.slurm")


def _reason(folder: Path) -> str:
    """Return what a trainer that failed said last: its error, else its last line."""
    lines = [line.strip() for line in _tail(folder / "log.txt").splitlines()] or ["It ended without a word."]
    return next((line for line in reversed(lines) if _RAISED.fullmatch(line)), lines[-1])


def _told(plan: Plan, state: str) -> str:
    arguments = ", ".join(f"{name} {value}" for name, value in plan.arguments.items())
    weight = f", λ {plan.orch_weight:g} until {plan.orch_until:g}" if plan.target == "trl-grpo" else ""
    return f"{state}: {plan.target} on {plan.model}{weight}; {arguments or 'usual arguments'}"


def _named(lines: Iterable[str]) -> dict[str, Argument]:
    """Return arguments that lines state as name=value, numbers and true and false as such. Raises TrainingError."""
    found: dict[str, Argument] = {}
    for line in filter(None, map(str.strip, lines)):
        name, sign, text = line.partition("=")
        if not (name and sign):
            raise TrainingError("More arguments", "a line is not of the form name=value", got=line)
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        found[name] = value if isinstance(value, str | int | float) else text
    return found


def _start(location: str, folder: Path, *options: str) -> None:
    jobs.start(location, f"{_TITLE}{folder.name}", ["train", str(folder), *options], on_workspace=False)


def _newest_jobs(location: str) -> dict[str, jobs.Job]:
    """Return the newest job of each run, by the name of the run."""
    return {job.title.removeprefix(_TITLE): job for job in reversed(jobs.all_jobs(location)) if job.title.startswith(_TITLE)}


def _standing(folder: Path, job: jobs.Job | None) -> str:
    """Return the state of a run; `starting` while its job has not come to the trainer."""
    state = running.status(folder).state
    return "starting" if state != "running" and job is not None and job.state == "running" else state


def _whole(value: Argument | None) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _tail(path: Path) -> str:
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _N_BYTES))
        return "\n".join(file.read().decode(errors="replace").splitlines()[-_N_LINES:])
