"""The frame of all pages: navigation, which workspace is open, and errors in one line."""

from __future__ import annotations

import streamlit as st

from analysis.errors import CounterpointError
from dashboard import keys, loading, safe
from dashboard.selection import PAGES

# Two voices; drawn here, because Streamlit's own icons for a browser tab come from a font service.
_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#0b6e99"/>'
    '<path d="M5 21c5 0 5-10 11-10s6 10 11 10" fill="none" stroke="#fff" stroke-width="3"/>'
    '<path d="M5 11c5 0 5 10 11 10s6-10 11-10" fill="none" stroke="#9fd3ea" stroke-width="3"/></svg>'
)
# The first screen is for the answer; Streamlit's own margins take a quarter of it.
_STYLE = "<style>.stMainBlockContainer{padding:2.75rem 2.5rem 3rem} .stMain h1{padding-top:0}</style>"
st.set_page_config(page_title="Counterpoint", page_icon=_ICON, layout="wide")
st.html(_STYLE)

try:
    version = loading.version()
    n_traces = loading.n_traces(version)
except CounterpointError as error:
    st.error(safe.markdown(str(error)), icon=":material/error:")
    st.stop()
page = st.navigation(
    [
        st.Page(info.file, title=info.title, icon=info.icon, url_path=name, default=name == "overview")
        for name, info in PAGES.items()
    ]
)
with st.sidebar:
    st.caption(f"{n_traces:,} traces · version {version.number:d}  \n{safe.markdown(version.location)}")
keys.draw()
st.title(page.title)
try:
    page.run()
except CounterpointError as error:
    st.error(safe.markdown(str(error)), icon=":material/error:")
