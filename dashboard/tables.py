"""Every table of the pages: texts made visible, and its rows to take away as CSV or Parquet."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any, Literal

import pandas as pd
import streamlit as st

from dashboard import safe


def show(
    rows: pd.DataFrame,
    *,
    key: str,
    columns: Mapping[str, str],
    all_rows: Callable[[], pd.DataFrame] | None = None,
    select: Literal["single-row", "multi-row"] | None = None,
    height: int | None = None,
) -> list[int]:
    """Draw a table with its downloads and return the positions of the selected rows.

    Parameters
    ----------
    rows : what is drawn; a column without any value is left out
    key : the table's name, for the widget and the downloaded file
    columns : column -> heading, in the order they are shown
    all_rows : the rows to download, where only a page of them is drawn
    select : whether rows can be selected, one or several
    """
    shown = pd.DataFrame(
        {heading: _drawn(rows[name]) for name, heading in columns.items() if rows.empty or rows[name].notna().any()}
    )
    options: dict[str, Any] = {"hide_index": True, "key": f"table.{key}", "column_config": _config(shown), "placeholder": "–"}
    if height is not None:
        options["height"] = height
    if select:
        state: Any = st.dataframe(shown, on_select="rerun", selection_mode=select, **options)
        selected = [n for n in state["selection"]["rows"] if n < len(rows)]
    else:
        st.dataframe(shown, **options)
        selected = []
    _downloads(key, all_rows or (lambda: rows))
    return selected


def _downloads(key: str, rows: Callable[[], pd.DataFrame]) -> None:
    with st.container(horizontal=True, horizontal_alignment="right"):
        st.download_button(
            "CSV", lambda: safe.csv_bytes(rows()), f"{key}.csv", "text/csv", key=f"csv.{key}", icon=":material/download:",
            on_click="ignore", type="tertiary", help="These rows, for a spreadsheet: text that would run as a formula is quoted",
        )  # fmt: skip
        st.download_button(
            "Parquet", lambda: _parquet(rows()), f"{key}.parquet", "application/vnd.apache.parquet", key=f"parquet.{key}",
            icon=":material/download:", on_click="ignore", type="tertiary", help="These rows, exactly as stored",
        )  # fmt: skip


def _parquet(rows: pd.DataFrame) -> bytes:
    sink = io.BytesIO()
    rows.to_parquet(sink, index=False)
    return sink.getvalue()


def _drawn(cells: pd.Series) -> pd.Series:
    if pd.api.types.is_numeric_dtype(cells) and not pd.api.types.is_bool_dtype(cells):
        return cells
    cells = (
        cells.map({True: "yes", False: "no"}, na_action="ignore")
        if pd.api.types.is_bool_dtype(cells.dropna().infer_objects())
        else cells
    )
    return cells.map(lambda cell: safe.line(str(cell), 300) if pd.notna(cell) else None)


def _width(cells: pd.Series) -> int:
    """So wide that most cells are read whole, and no column takes the place of all others."""
    longest = cells.dropna().map(lambda cell: len(str(cell))).quantile(0.9) if cells.notna().any() else 0
    return int(min(max(60, 24 + 7.5 * longest), 260))


def _config(shown: pd.DataFrame) -> dict[str, Any]:
    """Shares are drawn as bars, plain numbers with at most three digits after the point."""
    config: dict[str, Any] = {}
    for name in shown.columns:
        if not pd.api.types.is_numeric_dtype(shown[name]):
            config[name] = st.column_config.TextColumn(width=_width(shown[name]))
        if not pd.api.types.is_float_dtype(shown[name]):
            continue
        if str(name).endswith("share"):
            config[name] = st.column_config.ProgressColumn(min_value=0.0, max_value=1.0, format="percent")
        else:
            config[name] = st.column_config.NumberColumn(format="%.3g")
    return config
