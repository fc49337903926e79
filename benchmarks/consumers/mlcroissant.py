"""What mlcroissant reads of a bundle by its `croissant.json`: every record set, with the digests of its files.

usage: python -P mlcroissant.py VIEWS MODEL   (prints JSON: version, and for each split the records)
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import mlcroissant


def main(views: Path) -> None:
    """Read all record sets of the bundle."""
    dataset = mlcroissant.Dataset(jsonld=str(views / "bundle" / "croissant.json"))
    n_rows: Counter[str] = Counter()
    for one in dataset.metadata.record_sets:
        n_rows[one.name.rpartition("-")[0]] += sum(1 for _ in dataset.records(one.uuid))
    read = {f"bundle/{split}": {"n": n} for split, n in n_rows.items()}
    print(json.dumps({"version": f"mlcroissant {version('mlcroissant')}", "read": read}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
