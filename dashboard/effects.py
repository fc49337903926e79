"""The drawings of the page Counterfactuals: a study, what changes did, one trace, stopping, the budget, observed pairs.

Hides how a mark that was clicked, or a row that was chosen instead, becomes the change of the address.
"""

from __future__ import annotations

import io
import json

import pandas as pd
import streamlit as st

from analysis.counterfactual.controls import GAIN, IDENTITY, LOSS, PERMUTED, UNUSED
from analysis.counterfactual.study import CONFIRM, SCREEN
from analysis.errors import ReplayError, SandboxError
from dashboard import comparing, loading, safe, selection, swimlane, tables
from dashboard.figures import effects as figures
from dashboard.loading import Version
from dashboard.loading import effects as studies

CELLS = {
    "operator": "Change", "event_kind": "At", "delta_q": "ΔQ", "low": "From", "high": "To", "why": "Why no interval",
    "n": "Pairs", "n_tasks": "Tasks", "zero_share": "No difference at all share", "p": "p", "q_value": "q",
    "evidence": "Evidence", "world": "World", "cost": "Tokens",
}  # fmt: skip
EVENTS = {
    "verdict": "Decision", "credit": "Credit", "delta_q": "ΔQ of the change", "low": "From", "high": "To", "n": "Pairs",
    "state": "State", "seed_block": "Seeds", "operator": "Change", "how": "How", "event_kind": "At",
    "event_id": "Event", "trace_id": "Trace", "q_value": "q", "e_value": "E", "shrunken": "Shrunken ΔQ",
    "evidence": "Evidence", "world": "World", "cost_tokens": "Tokens",
}  # fmt: skip
TRACES = {
    "trace_id": "Trace", "task": "Task", "n_events": "Decisions", "n_changes": "Changes tried", "n_confirmed": "Confirmed",
    "largest": "Largest |ΔQ|",
}  # fmt: skip
PAIR = {name: comparing.METRICS[name] for name in ("name", "value_a", "value_b", "difference", "better")}
OBSERVED = {
    "factor": "Factor", "level_a": "From level", "level_b": "To level", "delta_q": "Difference", "low": "From", "high": "To",
    "why": "Why no interval", "n": "Pairs", "n_tasks": "Tasks", "n_contexts": "Settings of the rest", "p": "p",
    "q_value": "q", "better": "Better", "evidence": "Evidence", "world": "World",
}  # fmt: skip
BLOCKS = {
    "seed_block": "Seeds", "evidence": "Evidence", "world": "World", "n_changes": "Changes", "n_pairs": "Pairs",
    "least": "Fewest of a change", "most": "Most of a change", "cost_tokens": "Tokens",
}  # fmt: skip
GAINS = {"passed": "gain: passed", "tests_rate": "gain: tests passed", "q_work": "gain: q_work"}
COSTS = {"tokens": "against tokens", "makespan_s": "against seconds"}
_NO_CONTROLS = "nothing was executed, so there is nothing to control"
CREDIT = "Credit = −ΔQ: what the decision taken was worth against the changes tried in its place."


def draw_study(study: pd.Series) -> None:
    """Draw what a study rests on and, at the top and in red, whether it may be believed."""
    failed = [control for control in json.loads(study["controls"]) if not control["ok"]]
    if not study["is_sound"]:
        said = "; ".join([f"{control['name']}: {control['note']}" for control in failed]) or "a control failed"
        st.error(safe.markdown(f"Do not believe it: this batch fails its controls. {said}.", 1000), icon=":material/dangerous:")
    n_controls = len(json.loads(study["controls"]))
    held = f"{n_controls - len(failed)} of {n_controls} controls hold" if n_controls else _NO_CONTROLS
    facts = [
        f"seed {study['seed']}", f"{study['n_traces']:,} traces", f"{study['n_pairs']:,} pairs",
        f"{study['cost_tokens']:,} tokens of simulated agents", held,
    ]  # fmt: skip
    facts += [f"{study['n_left']:,} pairs left for want of budget"] if study["n_left"] else []
    st.caption(safe.markdown(" · ".join(facts), 400))
    for note in json.loads(study["notes"]):
        st.caption(safe.markdown(f"{note[:1].upper()}{note[1:]}.", 400))


def choose_metric(cells: pd.DataFrame) -> str:
    """Draw the choice of a metric of a study."""
    names = studies.metric_names(cells)
    return selection.choose("metric", "Metric", {name: f"effect on {name}" for name in names})


