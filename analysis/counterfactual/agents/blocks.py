"""What stands in a model's answer, whatever it wrote around it: the JSON object, and the Python source.

Decides which of several counts: the last one. Models write fences of all kinds, JSON with line breaks inside texts, and source
inside JSON inside fences; what cannot be told apart is not guessed. Nothing is executed or parsed as Python.
"""

from __future__ import annotations

import json
import re
import textwrap

_FENCE = re.compile(r"^[ \t]*(```+|~~~+)[ \t]*([\w+-]*)[^\n]*\n(.*?)^[ \t]*\1[ \t]*$", re.DOTALL | re.MULTILINE)
_PYTHON = ("python", "py", "python3")
_FUNCTION = re.compile(r"^[ \t]*(?:async )?def \w+\(", re.MULTILINE)
#: A hostile answer may open braces without end; one that is meant to be read has few.
_N_TRIED = 200
_decoder = json.JSONDecoder(strict=False)


def json_object(said: str) -> dict[str, object] | None:
    """Return the last JSON object: of the last block that says it is JSON, else of blocks that say nothing, else of the rest.

    >>> json_object('Sure! {"choice": "stop"} Anything else?')
    {'choice': 'stop'}
    """
    blocks = [(kind.lower(), text) for _, kind, text in _FENCE.findall(said + "\n")]
    if marked := [text for kind, text in blocks if kind == "json"]:
        return _last_object(marked[-1])
    plain = [found for kind, text in blocks if not kind and (found := _last_object(text)) is not None]
    return plain[-1] if plain else _last_object(_FENCE.sub("", said + "\n"))


def source_block(said: str) -> str | None:
    """Return the last block of Python; one that does not say what it is counts where a function stands in it.

    >>> source_block("Here:\\n```py\\nx = 1\\n```")
    'x = 1\\n'
    """
    blocks = [(kind.lower(), text) for _, kind, text in _FENCE.findall(said + "\n")]
    sources = [text for kind, text in blocks if kind in _PYTHON or (not kind and has_function(text))]
    return textwrap.dedent(sources[-1]) if sources else None


def has_function(text: str) -> bool:
    """Whether a text defines a function, so that it is more than a placeholder."""
    return _FUNCTION.search(text) is not None


def _last_object(text: str) -> dict[str, object] | None:
    found, at = None, text.find("{")
    for _ in range(_N_TRIED):
        if at < 0:
            break
        try:
            found, end = _decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        at = text.find("{", end)
    return found
