"""What people decide about traces and events: tags and notes, with author and time, never overwritten."""

from __future__ import annotations

import getpass
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime

import pandas as pd
import pyarrow as pa
import streamlit as st

from analysis.workspace import SCHEMAS
from dashboard import loading, safe
from dashboard.loading import Version


def author() -> str:
    """Return who decides: the address a person signed in with, else the user the server runs as."""
    return str(st.user.get("email") or getpass.getuser())


def decide(version: Version, decisions: Iterable[tuple[str, str, str, str]]) -> None:
    """Write decisions (trace_id, event_id or "", what, value) as one new version; `what` is tag, untag or note."""
    made_at, names = datetime.now(UTC).isoformat(timespec="milliseconds"), SCHEMAS["decisions"].names
    rows = [dict(zip(names, (uuid.uuid4().hex, *decision, author(), made_at), strict=True)) for decision in decisions]
    loading.snapshot(version).workspace.append("decisions", pa.Table.from_pylist(rows, schema=SCHEMAS["decisions"]))


def draw(version: Version, trace_id: str, event_id: str = "") -> None:
    """Draw the tags and notes of a trace or event, and the fields that add to them."""
    decisions = loading.rows(version, "decisions", trace_id)
    mine = decisions[decisions["event_id"] == event_id] if len(decisions) else decisions
    _draw_notes(mine)
    key = f"notes.{trace_id}.{event_id}"
    with st.form(key, border=False, clear_on_submit=True), st.container(horizontal=True, vertical_alignment="bottom"):
        what = "event" if event_id else "trace"
        note = st.text_input(f"Note on this {what}", key=f"{key}.note")
        tag = st.text_input("Tag", key=f"{key}.tag", width=160) if not event_id else ""
        if st.form_submit_button("Save", icon=":material/save:") and (note or tag):
            decide(version, [(trace_id, event_id, w, v) for w, v in (("note", note), ("tag", tag)) if v])
            st.rerun()
    if event_id:
        return
    tags = loading.frame(version, "select tag from current_tags where trace_id = $id order by tag", {"id": trace_id})["tag"]
    if tags.empty:
        return
    kept = st.pills(
        "Tags", tags.tolist(), default=tags.tolist(), selection_mode="multi", format_func=safe.markdown, key=f"{key}.tags"
    )
    if gone := sorted(set(tags) - set(kept)):
        decide(version, [(trace_id, "", "untag", tag) for tag in gone])
        st.rerun()


def _draw_notes(decisions: pd.DataFrame) -> None:
    for row in decisions[decisions["what"] == "note"].sort_values("made_at").itertuples() if len(decisions) else ():
        st.text(safe.visible(row.value))
        st.caption(safe.markdown(f"{row.author}, {row.made_at[:16].replace('T', ' ')} UTC"))
