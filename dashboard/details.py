"""The parts of one trace in full: header, events and their text, claims, labels, the source record."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pandas as pd
import streamlit as st

from analysis.model import Event, Trace
from analysis.orchestration import METRICS
from analysis.orchestration.timing import Timing
from dashboard import loading, safe, selection, swimlane, tables
from dashboard.loading import Version
from dashboard.loading import effects as studies

EVENT_COLUMNS = {
    "order": "#", "kind": "Kind", "agent_id": "Agent", "content": "Content", "targets": "To", "action": "Action",
    "error": "Error", "basis": "Basis", "rule": "Rule", "t_start_s": "Start (s)", "t_end_s": "End (s)",
    "input_tokens": "Tokens in",    "output_tokens": "Tokens out", "event_id": "Event",
}  # fmt: skip
CLAIM_COLUMNS = {
    "component": "Component", "proposition": "Proposition", "p": "p", "kind": "Kind", "level": "Level", "turn": "Turn",
    "n_samples": "Samples", "is_placeholder": "Placeholder", "event_id": "Event", "basis": "Basis", "rule": "Rule",
}  # fmt: skip
_PREVIEW = 300
_MARKED = 12  # events of a pattern with a button each
_PATTERN = re.compile(r"(?<!\S)pattern:(\w+)(?!\S)")
_SUSPECTS = 3
_CREDITS = 3  # credits of an event told in full


def draw_header(version: Version, trace: Trace) -> None:
    """Draw what the run was and how it ended, and the way to the next one of the list."""
    before, after = loading.neighbours(version, trace.trace_id, selection.get("filter") or "")
    with st.container(horizontal=True, vertical_alignment="center"):
        steps = (("previous_trace", before, "arrow_back", "[", "Previous"), ("next_trace", after, "arrow_forward", "]", "Next"))
        for name, target, icon, key, word in steps:
            meaning = f"{word} trace of the filtered list ({key})"
            if st.button(
                "", key=f"trace.{name}", icon=f":material/{icon}:", disabled=target is None, help=meaning, type="tertiary"
            ):
                selection.put(trace=target, event=None, t0=None, t1=None)
                st.rerun()
        st.caption(safe.markdown(trace.trace_id, 200))
        selection.link("compare", "Compare with another run", a=trace.trace_id)
    if text := trace.task.text:  # short: what the page is for stands below it
        st.markdown(f"**{safe.markdown(text, 200)}**", help=safe.markdown(text, 4000) if len(text) > 200 else None)
    outcome = {True: "passed", False: "failed", None: "no outcome"}[trace.outcome.passed]
    if trace.outcome.score is not None:
        outcome += f", score {trace.outcome.score:g}"
    n_explicit = sum(event.basis == "explicit" for event in trace.events)
    facts = [
        f"**{outcome}**",
        f"{len(trace.events):,} events, {n_explicit:,} of them explicit",
        f"{len(trace.agents):,} agents",
        f"world {trace.world}",
        f"from {safe.markdown(' '.join(filter(None, (trace.source.format, trace.source.file, trace.source.record))))}",
    ]
    for name, value in (("condition", trace.groups.condition), ("trial", trace.groups.trial), ("expected", trace.task.reference)):
        if value:
            facts.append(f"{name} {safe.markdown(value, 120)}")
    st.markdown(" · ".join(facts))
    _draw_blames(trace)


def _draw_blames(trace: Trace) -> None:
    """Draw whom annotators blame, one click from the event."""
    blames: dict[tuple[str, str], list[str]] = {}
    for label in trace.labels:
        if label.agent_id and label.event_id and (label.is_root_cause is not False):
            blames.setdefault((label.agent_id, label.event_id), []).append(label.annotator)
    if not blames:
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        for (agent, event_id), annotators in blames.items():
            text = f"{', '.join(dict.fromkeys(annotators))}: {agent} at {event_id}"
            if st.button(safe.markdown(text, 100), key=f"trace.blame.{agent}.{event_id}", icon=":material/person_search:"):
                selection.put(event=event_id)
                st.rerun()


def draw_pattern(version: Version, trace: Trace) -> list[int]:
    """Draw where the pattern of the address, or of the filtered list, occurs in this run; return the positions of its events."""
    in_filter = _PATTERN.search(selection.get("filter") or "")
    pattern_id = selection.get("pattern") or (in_filter[1] if in_filter else None)
    if pattern_id is None:
        return []
    query = """select name, exists(from occurrences where pattern_id = $id and trace_id = $trace_id) as is_here from patterns
        where pattern_id = $id"""
    known = loading.frame(version, query, {"id": pattern_id, "trace_id": trace.trace_id})
    events = set(loading.occurrence(version, trace.trace_id, pattern_id)) if len(known) else set()
    places = [n for n, event in enumerate(trace.events) if event.event_id in events]
    with st.container(horizontal=True, vertical_alignment="center"):
        if known.empty:
            st.caption(safe.markdown(f"No pattern has the id {pattern_id}; it was mined under other options, perhaps."))
        elif not places:
            why = "it was not found in the steps allowed" if known["is_here"].iloc[0] else "it does not occur in this run"
            st.caption(safe.markdown(f"Pattern {known['name'].iloc[0]}: {why}."))
        else:
            st.caption(safe.markdown(f"Ringed: one occurrence of the pattern {known['name'].iloc[0]}, {len(places):,} events."))
        for n in places[:_MARKED]:
            event = trace.events[n]
            label = safe.markdown(f"{n + 1} {event.kind or 'opaque'} {event.agent_id or ''}", 40)
            if st.button(label, key=f"trace.pattern.{n}", icon=":material/my_location:"):
                selection.put(event=event.event_id)
                st.rerun()
        selection.link("patterns", "The pattern", view="patterns", pattern=pattern_id)
        if not in_filter and st.button("", key="trace.no_pattern", icon=":material/close:", help="Ring it no longer"):
            selection.put(pattern=None)
            st.rerun()
    return places


def choose_credit(version: Version, trace_id: str) -> tuple[str, str] | None:
    """Draw the choice of what colours mean in the lanes; return study and metric where that is credit."""
    rows = studies.credits(version, trace_id)
    if rows.empty:
        return None
    with st.container(horizontal=True):
        colors = {"kind": "Coloured by kind", "credit": "Coloured by credit"}
        if selection.choose("color", "Colour", colors) == "kind":
            return None
        study = selection.choose("study", "Study", {name: f"study {name}" for name in rows["study"].unique()})
    metrics = studies.metric_names(rows[rows["study"] == study])
    return study, selection.choose("metric", "Metric", {name: f"credit in {name}" for name in metrics})


def draw_credit(version: Version, trace_id: str, event_id: str) -> None:
    """Draw what studies found that an event was worth; nothing where none measured it."""
    rows = studies.credits(version, trace_id)
    mine = rows[rows["event_id"] == event_id]
    if mine.empty:
        return
    for study, of_study in mine.groupby("study"):
        metrics = studies.metric_names(of_study)
        ranked = of_study.set_index("metric", drop=False).loc[metrics[:_CREDITS]]
        for row in ranked.itertuples(index=False):
            st.text(safe.visible(studies.credit_words(row)))
        given = {"study": str(study), "metric": metrics[0], "trace": trace_id, "event": event_id}
        selection.link("counterfactuals", f"What was tried here ({study})", view="trace", **given)


def event_rows(trace: Trace) -> pd.DataFrame:
    """Return the events as rows of a table; contents are cut to a preview."""
    rows = []
    for n, event in enumerate(trace.events, 1):
        row: dict[str, Any] = {name: getattr(event, name) for name in EVENT_COLUMNS} | {"order": n}
        row |= {"targets": ", ".join(event.targets), "content": (event.content or "")[:_PREVIEW], "kind": event.kind or "opaque"}
        rows.append(row)
    return pd.DataFrame(rows, columns=list(EVENT_COLUMNS))


def draw_event(trace: Trace, position: int, times: Timing) -> None:
    """Draw one event in full: what it was, how that is known, its part in the run's duration, its payload and its text."""
    event = trace.events[position]
    _draw_steps(trace, position)
    to = f" → {', '.join(event.targets)}" if event.targets else ""
    what = " · ".join(filter(None, (event.kind or "opaque", event.action)))
    st.markdown("#### " + safe.markdown(f"{what}: {event.agent_id or '–'}{to}", 160))
    st.markdown("  \n".join(_facts(trace, event, times)))
    if event.error:
        st.error(safe.markdown(event.error, 1000), icon=":material/error:")
    if event.payload and event.kind != "act":
        st.json(_visible(event.payload), expanded=2)
    if event.content:
        safe.text_block(event.content, key=f"trace.text.{event.event_id}")
    elif not event.messages:
        st.caption("This event has no text of its own.")
    for n, message in enumerate(event.messages):
        st.caption(safe.markdown(str(message.get("role", "message"))))
        body = message.get("content")
        text = body if isinstance(body, str) else json.dumps(message, ensure_ascii=False, indent=1)
        safe.text_block(text, key=f"trace.message.{event.event_id}.{n}")
    if event.extra:
        st.json(_visible(event.extra), expanded=1)


