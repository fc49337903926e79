"""Add data: which traces should be looked at, and what became of them?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from analysis import data_folder
from dashboard import jobs, loading, safe, selection, tables

version = loading.version()
location = version.location

st.caption("Files or folders of traces in any known format; which one is seen from their content. Importing again adds nothing.")
path_column, upload_column = st.columns(2)
with path_column, st.form("add_data.path", border=True):
    path = st.text_input("Path on this machine", placeholder="/data/traces", key="add_data.folder")
    if st.form_submit_button("Import", type="primary", icon=":material/play_arrow:"):
        target = Path(path).expanduser().absolute()
        if path and target.exists():
            selection.put(job=jobs.start(location, f"Import {target}", ["import", str(target), "--analyze"]))
        else:
            st.error(
                safe.markdown(f"{path}: no such file or folder - check the path")
                if path
                else "Give the path of a file or folder."
            )
with upload_column, st.form("add_data.upload", border=True, clear_on_submit=True):
    uploads = st.file_uploader("Or upload files", accept_multiple_files=True, key="add_data.files")
    if st.form_submit_button("Import", type="primary", icon=":material/play_arrow:") and uploads:
        folder = jobs.new_folder(location)
        inbox = jobs.keep_uploads(folder, [(upload.name, upload.getvalue()) for upload in uploads])
        title = f"Import {len(uploads)} uploaded files"
        selection.put(job=jobs.start(location, title, ["import", str(inbox), "--analyze"], job_id=folder.name))


def draw_report(report: dict[str, Any]) -> None:
    """The load report: what came in, what did not and why, what to do next."""
    counts = {"New": "traces", "Updated": "updated", "Unchanged": "unchanged", "Waiting for their runs": "waiting"}
    with st.container(horizontal=True):
        for label, name in counts.items():
            st.metric(label, f"{report[name]:,}", border=True, width=180)
        st.metric("Files skipped", f"{len(report['skipped']):,}", border=True, width=180)
    if report["traces"] or report["updated"] or report["unchanged"]:
        with st.container(horizontal=True):
            selection.link("overview", "See what stands out")
            selection.link("traces", "Browse the traces")
    files = [{**f, "problems": sum(p["n"] for p in f["problems"])} for f in report["files"]]
    if files:
        st.subheader("Files read")
        columns = {"file": "File", "format": "Format", "records": "Records", "traces": "Traces", "problems": "Problems"}
        tables.show(pd.DataFrame(files), key="files", columns=columns)
    problems = [{"file": f["file"], **p} for f in report["files"] for p in f["problems"]]
    problems += [{"file": s["file"], "severity": "skipped", "message": s["reason"], "n": 1} for s in report["skipped"]]
    if problems:
        st.subheader("What to know about them")
        wanted = ["severity", "file", "record", "trace_id", "message", "got", "expected", "hint", "n"]
        rows = pd.DataFrame(problems).reindex(columns=wanted).fillna("")
        names = ["Severity", "File", "Record", "Trace", "Problem", "Got", "Expected", "What to do", "n"]
        tables.show(rows, key="problems", columns=dict(zip(wanted, names, strict=True)))


def draw_job(job_id: str) -> None:
    """One job: its progress while it runs, its report when it is done."""
    job = jobs.state(location, job_id)
    st.subheader(safe.markdown(job.title))
    if job.state != "running":
        if job.state == "done" and job.result is not None:
            report: dict[str, Any] = job.result if isinstance(job.result, dict) else {}
            for stage in report.get("stages", []):
                text = f"Analysed ({stage['stage']}): {stage['n_done']:,} traces worked on, {stage['n_kept']:,} up to date."
                st.success(safe.markdown(text), icon=":material/check:")
            if "files" in report:
                draw_report(report)
            elif report:
                selection.link("overview", "See what stands out")
            else:
                st.success(f"{len(job.result):,} patterns.", icon=":material/check:")
                selection.link("patterns", "See the patterns")
        elif job.state == "cancelled":
            st.warning("Cancelled. Nothing of it was added; import again to start over.", icon=":material/cancel:")
        else:
            st.error(safe.markdown(job.text), icon=":material/error:")
        return

    @st.fragment(run_every="0.5s")
    def progress() -> None:
        now = jobs.state(location, job_id)
        if now.state != "running":
            st.rerun()
        st.progress(now.share, text=safe.markdown(now.text))
        if st.button("Cancel", key="add_data.cancel", icon=":material/cancel:"):
            jobs.cancel(location, job_id)

    progress()
    st.caption("This goes on when the page is closed; its address finds it again.")


job_id = selection.get("job")
if job_id:
    draw_job(job_id)
elif not loading.n_traces(version):
    st.info("The workspace is empty. Give a folder of traces above, or look at the samples first.", icon=":material/info:")
    samples = data_folder() / "samples"
    if samples.is_dir() and st.button("Import the samples", icon=":material/science:"):
        selection.put(job=jobs.start(location, "Import the samples", ["import", str(samples), "--analyze"]))
        st.rerun()
if earlier := [job for job in jobs.all_jobs(location) if job.job_id != job_id][:5]:
    st.subheader("Earlier imports")
    for job in earlier:
        selection.link(
            "add_data", f"{pd.Timestamp(job.started, unit='s'):%Y-%m-%d %H:%M} UTC · {job.title} · {job.state}", job=job.job_id
        )
