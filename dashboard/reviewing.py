"""The view Review of the page Curate: the traces that wait for a person, one at a time, and what people decided.

Hides which trace comes next, and which components an edit suggests to mask.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pandas as pd
import streamlit as st

from analysis.curation.funnel import Review
from analysis.curation.gates import Coherence
from analysis.curation.segments import Parts, Segmenting, repairs_of, ruling
from analysis.model import Event
from analysis.pipeline.curating import store_review, take_back_review
from dashboard import drafts, notes, safe, selection, tables
from dashboard import loading as every
from dashboard.loading import Version
from dashboard.loading import curation as loading

COMPONENTS = {"component": "Component", "n_events": "Events", "share": "Residual share"}
DECIDED = {
    "trace_id": "Trace", "verdict": "Verdict", "mask": "Masked", "note": "Note", "author": "By", "made_at": "When (UTC)",
}  # fmt: skip
_N_SUSPECTS, _LONG, _LINE = 3, 500, "\n"
_WORDS = {"keep": "kept", "drop": "dropped", "edit": "edited"}
_BUTTONS = {
    "keep": ("Keep (k)", "check", "Into the data set as it is"), "drop": ("Drop (d)", "delete", "Not into the data set"),
    "edit": ("Edit: mask (e)", "content_cut", "Into the data set, without loss on the components chosen above"),
}  # fmt: skip


def draw(version: Version, dataset: str) -> None:
    """Draw the trace that is to be decided, or that nothing waits; and the decisions that were made."""
    queue, reviews = loading.queue(version, dataset), {review.trace_id: review for review in loading.reviews(version)}
    waiting = [trace_id for trace_id in queue["trace_id"] if trace_id not in reviews]
    _draw_standing(version, dataset, queue, len(waiting))
    chosen = selection.get("trace")
    trace_id = chosen if chosen in set(queue["trace_id"]) or chosen in reviews else next(iter(waiting), None)
    if trace_id is not None:
        _draw_one(version, dataset, trace_id, waiting, reviews.get(trace_id))
    _draw_decided(version, list(reviews.values()))


def _draw_standing(version: Version, dataset: str, queue: pd.DataFrame, n_waiting: int) -> None:
    """Draw how many wait, what would queue where none does, and the button that applies what was decided."""
    if queue.empty:
        st.info("Nothing waits: this data set queues no trace.", icon=":material/check:")
        st.markdown(
            'A policy queues with `near = "queue"` (sampling noise alone could carry a trace over the threshold) or '
            '`unknown = "queue"` in a gate, and with `ambiguous = "queue"` under `[segments]` (no single component is to blame).'
        )
        selection.link("curate", "Change its policy", view="policy", policy=f"{drafts.SAVED}{dataset}")
        return
    n_decided = len(queue) - n_waiting
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f"**{n_waiting:,} of {len(queue):,} traces wait for you.**")
        label = f"Curate again, with the {n_decided:,} decided"
        kind: Any = "secondary" if n_waiting else "primary"
        if n_decided and st.button(label, key="review.again", icon=":material/replay:", type=kind):
            job = drafts.start(version.location, dataset, loading.saved(version)[dataset])
            selection.stay(view="policy", policy=f"{drafts.SAVED}{dataset}", job=job)


def _draw_one(version: Version, dataset: str, trace_id: str, waiting: list[str], review: Review | None) -> None:
    policy = loading.policy(version, dataset)
    levels = [gate.level for gate in policy.gates if isinstance(gate, Coherence)]
    spoken = loading.spoken(version, trace_id, levels[0] if levels else "whole")
    parts = loading.components(version, trace_id, spoken["level"] if spoken else "")
    with st.container(border=True):
        _draw_facts(version, dataset, trace_id, spoken, review)
        suggested = _suggested(parts, spoken["minimal_repairs"] if spoken else None, policy.segments)
        mask, note = _draw_fields(trace_id, parts["component"].tolist(), suggested)
        _draw_buttons(version, trace_id, waiting, mask, note)
    left, right = st.columns([2, 3], gap="medium")
    with left:
        st.markdown("##### Who does the residual come from?")
        tables.show(parts, key="review-components", columns=COMPONENTS)
        if spoken:
            st.caption(safe.markdown(_repairs(spoken["minimal_repairs"]), 600))
    with right:
        _draw_suspects(version, trace_id, spoken)


def _draw_facts(version: Version, dataset: str, trace_id: str, spoken: dict[str, Any] | None, review: Review | None) -> None:
    """Draw what is known of the trace and why it waits."""
    trace = every.trace(version, trace_id)
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.markdown(f"**{safe.markdown((trace.task.text or trace_id).strip().partition(_LINE)[0], 200)}**")
        selection.link("trace", f"Open {trace_id}", trace=trace_id)
    way = loading.way(version, dataset, trace_id)
    for row in way[way["outcome"] == "queued"].itertuples():
        numbers = "" if pd.isna(row.value) else f" (value {row.value:.3g}, threshold {row.threshold:.3g})"
        st.markdown(f":material/hourglass: {safe.markdown(f'Queued by {row.gate}: {row.reason}{numbers}', 300)}")
    if spoken:
        debiased = spoken["residual_debiased"]
        noise = "how much of it is sampling noise is not known" if pd.isna(debiased) else f"{debiased:.4g} without sampling noise"
        st.caption(safe.markdown(f"{spoken['summary']} Level {spoken['level']}; {noise}.", 900))
    if review is not None:
        st.info(safe.markdown(f"Decided: {review.reason}. Another decision replaces it.", 400), icon=":material/how_to_reg:")


def _draw_fields(trace_id: str, names: list[str], suggested: list[str]) -> tuple[list[str], str]:
    """Draw which components to mask, and the note; return both."""
    left, right = st.columns(2, vertical_alignment="bottom")
    stays: dict[str, Any] = {"persist_state": "session"}  # what is begun outlives a look at the next trace
    with left:
        mask = st.multiselect(
            "Components to mask in an edit; their text stays as context", names, default=suggested, key=f"review.mask.{trace_id}",
            help="At first those that the policy would mask if it did not ask you.", **stays,
        )  # fmt: skip
    with right:
        note = st.text_input("Note", key=f"review.note.{trace_id}", placeholder="why, for whoever reads the data set", **stays)
    return mask, note.strip()


def _draw_buttons(version: Version, trace_id: str, waiting: list[str], mask: list[str], note: str) -> None:
    """Draw the buttons, each with the key that presses it; what is decided is stored at once, and the next trace comes."""
    place = waiting.index(trace_id) if trace_id in waiting else -1
    following = waiting[(place + 1) % len(waiting)] if waiting and waiting != [trace_id] else None
    pressed = None
    with st.container(horizontal=True):
        for verdict, (label, icon, meaning) in _BUTTONS.items():
            is_off, key = verdict == "edit" and not mask, f"review.{verdict}"
            if st.button(label, key=key, icon=f":material/{icon}:", disabled=is_off, help=meaning):
                pressed = verdict
        if st.button(
            "Next (j, n)", key="review.next", icon=":material/skip_next:", disabled=following is None, help="Decide later"
        ):
            selection.put(trace=following)
            st.rerun()
    if pressed is not None:
        chosen = mask if pressed == "edit" else []
        workspace = every.snapshot(version).workspace
        store_review(workspace, trace_id, pressed, author=notes.author(), mask=chosen, note=note)
        st.toast(safe.markdown(f"{trace_id} {_WORDS[pressed]}", 120))
        selection.put(trace=following)
        st.rerun()


def _draw_suspects(version: Version, trace_id: str, spoken: dict[str, Any] | None) -> None:
    """Draw the text of the events whose quotes lie farthest from coherent ones; without quotes, of those that clues point at."""
    st.markdown("##### What was said where it went wrong?")
    said: dict[str, list[str]] = {}
    if spoken:
        for row in loading.moved(version, trace_id, spoken["level"], spoken["projection"]).itertuples():
            quote = f"{row.component} quotes {row.p:.3g} for {row.proposition}; {row.coherent:.3g} would be coherent"
            if isinstance(row.event_id, str):
                said.setdefault(row.event_id, []).append(quote)
    if not said:
        said = {row["event_id"]: row["reasons"] for row in every.suspects(version, trace_id)}
    events = {event.event_id: event for event in every.trace(version, trace_id).events}
    shown = [(events[event_id], words) for event_id, words in said.items() if event_id in events][:_N_SUSPECTS]
    if not shown:
        st.caption("No event is named by a claim, and no clue points at one.")
    for n, (event, words) in enumerate(shown):
        with st.container(border=True):
            with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
                st.markdown(safe.markdown("; ".join(words[:3]), 400))
                selection.link("trace", f"{event.event_id}", trace=trace_id, event=event.event_id, view="events")
            text = _text(event)
            with st.container(height=220 if len(text) > _LONG else "content", border=False):
                safe.text_block(text, key=f"review.text.{n}.{event.event_id}")


def _text(event: Event) -> str:
    """What an event says: its content, else the last of its messages."""
    if event.content:
        return event.content
    last = event.messages[-1].get("content") if event.messages else None
    return last if isinstance(last, str) else "(this event has no text of its own)"


def _repairs(text: str | None) -> str:
    """The sets of components that could restore coherence, in words."""
    repairs = repairs_of(text)
    if not repairs:
        return "Which components could restore coherence is not known."
    said = [" and ".join(one.components) + ("" if one.cost is None else f" (cost {one.cost:.3g})") for one in repairs[:4]]
    more = f"; {len(repairs) - 4} more" if len(repairs) > 4 else ""
    return f"Coherence could be restored by {'; or by '.join(said)}{more}."


def _suggested(parts: pd.DataFrame, text: str | None, policy: Segmenting) -> list[str]:
    """The components that the policy would mask if it did not ask; none where it could not."""
    n_events = dict(zip(parts["component"], parts["n_events"], strict=True))
    ruled = ruling(Parts(n_events, repairs=repairs_of(text)), msgspec.structs.replace(policy, ambiguous="repair"))
    return [name for name in ruled.components if name in n_events and ruled.outcome == "masked"]


def _draw_decided(version: Version, reviews: list[Review]) -> None:
    """Draw what people decided, the newest first, with the way to look again and to take back."""
    st.subheader("Decisions")
    if not reviews:
        st.caption("None yet. What you decide holds for every data set that is made from now on.")
        return
    rows = pd.DataFrame([review._asdict() | {"mask": ", ".join(review.mask)} for review in reviews])
    rows["made_at"] = rows["made_at"].str[:16].str.replace("T", " ")
    at = tables.show(rows, key="decided", columns=DECIDED, select="single-row", height=min(38 + 35 * len(rows), 300))
    if not at:
        st.caption("Choose a row to look at it again or to take it back. A later decision replaces an earlier one.")
        return
    review = reviews[at[0]]
    with st.container(horizontal=True):
        if st.button("Look again", key="review.look", icon=":material/visibility:"):
            selection.put(trace=review.trace_id)
            st.rerun()
        if st.button(safe.markdown(f"Take back: {review.trace_id}", 120), key="review.undo", icon=":material/undo:"):
            take_back_review(every.snapshot(version).workspace, review.trace_id, author=notes.author())
            st.rerun()