def draw_quality(version: Version, trace: Trace) -> None:
    """Draw what went wrong, with its events, and every metric with what it rests on."""
    metrics, findings = loading.quality(version, trace.trace_id)
    if not metrics:
        st.info("This trace is not analysed yet; the overview has the button that does it.", icon=":material/pending:")
        selection.link("overview", "Overview")
        return
    _draw_suspects(version, trace)
    st.markdown("##### Findings")
    if not findings:
        st.caption("None: this run shows none of the anti-patterns that a single run can show.")
    for n, finding in enumerate(findings):
        with st.container(border=True):
            words = {True: "the run passed all the same", False: "the run failed", None: "the outcome is not known"}
            lost = f", lost {finding['loss']:.3g} {finding['loss_unit']}" if finding["loss"] is not None else ""
            st.markdown(f"**{safe.markdown(finding['name'])}** · {safe.markdown(words[finding['recovered']] + lost)}")
            st.text(safe.visible(finding["message"]))
            with st.container(horizontal=True):
                for event_id in finding["event_ids"][:6]:
                    if st.button(safe.markdown(event_id, 60), key=f"trace.finding.{n}.{event_id}", icon=":material/my_location:"):
                        selection.put(event=event_id, view="lanes")
                        st.rerun()
                if (hidden := len(finding["event_ids"]) - 6) > 0:
                    st.caption(f"and {hidden:,} more events")
    st.markdown("##### Metrics")
    rows = pd.DataFrame([{"name": n, "unit": METRICS[n].unit, "meaning": METRICS[n].meaning, **m} for n, m in metrics.items()])
    present = rows["value"].notna()
    columns = {"name": "Metric", "value": "Value", "unit": "Unit", "meaning": "Meaning", "variant": "Variant", "n": "n",
               "low": "Low", "high": "High"}  # fmt: skip
    tables.show(rows[present], key="metrics", columns=columns)
    with st.expander(f"{(~present).sum():,} metrics that this run does not have, and why"):
        tables.show(rows[~present], key="absent-metrics", columns={"name": "Metric", "reason": "Why", "meaning": "Meaning"})
    st.markdown("##### Own work by agent")
    by_agent = loading.work_by_agent(version, trace.trace_id)
    columns = {
        "agent": "Agent",
        "value": "q_work",
        "variant": "Variant",
        "n": "n",
        "low": "Low",
        "high": "High",
        "reason": "Why not",
    }
    tables.show(by_agent, key="by-agent", columns=columns)


