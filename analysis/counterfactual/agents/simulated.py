"""Simulated agents: seeded pickers between right and wrong, whose skill, candour and pace a team file declares.

Whether a source is right, a verdict true or a merge faithful is drawn here; nothing is run. Chances are given for the easiest
case and moved by log-odds, so that a chance of 0 or 1 stays what it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec

from analysis.counterfactual.agents.protocol import Purpose, Request, Response, Seen
from analysis.counterfactual.tasks.bank import Fault
from analysis.counterfactual.tasks.compose import ComposedTask, Node
from analysis.counterfactual.tasks.programs import program
from analysis.streams import pick

P = Annotated[float, msgspec.Meta(ge=0, le=1)]
Positive = Annotated[float, msgspec.Meta(ge=0)]

#: What can move the chance that a source is right: `difficulty` and `attempt` by their size, the rest where it holds.
EFFECTS = (
    "difficulty", "attempt", "nl", "scenarios", "signatures", "domain_model", "upstream", "interface", "blind", "feedback",
)  # fmt: skip
#: What an answer takes about, in seconds.
SECONDS: dict[Purpose, float] = {
    "plan": 6.0, "assign": 0.3, "write": 8.0, "verify": 3.0, "message": 1.0, "aggregate": 3.0, "stop": 0.5, "answer": 3.0,
}  # fmt: skip
#: What a plan says of its split, by the kind of split.
_WAYS = {
    "by part": "I split it by part.", "hidden dependency": "I did not say what {part} builds on.",
    "missing part": "I left out {part}.", "repeated part": "I gave out {part} twice.", "same part": "I gave out {first} only.",
}  # fmt: skip
_SURE = (0.01, 0.99)
_LEAST = 2.0**-54


class Component(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a component acts.

    competence : chance that a source for the easiest function, without any context, is right
    effects : what moves it, in log-odds, by name (`EFFECTS`); `blind`: it builds on other parts and knows nothing of them
    domains : the same by domain of the function
    faults : how likely a wrong source has each kind of fault, relative to 1
    insight : chance that it notices that its own source is wrong; it then says so
    states : share of its answers in which it states probabilities
    bias : log-odds added to all it states; above 0 it is too sure
    sensitivity, specificity : chance that it rejects what is wrong, and accepts what is right; whether tests of the whole
        pass it always sees
    fidelity : chance that a merge of two keeps everything; `crowding` is what each further one takes off, in log-odds
    splits : chance of each way to split that is not `by part`
    favours : chance that an assignment goes to the first agent rather than to one of all
    stops_at : asked whether to stop, it does if it is at least so sure that the task is solved
    seconds : by purpose, what an answer takes about
    prompt_tokens : what stands before it at any time
    """

    competence: P = 0.9
    effects: dict[str, float] = {}
    domains: dict[str, float] = {}
    faults: dict[Fault, Positive] = {}
    insight: P = 0.0
    states: P = 1.0
    bias: float = 0.0
    sensitivity: P = 0.9
    specificity: P = 0.95
    fidelity: P = 1.0
    crowding: Positive = 0.0
    splits: dict[str, P] = {}
    favours: P = 0.0
    stops_at: P = 0.5
    seconds: dict[Purpose, Positive] = {}
    prompt_tokens: Annotated[int, msgspec.Meta(ge=0)] = 120


class Simulated:
    """An agent that picks, as its component declares."""

    def __init__(self, component: Component) -> None:
        self.component = component

    def act(self, request: Request) -> Response:
        """Answer a request; the same request has the same answer."""
        if isinstance(request.task, str):
            return Response(error="a simulated agent has no answer to a plain prompt")
        response = _HOW[request.purpose](self.component, request, request.task)
        if request.draw("states") >= self.component.states:
            response = msgspec.structs.replace(response, claims=())
        said = len(response.text) + len(response.program or "")
        return msgspec.structs.replace(
            response,
            duration_s=_duration_s(self.component, request),
            input_tokens=self.component.prompt_tokens + _n_chars(request) // 4,
            output_tokens=8 + said // 4,
        )


