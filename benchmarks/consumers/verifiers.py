"""What verifiers reads of its view: each line as an episode, each of its traces as branches.

usage: python -P verifiers.py VIEWS MODEL   (prints JSON: version, and for each split the episodes)
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path

from verifiers.v1.configs.agent import WireAgentConfig
from verifiers.v1.episode import Episode
from verifiers.v1.state import State
from verifiers.v1.task import WireTaskData


def main(views: Path) -> None:
    """Read both splits."""
    read = {}
    for file in sorted((views / "verifiers").glob("*.jsonl")):
        lines = file.read_text(encoding="utf-8").splitlines()
        episodes = [Episode[WireTaskData, State, WireAgentConfig].model_validate(json.loads(line)) for line in lines]
        # A trace that were not one chain of messages would have another number of branches.
        n_whole = sum(all(len(trace.branches) == 1 for trace in episode.traces) for episode in episodes)
        read[f"verifiers/{file.stem}"] = {"n": n_whole}
    print(json.dumps({"version": f"verifiers {version('verifiers')}", "read": read}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