def _draw_suspects(version: Version, trace: Trace) -> None:
    """Draw who and when: the events that speak most for having made the run fail, and why."""
    found = loading.suspects(version, trace.trace_id)
    if not found:
        return
    st.markdown("##### Who and when")
    st.caption(
        "A ranking by named clues, without any model. The share is that of the suspicion if one event is to blame; it is no "
        "probability of fault."
    )
    for suspect in found[:_SUSPECTS]:
        with st.container(border=True):
            with st.container(horizontal=True, vertical_alignment="center"):
                text = f"{suspect['rank']}. {suspect['component']} at {suspect['event_id']}"
                key = f"trace.suspect.{suspect['event_id']}"
                if st.button(safe.markdown(text, 120), key=key, icon=":material/person_search:"):
                    selection.put(event=suspect["event_id"], view="lanes")
                    st.rerun()
                st.caption(f"{suspect['score']:.0%} of the suspicion")
            st.text(safe.visible("\n".join(suspect["reasons"][:4]) or "Nothing but its place speaks for it."))


def draw_claims(version: Version, trace: Trace) -> None:
    """Draw who claimed what with which probability, how coherent that is, and what annotators say."""
    claims, relations = loading.claims_in_use(version, trace.trace_id)
    _draw_residuals(version, trace)
    st.markdown("##### Claims")
    if len(claims):
        chosen = tables.show(claims, key="claims", columns=CLAIM_COLUMNS, select="single-row")
        if chosen and isinstance(event_id := claims["event_id"].iloc[chosen[0]], str):
            selection.link("trace", f"Open the event {event_id}", trace=trace.trace_id, event=event_id, view="events")
    else:
        st.caption("No claims: nobody stated a probability or a verdict that could be taken over.")
    st.markdown("##### Relations")
    for relation in relations.itertuples():
        st.code(safe.visible(relation.formula), language=None, wrap_lines=True)
        st.caption(safe.markdown(f"{relation.basis}{f', rule {relation.rule}' if relation.rule else ''}"))
    if relations.empty:
        st.caption("No relations: nothing ties the propositions together yet.")
    _draw_labels(trace)