def draw_effects(version: Version, study: str) -> None:
    """Draw what each kind of change did, and the single decisions of the one that is selected."""
    cells = studies.cells(version, study)
    if cells.empty:
        st.info("This study holds no effects.", icon=":material/info:")
        return
    metric = choose_metric(cells)
    here = cells[cells["metric"] == metric].reset_index(drop=True)
    rows = studies.effect_rows(version, study, metric)
    st.markdown(safe.markdown(_headline(here, rows, metric), 400))
    key = [selection.get("operator") or "", selection.get("kind") or ""]
    title = f"What did each kind of change do to {safe.plotly_text(metric)}?"
    drawn = figures.forest(here, metric, title=title, selected=key)
    clicked = st.plotly_chart(drawn, key=f"effects.forest.{study}.{metric}", on_select="rerun", selection_mode="points")
    picked = [point["customdata"] for point in clicked["selection"]["points"] if point.get("customdata")]
    with st.expander("The same as a table; a row can be chosen with the keyboard"):
        here = here.assign(why=[figures.why_no_interval(row) for row in here.to_dict("records")])
        at = tables.show(here, key="effect-cells", columns=CELLS, select="single-row")
    _pick("figure", dict(zip(("operator", "kind"), map(str, picked[0]), strict=False)) if picked else None)
    _pick("cells", {"operator": here["operator"].iloc[at[0]], "kind": here["event_kind"].iloc[at[0]]} if at else None)
    _draw_events(rows, study, metric, key)


def _headline(cells: pd.DataFrame, rows: pd.DataFrame, metric: str) -> str:
    """The answer in a sentence or two."""
    if not rows["delta_q"].any():
        return f"No change of this study moved {metric} in any pair; another metric may say more."
    off = cells[(cells["low"] > 0) | (cells["high"] < 0)]
    kinds = "one kind" if len(cells) == 1 else f"{len(cells)} kinds"
    said = f"Of {kinds} of change {len(off) or 'none'} moved {metric} with an interval that leaves out 0"
    if len(off):
        largest = off.loc[off["delta_q"].abs().idxmax()]
        said += f", most of all {largest['label']}: {largest['delta_q']:+.3g}"
    sure = rows[rows["confirmed"] & (rows["seed_block"] == CONFIRM)]["verdict"].value_counts()
    words = ", ".join([f"{n:,} {word}" for word, n in sure.items()])
    return f"{said}. " + (f"Single decisions, confirmed on fresh seeds: {words}." if words else "")


def _draw_events(rows: pd.DataFrame, study: str, metric: str, cell: list[str]) -> None:
    mine = rows[(rows["operator"] == cell[0]) & (rows["event_kind"] == cell[1])]
    is_chosen = len(mine) > 0
    rows = (mine if is_chosen else rows).reset_index(drop=True)
    st.subheader(safe.markdown(f"Single decisions: {' at '.join(cell) if is_chosen else 'all kinds of change'}"))
    words = rows["verdict"].value_counts()
    counts = ", ".join([f"{n:,} {word}" for word, n in words.items()])
    st.caption(safe.markdown(
        f"{len(rows):,} rows, the confirmed and the largest first: {counts}. {CREDIT} Choose a row to see it on its trace.", 600
    ))  # fmt: skip
    with st.container(horizontal=True, vertical_alignment="center"):
        if is_chosen and st.button("All kinds of change", icon=":material/filter_alt_off:", key="effects.all"):
            selection.put(operator=None, kind=None)
            st.rerun()
        _draw_export(rows, study, metric)
    at = tables.show(rows, key="effects", columns=EVENTS, select="single-row", height=430)
    if at:
        _open_change(study, metric, rows.iloc[at[0]])


def _draw_export(rows: pd.DataFrame, study: str, metric: str) -> None:
    """The counterfactual data set of the rows that are shown."""

    def data() -> bytes:
        sink = io.BytesIO()
        studies.data_set_rows(rows).to_parquet(sink, index=False)
        return sink.getvalue()

    name = safe.file_slug(f"counterfactuals-{study}-{metric}")
    st.download_button(
        f"Counterfactual data set of these {len(rows):,} rows", data, f"{name}.parquet", "application/vnd.apache.parquet",
        key="effects.export", icon=":material/download:", on_click="ignore",
        help="Event, change, ΔQ, credit, pairs, interval, evidence and world, as Parquet",
    )  # fmt: skip


def _open_change(study: str, metric: str, row: pd.Series) -> None:
    given = {name: str(row[column]) for name, column in _CHANGE.items()}
    selection.stay(view="trace", study=study, metric=metric, trace=row["trace_id"], **given)


