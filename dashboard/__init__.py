"""The pages: they draw what `analysis` computed, and compute nothing themselves.

safe < figures < network  how untrusted text reaches the page; frames in, drawings out; no streamlit but in `safe.text_block`
loading, selection, jobs  the cached way to data, what is selected, long work
app_pages/, app, asgi     one script a page; frame and navigation; the security headers around them
"""