def _draw_residuals(version: Version, trace: Trace) -> None:
    """Draw ε* of each level in a sentence, and the way to where it comes from."""
    rows = loading.rows(version, "residuals", trace.trace_id)
    if rows.empty:
        return
    st.markdown("##### Coherence")
    for end in rows[rows["is_last"]].itertuples():
        st.text(safe.visible(f"{end.level}: {end.summary}"))
    selection.link("coherence", "By component and turn", view="trace", trace=trace.trace_id)


def _draw_labels(trace: Trace) -> None:
    st.markdown("##### Labels, by annotator")
    if not trace.labels:
        st.caption("Nobody has labelled this run.")
    for n, label in enumerate(trace.labels):
        with st.container(border=True):
            blame = f": {label.agent_id}" if label.agent_id else ""
            st.markdown(f"**{safe.markdown(label.annotator)}** · {safe.markdown(label.name + blame)}")
            facts = {k: v for k, v in msgspec.to_builtins(label).items() if k not in ("annotator", "name", "text", "agent_id")}
            st.caption(" · ".join(safe.markdown(f"{k} {v}", 200) for k, v in facts.items()))
            if label.text:
                st.text(safe.visible(label.text))
            if label.event_id and st.button("Go to its event", key=f"trace.label.{n}", icon=":material/my_location:"):
                selection.put(event=label.event_id, view="events")
                st.rerun()