#: What of the address says which change is selected -> the column that holds it.
_CHANGE = {"event": "event_id", "operator": "operator", "change": "parameters"}


def draw_trace(version: Version, study: pd.Series) -> None:
    """Draw one trace with the credit of its events, the changes tried at the selected one, and one pair made again."""
    name = study["study"]
    cells = studies.cells(version, name)
    if cells.empty:
        st.info("This study holds no effects.", icon=":material/info:")
        return
    metric = choose_metric(cells)
    runs = studies.traces_of(version, name, metric)
    trace_id = selection.get("trace")
    if trace_id is None or trace_id not in set(runs["trace_id"]):
        if trace_id is not None:
            said = f"The trace {trace_id} has no effect on {metric} in this study, or is not part of it."
            st.info(safe.markdown(said), icon=":material/info:")
        st.caption(f"Choose one of the {len(runs):,} traces; those with the most confirmed and the largest effects come first.")
        at = tables.show(runs, key="effect-traces", columns=TRACES, select="single-row", height=430)
        if at:
            _pick("traces", {"trace": runs["trace_id"].iloc[at[0]], "event": None, "operator": None, "change": None})
        return
    trace = loading.trace(version, trace_id)
    ids = [event.event_id for event in trace.events]
    with st.container(horizontal=True):
        selection.link("trace", f"Open {trace_id}", trace=trace_id, color="credit", study=name, metric=metric)
        if st.button("Another trace", icon=":material/list:", key="effects.another", type="tertiary"):
            selection.stay(view="trace", study=name, metric=metric)
    selected = selection.get("event")
    swimlane.draw(
        studies.credit_lanes(version, trace_id, name, metric), selected=ids.index(selected) if selected in ids else None,
        axis="time", shown=selection.interval(), on_show=selection.put_interval,
        on_pick=lambda n: selection.put(event=None if n is None else ids[n], operator=None, change=None, pair=None, place=None),
    )  # fmt: skip
    st.caption(CREDIT + " Where several were tried at one event, the mean over them by pairs. Select an event to see which.")
    _draw_changes(version, study, metric, trace_id)


def _draw_changes(version: Version, study: pd.Series, metric: str, trace_id: str) -> None:
    rows = studies.effect_rows(version, study["study"], metric)
    # Of a change that was confirmed the fresh pairs come first.
    rows = rows[rows["trace_id"] == trace_id].drop_duplicates(list(_CHANGE.values()))
    event_id = selection.get("event")
    here = rows[rows["event_id"] == event_id] if event_id else rows
    if here.empty:
        st.info(safe.markdown(f"No change was tried at the event {event_id}: it is blank."), icon=":material/info:")
        return
    at_event = f"at {event_id}" if event_id else "on this trace"
    st.subheader(safe.markdown(f"What was tried {at_event}"))
    here = here.reset_index(drop=True)
    at = tables.show(here, key="changes", columns=EVENTS, select="single-row", height=min(38 + 35 * len(here), 300))
    picked = {name: str(here[column].iloc[at[0]]) for name, column in _CHANGE.items()} if at else None
    _pick("changes", picked | {"pair": None, "place": None} if picked else None)
    wanted = (selection.get("operator"), selection.get("change"))
    mine = here if len(here) == 1 else here[[p == wanted for p in zip(here["operator"], here["parameters"], strict=True)]]
    if mine.empty:
        st.caption("Choose a row to see the run as it was beside the run with the change.")
        return
    _draw_pair(version, study, mine.iloc[0])


def _draw_pair(version: Version, study: pd.Series, row: pd.Series) -> None:
    """The selected change in a sentence, and one of its pairs, made again, side by side."""
    how = f", {row['how']}" if row["how"] else ""
    st.subheader(safe.markdown(f"What if at {row['event_id']}: {row['operator']}{how}?", 200))
    st.markdown(safe.markdown(_sentence(row), 600))
    number = 0
    if row["seed_block"] in (SCREEN, CONFIRM) and row["n"] > 1:
        options = {str(n): f"Pair {n + 1} of {row['n']}" for n in range(row["n"])}
        number = int(selection.choose("pair", "Pair", options))
    change = (row["trace_id"], row["event_id"], row["operator"], row["parameters"])
    try:
        found = studies.counterfactual(version, change, row["seed_block"], int(study["seed"]), number)
    except (ReplayError, SandboxError) as error:
        st.warning(safe.markdown(f"This pair cannot be made again here: {error}", 1000), icon=":material/block:")
        return
    for note in found.notes:
        st.caption(safe.markdown(note, 400))
    st.caption("A is the run without the change, B the run with it. " + _MADE[row["evidence"] == "interventional"])
    comparing.draw_alignment(
        (found.alignment, found.places), found.original, found.changed, is_stored=False,
        axis="order" if row["evidence"] == "interventional" else "time",
        numbers=lambda: tables.show(found.metrics, key="pair-metrics", columns=PAIR, height=320),
    )  # fmt: skip


