"""Draws hostile text in every way Streamlit has: the 34 variants (`?part=matrix`), through `dashboard.safe`, as a graph.

Each variant's payload names it, so that the sink sees who leaked.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pandas as pd
import streamlit as st

SINK = os.environ["COUNTERPOINT_TEST_SINK"]


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
    """Leave a spinner turning while the rest of the page is drawn."""
    st.spinner(text).__enter__()


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
    "spinner": spinner,
    "writeobj": lambda t: st.write({"a": t}),
    "writedf": lambda t: st.write(pd.DataFrame({t: [1]})),
    "colname": lambda t: st.dataframe(pd.DataFrame({t: [1]})),
    "jsoncol": lambda t: st.dataframe(pd.DataFrame({"a": [{"k": t}]})),
    "raise": raises,
}


def matrix() -> None:
    """Draw all variants; the last one ends the script."""
    assert len(VARIANTS) == 34
    for name, draw in VARIANTS.items():
        if name == "raise":
            st.text("END")
        draw(payload(name))


PARTS = {"matrix": matrix}
PARTS[st.query_params["part"]]()
