"""Watch ε* over a stream of traces: is it above what is tolerated, and did it grow from one iteration to the next.

One may look after every trace: a false alarm, whenever it may come, has a probability of at most alpha. How residuals of
cliques of different size are brought to [0, 1] is hidden here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from analysis.errors import TraceError
from analysis.estimation import Estimate
from analysis.sequential import Floats, confidence_sequence, crossing, log_betting, log_envelope, log_two_sample

#: What a residual is divided by to lie in [0, 1]: √(number of quotes), or the largest residual any quotes could have.
Scale = Literal["per_quote", "norm"]

_ROUNDING = 1e-6  # residuals come rounded, so the largest possible one may lie above its bound by that
_SQUARE: dict[Scale, str] = {"per_quote": "ε*² per quote", "norm": "normalised ε*²"}
_NOTHING = "no trace has a residual on this scale"
_LENGTH: dict[Scale, str] = {"per_quote": "ε* / √(number of quotes)", "norm": "normalised ε*"}


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What is taken of one trace, None where it is not known.

    `n_quotes`: how many quotes its components gave; `n_samples`: the least number of samples behind any of them.
    """

    residual: float | None = None
    n_quotes: int | None = None
    n_samples: int | None = None
    residual_norm: float | None = None


class Evidence(msgspec.Struct, frozen=True):
    """An e-process over time: log E after 0, 1, ... traces or pairs, and after how many it first reached log(1/alpha)."""

    log_e: tuple[float, ...]
    crossed_at: int | None


class Monitored(msgspec.Struct, frozen=True, kw_only=True):
    """Evidence that the mean of ε*² is above `mu0`, by betting and by the paper's envelope, in numbers and in words.

    `used`: places in the stream of the traces that have a residual, one step of the evidence each; `n_missing`: how many
    have none; `mean`: of the scaled ε*² over those used. What is None has its cause in `reasons`.
    """

    mu0: float
    alpha: float
    scale: Scale
    used: tuple[int, ...]
    n_missing: int
    mean: float | None
    betting: Evidence
    envelope: Evidence | None
    reasons: dict[str, str]
    text: str


class Grown(msgspec.Struct, frozen=True, kw_only=True):
    """Evidence that ε* is, on average, larger after than before, over pairs of traces, in numbers and in words.

    `n_missing`: traces without a residual, of both streams; `n_unpaired`: those with one whose partner has none.
    `difference`: mean of the scaled ε* after less before; its interval holds the true one with probability at least
    1 - alpha, however often one looks. None without pairs.
    """

    alpha: float
    scale: Scale
    n_pairs: int
    n_missing: int
    n_unpaired: int
    difference: Estimate | None
    betting: Evidence
    text: str


def monitor(residuals: Sequence[Reading], *, mu0: float, alpha: float, scale: Scale = "per_quote") -> Monitored:
    """Watch a stream of residuals, in the order given, for a mean of ε*² above what is tolerated.

    Parameters
    ----------
    residuals : one reading a trace, in an order chosen without looking at the residuals
    mu0 : the mean that is tolerated, in (0, 1): of residual² / n_quotes, or with "norm" of residual_norm²
    alpha : the largest probability of a false alarm over the whole stream, in (0, 1)
    scale : which of the two; a trace without what it takes is left out and counted

    Raises
    ------
    TraceError
        If mu0 or alpha is outside its range, or a residual is not possible: negative, or above √n_quotes.

    Examples
    --------
    >>> found = monitor([Reading(residual=0.4, n_quotes=2, n_samples=8)] * 20, mu0=0.02, alpha=0.05)
    >>> print(found.text)  # doctest: +NORMALIZE_WHITESPACE
    There is evidence that the mean of ε*² per quote is above 0.02: E reached 20 (1/alpha) after 6 of 20 traces. Over all
    of them that mean is 0.08. The envelope form did not get there.
    """
    scaled = [_scaled(reading, n, scale) for n, reading in enumerate(residuals)]
    used = tuple(n for n, length in enumerate(scaled) if length is not None)
    x = np.array([length for length in scaled if length is not None], dtype=np.float64) ** 2
    betting = _evidence(log_betting(x, mu0=mu0), alpha)
    envelope = _envelope([residuals[n] for n in used], alpha)
    reasons = {"envelope": envelope} if isinstance(envelope, str) else {}
    found = Monitored(
        mu0=mu0,
        alpha=alpha,
        scale=scale,
        used=used,
        n_missing=len(scaled) - len(used),
        mean=float(x.mean()) if used else None,
        betting=betting,
        envelope=None if isinstance(envelope, str) else envelope,
        reasons=reasons if used else reasons | {"mean": _NOTHING},
        text="",
    )
    return msgspec.structs.replace(found, text=_monitored_in_words(found))