_STATES = {
    "confirmed": "confirmed on fresh seeds", "not confirmed": "not confirmed on fresh seeds",
    "screened": "screened, not confirmed", "exact": "exact, given the recording",
}  # fmt: skip
_MADE = {
    True: "Both were executed again just now, from the same prefix and with the same draws after it, as in the study.",
    False: "B was worked out of A's recorded schedule and candidates; no agent was asked and nothing was executed.",
}


def _sentence(row: pd.Series) -> str:
    interval = f"95 % interval {row['low']:+.3g} to {row['high']:+.3g}" if pd.notna(row["low"]) else "no interval"
    rests = f"{interval}, {row['n']} pair{'' if row['n'] == 1 else 's'}"
    words = {"helped": "so the decision taken helped", "hurt": "so the decision taken hurt", "no effect": "so it makes no odds",
             "not judged": f"and no value of {row['metric']} is better than another"}  # fmt: skip
    better = "" if row["better"] == "neither" else f"; {row['better']} is better"
    return (
        f"The change moves {row['metric']} by {row['delta_q']:+.4g} (ΔQ; {rests}, {_STATES[row['state']]}): credit "
        f"{row['credit']:+.4g}{better}, {words[row['verdict']]}. Evidence {row['evidence']}, world {row['world']}."
    )


def draw_stop(version: Version, study: str) -> None:
    """Draw what ending runs elsewhere gains against what it costs."""
    cells = studies.cells(version, study)
    cells = cells[cells["operator"].isin(["stop-earlier", "stop-later"])] if len(cells) else cells
    known = set(cells["metric"]) if len(cells) else set()
    gains, costs = ({name: label for name, label in options.items() if name in known} for options in (GAINS, COSTS))
    if not gains or not costs:
        st.info(
            "This study did not try to end runs earlier or later, or what it measured there holds no gain and cost. A study "
            "with the operator `stop` does.", icon=":material/info:",
        )  # fmt: skip
        return
    with st.container(horizontal=True):
        gain, cost = selection.choose("gain", "Gain", gains), selection.choose("cost", "Cost", costs)
    keys = ["operator", "event_kind", "evidence", "world"]
    sides = [cells[cells["metric"] == metric].set_index(keys) for metric in (gain, cost)]
    both = sides[0].join(sides[1], suffixes=("_gain", "_cost"), how="inner").reset_index()
    both = both[both["delta_q_gain"].notna() & both["delta_q_cost"].notna()]
    both = both.rename(columns={"n_gain": "n", "label_gain": "label", "n_tasks_gain": "n_tasks"})
    keys = ["trace_id", "event_id", "operator", "parameters", "seed_block", "evidence", "world"]
    rows = [studies.effect_rows(version, study, metric) for metric in (gain, cost)]
    single = rows[0].merge(rows[1], on=keys, suffixes=("_gain", "_cost"))
    single = single[single["operator"].isin(both["operator"]) & (single["seed_block"] != CONFIRM)].reset_index(drop=True)
    single["hover"] = single["operator"] + " at " + single["event_id"] + " of " + single["trace_id"]
    drawn = figures.stop_curve(both, single, gain=gain, cost=cost)
    st.plotly_chart(drawn, key="effects.stop", config={"displayModeBar": False})
    st.caption(
        "Stopping earlier returns the latest result of then, not the best of all; stopping later lets the work go on instead of "
        "ending. Without the pairs that were confirmed, since those were chosen for being large."
    )
    columns = {name: EVENTS.get(name, CELLS.get(name, name)) for name in ("operator", "event_kind", "n", "n_tasks")}
    columns |= {f"{name}_{side}": f"{word} of the {side}" for side in ("gain", "cost")
                for name, word in (("delta_q", "Δ"), ("low", "From"), ("high", "To"))}  # fmt: skip
    tables.show(both, key="stopping", columns=columns)