def p_right(component: Component, request: Request) -> float:
    """Return the chance that what the component writes for this request is right."""
    if isinstance(request.task, str) or request.part is None:
        return 0.0
    node, package = request.task.node(request.part), request.package
    takes = next(part.takes for part in request.task.shape.parts if part.name == request.part)
    told = {seen.part for seen in request.seen if seen.kind == "message" and seen.message_type == "interface"}
    had = {seen.part for seen in request.seen if seen.kind == "upstream"}
    holds: dict[str, float] = {
        "difficulty": node.function.difficulty,
        "attempt": request.attempt,
        "nl": package.nl is not None,
        "scenarios": bool(package.scenarios),
        "signatures": bool(package.signatures),
        "domain_model": package.domain_model is not None,
        "upstream": bool(takes) and had >= set(takes),
        "interface": bool(takes) and told >= set(takes),
        "blind": bool(set(takes) - told - had),
        "feedback": any(seen.kind in ("verdict", "candidate") for seen in request.seen),
    }
    shift = math.fsum([effect * holds[name] for name, effect in sorted(component.effects.items())])
    return moved(component.competence, shift + component.domains.get(node.function.domain, 0.0))


def moved(p: float, log_odds: float) -> float:
    """Return a chance moved by log-odds; 0 and 1 stay.

    >>> round(moved(0.5, 1.0), 3), moved(1.0, -9.0)
    (0.731, 1.0)
    """
    return p if p in (0.0, 1.0) else 1 / (1 + (1 - p) / p * math.exp(-log_odds))


def chosen(request: Request, weights: Mapping[str, float], *what: str) -> str:
    """Return one of the options with the chances given, as the largest of log-chance + Gumbel noise of each option's own key.

    So a draw changes only towards an option whose chance grew (Oberst & Sontag 2019).
    """
    scores = {
        name: math.log(weight) - math.log(-math.log(max(request.draw(*what, name), _LEAST)))
        for name, weight in weights.items() if weight > 0
    }  # fmt: skip
    return max(scores, key=lambda name: (scores[name], name))


def _write(component: Component, request: Request, task: ComposedTask) -> Response:
    node = task.node(request.part or "")
    p = p_right(component, request)
    choice = chosen(request, _weights(component, node, p), "variant")
    is_noticed = choice != "reference" and request.draw("insight") < component.insight
    unnoticed = p + (1 - p) * (1 - component.insight)
    sure = 0.0 if is_noticed or unnoticed == 0 else p / unnoticed
    text = f"{node.part} is ready: `{node.function.signature}`." + (" I doubt that it is right." if is_noticed else "")
    source = node.function.source(None if choice == "reference" else choice)
    return Response(text=text, choice=choice, program=source, claims=((f"{node.part}_ok", _stated(component, sure)),))


def _weights(component: Component, node: Node, p: float) -> dict[str, float]:
    wrong = {variant.variant_id: component.faults.get(variant.fault, 1.0) for variant in node.function.variants}
    if not any(wrong.values()):
        wrong = dict.fromkeys(wrong, 1.0)
    total = math.fsum(wrong.values())
    return {"reference": p} | {name: (1 - p) * weight / total for name, weight in wrong.items()}


def _stated(component: Component, p: float) -> float:
    low, high = _SURE
    return round(min(high, max(low, moved(min(high, max(low, p)), component.bias))), 2)


def _plan(component: Component, request: Request, task: ComposedTask) -> Response:
    names = ", ".join(task.requirements)
    text = f"The task has {len(task.requirements)} parts: {names}."
    claims = (("plan_ok", _stated(component, 1 - math.fsum(component.splits.values()))),)
    if not request.options:
        return Response(text=text, claims=claims)
    kinds = [option.partition(":")[0] for option in request.options]
    chances = [component.splits.get(kind, 0.0) / kinds.count(kind) for kind in kinds]
    weights = dict(zip(request.options, chances, strict=True))
    weights[request.options[0]] = max(0.0, 1 - math.fsum(weights.values()))
    choice = chosen(request, weights, "split")
    kind, _, part = choice.partition(":")
    way = _WAYS.get(kind, f"I choose {choice}.").format(part=part, first=task.requirements[0])
    return Response(text=f"{text} {way}", choice=choice, claims=claims)


def _assign(component: Component, request: Request, task: ComposedTask) -> Response:
    options = request.options
    first = request.draw("favours") < component.favours
    choice = options[0] if first else pick(request.draw("who"), options)
    return Response(text=f"{request.part} goes to {choice}.", choice=choice)