def grown(before: Sequence[Reading], after: Sequence[Reading], *, alpha: float, scale: Scale = "norm") -> Grown:
    """Test whether ε* of one iteration is, on average, larger than that of the iteration before.

    The n-th trace of one is paired with the n-th of the other: put the same tasks in the same order, so that what is due
    to the task cancels; otherwise any order chosen without looking at the residuals. `scale` says what is compared:
    residual_norm, or with "per_quote" residual / √n_quotes.

    Raises
    ------
    TraceError
        If alpha is outside (0, 1), or a residual is not possible.

    Examples
    --------
    >>> first, second = ([Reading(residual_norm=r)] * 30 for r in (0.1, 0.5))
    >>> found = grown(first, second, alpha=0.05)
    >>> found.betting.crossed_at, found.n_pairs, round(found.difference.value, 6)
    (18, 30, 0.4)
    """
    old = [_scaled(reading, n, scale) for n, reading in enumerate(before)]
    new = [_scaled(reading, n, scale) for n, reading in enumerate(after)]
    pairs = np.array([(x, y) for x, y in zip(old, new, strict=False) if x is not None and y is not None], dtype=np.float64)
    x, y = pairs.reshape(-1, 2).T
    low, high = (2 * float(bound[-1]) - 1 for bound in confidence_sequence((y - x + 1) / 2, alpha=alpha))
    n_missing = (old + new).count(None)
    found = Grown(
        alpha=alpha,
        scale=scale,
        n_pairs=len(pairs),
        n_missing=n_missing,
        n_unpaired=len(old) + len(new) - n_missing - 2 * len(pairs),
        difference=Estimate(float((y - x).mean()), low, high, len(pairs)) if len(pairs) else None,
        betting=_evidence(log_two_sample(x, y), alpha),
        text="",
    )
    return msgspec.structs.replace(found, text=_grown_in_words(found))


def _scaled(reading: Reading, place: int, scale: Scale) -> float | None:
    """The residual brought to [0, 1]; None where it, or what it is divided by, is not known."""
    value, largest = reading.residual_norm, 1.0
    if scale == "per_quote":
        if reading.n_quotes is None:
            return None
        value, largest = reading.residual, math.sqrt(max(reading.n_quotes, 0))
    if value is None:
        return None
    if not 0 <= value <= largest * (1 + _ROUNDING) or largest == 0:
        expected = f"a number from 0 to {largest:g}" if largest else "at least one quote"
        raise TraceError(f"trace {place} of the stream", "not a possible residual", got=f"{value:g}", expected=expected)
    return min(value / largest, 1.0)


def _evidence(log_e: Floats, alpha: float) -> Evidence:
    return Evidence(tuple(log_e.tolist()), crossing(log_e, alpha=alpha))


def _envelope(readings: Sequence[Reading], alpha: float) -> Evidence | str:
    """The evidence of the envelope form, or why there is none."""
    if not readings:
        return _NOTHING
    rows = [(r.residual, r.n_quotes, r.n_samples) for r in readings]
    known = [(residual, m, k) for residual, m, k in rows if residual is not None and m and k]
    if len(known) < len(rows):
        return f"the number of quotes or of samples is not known for {len(rows) - len(known):,} of {len(rows):,} traces"
    residual, n_quotes, n_samples = np.array(known, dtype=np.float64).T
    return _evidence(log_envelope(residual**2, n_quotes, n_samples), alpha)


def _monitored_in_words(found: Monitored) -> str:
    if found.mean is None:
        return f"Nothing to monitor: {_NOTHING} ({_count(found.n_missing, 'trace')})."
    claim = f"the mean of {_SQUARE[found.scale]} is above {found.mu0:g}"
    sentences = [_verdict(claim, found.betting, found.alpha, "trace"), f"Over all of them that mean is {found.mean:.3g}."]
    if found.envelope is None:
        sentences.append(f"There is no envelope form: {found.reasons['envelope']}.")
    elif found.envelope.crossed_at is None:
        sentences.append("The envelope form did not get there.")
    else:
        sentences.append(f"The envelope form got there after {found.envelope.crossed_at:,}.")
    if found.n_missing:
        sentences.append(f"Left out: {_count(found.n_missing, 'trace')} without a residual.")
    return " ".join(sentences)


def _grown_in_words(found: Grown) -> str:
    if found.difference is None:
        return "Nothing to compare: no pair of traces has a residual on both sides."
    value, low, high, _ = found.difference
    than = "larger" if value >= 0 else "smaller"
    sentences = [
        _verdict("ε* grew", found.betting, found.alpha, "pair"),
        f"On average {_LENGTH[found.scale]} is {abs(value):.3g} {than} after than before"
        f" (with probability {1 - found.alpha:g} the difference is from {low:.3g} to {high:.3g}).",
    ]
    if found.n_missing or found.n_unpaired:
        sentences.append(f"Left out: {found.n_missing:,} without a residual, {found.n_unpaired:,} without a partner.")
    return " ".join(sentences)


def _verdict(claim: str, evidence: Evidence, alpha: float, unit: str) -> str:
    n, needed = _count(len(evidence.log_e) - 1, unit), f"{1 / alpha:,.6g} (1/alpha)"
    if evidence.crossed_at is None:
        most = f"{math.exp(max(evidence.log_e)):.3g}"
        return f"There is not enough evidence that {claim}: E was at most {most} over {n}, {needed} is needed."
    return f"There is evidence that {claim}: E reached {needed} after {evidence.crossed_at:,} of {n}."


def _count(n: int, unit: str) -> str:
    return f"{n:,} {unit}" + ("s" if n != 1 else "")