def draw_budget(version: Version, study: pd.Series) -> None:
    """Draw what was spent on what, how far screening is to be trusted, the controls, and what was refused."""
    with st.container(horizontal=True):
        spent = {"Pairs made": "n_pairs", "Pairs left": "n_left", "Tokens spent": "cost_tokens"}
        for label, column in spent.items():
            st.metric(label, f"{study[column]:,}", border=True)
    blocks = studies.blocks(version, study["study"])
    is_executed = SCREEN in set(blocks["seed_block"])
    st.caption(_allocation(blocks))
    tables.show(blocks, key="blocks", columns=BLOCKS)
    if is_executed:
        st.markdown("##### Fidelity")
        _draw_fidelity(version, study["study"])
    st.markdown("##### Controls")
    found = json.loads(study["controls"])
    if found:
        rows = pd.DataFrame(found)
        rows["state"] = rows["ok"].map({True: "holds", False: "FAILS"})
        columns = {"name": "Control", "state": "State", "n": "Pairs", "about": "What must come out", "note": "What came out"}
        tables.show(rows.assign(about=rows["name"].map(_CONTROLS)), key="controls", columns=columns)
    else:
        st.caption("None: nothing was executed, so there is nothing that chance or a faulty replay could feign.")
    st.markdown("##### Refused")
    refused = json.loads(study["refused"])
    if not refused:
        st.caption("Nothing: every change that was tried could be replayed.")
        return
    with st.expander(f"{len(refused):,} traces or changes that could not be replayed, and why"):
        rows = pd.DataFrame({"what": list(refused), "why": list(refused.values())})
        tables.show(rows, key="refused", columns={"what": "What", "why": "Why"})


_CONTROLS = {
    IDENTITY: "nothing: both runs are the same", UNUSED: "nothing: a branch that nobody uses begins later",
    LOSS: "-1: agents without mistakes lose a result they need", GAIN: "+1: they get it back",
    PERMUTED: "nothing: which run is the changed one is drawn by lot",
}  # fmt: skip


def _allocation(blocks: pd.DataFrame) -> str:
    screened = blocks[blocks["seed_block"] == SCREEN]
    if screened.empty:
        return "What a recorded schedule decides is exact: one replay of each change says it all."
    confirmed = "Then the largest effects for their error are confirmed on fresh seeds."
    if (screened["least"] == screened["most"]).all():
        return f"Uniform: while screening every decision has equally many pairs. {confirmed}"
    return f"Adaptive: while screening decisions race for the pairs by what they did so far. {confirmed}"


def _draw_fidelity(version: Version, study: str) -> None:
    found, n = studies.fidelity(version, study, studies.PASSED)
    if found is None or n < 3:
        st.caption("Fidelity: fewer than three decisions were screened and confirmed, so nothing can be said of it.")
        return
    interval = f"95 % interval {found.low:+.2f} to {found.high:+.2f}" if found.low is not None else "no interval"
    st.markdown(safe.markdown(
        f"{found.value:+.2f} ({interval}, {n} decisions): the rank correlation of the screened credit in passed with "
        "that on fresh seeds. Only the largest were confirmed, which makes it smaller than it would be over all.", 600
    ))  # fmt: skip


def draw_observed(version: Version) -> None:
    """Draw what goes along with stated factors of runs that nobody made for comparison."""
    formats = studies.formats_with_factors(version)
    if not formats:
        st.info(
            "No runs here state under what they were made (a condition such as topology=tree, model=small), so none can be "
            "paired.", icon=":material/info:",
        )  # fmt: skip
        return
    chosen = selection.choose("source", "Format", {name: name for name in formats})
    rows = studies.observed(version, chosen)
    if rows.empty:
        st.info("No task was run with two levels of a factor while the others were the same.", icon=":material/info:")
        return
    names = studies.metric_names(rows)
    metric = selection.choose("metric", "Metric", {name: f"difference in {name}" for name in names})
    here = rows[rows["metric"] == metric].reset_index(drop=True)
    title = f"What goes along with each setting, in {safe.plotly_text(metric)}?"
    st.plotly_chart(figures.forest(here, metric, title=title), key=f"effects.observed.{metric}", config={"displayModeBar": False})
    st.caption(
        "Evidence observational: pairs of runs of one task in which one stated setting differs and all other stated ones are the "
        "same. Nothing was changed by us; what is not stated may differ too, so this is no effect of the setting."
    )
    here = here.assign(why=[figures.why_no_interval(row) for row in here.to_dict("records")])
    tables.show(here, key="observed", columns=OBSERVED, height=min(38 + 35 * len(here), 430))


def _pick(source: str, values: dict[str, str | None] | None) -> None:
    """Put what was picked into the address, once: a table and a figure go on reporting what was picked before."""
    key = f"effects.picked.{source}"
    is_new = values is not None and st.session_state.get(key) != values
    st.session_state[key] = values
    if values is not None and is_new:
        selection.put(**values)
        st.rerun()
