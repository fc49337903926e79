"""`python -m dashboard.check`: run every page of the workspace once, without a browser; exit 1 if one fails."""

from __future__ import annotations

import sys
from pathlib import Path

from streamlit.testing.v1 import AppTest

from dashboard.selection import PAGES

TIMEOUT_S = 60.0


def failures() -> dict[str, str]:
    """Return page -> what went wrong on it, for the pages of the open workspace."""
    found = {}
    app = AppTest.from_file(str(Path(__file__).with_name("app.py")), default_timeout=TIMEOUT_S)
    for name, info in PAGES.items():
        app.switch_page(info.file).run()
        wrong = [str(element.value) for element in (*app.exception, *app.error)]
        if wrong or not app.title:
            found[name] = "; ".join(wrong) or "the page is empty"
    return found


if __name__ == "__main__":
    problems = failures()
    for name in PAGES:
        sys.stderr.write(f"page {name}: {problems.get(name, 'ok')}\n")
    sys.exit(1 if problems else 0)
