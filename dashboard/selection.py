"""What is selected, mirrored in the URL: reload or send the address and the same screen comes back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

import streamlit as st

from dashboard import safe


class PageInfo(NamedTuple):
    """One page: its file below `dashboard/`, its title and icon."""

    file: str
    title: str
    icon: str


PAGES: dict[str, PageInfo] = {
    name: PageInfo(f"app_pages/{name}.py", title, f":material/{icon}:")
    for name, title, icon in (
        ("add_data", "Add data", "upload_file"),
        ("overview", "Overview", "dashboard"),
        ("traces", "Traces", "list"),
        ("trace", "Trace", "account_tree"),
        ("compare", "Compare", "compare_arrows"),
        ("patterns", "Patterns", "hub"),
        ("counterfactuals", "Counterfactuals", "call_split"),
        ("coherence", "Coherence", "join"),
        ("modes", "Failure modes", "bubble_chart"),
        ("curriculum", "Curriculum", "stairs"),
        ("curate", "Curate", "filter_alt"),
        ("export", "Export and train", "output"),
    )
}
PARAMETERS = frozenset(
    {"trace", "event", "view", "axis", "filter", "order", "page", "job", "t0", "t1", "a", "b", "fa", "fb", "place", "rows"}
    | {"level", "component", "turn", "cells", "value", "mu0", "family", "mode", "source", "pattern", "metric"}
    | {"study", "operator", "kind", "change", "pair", "color", "gain", "cost"}
    | {"model", "stage", "eps", "h", "m0", "m1"}
    | {"policy", "toml", "gate", "outcome", "reason"}
    | {"dataset", "target", "secrets", "row", "raw", "export", "run", "out"}
)
#: Options, letters of one and letters of all that fit beside each other on a screen 1,280 px wide.
_MAX_BESIDE = (6, 30, 90)


def get(name: str) -> str | None:
    """Return one parameter of the URL."""
    return st.query_params.get(_known(name)) or None


def put(**values: str | None) -> None:
    """Change parameters of the URL; None removes one."""
    # All at once: between two messages the address would say half of it, and Back would stop there.
    if given := {_known(name): value for name, value in values.items() if value}:
        st.query_params.update(given)
    for name in values.keys() - given.keys():
        if _known(name) in st.query_params:
            del st.query_params[name]


def interval() -> tuple[float, float] | None:
    """Return the part of an axis that the URL holds as `t0` and `t1`; None where it holds none."""
    try:
        first, last = float(get("t0") or "nan"), float(get("t1") or "nan")
    except ValueError:
        return None
    return (first, last) if math.isfinite(last - first) and first < last else None


def put_interval(interval: tuple[float, float] | None) -> None:
    """Change the part of an axis that the URL holds; None removes it."""
    first, last = interval or (None, None)
    put(t0=None if first is None else f"{first:.6f}", t1=None if last is None else f"{last:.6f}")


def choose(name: str, label: str, options: Mapping[str, str]) -> str:
    """Draw a choice of one of few options (value -> what it is called) that the URL holds; return the value.

    What an option is called may be text of a trace or of a person.
    """
    key = f"url.{name}"
    value = get(name)
    # The address decides, so that a link or a reload shows what it says.
    st.session_state[key] = value if value in options else next(iter(options))
    shared: dict[str, Any] = {
        "key": key,
        "on_change": lambda: put(**{name: st.session_state[key]}),
        "label_visibility": "collapsed",
    }
    letters = [len(option) for option in options.values()]
    if any(n > most for n, most in zip((len(letters), max(letters), sum(letters)), _MAX_BESIDE, strict=True)):
        return str(st.selectbox(label, list(options), format_func=lambda option: safe.line(options[option], 120), **shared))
    called = {option: safe.markdown(name, 60) for option, name in options.items()}
    return str(st.segmented_control(label, list(options), required=True, format_func=lambda o: called[o], **shared))


def write(name: str, label: str, *, placeholder: str = "", help: str | None = None) -> str:
    """Draw a line of text that the URL holds; return it, empty where there is none."""
    key = f"url.{name}"
    st.session_state[key] = get(name) or ""
    given: dict[str, Any] = {"placeholder": placeholder, "help": help}
    return str(st.text_input(label, key=key, on_change=lambda: put(**{name: st.session_state[key]}), **given)).strip()


def go(page: str, **values: str) -> NoReturn:
    """Show another page with these parameters."""
    st.switch_page(PAGES[page].file, query_params={_known(name): value for name, value in values.items()})


def stay(**values: str) -> NoReturn:
    """Show this very page with these parameters and no others; `go` and `link` would leave the browser's address as it was."""
    st.query_params.from_dict({_known(name): value for name, value in values.items()})
    st.rerun()


def link(page: str, label: str, **values: str) -> None:
    """Draw a link to a page with these parameters; the label may hold text of a trace."""
    parameters = {_known(name): value for name, value in values.items()}
    st.page_link(PAGES[page].file, label=safe.markdown(label, 120), icon=PAGES[page].icon, query_params=parameters)


def _known(name: str) -> str:
    if name not in PARAMETERS:
        raise ValueError(f"no URL parameter is called {name!r}")
    return name
