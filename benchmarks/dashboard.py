"""How fast the pages are, in a real browser: `python benchmarks/dashboard.py [--quick] [--json]`.

A long trace opened from its address by a browser that never saw the page, a click in its lanes, the list of 100,000 traces,
a click in a heat map, and one trace out of 100,000 read from the store. Peers' figures are as others reported them, on other
machines: no ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from corpus import write_corpus
from playwright.sync_api import Browser, Locator, Page, sync_playwright
from simulation import SimulationPolicy, simulate

from analysis.cli.serve import running
from analysis.model import Agent, Claim, Relation, Trace, encode
from analysis.pipeline import analyse, import_paths
from analysis.workspace import Snapshot, Workspace, trace_tables

N_TRACES = 100_000
N_BASE = 2_000  # of them simulated in quick mode; the others are these under other ids
N_LONG = 3  # traces opened, each once
N_CLICKS = 7
N_COMPONENTS, N_TURNS = 12, 200  # of the heat map
FILTERS = ("passed:no", "condition:parallel", "events>17", "passed:yes agent:planner", "-passed:yes")
WAIT_MS = 120_000
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = ("--disable-gpu", "--disable-background-networking", "--no-first-run", "--disable-component-update", "--disable-sync")
PEERS_OPEN = "as reported for 10,000 spans: Inspect View 4.1 s, Phoenix 9.0 s (1,000 of them), clustertrace 21.9 s, MLflow 72 s"
PEERS_NODES = "as reported for 10,000 spans: Inspect View 228, Phoenix 24,611, clustertrace 160,054, MLflow 305,651"
PEERS_DRAWN = "as reported: Inspect View all (sub-agents collapsed), Phoenix 0.1, clustertrace all (no nesting), MLflow all"
N_NODES = """() => {
    const inside = (root) => [...root.querySelectorAll("*")].reduce((n, e) => n + 1 + below(e.shadowRoot), 0);
    const below = (root) => (root ? inside(root) : 0);
    return inside(document);
}"""
PAINTED = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


class Row(NamedTuple):
    """One measurement: ours against the goal; `peer` is text, for those others measured."""

    measure: str
    ours: float
    unit: str
    goal: float
    peer: str | None = None
    at_least: bool = False

    def plain(self) -> dict[str, Any]:
        """Return the row as it is printed."""
        met = self.ours >= self.goal if self.at_least else self.ours <= self.goal
        return {
            "measure": self.measure, "ours": round(self.ours, 3), "peer": self.peer, "unit": self.unit, "ratio": None,
            "goal": self.goal, "met": met,
        }  # fmt: skip


def measure(*, quick: bool) -> list[Row]:
    """Build the workspaces in a temporary folder, serve them, and measure."""
    with tempfile.TemporaryDirectory(prefix="counterpoint-bench-") as folder, _chromium() as browser:
        many = _many(Path(folder), quick=quick)
        shown = [*_long_traces(Path(folder), browser), *_list_of_traces(many, browser, quick=quick)]
        return [*shown, _heat_map(Path(folder), browser), _from_the_store(many)]


@contextmanager
def _chromium() -> Iterator[Browser]:
    path = os.environ.get("COUNTERPOINT_BROWSER") or next((p for name in NAMES if (p := shutil.which(name))), None)
    sandbox = ["--no-sandbox"] if os.name == "posix" and os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[*ARGUMENTS, *sandbox])
        yield browser
        browser.close()


def _fresh(browser: Browser) -> Page:
    """The only page of a browser that has nothing stored."""
    for context in browser.contexts:
        context.close()
    return browser.new_context(viewport={"width": 1280, "height": 900}).new_page()


def _long_traces(folder: Path, browser: Browser) -> list[Row]:
    """Open traces of 5,000 and 10,000 events, each for the first time, and click in one."""
    wanted = {5_000: [], 10_000: []}
    with (folder / "long.jsonl").open("wb") as file:
        for n_events, ids in wanted.items():
            policy = SimulationPolicy(
                name=f"long{n_events}", n_tasks=1, n_trials=N_LONG, n_bad=0, teams=("parallel",), n_events=n_events
            )
            for trace in simulate(policy, seed=5):
                ids.append(trace.trace_id)
                file.write(encode(trace) + b"\n")
    (folder / "short.jsonl").write_bytes(encode(next(simulate(SimulationPolicy(name="short"), seed=5))) + b"\n")
    workspace = Workspace(folder / "long", create=True)
    import_paths(workspace, [folder / "long.jsonl", folder / "short.jsonl"])
    with running(workspace.location, None) as (url, _):
        _open(_fresh(browser), url, "short-software-1-single-1")  # the server has now loaded its libraries
        five = [_open(_fresh(browser), url, trace_id)[0] for trace_id in wanted[5_000]]
        ten = [_open(page := _fresh(browser), url, trace_id) for trace_id in wanted[10_000]]
        clicks = _clicks(page)
        n_nodes = page.evaluate(N_NODES)
    drawn = [n_drawn / n_events for _, n_drawn, n_events in ten]
    n = min(n_events for _, _, n_events in ten)
    times = f"median of {N_LONG} first visits"
    return [
        Row(f"5,000 events drawn, from a cold address; {times}", statistics.median(five), "s", 4),
        Row(f"{n:,} events open, with detail; {times}", statistics.median(t for t, *_ in ten), "s", 4, PEERS_OPEN),
        Row(f"{n:,} events: nodes in the page", n_nodes, "nodes", 5_000, PEERS_NODES),
        Row(f"{n:,} events: share that is drawn, in the lane of its agent", min(drawn), "1", 1, PEERS_DRAWN, at_least=True),
        Row(f"{n:,} events: click to detail; median of {len(clicks)}", statistics.median(clicks), "s", 0.5),
    ]


def _open(page: Page, url: str, trace_id: str) -> tuple[float, int, int]:
    """Open a trace; return seconds until lanes and detail are painted, events drawn and events there are."""
    started = time.perf_counter()
    page.goto(f"{url}/trace?trace={trace_id.removeprefix('counterpoint:')}")
    lanes = page.locator(".swim[data-drawn]")
    lanes.wait_for(timeout=WAIT_MS)
    detail = page.get_by_text("event 1 of")
    detail.wait_for(timeout=WAIT_MS)
    page.evaluate(PAINTED)
    seconds = time.perf_counter() - started
    return seconds, int(lanes.get_attribute("data-drawn") or 0), int(detail.inner_text().split()[-1].replace(",", ""))


def _clicks(page: Page) -> list[float]:
    """Click marks of the busiest lane at several places; return seconds until the detail is another one."""
    box = page.locator("canvas.chart").bounding_box()
    assert box is not None
    found = []
    for k in range(N_CLICKS):
        x, y = box["x"] + box["width"] * (0.35 + 0.08 * k), box["y"] + 26 + 36 * 1.5
        while page.locator("canvas.chart").evaluate("chart => chart.style.cursor") != "pointer":
            page.mouse.move(x := x + 1, y)
        page.mouse.move(x, y)
        before = page.get_by_text(re.compile(r"^event [\d,]+ of")).inner_text()
        started = time.perf_counter()
        page.mouse.click(x, y)
        page.get_by_text(before, exact=True).wait_for(state="detached", timeout=WAIT_MS)
        found.append(time.perf_counter() - started)
        page.wait_for_timeout(400)
    return found


def _many(folder: Path, *, quick: bool) -> Workspace:
    """Return a workspace of 100,000 traces: imported, or in quick mode written from 2,000 of them under 50 ids each."""
    workspace = Workspace(folder / "many", create=True)
    if not quick:
        write_corpus(folder / "many.jsonl", n_traces=N_TRACES, n_events=50, seed=1)
        import_paths(workspace, [folder / "many.jsonl"])
        return workspace
    policy = SimulationPolicy(name="corpus", n_tasks=N_BASE)
    base = [trace for trace, _ in zip(simulate(policy, seed=1), range(N_BASE), strict=False)]
    tables = trace_tables([(trace, "counterpoint") for trace in sorted(base, key=lambda trace: trace.trace_id)])
    files: dict[str, list[Any]] = {name: [] for name in tables}
    for first in range(0, N_TRACES // N_BASE, 10):
        for name, table in tables.items():
            copies = [_renamed(table, f"counterpoint:copy{copy:02}-") for copy in range(first, first + 10)]
            files[name].append(workspace.write(name, pa.concat_tables(copies)))
    workspace.commit(workspace.head(), {name: tuple(found) for name, found in files.items()}, data_version="bench")
    return workspace


def _renamed(table: pa.Table, prefix: str) -> pa.Table:
    ids = pc.replace_substring(table["trace_id"], "counterpoint:", prefix)
    return table.set_column(table.schema.get_field_index("trace_id"), "trace_id", ids)


def _list_of_traces(workspace: Workspace, browser: Browser, *, quick: bool) -> list[Row]:
    """Open the list on a server that has just started, again by other browsers, and filter it."""
    made = f"{N_BASE:,} simulated, under {N_TRACES // N_BASE} ids each" if quick else "all simulated"
    with running(workspace.location, None) as (url, _):
        first = _open_list(_fresh(browser), url)
        later = [_open_list(page := _fresh(browser), url) for _ in range(3)]
        filters = [_filter(page, line) for line in FILTERS]
    return [
        Row(f"list of {N_TRACES:,} traces ({made}): first screen, the first of the server", first, "s", 2),
        Row(
            f"list of {N_TRACES:,} traces: first screen in a new browser; median of {len(later)}",
            statistics.median(later),
            "s",
            2,
        ),
        Row(f"list of {N_TRACES:,} traces: filter; median of {len(filters)}", statistics.median(filters), "s", 0.5),
    ]


def _heat_map(folder: Path, browser: Browser) -> Row:
    """Click cells of a heat map of 12 components × 200 turns."""
    names = [f"component{n:02}" for n in range(N_COMPONENTS)]
    draw = random.Random(2)
    said = [
        Claim(claim_id=f"{name}.{turn}", component=name, proposition=f"{name}_ok", p=round(draw.random(), 3), turn=turn)
        for turn in range(N_TURNS)
        for name in names
    ]
    tie = Relation(relation_id="r", formula=f"exactly_one({', '.join(f'{name}_ok' for name in names)})")
    agents = tuple(Agent(agent_id=name, component=name) for name in names)
    trace = Trace(trace_id="counterpoint:heat", world="recorded", agents=agents, claims=tuple(said), relations=(tie,))
    (folder / "heat.jsonl").write_bytes(encode(trace) + b"\n")
    workspace = Workspace(folder / "heat", create=True)
    import_paths(workspace, [folder / "heat.jsonl"])
    analyse(workspace, only=["claims", "residuals"])
    with running(workspace.location, None) as (url, _):
        page = _fresh(browser)
        page.set_viewport_size({"width": 1280, "height": 1600})
        page.goto(f"{url}/coherence?view=trace&trace=heat")
        cells = page.locator(".js-plotly-plot .nsewdrag.drag").first
        cells.wait_for(state="attached", timeout=WAIT_MS)
        page.get_by_text("What would make it coherent?").wait_for(timeout=WAIT_MS)
        page.wait_for_timeout(2000)
        times = [_cell(page, cells, 0.1 + 0.11 * n) for n in range(N_CLICKS)]
    measure = f"heat map of {N_COMPONENTS} × {N_TURNS} cells: click to what was claimed; median of {len(times)}"
    return Row(measure, statistics.median(times), "s", 0.5)


def _cell(page: Page, cells: Locator, place: float) -> float:
    box = cells.bounding_box()
    assert box is not None
    heading = page.get_by_text("what it had claimed by turn")
    before = heading.inner_text() if heading.count() else ""
    page.mouse.move(box["x"] + box["width"] * place, box["y"] + box["height"] * place)
    page.wait_for_timeout(300)
    started = time.perf_counter()
    page.mouse.click(box["x"] + box["width"] * place, box["y"] + box["height"] * place)
    if before:
        page.get_by_text(before, exact=True).wait_for(state="detached", timeout=WAIT_MS)
    heading.wait_for(timeout=WAIT_MS)
    seconds = time.perf_counter() - started
    page.wait_for_timeout(800)
    return seconds


def _open_list(page: Page, url: str) -> float:
    started = time.perf_counter()
    page.goto(f"{url}/traces")
    page.get_by_text(f"{N_TRACES:,} of {N_TRACES:,} traces").wait_for(timeout=WAIT_MS)
    page.get_by_test_id("stDataFrame").locator("canvas").first.wait_for(timeout=WAIT_MS)
    return time.perf_counter() - started


def _filter(page: Page, line: str) -> float:
    caption = page.get_by_text(f" of {N_TRACES:,} traces")
    before = caption.inner_text()
    box = page.get_by_label("Filter", exact=True)
    box.fill(line)
    started = time.perf_counter()
    box.press("Enter")
    page.get_by_text(before, exact=True).wait_for(state="detached", timeout=WAIT_MS)
    caption.wait_for(timeout=WAIT_MS)
    return time.perf_counter() - started


def _from_the_store(workspace: Workspace) -> Row:
    """Read single traces, chosen at random, each for the first time."""
    snapshot = Snapshot(workspace)
    ids = snapshot.sql("select trace_id from traces order by trace_id")["trace_id"].to_pylist()
    chosen = random.Random(1).sample(ids, 21)
    times = []
    for trace_id in chosen:
        started = time.perf_counter()
        snapshot.trace(trace_id)
        times.append(time.perf_counter() - started)
    return Row(f"one trace of {len(ids):,} from the store; median of 20", statistics.median(times[1:]), "s", 0.15)


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="at most two minutes: most of the 100,000 traces are copies")
    parser.add_argument("--json", action="store_true", help="print a JSON list")
    given = parser.parse_args()
    rows = [row.plain() for row in measure(quick=given.quick)]
    if given.json:
        print(json.dumps(rows, indent=1))
        return
    for row in rows:
        print(f"{'met   ' if row['met'] else 'MISSED'} {row['ours']:>8g} {row['unit']:<6} goal {row['goal']:<6} {row['measure']}")
        if row["peer"]:
            print(f"{'':30}{row['peer']}")


if __name__ == "__main__":
    main()
