"""Rows as a trainer will see them: what trains, what does not, what decisions in them were worth, what each target says of them.

Hides the HTML of a message. It is made here alone, of texts through `safe.html_text`, and its colours carry words beside them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import pandas as pd
import streamlit as st

from analysis.training.formats import views
from analysis.training.formats.shapes import sure_credit
from analysis.training.rows import Row, RowEvent, message_text
from dashboard import safe, selection, tables
from dashboard.figures import training as figures
from dashboard.figures.effects import color_of, verdict_of
from dashboard.loading import Version
from dashboard.loading import training as stored
from dashboard.loading.training import METRIC, Chosen, Made

REFUSED = {
    "target": "Target",
    "reason": "Why its rows are refused",
    "n": "Refused",
    "share": "Refused share",
    "trace_id": "For example",
}
_N_MESSAGES = 20
_N_CHARS = 20_000
_RECORD_PX = 720
_STYLE = """<style>
.cp-message { border-left: 3px solid #8c8c8c; padding: .1rem 0 .1rem .75rem; margin: 0 0 .7rem; }
.cp-message.trains { border-color: #0072b2; }
.cp-message header { font-size: .8rem; display: flex; flex-wrap: wrap; gap: .15rem .75rem; align-items: baseline; }
.cp-message header b { font-size: .875rem; }
.cp-message pre { margin: .2rem 0 0; padding: 0; background: none; white-space: pre-wrap; overflow-wrap: anywhere;
  max-height: 22rem; overflow-y: auto; font-size: .8125rem; line-height: 1.45; }
.cp-message.apart pre { opacity: .7; }
.cp-message pre i { font-style: normal; opacity: .75; }
.cp-credit { border-bottom: 2px solid var(--credit); background: color-mix(in srgb, var(--credit) 22%, transparent); }
.cp-credit.unsure { border-bottom-style: dashed; background: none; }
</style>"""


def draw_rows(version: Version, chosen: Chosen, targets: Sequence[str]) -> None:
    """Draw one row of the chosen traces, and the way to the others."""
    traces = stored.chosen_traces(version, chosen.dataset, chosen.filter)
    ids = traces["trace_id"].tolist()
    place = ids.index(wanted) if (wanted := selection.get("trace")) in ids else 0
    if wanted is not None and wanted not in ids:
        st.warning(safe.markdown(f"{wanted} is not among the chosen traces; the first of them is shown."), icon=":material/info:")
    made = stored.rows_of_trace(version, chosen, ids[place])
    number = _number(len(made.rows))
    _draw_way(ids, place, number, len(made.rows))
    if not made.rows:
        st.info("No row comes of this trace: no agent wrote anything that is recorded.", icon=":material/info:")
        return
    _draw_row(made, number, targets)


def draw_refusals(version: Version, chosen: Chosen, targets: Sequence[str]) -> None:
    """Draw how much each target would take of what it is given, why it refuses the rest, and what it cannot express at all."""
    found = stored.refusals(version, chosen)
    n_all = len(stored.chosen_traces(version, chosen.dataset, chosen.filter))
    of = f"all {n_all:,} traces" if found.n_traces == n_all else f"{found.n_traces:,} of {n_all:,} traces, drawn by their ids"
    masked = f"; {found.n_masked:,} more are masked whole and given to none" if found.n_masked else ""
    pairs = f" Pairs are the {found.n_pairs:,} effects that sound studies measured on all of them." if found.n_pairs else ""
    st.caption(safe.markdown(f"Asked of {found.n_rows:,} rows of {of}{masked}.{pairs} An export counts all.", 600))
    numbers = {"rows": found.n_rows, "pairs": found.n_pairs}
    given = {name: (numbers[view.takes], view.takes) for name, view in views().items() if name in targets and numbers[view.takes]}
    if given:
        figure = figures.taken(given, found.found)
        st.plotly_chart(figure, key="training.taken", config={"displayModeBar": False})
    _draw_reasons(found.found[found.found["target"].isin(list(given))].reset_index(drop=True), given)
    if any(views()[name].takes == "pairs" for name in targets) and not found.n_pairs:
        st.info(
            "No sound study measured an effect in these traces: there are no pairs for targets made of them.",
            icon=":material/info:",
        )
        selection.link("counterfactuals", "Start a study", view="new")
    st.markdown("##### What each target can express")
    for name in targets:
        st.markdown(f"**{safe.markdown(name)}** {safe.markdown(views()[name].about.replace('`', ''), 1000)}")


def _draw_reasons(rows: pd.DataFrame, given: Mapping[str, tuple[int, str]]) -> None:
    """Draw why records are refused, with a way to one of them."""
    if rows.empty:
        st.success("None of these targets refuses anything that was asked.", icon=":material/check:")
        return
    shares = rows.assign(share=[n / given[target][0] for target, n in zip(rows["target"], rows["n"], strict=True)])
    at = tables.show(shares, key="refused", columns=REFUSED, select="single-row", height=min(38 + 35 * len(rows), 300))
    one = rows.iloc[at[0] if at else 0]
    if pd.isna(one["row"]):
        label = f"Open an event that {one['target']} refuses: {one['reason']}"
        selection.link("trace", label, trace=one["trace_id"], event=one["event_id"], view="events")
        return
    st.button(
        safe.markdown(f"Show a row that {one['target']} refuses: {one['reason']}", 200), key="refused.example",
        icon=":material/visibility:", on_click=selection.put,
        kwargs={"view": "rows", "trace": one["trace_id"], "row": f"{one['row'] + 1:.0f}"},
    )  # fmt: skip


def _number(n_rows: int) -> int:
    """Return which row of the trace the address names, from 0; `last` is the last one."""
    given = selection.get("row") or "1"
    wanted = n_rows if given == "last" else int(given) if given.isdecimal() else 1
    return min(max(wanted, 1), max(n_rows, 1)) - 1


def _draw_way(ids: list[str], place: int, number: int, n_rows: int) -> None:
    """Draw the ways to other rows: the one before, the next one, those of another trace."""

    def go_to(trace: str, row: str) -> None:
        selection.put(trace=trace, row=row, page=None)

    has_before, has_after = number > 0 or place > 0, number + 1 < n_rows or place + 1 < len(ids)
    before = (ids[place], f"{number}") if number > 0 else (ids[max(place - 1, 0)], "last")
    after = (ids[place], f"{number + 2}") if number + 1 < n_rows else (ids[min(place + 1, len(ids) - 1)], "1")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.button("Previous row", key="rows.previous", icon=":material/chevron_left:", disabled=not has_before, on_click=go_to,
                  args=before)  # fmt: skip
        st.button(
            "Next row", key="rows.next", icon=":material/chevron_right:", disabled=not has_after, on_click=go_to, args=after
        )
        st.session_state["rows.place"] = place + 1
        st.number_input(
            f"Trace, of {len(ids):,} in training order", 1, len(ids), key="rows.place", width=240,
            on_change=lambda: go_to(ids[st.session_state["rows.place"] - 1], "1"),
        )  # fmt: skip
        selection.link("trace", "Open the trace", trace=ids[place])


def _draw_row(made: Made, number: int, targets: Sequence[str]) -> None:
    row = made.rows[number]
    st.markdown(f"##### {safe.markdown(row.agent or 'no agent', 80)}, row {number + 1:,} of {len(made.rows):,} of its trace")
    st.caption(safe.markdown(" · ".join(_facts(row)), 1000))
    if made.taken:
        taken = ", ".join(f"{n:,} {kind}" for kind, n in made.taken.items())
        st.caption(safe.markdown(f"Taken out of this trace: {taken}."))
    if not any(row.keep):
        st.warning("Every message of this row is masked: it is left out of the export.", icon=":material/visibility_off:")
    takes_rows = {name: view for name, view in views().items() if name in targets and view.takes == "rows"}
    for name, view in takes_rows.items():
        for problem in view.check(row):
            st.warning(safe.markdown(f"{name} refuses it: {problem}"), icon=":material/block:")
    raw = selection.choose("raw", "Record of a target", {"": "Messages only", **{name: f"and {name}" for name in takes_rows}})
    left, right = st.columns([3, 2], gap="medium") if raw else (st.container(), None)
    with left:
        _draw_messages(row)
    if right is not None:
        with right, st.container(height=_RECORD_PX):
            _draw_record(raw, row)


def _facts(row: Row) -> Iterator[str]:
    yield row.trace_id
    yield f"component {row.component}" if row.component else "no component"
    yield f"split {row.split}" if row.split else "its split is drawn by the export"
    yield f"place {row.order_key:,} in training order"
    yield "no outcome" if row.reward is None else f"reward {row.reward:g}"
    numbers = {"normalised ε*": row.residual_norm, "d_req": row.d_req, "d_orch": row.d_orch}
    yield from (f"{name} {value:.3g}" for name, value in numbers.items() if value is not None)
    yield f"{len(row.messages):,} messages" if row.tools else f"{len(row.messages):,} messages, no tools"
    words = {"stage": row.stage, "family": row.family, "mode": row.failure_mode}
    yield from (f"{name} {value}" for name, value in words.items() if value)


def _draw_messages(row: Row) -> None:
    paid = [event for event in row.events if event.credit is not None]
    legend = "Blue edge: trains. Grey: told to the agent, or masked; no loss is taken there."
    if paid:
        legend += f" Green helped {METRIC}, orange hurt it; dashed: its interval holds 0, so that it counts nothing in a loss."
    else:
        legend += " No decision in this row has a credit."
    st.caption(legend)
    n_pages = math.ceil(len(row.messages) / _N_MESSAGES)
    page = _page(n_pages)
    shown = range((page - 1) * _N_MESSAGES, min(page * _N_MESSAGES, len(row.messages)))
    st.html(_STYLE + "".join([message_html(row, n) for n in shown]))
    if row.tools:
        with st.expander(f"{len(row.tools):,} tools that it was offered", icon=":material/build:"):
            safe.text_block(json.dumps(row.tools, ensure_ascii=False, indent=1), key="rows.tools")


def _page(n_pages: int) -> int:
    """Draw which part of a long row is shown; the address holds it."""
    if n_pages == 1:
        return 1
    given = selection.get("page") or "1"
    st.session_state["url.page"] = min(max(int(given), 1), n_pages) if given.isdecimal() else 1
    return st.pagination(n_pages, key="url.page", on_change=lambda: selection.put(page=str(st.session_state["url.page"])))


def _draw_record(target: str, row: Row) -> None:
    """Draw what a target is given of the row; of one that it refuses, that it is given nothing."""
    if target == "trl-tokenized":
        st.info("Token ids are made by the tokenizer of the model, in the export.", icon=":material/info:")
        return
    if views()[target].check(row) or not any(row.keep):
        st.info(safe.markdown(f"{target} is not given this row."), icon=":material/block:")
        return
    for name, records in stored.record(target, row).items():
        st.caption(safe.markdown(name))
        text = "\n".join([r if isinstance(r, str) else json.dumps(r, ensure_ascii=False, indent=1) for r in records])
        safe.text_block(text, key=f"rows.record.{name}")


def message_html(row: Row, n: int) -> str:
    """Return one message of a row as HTML that shows exactly its texts, with the credit of its events."""
    message, text = row.messages[n], message_text(row.messages[n])
    paid = [event for event in row.events if event.message == n and event.credit is not None]
    largest = max((abs(event.credit or 0.0) for event in row.events), default=0.0) or 1.0
    if row.keep[n]:
        kind, said = "trains", f"trains, weight {row.weight[n]:.3g}"
    else:
        kind, said = "apart", "masked" if message["role"] == "assistant" else "told"
    parts = [(0, len(message["content"]), "")]
    for call in message.get("tool_calls") or ():
        begin = parts[-1][1]
        parts.append((begin, begin + len(call["function"]["arguments"]), call["function"]["name"]))
    who = [message["role"], *[str(message[key]) for key in ("name", "tool_call_id") if message.get(key)]]
    head = [f"<b>{safe.html_text(safe.line(' · '.join(who), 100))}</b>", f"<span>{said}</span>"]
    head += [f'<span class="{_classes(e)}" style="{_color(e, largest)}">{safe.html_text(credit_words(e))}</span>' for e in paid]
    body = "".join([_part(text, part, paid, largest) for part in parts if part[2] or part[1] > part[0]])
    return f'<article class="cp-message {kind}"><header>{"".join(head)}</header>{body}</article>'


def credit_words(event: RowEvent) -> str:
    """Return the credit of an event in words."""
    credit = event.credit or 0.0
    error = "no error known" if event.credit_se is None else f"± {1.96 * event.credit_se:.2g}"
    verdict = verdict_of(credit, "higher") if sure_credit(event) else "not sure"
    return f"{event.kind or 'event'} {credit:+.3g} {error}, n {event.n}, {event.method}: {verdict}"


def _part(text: str, part: tuple[int, int, str], paid: Sequence[RowEvent], largest: float) -> str:
    """Return the content of a message, or one of its calls, cut where an event begins or ends."""
    begin, whole, name = part
    end = min(whole, begin + _N_CHARS)
    inside = [event for event in paid if event.char_from < end and event.char_to > begin]
    cuts = sorted({begin, end, *[min(max(at, begin), end) for e in inside for at in (e.char_from, e.char_to)]})
    pieces = []
    for a, b in pairwise(cuts):
        over = max((e for e in inside if e.char_from <= a and b <= e.char_to), key=lambda e: abs(e.credit or 0.0), default=None)
        piece = safe.html_text(text[a:b])
        title = "" if over is None else f' title="{safe.html_text(f"{over.event_id}: {credit_words(over)}")}"'
        pieces.append(
            piece if over is None else f'<span class="{_classes(over)}" style="{_color(over, largest)}"{title}>{piece}</span>'
        )
    label = f"<i>calls {safe.html_text(safe.line(name, 100))} </i>" if name else ""
    rest = f"<i> … {whole - end:,} characters more</i>" if whole > end else ""
    return f"<pre>{label}{''.join(pieces)}{rest}</pre>"


def _classes(event: RowEvent) -> str:
    return "cp-credit" if sure_credit(event) else "cp-credit unsure"


def _color(event: RowEvent, largest: float) -> str:
    credit = event.credit or 0.0
    return f"--credit:{color_of(verdict_of(credit, 'higher'), abs(credit) / largest)}"
