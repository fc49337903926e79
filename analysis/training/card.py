"""What a bundle says of itself: a card that Hugging Face reads, and a Croissant 1.0 description of its files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

_CONTEXT = {
    "@language": "en", "@vocab": "https://schema.org/", "sc": "https://schema.org/", "cr": "http://mlcommons.org/croissant/",
    "dct": "http://purl.org/dc/terms/", "rai": "http://mlcommons.org/croissant/RAI/", "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"}, "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{name: f"cr:{name}" for name in (
        "citeAs", "column", "equivalentProperty", "extract", "field", "fileProperty", "fileObject", "fileSet", "format",
        "includes", "isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet", "references", "regex",
        "repeated", "replace", "samplingRate", "separator", "source", "subField", "transform",
    )},
}  # fmt: skip
_TYPES = {"string": "sc:Text", "int64": "sc:Integer", "double": "sc:Float"}

_TEXT = """\
# Training rows of agent teams

{n_rows:,} rows in {n_splits} splits, {n_drops:,} left out with their reason in `drops.parquet`. Manifest `{short}`.

A row is one agent's contiguous history in one run. `messages` and `tools` are JSON text, so that no reader merges the
arguments of different tools; `json.loads` gives the messages of an OpenAI chat. `events` say which characters of a message
are which decision of the run, and what it was worth: `credit` = -ΔQ, raw, in units of the metric, with standard error, n and
evidence. Spread over the tokens of an event it sums to the credit (`credit_spread: mean`). A loss is taken on messages
with `keep`, times `weight`. Statistics of a group go over `rollout_id`, never over rows.

Rows are in training order (`order_key`); a trainer that shuffles gives it up. Rows are in one split that share:
{rule}.

| split | rows | files | content (SHA-256) |
| --- | ---: | ---: | --- |
{rows}

Secrets: {redaction}
"""


def card(manifest: Mapping[str, Any]) -> str:
    """Return README.md: front matter by which `load_dataset(folder)` finds the splits, and what the columns mean."""
    splits = manifest["splits"]
    files = [line for name in splits for line in (f"  - split: {name}", f'    path: "data/{name}-*.parquet"')]
    front = ["---", "configs:", "- config_name: default", "  data_files:", *files, "tags:", "- agents", "- counterpoint", "---"]
    rows = [
        f"| {name} | {split['n_rows']:,} | {len(split['files'])} | `{split['content_sha256'][:16]}` |"
        for name, split in splits.items()
    ]
    taken = manifest.get("redacted")
    redaction = "nothing was taken out." if taken is None else _taken(taken)
    recipe = manifest["recipe"]
    text = _TEXT.format(
        n_rows=manifest["n_rows"], n_splits=len(splits), n_drops=manifest["n_drops"], short=manifest["id"][:12],
        rule=recipe.get("split_rule", "as the rows state"), rows="\n".join(rows), redaction=redaction,
    )  # fmt: skip
    return "\n".join(front) + "\n" + text


def croissant(manifest: Mapping[str, Any], columns: Mapping[str, str]) -> str:
    """Return croissant.json: each file with its SHA-256, and its plain columns as a record set."""
    plain = {name: _TYPES[kind] for name, kind in columns.items() if kind in _TYPES}
    shards = [file for split in manifest["splits"].values() for file in split["files"]]
    # Nobody has said the licence, the URL or how to cite it, and a date would be another one each time: equal inputs give equal
    # bytes. So license, url, citeAs and datePublished are left out, of which validators warn.
    value = {
        "@context": _CONTEXT, "@type": "sc:Dataset", "name": f"counterpoint-{manifest['id'][:12]}",
        "description": "Training rows of agent teams: messages with the decisions in them, their credit, masks and weights.",
        "conformsTo": "http://mlcommons.org/croissant/1.0", "version": "1.0.0",
        "distribution": [
            {"@type": "cr:FileObject", "@id": file["path"], "name": file["path"], "contentUrl": file["path"],
             "encodingFormat": "application/x-parquet", "sha256": file["sha256"]}
            for file in shards
        ],
        "recordSet": [_records(file["path"], plain) for file in shards],
    }  # fmt: skip
    return msgspec.json.format(msgspec.json.encode(value), indent=1).decode() + "\n"


def _records(path: str, columns: Mapping[str, str]) -> dict[str, Any]:
    name = path.removeprefix("data/").removesuffix(".parquet")
    fields = [
        {"@type": "cr:Field", "@id": f"{name}/{column}", "name": column, "dataType": kind,
         "source": {"fileObject": {"@id": path}, "extract": {"column": column}}}
        for column, kind in columns.items()
    ]  # fmt: skip
    return {"@type": "cr:RecordSet", "@id": name, "name": name, "field": fields}


def _taken(counts: Mapping[str, int]) -> str:
    found = ", ".join(f"{n:,} {kind}" for kind, n in sorted(counts.items()))
    return f"best effort, by pattern and entropy; taken out: {found or 'none found'}."
