"""Export and train: what would a trainer see, what would it refuse, what is taken away, and how do runs on it go?"""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from analysis.training.formats import views
from dashboard import bundles, loading, previewing, safe, selection, training
from dashboard.loading import training as stored
from dashboard.loading.training import Chosen

EVERY = "*"  # no data set can be called so
VIEWS = {"rows": "Rows", "refused": "Problems by target", "export": "Export", "train": "Train"}
version = loading.version()


def choose_targets() -> list[str]:
    """Which targets it is for; the address holds them."""
    known = views()
    given = [name for name in (selection.get("target") or "trl-sft").split(",") if name in known]
    st.session_state["export.targets"] = given
    about = safe.markdown("; ".join([f"{name}: {view.about}" for name, view in known.items()]), 5000)
    return st.multiselect(
        "For which trainers", list(known), key="export.targets", help=about,
        on_change=lambda: selection.put(target=",".join(st.session_state["export.targets"]) or "none"),
    )  # fmt: skip


def choose_secrets() -> tuple[bool, tuple[str, ...]]:
    """Whether secrets are taken out, and what else is; patterns stay out of the address, as they may name what they hide."""
    st.session_state["export.redact"] = selection.get("secrets") != "stay"
    with st.popover(
        "Secrets are taken out" if st.session_state["export.redact"] else "Secrets stay", icon=":material/ink_eraser:"
    ):
        redact = st.toggle(
            "Take keys, passwords, e-mail addresses and home paths out", key="export.redact",
            on_change=lambda: selection.put(secrets=None if st.session_state["export.redact"] else "stay"),
        )  # fmt: skip
        text = st.text_area("And what these regular expressions find, one a line", key="export.patterns", disabled=not redact)
    return redact, tuple(line for line in text.splitlines() if line.strip()) if redact else ()


def choose_folder() -> Path | None:
    """Where exports and runs lie: in the workspace, or for one in an object store in a folder that a person names."""
    if "://" not in version.location:
        return Path(version.location)
    given = selection.write("out", "Local folder for exports and runs", placeholder="/data/counterpoint")
    return Path(given).expanduser() if given else None


def choose_rows() -> tuple[Chosen, list[str]]:
    """Which traces, for which targets."""
    names = stored.datasets(version)["dataset"].tolist()
    with st.container(horizontal=True, vertical_alignment="bottom"):
        options = {**{name: name for name in names}, EVERY: "All traces that fit a filter"}
        dataset = selection.choose("dataset", "Data set", options)
        filter = selection.write("filter", "Filter", placeholder="passed:yes", help="As on Traces") if dataset == EVERY else ""
        redact, patterns = choose_secrets()
    if not names:
        st.caption("No data set is curated yet: rows come of the traces as they are, each with weight 1.")
        if "curate" in selection.PAGES:
            selection.link("curate", "Curate a data set")
    return Chosen(None if dataset == EVERY else dataset, filter, redact, patterns), choose_targets()


def draw_rows(chosen: Chosen, targets: list[str]) -> None:
    """What trainers would see, or refuse."""
    if stored.chosen_traces(version, chosen.dataset, chosen.filter).empty:
        st.info("No trace is chosen: the data set is empty, or none fits the filter.", icon=":material/filter_alt_off:")
    elif view == "rows":
        previewing.draw_rows(version, chosen, targets)
    else:
        previewing.draw_refusals(version, chosen, targets)


if not loading.n_traces(version) and not loading.n_rows(version, "datasets"):
    st.info("The workspace is empty.", icon=":material/info:")
    selection.link("add_data", "Add data")
    st.stop()
view = selection.choose("view", "View", VIEWS)
if view in ("rows", "refused"):
    draw_rows(*choose_rows())
    st.stop()
if (root := choose_folder()) is None:
    st.info("The workspace is in an object store: name a folder of this machine, where files go.", icon=":material/info:")
elif view == "export":
    bundles.draw_form(version, root, *choose_rows())
    if job_id := selection.get("job"):
        bundles.draw_job(version.location, job_id)
    bundles.draw_exports(root)
else:
    training.draw_environment()
    training.draw_runs(version.location, root)
    training.draw_form(version.location, root)
