"""The frame of all pages: navigation, which workspace is open, and errors in one line."""

from __future__ import annotations

import streamlit as st

from analysis.errors import CounterpointError
from dashboard import loading, safe
from dashboard.selection import PAGES

st.set_page_config(page_title="Counterpoint", page_icon=":material/graph_3:", layout="wide")

try:
    version = loading.version()
    n_traces = loading.n_traces(version)
except CounterpointError as error:
    st.error(safe.markdown(str(error)), icon=":material/error:")
    st.stop()
first = "overview" if n_traces else "add_data"
page = st.navigation(
    [st.Page(info.file, title=info.title, icon=info.icon, url_path=name, default=name == first) for name, info in PAGES.items()]
)
with st.sidebar:
    st.caption(f"{n_traces:,} traces · version {version.number}  \n{safe.markdown(version.location)}")
st.title(page.title)
try:
    page.run()
except CounterpointError as error:
    st.error(safe.markdown(str(error)), icon=":material/error:")
