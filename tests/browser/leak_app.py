"""Draws hostile text: in 34 ways of Streamlit (`?part=matrix`), through `dashboard.safe` (`safe`), as a graph.

Each variant's payload names it, so that the sink sees who leaked. `breach` is a graph page into which a script got.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from analysis.model import Agent, Event, Trace
from dashboard import network, safe, swimlane

SINK = os.environ.get("COUNTERPOINT_TEST_SINK", "")


def payload(name: str) -> str:
    """Return a text that fetches the sink wherever it is read as Markdown, HTML or a formula."""
    return (
        f"=1+1 ![i]({SINK}/{name}) [l](javascript:window.__pwn='{name}')"
        f" <img src={SINK}/{name} onerror=\"window.__pwn='{name}'\"><script>window.__pwn='{name}'</script>"
    )


def image_column(text: str) -> None:
    """Draw a column that is declared to hold addresses of images."""
    st.dataframe(pd.DataFrame({"a": [f"{SINK}/imgcol"]}), column_config={"a": st.column_config.ImageColumn()})


def spinner(text: str) -> None:
    """Show a spinner for long enough to fetch."""
    with st.spinner(text):
        time.sleep(2.5)


def raises(text: str) -> None:
    """End the script with an error that quotes the text."""
    raise ValueError(text)


VARIANTS: dict[str, Callable[[str], object]] = {
    "markdown": st.markdown,
    "write": st.write,
    "text": st.text,
    "code": lambda t: st.code(t, language=None),
    "json": lambda t: st.json({"a": t}),
    "dataframe": lambda t: st.dataframe(pd.DataFrame({"a": [t]})),
    "table": lambda t: st.table(pd.DataFrame({"a": [t]})),
    "caption": st.caption,
    "error": st.error,
    "exception": lambda t: st.exception(ValueError(t)),
    "metric": lambda t: st.metric(t, t),
    "expander": lambda t: st.expander(t, expanded=True).text("x"),
    "tabs": lambda t: st.tabs([t, "b"]),
    "selectbox": lambda t: st.selectbox(t, ["a"]),
    "selectopt": lambda t: st.selectbox("x", [t], key="selectopt"),
    "radio": lambda t: st.radio("x", [t, "b"]),
    "pills": lambda t: st.pills("x", [t, "b"]),
    "multiselect": lambda t: st.multiselect("x", [t], default=[t]),
    "button": st.button,
    "toast": st.toast,
    "title": st.title,
    "status": st.status,
    "progress": lambda t: st.progress(0.5, text=t),
    "help": lambda t: st.text("x", help=t),
    "chat": lambda t: st.chat_message(t).text("x"),
    "textarea": lambda t: st.text_area("t", t),
    "imgcol": image_column,
    "download": lambda t: st.download_button(t, b"x", "f.txt"),
    "writeobj": lambda t: st.write({"a": t}),
    "writedf": lambda t: st.write(pd.DataFrame({t: [1]})),
    "colname": lambda t: st.dataframe(pd.DataFrame({t: [1]})),
    "jsoncol": lambda t: st.dataframe(pd.DataFrame({"a": [{"k": t}]})),
    "spinner": spinner,  # after the page has drawn, or nobody sees it turn
    "raise": raises,
}


#: What Markdown, Streamlit's own extensions of it and Plotly's labels would make something of.
TRICKS = (
    "**b** _i_ ~~s~~ `c` $a^2$ :red[x] :material/home: :smile: <b>h</b> &amp; \\ # h - l > q 1. x a -> b -- c <= d | e | "
    "www.example.org a@example.org https://example.org %{x} [l](https://example.org)"
)


def matrix() -> None:
    """Draw all variants; the last one ends the script."""
    assert len(VARIANTS) == 34
    for name, draw in VARIANTS.items():
        if name == "raise":
            st.text("END")
        draw(payload(name))


def through_safe() -> None:
    """Draw the payloads as the pages do: escaped wherever a text is read as Markdown."""
    for name in ("exception", "raise", "imgcol", "chat"):
        VARIANTS.pop(name)
    for name, draw in VARIANTS.items():
        draw(safe.markdown(payload(name)))
    st.text(f"BEGIN {TRICKS} DONE")
    st.markdown(f"BEGIN {safe.markdown(TRICKS)} DONE")
    st.metric(safe.markdown(TRICKS), 1)
    safe.text_block(payload("block") * 200, key="block")
    text = safe.plotly_text(TRICKS)
    bar = go.Bar(x=[1], y=[text], text=[safe.plotly_text(payload("bar"))], hovertext=[text], hoverinfo="text", orientation="h")
    st.plotly_chart(go.Figure(bar).update_layout(title=safe.plotly_text(payload("title"))), key="bar")
    drawing = swimlane.payload(swimlane.rows(as_trace(*hostile_trace(9))))
    swimlane.draw(drawing, selected=1, axis="order", shown=None, on_pick=print, on_show=print)
    st.text("END")


def hostile_trace(n_events: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return events and agents whose every name is a payload."""
    breakout = f"</script><script>window.__pwn=1;parent.__pwn=1;fetch('{SINK}/script')</script>"
    names = [payload("agent"), breakout, f"<a href={SINK}/href onclick=window.__pwn=1>href</a>", '"};window.__pwn=1;({"']
    events = pd.DataFrame(
        {
            "event_id": [payload(f"e{n}") for n in range(n_events)],
            "kind": ["delegate", breakout, "spawn"] * (n_events // 3),
            "action": breakout,
            "agent_id": [names[n % 4] for n in range(n_events)],
            "targets": [json.dumps([names[(n + 1) % 4]]) for n in range(n_events)],
            "parents": [json.dumps([payload(f"e{n - 1}")]) for n in range(n_events)],
            "order": range(n_events),
        }
    )
    return events, pd.DataFrame({"agent_id": names, "component": [breakout] * 4})


def as_trace(events: pd.DataFrame, agents: pd.DataFrame) -> Trace:
    """Return the hostile trace as a record."""
    return Trace(
        trace_id=payload("trace"),
        world="recorded",
        agents=tuple(Agent(agent_id=row.agent_id, component=row.component) for row in agents.itertuples()),
        events=tuple(
            Event(event_id=row.event_id, agent_id=row.agent_id, name=row.action, content=row.event_id, error=row.action)
            for row in events.itertuples()
        ),
    )


def graph() -> None:
    """Draw the hostile trace by events and, longer, by agents."""
    for n_events in (30, 63):
        nodes, edges, caption = network.orchestration_graph(*hostile_trace(n_events))
        st.iframe(network.data_url(network.orchestration_html(nodes, edges, dark=n_events == 30, height_px=400)), height=400)
        st.markdown(safe.markdown(caption))
    st.text("END")


def breach() -> None:
    """Draw a graph page whose script tries the page around it and the network."""
    page = network.orchestration_html([network.Node("a", None, 10, 0, 0)], [], dark=False, height_px=200)
    script = f"window.__pwn=1;new Image().src='{SINK}/breach';fetch('{SINK}/breach').catch(()=>0);parent.__pwn=1"
    st.iframe(network.data_url(page.replace("</body>", f"<script>{script}</script></body>")), height=200)
    st.text("END")


PARTS = {"matrix": matrix, "safe": through_safe, "graph": graph, "breach": breach}
if __name__ == "__main__":
    PARTS[st.query_params["part"]]()
