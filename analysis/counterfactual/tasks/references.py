"""Call references of the built-in bank in this process, to learn what composed tasks must return.

They are the project's own code and end quickly on arguments they are defined for, which is asked first. Sources of a bank
of somebody else, wrong variants and whatever agents write never come here: they run in the sandbox.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import date
from typing import Any

import msgspec

from analysis.counterfactual.tasks.bank import TYPES, Bank, Function
from analysis.errors import TaskError


class References:
    """The references of a bank, compiled when first called. Raises TaskError for a bank that is not the built-in one."""

    def __init__(self, bank: Bank) -> None:
        if not bank.is_built_in:
            hint = "compose from the built-in bank; functions of other banks are tasks by themselves"
            raise TaskError("bank", "references of this bank are not the project's own code and do not run here", hint=hint)
        self._compiled: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {}

    def call(self, function: Function, arguments: Sequence[Any]) -> Any:
        """Return the result for plain arguments, as plain values; None where the function is not defined for them."""
        run, requires = self._compiled.get(function.function_id) or self._compile(function)
        typed = [msgspec.convert(value, TYPES[p.type]) for value, p in zip(arguments, function.parameters, strict=True)]
        return json.loads(json.dumps(run(*typed))) if _holds(requires, typed) else None

    def _compile(self, function: Function) -> tuple[Callable[..., Any], Callable[..., Any]]:
        names = ", ".join([parameter.name for parameter in function.parameters])
        scope: dict[str, Any] = {"__name__": "reference"}
        exec(compile(function.reference, function.function_id, "exec", dont_inherit=True), scope)
        requires = eval(f"lambda {names}: ({function.requires})", {"date": date})
        self._compiled[function.function_id] = scope[function.function_id], requires
        return self._compiled[function.function_id]


def _holds(requires: Callable[..., Any], arguments: Sequence[Any]) -> bool:
    """An expression that fails on a text, such as `date.fromisoformat(day)`, does not hold for it."""
    try:
        return bool(requires(*arguments))
    except (ValueError, IndexError):
        return False
