"""What of a trace is trained on: which components' parts carry no loss, and how much each part and each decision weighs.

Decides when a component is to blame (one repair is smallest and names it alone) and what happens where nobody is. Parts are
never cut out: what is masked stays as context.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from analysis.coherence.attribution import Repair
from analysis.curation.fields import Positive, means

_DECIMALS = 9  # of stored weights
Better = Literal["higher", "lower", "neither"]


class Segmenting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the parts of a trace are masked and weighed. Weights are relative: their mean over the kept events is 1."""

    ambiguous: Annotated[
        Literal["keep", "repair", "queue"],
        means("where the smallest repair is not one component: keep all, mask the cheapest smallest repair, or ask a person"),
    ] = "keep"
    facts: Annotated[tuple[str, ...], means("components that state what happened; a repair that changes one of them is none")] = (
        "outcome",
    )
    share: Annotated[
        Literal["energy", "shapley", "none"], means("which shares of the squared residual weigh components down")
    ] = "shapley"
    share_floor: Annotated[
        Annotated[float, Meta(gt=0, le=1)], means("least weight of a component, before the mean is made 1", "factor")
    ] = 0.2
    beta: Annotated[
        Annotated[float, Meta(ge=0)],
        means("strength of credit: an event counts exp(beta · credit); 0: off", "per unit of the metric"),
    ] = 1.0
    factor_low: Annotated[Positive, means("least factor of an event", "factor")] = 0.5
    factor_high: Annotated[Positive, means("largest factor of an event", "factor")] = 2.0
    metric: Annotated[str, means("the metric whose credit weighs events")] = "passed"
    evidence: Annotated[
        tuple[Literal["interventional", "simulated", "observational"], ...], means("evidence of credit that counts")
    ] = ("interventional",)
    confirmed: Annotated[bool, means("whether only credit counts that fresh seeds confirmed")] = True

    def __post_init__(self) -> None:
        if self.factor_low > self.factor_high:
            raise ValueError(f"factor_low is {self.factor_low:g}, above factor_high, {self.factor_high:g}")


class EventCredit(NamedTuple):
    """What a decision was worth on one metric: -delta_q with its interval, both in the unit of the metric.

    `better` says whether a high value of the metric is good, and so which credit is.
    """

    event_id: str
    component: str
    metric: str
    better: Better
    credit: float
    low: float | None
    high: float | None
    n: int
    evidence: str
    confirmed: bool


class Parts(NamedTuple):
    """What one trace consists of, and what is known of it.

    n_events : events by component, the length of what could be trained on
    shares : parts of the squared residual by component, in any unit; empty where there is none or it is noise
    repairs : all minimal repairs; none where the trace is coherent or claims nothing, None where they were not computed
    """

    n_events: Mapping[str, int]
    shares: Mapping[str, float] = {}
    repairs: tuple[Repair, ...] | None = ()
    credits: Sequence[EventCredit] = ()


class Ruling(NamedTuple):
    """What happens to a trace whose residual has a cause, or several that could be: which components carry no loss, and why."""

    outcome: Literal["kept", "masked", "dropped", "queued"]
    components: tuple[str, ...]
    reason: str


class Segment(NamedTuple):
    """How a part of a trace is trained on: a component's events, or the one event that is named, whose weight then stands.

    `keep` false: context without loss, weight 0.
    """

    component: str
    event_id: str
    keep: bool
    weight: float
    reason: str


def repairs_of(text: str | None) -> tuple[Repair, ...] | None:
    """Return the minimal repairs that the table `residuals` holds as JSON; None where they were not computed.

    >>> repairs_of('[{"components":["coder"],"cost":0.5}]')
    (Repair(components=('coder',), cost=0.5),)
    """
    return None if text is None else msgspec.json.decode(text, type=tuple[Repair, ...])


def event_credits(rows: Iterable[Mapping[str, Any]], component_of: Mapping[str, str], *, better: Better) -> list[EventCredit]:
    """Return the credit of events from rows of the table `effects` of one trace and metric.

    Of a confirmed decision the block that confirmed it counts alone: what chose it among many flatters it. Events that
    `component_of` does not name are left out.
    """
    from analysis.counterfactual.study import SCREEN

    found = []
    for row in rows:
        is_stale = row["confirmed"] and row["seed_block"] == SCREEN
        if row["event_id"] not in component_of or row["delta_q"] is None or is_stale:
            continue
        low, high = (None if row[side] is None else 0.0 - row[side] for side in ("high", "low"))
        credit = EventCredit(
            row["event_id"], component_of[row["event_id"]], row["metric"], better, 0.0 - row["delta_q"], low, high,
            row["n"], row["evidence"], row["confirmed"],
        )  # fmt: skip
        found.append(credit)
    return found


