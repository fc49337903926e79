"""A page as a person comes to it: by its address."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest

from dashboard.selection import PAGES


def opened(app: AppTest, page: str, **address: str) -> AppTest:
    """Open a page with parameters in its address; it draws without an exception."""
    for name, value in address.items():
        app.query_params[name] = value
    app.switch_page(PAGES[page].file).run()
    assert not app.exception
    return app
