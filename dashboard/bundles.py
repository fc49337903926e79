"""The drawings of exports: the form that starts one, one under way, what one holds, and how it is taken away.

Decides where exports lie: a folder named after the data set and a hash of all that it is made of, so that the same export goes
on in the same folder and another one never meets it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from analysis.pipeline.exporting import Viewed
from analysis.training.bundle import read_manifest
from dashboard import downloads, jobs, loading, safe, selection, tables
from dashboard.loading import Version
from dashboard.loading import training as stored
from dashboard.loading.training import Chosen

SPLITS = {"split": "Split", "n_rows": "Rows", "share": "Row share", "n_files": "Files", "content_sha256": "Content (SHA-256)"}
STEPS = {"step": "Step", "n_traces": "Traces", "n_rows": "Rows"}
DROPS = {"stage": "Gate", "reason": "Why", "n": "Left out", "example": "For example"}
REFUSED = {"view": "Target", "reason": "Why its rows are refused", "n": "Rows"}
FILES = {"path": "File", "n_rows": "Rows", "sha256": "SHA-256"}


def draw_form(version: Version, root: Path, chosen: Chosen, targets: Sequence[str]) -> None:
    """Draw the form that starts an export as a job."""
    with st.form("export.form", border=True):
        fields = st.columns([2, 1, 1, 3] if "trl-tokenized" in targets else [2, 1, 1])
        name = fields[0].text_input("Name", chosen.dataset or "traces", key="export.name").strip()
        test = fields[1].number_input("Share for testing", 0.0, 0.9, 0.1, 0.05, key="export.test")
        validation = fields[2].number_input("Share for validation", 0.0, 0.9, 0.0, 0.05, key="export.validation")
        tokenizer = fields[3].text_input("Tokenizer, a folder", key="export.tokenizer") if len(fields) > 3 else ""
        secrets = "Secrets are taken out." if chosen.redact else "Secrets stay in."
        st.caption(safe.markdown(f"The bundle, and a view for {', '.join(targets) or 'no target'}. {secrets}", 600))
        if not st.form_submit_button("Export", type="primary", icon=":material/play_arrow:"):
            return
    if wrong := _wrong(name, test + validation, tokenizer, targets):
        st.error(safe.markdown(wrong), icon=":material/error:")
        return
    shares = ["--test", f"{test:g}", "--validation", f"{validation:g}"]
    folder = root / "exports" / f"{safe.file_slug(name)}-{_digest(version, chosen, shares)}"
    what = ["--dataset", chosen.dataset] if chosen.dataset is not None else ["--filter", chosen.filter]
    patterns = [part for pattern in chosen.patterns for part in ("--redact-pattern", pattern)]
    arguments = ["export", "--out", str(folder), *what, *shares, "--redact" if chosen.redact else "--no-redact", *patterns]
    arguments += ["--format", ",".join(targets)] if targets else []
    arguments += ["--tokenizer", tokenizer] if tokenizer else []
    selection.put(job=jobs.start(version.location, f"Export {name}", arguments), export=folder.name)
    st.rerun()


def draw_job(location: str, job_id: str) -> None:
    """Draw an export under way, or what became of it."""
    job = jobs.state(location, job_id)
    if job.state == "running":
        _draw_progress(location, job_id)
    elif job.state == "done":
        st.success(safe.markdown(f"{job.title}: done."), icon=":material/check:")
    elif job.state == "cancelled":
        st.warning("Cancelled. The same export, started again, goes on where it stopped.", icon=":material/cancel:")
    else:
        st.error(safe.markdown(job.text, 600), icon=":material/error:")


@st.fragment(run_every="1s")
def _draw_progress(location: str, job_id: str) -> None:
    job = jobs.state(location, job_id)
    if job.state != "running":
        st.rerun()
    st.progress(job.share, text=safe.markdown(job.text))
    if st.button("Cancel", key="export.cancel", icon=":material/cancel:"):
        jobs.cancel(location, job_id)
    st.caption("This goes on when the page is closed; its address finds it again.")


def draw_exports(root: Path) -> None:
    """Draw the exports there are, and what one of them holds."""
    there = {folder.name: folder for folder in stored.exports(root)}
    if not there:
        st.info("Nothing is exported yet. Start above.", icon=":material/info:")
        return
    st.subheader("Exports")
    folder = there[selection.choose("export", "Export", {name: name for name in there})]
    manifest, views = read_manifest(folder), stored.viewed(folder)
    _draw_counts(folder, manifest)
    _draw_way_out(folder, manifest)
    shares = [
        {"split": name, "share": split["n_rows"] / manifest["n_rows"], "n_files": len(split["files"]), **split}
        for name, split in manifest["splits"].items()
    ]
    if len(steps := stored.steps(str(folder), manifest["id"])):
        st.markdown("##### From traces to rows")
        tables.show(steps, key="steps", columns=STEPS)
        st.caption("Chosen = left out at the split + without a word + made into rows; made = left out as masked + written.")
    st.markdown("##### Rows by split")
    tables.show(pd.DataFrame(shares), key="splits", columns=SPLITS)
    _draw_views(views, list(manifest["splits"]))
    _draw_drops(folder, manifest)
    with st.expander("Files and their digests", icon=":material/fingerprint:"):
        files = [file for split in manifest["splits"].values() for file in split["files"]]
        tables.show(pd.DataFrame(files), key="files-of-export", columns=FILES)
    with st.expander("Recipe: what it was made of", icon=":material/receipt_long:"):
        safe.text_block(json.dumps(manifest["recipe"], ensure_ascii=False, indent=1), key="export.recipe")


def _draw_counts(folder: Path, manifest: Mapping[str, Any]) -> None:
    taken = manifest.get("redacted")
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    with st.container(horizontal=True):
        st.metric("Rows", f"{manifest['n_rows']:,}", border=True, width=180)
        st.metric("Left out", f"{manifest['n_drops']:,}", border=True, width=180)
        st.metric("Secrets taken out", "off" if taken is None else f"{sum(taken.values()):,}", border=True, width=180)
        st.metric("Size", f"{size / 1e6:,.1f} MB", border=True, width=180)
    if taken:
        kinds = ", ".join(f"{n:,} {kind}" for kind, n in taken.items())
        st.caption(safe.markdown(f"Taken out by pattern and entropy, best effort: {kinds}."))


def _draw_way_out(folder: Path, manifest: Mapping[str, Any]) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        if (address := downloads.link(folder)) is not None:
            st.link_button("Download all as zip", address, icon=":material/download:", type="primary")
        else:
            st.caption("This server was started without its download route; take the folder itself.", width="content")
        st.button(
            "Train on it", key="export.train", icon=":material/model_training:", on_click=selection.put,
            kwargs={"view": "train", "export": folder.name},
        )  # fmt: skip
    st.code(f"{safe.visible(str(folder.absolute()))}\nmanifest {manifest['id']}", language=None, wrap_lines=True)


def _draw_views(views: Mapping[str, Viewed], splits: Sequence[str]) -> None:
    if not views:
        return
    st.markdown("##### Records by target")
    rows = [
        {"view": name, **view.records, "refused": sum(view.refused.values())} for name, view in views.items()
    ]  # fmt: skip
    columns = {"view": "Target", **{name: f"{name}, records" for name in splits}, "refused": "Rows refused"}
    tables.show(pd.DataFrame(rows, columns=list(columns)), key="views", columns=columns)
    reasons = [{"view": name, "reason": why, "n": n} for name, view in views.items() for why, n in view.refused.items()]
    if reasons:
        ordered = pd.DataFrame(reasons).sort_values(["view", "n"], ascending=[True, False])
        tables.show(ordered, key="refused-in-export", columns=REFUSED)


def _draw_drops(folder: Path, manifest: Mapping[str, Any]) -> None:
    if not manifest["n_drops"]:
        return
    st.markdown("##### What was left out, and why")
    rows = stored.drops(str(folder), manifest["id"])
    at = tables.show(rows, key="drops", columns=DROPS, select="single-row", height=min(38 + 35 * len(rows), 300))
    example = str(rows["example"].iloc[at[0] if at else 0]).partition("#")[0]
    selection.link("trace", f"Open {example}", trace=example)


def _wrong(name: str, share: float, tokenizer: str, targets: Sequence[str]) -> str:
    """Return why an export cannot be started so; empty where it can."""
    if not name:
        return "Give the export a name."
    if share >= 1:
        return "The shares leave nothing to train on."
    if "trl-tokenized" in targets and not Path(tokenizer).is_dir():
        return "trl-tokenized needs the folder of a tokenizer; give one, or take the target away."
    return ""


def _digest(version: Version, chosen: Chosen, shares: Sequence[str]) -> str:
    """Return a hash of all that an export reads; splits are left out, since exports themselves add to them."""
    head = loading.snapshot(version).head
    files = {table: [file.name for file in files] for table, files in head.tables.items() if table != "splits"}
    return hashlib.blake2b(json.dumps([files, chosen, shares], sort_keys=True).encode(), digest_size=4).hexdigest()
