"""What a policy goes by: the choices that a request holds, the features of their options, and which was taken.

Only what stands in the request counts, so that a choice can be learned from wherever it was made. Names of options that
differ from task to task become kinds. Hides the features; they are named `purpose/kind of option/what holds`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from analysis.counterfactual.agents.protocol import Agent, Purpose, Request, Response, Seen
from analysis.errors import TraceError
from analysis.model import Trace

_DIGITS = 9
#: Decisions about each part by itself: what it means to let it be, and not to.
EACH_PART: dict[Purpose, tuple[str, str]] = {"verify": ("accept", "reject"), "aggregate": ("keep", "leave out")}

Features = dict[str, float]


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One choice: whose, where, among which options with which features, and which was taken.

    key : the request's: task, trial, agent, lineage of the event, purpose; its fourth entry is the step, where there is one
    about : the part that it is about; of a verifier or aggregator, whose choice for each part is a row
    """

    component: str
    purpose: Purpose
    options: dict[str, Features]
    choice: str
    key: tuple[str | int, ...] = ()
    attempt: int = 0
    about: str = ""


class Recorder:
    """An agent as it is, whose choices are noted; several threads may ask."""

    def __init__(self, other: Agent) -> None:
        self._other = other
        self._rows: list[Row] = []

    def act(self, request: Request) -> Response:
        """Answer as the other does."""
        response = self._other.act(request)
        self._rows += rows(request, response)
        return response

    def rows(self) -> list[Row]:
        """Return the choices so far, ordered."""
        return ordered(self._rows)


def rows(request: Request, response: Response) -> list[Row]:
    """Return the choices that a response holds: none where there was nothing to choose, or no answer."""
    if response.error is not None:
        return []
    where: dict[str, Any] = {"component": request.component, "purpose": request.purpose}
    where |= {"key": request.key, "attempt": request.attempt}
    found = []
    for about, options in options_of(request).items():
        plain, other = EACH_PART.get(request.purpose, ("", ""))
        choice = response.choice if not plain else other if about in response.rejected else plain
        if choice in options:
            found.append(Row(options=options, choice=choice, about=about, **where))
    return found


def rows_of(trace: Trace) -> list[Row]:
    """Return the choices in a run, as `extra["run"]["decisions"]` holds them. Raises TraceError where they cannot be read."""
    run = trace.extra.get("run")
    try:
        return msgspec.convert(run.get("decisions", []) if isinstance(run, dict) else [], list[Row])
    except msgspec.ValidationError as error:
        raise TraceError(trace.trace_id, "the decisions of the run cannot be read", got=str(error)) from None


def options_of(request: Request) -> dict[str, dict[str, Features]]:
    """Return what there is to choose: about what, and among which options with which features.

    A verifier accepts or rejects, an aggregator keeps or leaves out, each part by itself; all others choose one option. Fewer
    than two options are no choice.
    """
    purpose = request.purpose
    if purpose in EACH_PART:
        plain, other = EACH_PART[purpose]
        names = request.options or tuple([seen.part for seen in request.seen if seen.part is not None])
        return {about: {plain: {}, other: _named(purpose, other, _situation(request, about))} for about in names}
    if len(request.options) < 2:
        return {}
    holds = _situation(request, request.part)
    return {request.part or "": {option: _named(purpose, _kind(request, option), holds) for option in request.options}}


def _named(purpose: Purpose, kind: str, holds: Features) -> Features:
    return {f"{purpose}/{kind}/{name}": value for name, value in holds.items()}


def _kind(request: Request, option: str) -> str:
    """What options of different tasks have in common: a variant's fault, a way to split without the part it is about."""
    if request.purpose == "write" and request.part and not isinstance(request.task, str):
        variants = request.task.node(request.part).function.variants
        return next((variant.fault for variant in variants if variant.variant_id == option), option)
    return option.partition(":")[0]


def _situation(request: Request, about: str | None) -> Features:
    """What holds when the choice is made, as numbers of size 1 or so; what does not hold is left out."""
    holds = {"always": 1.0, "attempt": float(request.attempt)}
    if not isinstance(request.task, str):
        holds["log_parts"] = math.log(len(request.task.requirements))
        if request.purpose == "write" and request.part:
            holds["difficulty"] = request.task.node(request.part).function.difficulty
    package = request.package
    if request.purpose == "write":
        pieces = {"nl": package.nl, "scenarios": package.scenarios, "signatures": package.signatures}
        holds |= {name: float(bool(piece)) for name, piece in {**pieces, "domain_model": package.domain_model}.items()}
    part = None if about in (None, "", "whole") else about
    holds |= _of_seen([seen for seen in request.seen if part is None or seen.part in (part, None)], part)
    return {name: round(value, _DIGITS) for name, value in holds.items() if value}


def _of_seen(seen: Sequence[Seen], part: str | None) -> Features:
    """What was seen: the last verdict, how tests went, what was stated, whether the part is there at all."""
    verdicts = [one for one in seen if one.kind == "verdict"]
    tested = [one for one in seen if one.n_tests and one.n_passed is not None and (part is None or one.part == part)]
    stated = [p for one in seen for _, p in one.claims if part is None or one.part == part]
    holds = {"n_seen": math.log1p(len(seen))}
    if verdicts:
        last = verdicts[-1].rejected
        holds["rejected" if (part in last if part else last) else "accepted"] = 1.0
    if tested:
        share = math.fsum([(one.n_passed or 0) / (one.n_tests or 1) for one in tested]) / len(tested)
        holds |= {"tested": 1.0, "share_failed": 1 - share, "fails": float(share < 1)}
    if stated:
        holds |= {"stated": 1.0, "doubt": 1 - math.fsum(stated) / len(stated)}
    if part is not None:
        holds["missing"] = float(all(one.part != part or one.program is None for one in seen))
    return holds


def ordered(rows: Iterable[Row]) -> list[Row]:
    """Return choices in an order that does not depend on when they were made."""
    return sorted(rows, key=lambda row: (msgspec.json.encode(row.key), row.attempt, row.about))