def _verify(component: Component, request: Request, task: ComposedTask) -> Response:
    whole = next((seen for seen in request.seen if seen.part is None), None)
    candidates = [seen for seen in request.seen if seen.part is not None]
    rejected = tuple([seen.part or "" for seen in candidates if _is_rejected(component, request, task, seen)])
    accepted = component.specificity / max(_LEAST, component.specificity + 1 - component.sensitivity)
    sure = accepted if not rejected else 1 - component.sensitivity
    is_tested = whole is not None and whole.n_tests is not None
    if whole is not None and is_tested:
        is_right = whole.n_passed == whole.n_tests
        rejected = () if is_right else rejected or ("whole",)
        sure = float(is_right)
    elif {seen.part for seen in candidates} < set(task.requirements):
        rejected, sure = (*rejected, "whole"), 0.0
    text = f"I reject {', '.join(rejected)}." if rejected else "Everything is as it should be."
    return Response(text=text, rejected=rejected, claims=(("checks_pass", _stated(component, sure)),))


def _is_rejected(component: Component, request: Request, task: ComposedTask, seen: Seen) -> bool:
    is_right = seen.program == task.node(seen.part or "").function.reference
    if seen.n_tests is not None:
        is_right = seen.n_passed == seen.n_tests
    return request.draw("reject", seen.part or "") < (1 - component.specificity if is_right else component.sensitivity)


def _message(component: Component, request: Request, task: ComposedTask) -> Response:
    kind = request.options[0] if request.options else "status"
    part = f" {request.part}" if request.part else ""
    if kind == "interface" and request.part:
        return Response(text=f"{request.part} hands over `{task.node(request.part).function.signature}`.")
    words = ("I am still on{}.", "Any news from your side?{}", "Thanks, noted.{}", "Just a short sign of life.{}")
    return Response(text=pick(request.draw("words"), words).format(part))


def _merge(component: Component, request: Request, task: ComposedTask) -> Response:
    kept = {seen.part: seen for seen in request.seen if seen.part is not None}
    p = moved(component.fidelity, -component.crowding * max(0, len(kept) - 2))
    lost: tuple[str, ...] = ()
    if kept and request.draw("faithful") >= p:
        lost = (pick(request.draw("lost"), sorted(kept)),)
    sources = {part: seen.program for part, seen in kept.items() if part not in lost and seen.program is not None}
    stated = [sure for part, seen in kept.items() for name, sure in seen.claims if name == f"{part}_ok"]
    claims = (("parts_ok", _stated(component, math.prod(stated))),) if stated else ()
    text = f"I put {', '.join(kept)} together." if kept else "There is nothing to put together."
    return Response(text=text, program=program(task, sources), rejected=lost, claims=claims)


def _stop(component: Component, request: Request, task: ComposedTask) -> Response:
    sure = _how_sure(request.seen)
    stated = None if sure is None else _stated(component, sure)
    claims = () if stated is None else (("solved", stated),)
    goes_on = "go on" in request.options and stated is not None and stated < component.stops_at
    text = "It is not good enough yet." if goes_on else "I end the run here."
    return Response(text=text, choice="go on" if goes_on else "stop", claims=claims)


def _how_sure(seen: Sequence[Seen]) -> float | None:
    """How sure what was seen makes one that the task is solved: the last verdict, else what the parts come to."""
    verdicts = [one for one in seen if one.kind == "verdict"]
    said = [p for one in seen for name, p in one.claims if name in ("checks_pass", "parts_ok")]
    if verdicts:
        stated = dict(verdicts[-1].claims).get("checks_pass")
        return (0.05 if verdicts[-1].rejected else 0.9) if stated is None else stated
    return said[-1] if said else None


def _duration_s(component: Component, request: Request) -> float:
    u = request.draw("duration")
    base_s = component.seconds.get(request.purpose, SECONDS[request.purpose])
    return round(base_s * 1000 * (0.5 + u / (1.3 - u))) / 1000


def _n_chars(request: Request) -> int:
    package = request.package
    texts = [package.nl or "", *package.scenarios, *package.signatures, package.domain_model or ""]
    return sum([len(text) for text in texts]) + sum([len(seen.text) + len(seen.program or "") for seen in request.seen])


_HOW = {
    "plan": _plan, "assign": _assign, "write": _write, "verify": _verify, "message": _message, "aggregate": _merge, "stop": _stop,
    "answer": _merge,
}  # fmt: skip
