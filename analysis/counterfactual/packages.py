"""What a delegation hands over of a composed task: words, scenarios, signatures, and how the parts hang together."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import get_args

from analysis.counterfactual.plan import Piece
from analysis.counterfactual.sandbox import Case
from analysis.counterfactual.tasks.bank import Function
from analysis.counterfactual.tasks.compose import ComposedTask, wiring
from analysis.model import ContextPackage

FULL: tuple[Piece, ...] = get_args(Piece)
_N_SCENARIOS = 2


def package_of(task: ComposedTask, parts: Sequence[str], pieces: Sequence[Piece], *, needs: Sequence[str] = ()) -> ContextPackage:
    """Return the chosen pieces for some parts; `needs` are parts whose results they build on, of which signatures tell."""
    functions = [task.node(part).function for part in parts]
    scenarios = [_scenario(function, case) for function in functions for case in function.cases[:_N_SCENARIOS]]
    upstream = [task.node(part).function for part in needs if part not in parts]
    return ContextPackage(
        nl=" ".join([function.statement for function in functions]) if "nl" in pieces else None,
        scenarios=tuple(scenarios) if "scenarios" in pieces else (),
        signatures=tuple([f.signature for f in (*functions, *upstream)]) if "signatures" in pieces else (),
        domain_model="\n".join(wiring(task)) if "domain_model" in pieces else None,
    )


def _scenario(function: Function, case: Case) -> str:
    return f"{function.function_id}({', '.join([json.dumps(value) for value in case.inputs])}) is {json.dumps(case.expected)}"
