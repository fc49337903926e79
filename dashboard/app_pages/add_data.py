"""Add data: which traces should be looked at, and what became of them?"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import streamlit as st

from analysis import data_folder
from dashboard import arrivals, jobs, loading, safe, selection

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


with st.expander("Or let teams do tasks of the built-in bank", icon=":material/play_circle:"):
    arrivals.draw_run_form(location)

job_id = selection.get("job")
if job_id:
    arrivals.draw_job(location, job_id)
elif not loading.n_traces(version):
    st.info("The workspace is empty. Give a folder of traces above, or look at the samples first.", icon=":material/info:")
    samples = data_folder() / "samples"
    if samples.is_dir() and st.button("Import the samples", icon=":material/science:"):
        selection.put(job=jobs.start(location, "Import the samples", ["import", str(samples), "--analyze"]))
        st.rerun()
if earlier := [job for job in jobs.all_jobs(location) if job.job_id != job_id][:5]:
    st.subheader("Earlier jobs")
    for job in earlier:
        selection.link(
            "add_data", f"{pd.Timestamp(job.started, unit='s'):%Y-%m-%d %H:%M} UTC · {job.title} · {job.state}", job=job.job_id
        )