def ruling(parts: Parts, policy: Segmenting) -> Ruling:
    """Return what the repairs of a trace say is to be done with it.

    A repair is a set of components that can restore coherence by changing only what they quote; one that would change a
    fact is none. The smallest have the fewest components. If there is one, and it is a single component, that is masked.
    Else the policy decides; `repair` masks the smallest repair, of several the cheapest, then the first by name: it costs
    the fewest components their loss, and of these says the least against what was quoted. Where no repair is known,
    nothing can be masked, and a person is asked. Where a mask leaves nothing to train on, the trace is dropped.

    >>> repairs = (Repair(("coder",), 0.5), Repair(("planner", "tester"), 0.3))
    >>> ruling(Parts({"planner": 3, "coder": 5, "tester": 2}, repairs=repairs), Segmenting()).components
    ('coder',)
    """
    if parts.repairs == ():
        return Ruling("kept", (), "nothing to mend")
    usable = [repair for repair in parts.repairs or () if not set(repair.components) & set(policy.facts)]
    if not usable:
        reason = "which components could mend it is not known" if parts.repairs is None else "every repair changes a fact"
        return Ruling("kept" if policy.ambiguous == "keep" else "queued", (), reason)
    n_fewest = min(len(repair.components) for repair in usable)
    smallest = [repair for repair in usable if len(repair.components) == n_fewest]
    cheapest = min(smallest, key=lambda one: (math.inf if one.cost is None else one.cost, one.components))
    cost = "" if cheapest.cost is None else f", at a cost of {cheapest.cost:g}"
    if len(smallest) == n_fewest == 1:
        return _masked(parts, cheapest.components, f"the smallest repair changes this component alone{cost}")
    reason = f"{len(smallest)} smallest repairs" if len(smallest) > 1 else f"the smallest repair takes {n_fewest} components"
    if policy.ambiguous == "repair":
        return _masked(parts, cheapest.components, f"{reason}; the cheapest is masked{cost}")
    return Ruling("kept" if policy.ambiguous == "keep" else "queued", (), reason)


def segments(parts: Parts, policy: Segmenting, ruled: Ruling | None = None) -> list[Segment]:
    """Return the parts of a trace that are masked or weigh other than 1, sorted by component and event.

    Parameters
    ----------
    ruled : what was decided of the trace, by `ruling` where left out, or by a person

    Returns
    -------
    Every event of a component weighs max(share_floor, 1 - share of the squared residual); a decision with credit that
    counts weighs that times exp(beta · credit) within [factor_low, factor_high], credit positive where it was good. Credit
    counts if its interval excludes 0; several alternatives to one decision have their mean, weighted by n. All weights are
    then divided by their mean, so that those of the kept events of a trace add up to the number of these events.

    >>> parts = Parts({"planner": 1, "coder": 1}, shares={"planner": 0.03, "coder": 0.01})
    >>> [(s.component, s.weight) for s in segments(parts, Segmenting())]
    [('coder', 1.5), ('planner', 0.5)]
    """
    ruled = ruled or ruling(parts, policy)
    found = [Segment(name, "", False, 0.0, ruled.reason) for name in ruled.components]
    kept = {name: n for name, n in parts.n_events.items() if n > 0 and name not in ruled.components}
    weights = _component_weights(kept, parts.shares, policy)
    decisions = {event: found for event, found in _decisions(parts.credits, policy).items() if found.component in kept}
    factors = {event: _factor(one.credit, policy) for event, one in decisions.items()}
    total = sum(weights[name] * n for name, n in kept.items())
    total += sum((factors[event] - 1) * weights[one.component] for event, one in decisions.items())
    scale = sum(kept.values()) / total if total > 0 else 1.0
    for name, weight in weights.items():
        found.append(Segment(name, "", True, round(weight * scale, _DECIMALS), _share_reason(name, parts.shares)))
    for event, one in decisions.items():
        weight = round(weights[one.component] * factors[event] * scale, _DECIMALS)
        found.append(Segment(one.component, event, True, weight, f"credit {one.credit:+.3g} on {policy.metric}"))
    return sorted(segment for segment in found if not segment.keep or segment.weight != 1)


class _Decision(NamedTuple):
    component: str
    credit: float  # positive where it was good


def _masked(parts: Parts, components: tuple[str, ...], reason: str) -> Ruling:
    if not any(n > 0 and name not in components for name, n in parts.n_events.items()):
        return Ruling("dropped", components, f"{reason}; nothing else is left to train on")
    return Ruling("masked", components, reason)


def _component_weights(kept: Mapping[str, int], shares: Mapping[str, float], policy: Segmenting) -> dict[str, float]:
    total = sum(max(share, 0.0) for share in shares.values())
    if policy.share == "none" or total <= 0:
        return dict.fromkeys(kept, 1.0)
    return {name: max(policy.share_floor, 1 - max(shares.get(name, 0.0), 0.0) / total) for name in kept}


def _decisions(credits: Iterable[EventCredit], policy: Segmenting) -> dict[str, _Decision]:
    """Return for each event the mean credit over its alternatives, weighted by their replays, of the credit that counts."""
    of: dict[str, list[EventCredit]] = {}
    for credit in credits:
        if _counts(credit, policy):
            of.setdefault(credit.event_id, []).append(credit)
    found = {}
    for event, alternatives in of.items():
        mean = sum(one.n * one.credit for one in alternatives) / sum(one.n for one in alternatives)
        found[event] = _Decision(alternatives[0].component, mean if alternatives[0].better == "higher" else -mean)
    return found


def _counts(credit: EventCredit, policy: Segmenting) -> bool:
    if credit.metric != policy.metric or credit.evidence not in policy.evidence or credit.better == "neither":
        return False
    if policy.confirmed and not credit.confirmed:
        return False
    return credit.low is not None and credit.high is not None and not credit.low <= 0 <= credit.high


def _factor(credit: float, policy: Segmenting) -> float:
    raw = math.exp(min(policy.beta * credit, 700.0))  # a credit in tokens would overflow
    return min(max(raw, policy.factor_low), policy.factor_high)


def _share_reason(name: str, shares: Mapping[str, float]) -> str:
    total = sum(max(share, 0.0) for share in shares.values())
    if total <= 0:
        return "the weights of a trace have the mean 1"
    return f"{max(shares.get(name, 0.0), 0.0) / total:.3g} of the squared residual"
