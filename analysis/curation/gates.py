"""The gates: each a record with its parameters, and what it says of every row of a frame at once.

A gate never passes a row in silence because nothing is known of it: its `unknown` decides, and the reason says so. Hidden here:
how thresholds follow the data, and what the noise of few samples does to a row that stands near one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from analysis.curation.fields import Share, means

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Unknown = Literal["keep", "drop", "queue"]
Evidence = Literal["interventional", "simulated", "observational"]
Level = Literal["whole", "component", "pre-aggregation", "final", "team"]
#: What a gate says of a row, by its number; MEND: it stays if masking a component mends it.
PASS, DROP, QUEUE, MEND = range(4)
_VERDICTS = {"keep": PASS, "drop": DROP, "queue": QUEUE}
_UNKNOWN = "what happens to a trace of which this is not known"


class _Gate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="gate"):
    """What all gates have in common: how they are told apart in a policy."""


class Coherence(_Gate, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="coherence"):
    """Passes traces whose claims lie near coherent ones: residual_debiased / residual_max where the samples are known."""

    max: Annotated[Share | None, means("the largest residual_norm that passes; state this or max_quantile", "share of ε*max")] = (
        None
    )
    max_quantile: Annotated[Share | None, means("the threshold is this quantile of the data as they are", "share of traces")] = (
        None
    )
    level: Annotated[Level, means("level of claims; whole: the team where levels are tied, else the worst level")] = "whole"
    above: Annotated[
        Literal["drop", "mask"],
        means("a trace above the threshold goes, or stays where masking a component mends it, see segments"),
    ] = "drop"
    near: Annotated[Unknown, means("what happens to a trace that its sampling noise alone could carry over the threshold")] = (
        "keep"
    )
    unknown: Annotated[Unknown, means("what happens to a trace with tied claims whose largest residual is not known")] = "queue"


class Hedging(_Gate, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="hedging"):
    """Drops traces whose claims say nothing: near one half, or near what the relations alone say. They are always coherent."""

    min_sharpness: Annotated[
        Share, means("least mean distance of the claims from 1/2, and from their share of the worlds", "probability")
    ] = 0.05


class Outcome(_Gate, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="outcome"):
    """Passes traces that passed."""

    unknown: Annotated[Unknown, means(_UNKNOWN)] = "keep"


class Measure(_Gate, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="measure"):
    """Passes traces by one metric: q_work, q_orchestration, q_split and every other name that `analyze` gives a value."""

    name: Annotated[str, means("name of the metric, such as q_work or q_orchestration")]
    min: Annotated[float | None, means("the smallest value that passes", "of the metric")] = None
    max: Annotated[float | None, means("the largest value that passes", "of the metric")] = None
    min_quantile: Annotated[Share | None, means("instead of min: this quantile of the data as they are", "share of traces")] = (
        None
    )
    max_quantile: Annotated[Share | None, means("instead of max: this quantile of the data as they are", "share of traces")] = (
        None
    )
    unknown: Annotated[Unknown, means(_UNKNOWN)] = "keep"


class Credit(_Gate, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="credit"):
    """Passes traces whose confirmed decisions were good ones: mean credit, turned so that more is better."""

    metric: Annotated[str, means("the metric whose effects count")] = "passed"
    min: Annotated[float, means("the smallest mean credit that passes", "of the metric")] = 0.0
    evidence: Annotated[tuple[Evidence, ...], means("how an effect may have been found")] = ("interventional",)
    unknown: Annotated[Unknown, means(_UNKNOWN)] = "keep"


class Labels(_Gate, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="labels"):
    """Passes traces whose annotators blame the same agent."""

    min: Annotated[Share, means("least share of pairs of annotators that agree", "share of pairs")] = 1.0
    unknown: Annotated[Unknown, means("what happens to a trace that fewer than two annotators blame an agent for")] = "keep"


Gate = Coherence | Hedging | Outcome | Measure | Credit | Labels


class Judged(NamedTuple):
    """What a gate says of each row: verdict (PASS, DROP, QUEUE, MEND), value and threshold (NaN where absent), and why.

    `reason` numbers `reasons`; `note` is a sentence where the gate has nothing to go by, empty else.
    """

    verdict: npt.NDArray[np.int8]
    value: Floats
    threshold: Floats
    reason: npt.NDArray[np.intp]
    reasons: tuple[str, ...]
    note: str


def name_of(gate: Gate) -> str:
    """Return what the gate is called in the funnel.

    >>> name_of(Measure(name="q_work")), name_of(Coherence())
    ('measure q_work', 'coherence')
    """
    parts = [str(type(gate).__struct_config__.tag), getattr(gate, "name", None) or getattr(gate, "metric", None)]
    return " ".join(filter(None, parts))


def column_of(gate: Gate) -> str:
    """Return the column of the frame that the gate judges; of `coherence` the one that decides whether anything is tied.

    >>> column_of(Measure(name="q_work")), column_of(Credit(evidence=("simulated", "interventional")))
    ('q_work', 'credit passed (interventional, simulated)')
    """
    if isinstance(gate, Measure):
        return gate.name
    if isinstance(gate, Credit):
        return f"credit {gate.metric} ({', '.join(sorted(gate.evidence))})"
    return {Coherence: "is_tied", Hedging: "sharpness", Outcome: "passed", Labels: "agreement"}[type(gate)]


def judge(gate: Gate, frame: pd.DataFrame) -> Judged:
    """Return what a gate says of the rows of a frame (see `curate`); thresholds that follow the data look at all rows."""
    return _JUDGES[type(gate)](gate, frame)


def residual_and_noise(frame: pd.DataFrame) -> tuple[Floats, Floats]:
    """Return the normalised residual of each row, debiased where the samples are known, and the noise in it.

    The noise is √(ε² - ε_debiased²) / ε_max, what sampling alone adds to ε on average (root of the mean square); NaN where the
    number of samples is not known.

    >>> import pandas as pd
    >>> row = {"residual": 0.5, "residual_norm": 0.5, "residual_debiased": 0.3, "residual_max": 1.0}
    >>> [float(x[0].round(9)) for x in residual_and_noise(pd.DataFrame([row]))]
    [0.3, 0.4]
    """
    residual, norm, debiased, largest = (
        frame[name].to_numpy(np.float64) for name in ("residual", "residual_norm", "residual_debiased", "residual_max")
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.where(np.isfinite(debiased) & (largest > 0), np.minimum(debiased / largest, 1.0), norm)
        noise = np.sqrt(np.maximum(0.0, residual**2 - debiased**2)) / largest
    return value.round(9), noise.round(9)


def quantile(values: Floats, share: float) -> float:
    """Return the smallest value that at least this share of the known values do not exceed; NaN without any.

    >>> quantile(np.array([0.0, 0.1, 0.2, np.nan]), 0.5)
    0.1
    """
    known = values[np.isfinite(values)]
    return float(np.quantile(known, share, method="inverted_cdf")) if len(known) else np.nan


def _coherence(gate: Coherence, frame: pd.DataFrame) -> Judged:
    value, noise = residual_and_noise(frame)
    is_tied = frame["is_tied"].to_numpy(bool)
    value = np.where(is_tied, value, np.nan)
    most = quantile(value, gate.max_quantile) if gate.max_quantile is not None else 1.0 if gate.max is None else gate.max
    known = np.isfinite(noise)
    margin = np.where(known, noise, 0.0)
    near = (np.abs(value - most) <= margin) & (margin > 0)
    too_much, hope = (MEND, "; stays if a mask mends it") if gate.above == "mask" else (DROP, "")
    cases = [
        (~is_tied, PASS, "no tied claims: a stratum of its own"),
        (~np.isfinite(value), _VERDICTS[gate.unknown], "the largest possible residual is not known"),
        (near, _VERDICTS[gate.near], "within its sampling noise of the threshold"),
        ((value <= most) & known, PASS, "coherent enough, debiased"),
        (value <= most, PASS, "coherent enough; noise_unknown: no sample counts"),
        (known, too_much, f"too incoherent, debiased{hope}"),
        (~known, too_much, f"too incoherent; noise_unknown: no sample counts{hope}"),
    ]
    note = "" if is_tied.any() else (
        "No trace has tied claims, so the gate `coherence` decides nothing: run `counterpoint analyze`, or give couplings."
    )  # fmt: skip
    return _judged(value, np.full(len(frame), most), cases, note)


def _hedging(gate: Hedging, frame: pd.DataFrame) -> Judged:
    value = np.where(frame["is_tied"].to_numpy(bool), frame["sharpness"].to_numpy(np.float64), np.nan)
    cases = [
        (~np.isfinite(value), PASS, "no tied claims: nothing is hedged"),
        (value < gate.min_sharpness, DROP, "hedging: the claims say nothing, so that they are coherent says nothing"),
        (np.ones(len(frame), bool), PASS, "the claims say something"),
    ]
    note = "" if np.isfinite(value).any() else (
        "No trace has tied claims, so the gate `hedging` decides nothing: run `counterpoint analyze`, or give couplings."
    )  # fmt: skip
    return _judged(value, np.full(len(frame), gate.min_sharpness), cases, note)


def _outcome(gate: Outcome, frame: pd.DataFrame) -> Judged:
    value = frame["passed"].to_numpy(np.float64)
    words = ("passed", "failed", "the outcome is not known")
    return _above(gate, value, 1.0, words, "No outcome is known", "import outcomes")


def _measure(gate: Measure, frame: pd.DataFrame) -> Judged:
    value = frame[gate.name].to_numpy(np.float64)
    least = quantile(value, gate.min_quantile) if gate.min_quantile is not None else gate.min
    most = quantile(value, gate.max_quantile) if gate.max_quantile is not None else gate.max
    low, high = -np.inf if least is None else least, np.inf if most is None else most
    cases = [
        (~np.isfinite(value), _VERDICTS[gate.unknown], f"{gate.name} is not known"),
        (value < low, DROP, f"{gate.name} is too small"),
        (value > high, DROP, f"{gate.name} is too large"),
        (np.ones(len(frame), bool), PASS, f"{gate.name} is within its bounds"),
    ]
    nearest = np.where(np.isfinite(low) & ~(value > high), low, high)
    note = _nothing(gate, value, f"No trace has a value of {gate.name}", "run `counterpoint analyze`, or take another metric")
    return _judged(value, np.where(np.isfinite(nearest), nearest, np.nan), cases, note)


def _credit(gate: Credit, frame: pd.DataFrame) -> Judged:
    value = frame[column_of(gate)].to_numpy(np.float64)
    words = (
        "the confirmed decisions were good on average",
        "the confirmed decisions were bad on average",
        "no decision is confirmed",
    )
    return _above(gate, value, gate.min, words, f"No effect on {gate.metric} is confirmed", "run `counterpoint effects`")


def _labels(gate: Labels, frame: pd.DataFrame) -> Judged:
    value = frame["agreement"].to_numpy(np.float64)
    words = ("the annotators agree", "the annotators blame different agents", "fewer than two annotators blame an agent")
    return _above(gate, value, gate.min, words, "No trace has two annotators who blame an agent", "import labels")


def _above(gate: Any, value: Floats, least: float, words: tuple[str, str, str], nothing: str, remedy: str) -> Judged:
    """A row passes with at least a value; `words` for one that does, one that does not, one of which it is not known."""
    cases = [
        (~np.isfinite(value), _VERDICTS[gate.unknown], words[2]),
        (value >= least, PASS, words[0]),
        (value < least, DROP, words[1]),
    ]
    return _judged(value, np.full(len(value), least), cases, _nothing(gate, value, nothing, remedy))


def _nothing(gate: Any, value: Floats, nothing: str, remedy: str) -> str:
    """Return the sentence of a gate that no row has a value for."""
    if np.isfinite(value).any():
        return ""
    does = {"keep": "keeps", "drop": "drops", "queue": "queues"}[gate.unknown]
    return f'{nothing}: the gate `{name_of(gate)}` {does} every trace (unknown = "{gate.unknown}"). To change that, {remedy}.'


def _judged(value: Floats, threshold: Floats, cases: Sequence[tuple[Bools, int, str]], note: str) -> Judged:
    """The first case that holds decides; the last holds for all others."""
    code = np.select([mask for mask, _, _ in cases], list(range(len(cases))), len(cases) - 1).astype(np.intp)
    verdict = np.array([verdict for _, verdict, _ in cases], np.int8)[code]
    return Judged(verdict, value, threshold.round(9), code, tuple([reason for _, _, reason in cases]), note)


_JUDGES: dict[type, Callable[[Any, pd.DataFrame], Judged]] = {
    Coherence: _coherence, Hedging: _hedging, Outcome: _outcome, Measure: _measure, Credit: _credit, Labels: _labels,
}  # fmt: skip
