"""The rules of the house that can be read from the source: who imports whom, how large things are, what is forbidden."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted([*ROOT.glob("analysis/**/*.py"), *ROOT.glob("dashboard/**/*.py")])
#: Each may import only what stands in an earlier row; names in one row never import each other.
RANKS = [
    {"errors"},
    {"model"},
    {"estimation", "sequential", "streams", "redaction", "processes"},
    {"readers", "workspace", "orchestration", "coherence"},
    {"counterfactual"},
    {"curation"},
    {"evaluation"},
    {"training"},
    {"pipeline"},
    {"dashboard"},
    {"cli"},
]
DASHBOARD_RANKS = [
    {"safe"},
    {"figures"},  # how an event kind looks stands in its `__init__`
    {"network", "swimlane"},
    {"loading", "selection", "jobs", "downloads"},
    {"tables", "notes", "keys", "reports", "drafts"},
    {"comparing"},
    {"arrivals", "details", "coherence", "patterns", "modes", "effects", "studying", "curation", "policies", "reviewing",
     "curriculum", "previewing", "bundles", "training"},
    {"app_pages"},
    {"app"},
    {"asgi", "check"},
]  # fmt: skip
FORBIDDEN_NAMES = {"utils", "common", "helpers", "base", "core", "manager", "types"}
#: Streamlit's calls that read Markdown; text of a trace reaches them through `safe` only.
MARKDOWN_CALLS = {
    "markdown", "write", "caption", "title", "header", "subheader", "error", "warning", "info", "success", "metric", "expander",
    "tabs", "button", "toast", "status", "progress", "table", "page_link", "badge", "html",
}  # fmt: skip


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _unit(path: Path) -> str:
    """The part of the house a file belongs to: `readers`, `cli`, `dashboard`, ..."""
    package, *rest = path.relative_to(ROOT).with_suffix("").parts
    return "dashboard" if package == "dashboard" else rest[0]


def _imported_units(path: Path) -> Iterator[str]:
    for name in _imports(path):
        package, *rest = name.split(".")
        if package == "dashboard":
            yield "dashboard"
        elif package == "analysis" and rest and rest[0] not in ("__version__", "data_folder"):
            yield rest[0]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    rank = {unit: n for n, units in enumerate(RANKS) for unit in units}
    mine = _unit(path)
    if mine == "__init__":
        return
    wrong = {unit for unit in _imported_units(path) if unit != mine and rank[unit] >= rank[mine]}
    assert not wrong, f"{mine} must not import {sorted(wrong)}"


def test_dashboard_imports_point_down() -> None:
    rank = {name: n for n, names in enumerate(DASHBOARD_RANKS) for name in names}
    wrong = []
    for path in sorted(ROOT.glob("dashboard/**/*.py")):
        mine = path.relative_to(ROOT / "dashboard").with_suffix("").parts[0]
        if mine == "__init__":
            continue
        for name in _imports(path):
            package, *rest = name.split(".")
            if package == "dashboard" and rest and rest[0] != mine and rank[rest[0]] >= rank[mine]:
                wrong.append((mine, rest[0]))
    assert not wrong, wrong


def test_analysis_never_draws() -> None:
    drawing = {"streamlit", "plotly", "pyvis", "dashboard"}
    found = [
        (path.name, name)
        for path in FILES
        if path.is_relative_to(ROOT / "analysis")
        for name in _imports(path)
        if name.split(".")[0] in drawing
    ]
    assert found == []


def test_figures_never_import_streamlit() -> None:
    pure = [*ROOT.glob("dashboard/figures/*.py"), ROOT / "dashboard/network.py"]
    assert [path.name for path in pure for name in _imports(path) if name.split(".")[0] == "streamlit"] == []


def test_caches_stand_in_loading_only() -> None:
    users = {path.parent.name for path in FILES if "st.cache_" in path.read_text(encoding="utf-8")}
    assert users <= {"loading"}


def test_heavy_libraries_wait_until_they_are_used() -> None:
    heavy = ["pandas", "duckdb", "pyarrow", "streamlit", "networkx", "sklearn", "cvxpy"]
    code = f"import sys, analysis.cli; print([name for name in {heavy!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_keep_the_budgets(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").count("\n")
    limit = 120 if "app_pages" in path.parts else 60 if path.name == "app.py" else 400
    assert lines <= limit, f"{lines} lines"
    assert path.stem not in FORBIDDEN_NAMES
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.FunctionDef):
            docstring = ast.get_docstring(node, clean=False) or ""
            body = (node.end_lineno or 0) - node.lineno + 1 - docstring.count("\n") - 1
            assert body <= 60, f"{node.name}: {body} lines"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_nothing_is_caught_blindly(path: Path) -> None:
    caught = [
        ast.unparse(node.type) if node.type else "" for node in ast.walk(_tree(path)) if isinstance(node, ast.ExceptHandler)
    ]
    assert not {"", "Exception", "BaseException"} & set(caught)


@pytest.mark.parametrize("path", sorted(ROOT.glob("dashboard/**/*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_pages_never_put_raw_values_into_markdown(path: Path) -> None:
    """In a Markdown-bearing call, an f-string may hold only `safe.*(...)`, numbers with a format, and constants."""
    wrong = []
    for node in ast.walk(_tree(path)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MARKDOWN_CALLS):
            continue
        if ast.unparse(node.func).startswith(("sys.", "safe.")):
            continue
        for part in (p for argument in node.args for p in ast.walk(argument) if isinstance(p, ast.FormattedValue)):
            is_safe = isinstance(part.value, ast.Call) and ast.unparse(part.value.func).startswith("safe.")
            is_inside_safe = any(
                part in ast.walk(call)
                for argument in node.args
                for call in ast.walk(argument)
                if isinstance(call, ast.Call) and ast.unparse(call.func).startswith("safe.")
            )
            is_number = part.format_spec is not None
            if not (is_safe or is_inside_safe or is_number):
                wrong.append(f"line {part.lineno}: {ast.unparse(part.value)}")
    assert not wrong, wrong
    assert "unsafe_allow" not in path.read_text(encoding="utf-8")