def draw_record(version: Version, trace: Trace) -> None:
    """Draw the load problems, the native record and the source records of a trace."""
    st.markdown("##### Load problems")
    problems = loading.rows(version, "problems", trace.trace_id)
    if problems.empty:
        st.caption("None: everything came in as it was.")
    else:
        columns = {
            "severity": "Severity",
            "message": "Problem",
            "got": "Got",
            "expected": "Expected",
            "hint": "What to do",
            "n": "n",
        }
        tables.show(problems, key="trace-problems", columns=columns)
    for row in loading.raw(version, trace.trace_id):
        st.markdown(f"##### Source record: {safe.markdown(row['part'])}")
        st.caption(safe.markdown(f"{row['file']}, {row['record']}, {row['n_bytes']:,} bytes, digest {row['digest']}"))
        name = f"{safe.file_slug(trace.trace_id + ' ' + row['part'])}.json"
        st.download_button(
            "Download", row["data"], name, key=f"trace.raw.{row['part']}", icon=":material/download:", on_click="ignore"
        )
        text = row["data"][: 2 * safe.BLOCK].decode("utf-8", "replace")
        with st.expander("Read it", expanded=len(text) < safe.BLOCK):
            safe.text_block(text, key=f"trace.rawtext.{row['part']}")


def _draw_steps(trace: Trace, position: int) -> None:
    """The buttons to the neighbouring events, and to those of the same kind."""
    kind = trace.events[position].kind
    before = (n for n in range(position - 1, -1, -1) if trace.events[n].kind == kind)
    after = (n for n in range(position + 1, len(trace.events)) if trace.events[n].kind == kind)
    steps = {
        "previous": (position - 1 if position else None, "chevron_left", "Previous event (k)"),
        "next": (position + 1 if position + 1 < len(trace.events) else None, "chevron_right", "Next event (j)"),
        "previous_of_kind": (next(before, None), "keyboard_double_arrow_left", "Previous event of this kind (p)"),
        "next_of_kind": (next(after, None), "keyboard_double_arrow_right", "Next event of this kind (n)"),
    }
    with st.container(horizontal=True, vertical_alignment="center"):
        for name, (target, icon, meaning) in steps.items():
            label = {"previous": "Previous", "next": "Next"}.get(name, "")
            if st.button(label, key=f"trace.{name}", icon=f":material/{icon}:", disabled=target is None, help=meaning):
                selection.put(event=trace.events[target or 0].event_id)
                st.rerun()
        st.caption(f"event {position + 1:,} of {len(trace.events):,}")


def _facts(trace: Trace, event: Event, times: Timing) -> list[str]:
    facts = [f"basis {event.basis}" + (f", rule {safe.markdown(event.rule)}" if event.rule else "")]
    if event.name:
        facts.append(f"name {safe.markdown(event.name)}")
    if event.t_start_s is not None or event.t_end_s is not None:
        facts.append(_time(trace, event))
    if event.event_id in times.critical_path:
        drag = times.drag_s.get(event.event_id)
        facts.append("on the critical path" + ("" if drag is None else f", drag {drag:.3f} s"))
    elif (slack := times.slack_s.get(event.event_id)) is not None:
        facts.append(f"slack {slack:.3f} s: so much later it could start without the run ending later")
    if event.input_tokens is not None or event.output_tokens is not None:
        facts.append(f"tokens in {_number(event.input_tokens)}, out {_number(event.output_tokens)}")
    if event.parents:
        facts.append(f"caused by {safe.markdown(', '.join(event.parents))}")
    if event.raw_id or event.raw_type:
        facts.append(f"in the source {safe.markdown(' '.join(filter(None, (event.raw_id, event.raw_type))))}")
    return facts


def _time(trace: Trace, event: Event) -> str:
    start = swimlane.run_start_s(trace) or 0.0
    first, last = (f"{t - start:.3f} s" if t is not None else "unknown" for t in (event.t_start_s, event.t_end_s))
    text = f"from {first} to {last} after the run began"
    if trace.clock in ("unix", "naive") and event.t_start_s is not None:
        zone = "UTC" if trace.clock == "unix" else "zone not stated"
        text += f" ({pd.Timestamp(event.t_start_s, unit='s'):%Y-%m-%d %H:%M:%S} {zone})"
    return text


def _number(value: int | None) -> str:
    return f"{value:,}" if value is not None else "unknown"


def _visible(value: Any) -> Any:
    if isinstance(value, dict):
        return {safe.visible(str(k)): _visible(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_visible(v) for v in value]
    return safe.visible(value) if isinstance(value, str) else value
