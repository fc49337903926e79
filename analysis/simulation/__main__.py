"""`python -m analysis.simulation FOLDER` writes the sample traces again; same bytes every time."""

from __future__ import annotations

import sys
from pathlib import Path

from analysis.simulation import write_samples


def main(arguments: list[str]) -> int:
    """Write the samples into the one folder named, and say what was written."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        sys.stderr.write("usage: python -m analysis.simulation FOLDER\n")
        return 2
    for name, n_traces in write_samples(Path(arguments[0])).items():
        sys.stdout.write(f"{Path(arguments[0]) / name}: {n_traces} traces\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
