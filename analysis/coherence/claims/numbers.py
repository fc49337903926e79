"""A number in a text and the scale it is on: 80%, .8, 8/10, 9 out of 10, 百分之八十, 八成半, 70-80%, at least 0.9."""

from __future__ import annotations

import re
from typing import NamedTuple

_ONE = r"(?:\d{1,9}(?:\.\d{1,9})?|\.\d{1,9})"
_PERCENT = r"\s?(?:%|percent\b|per cent\b)"
_BOUND = (
    r"(?P<bound>(?:[<>]=?|[≤≥]|\b(?:at least|at most|more than|less than|over|under|above|below|up to)\b"
    r"|至少|不到|超过|高于|低于)\s?)?"
)
VALUE = re.compile(
    rf"{_BOUND}(?:(?<![A-Za-z0-9_.$€£#/-])|(?P<sign>(?<=[:=])-|(?<=[:=] )-))"
    rf"(?:(?P<low>{_ONE})(?P<lowunit>{_PERCENT})?\s?(?:-|–|—|~|to|and|至|到)\s?(?P<high>{_ONE})(?P<highunit>{_PERCENT})?"
    rf"|(?P<one>{_ONE})(?:(?P<unit>{_PERCENT})|\s?(?:/|\bout of\b|\bof\b)\s?(?P<n>{_ONE}))?)"
    r"(?![A-Za-z0-9_/]|\.\d)"
    r"|百分之(?P<hundredths>[零〇一二两三四五六七八九十百点]{1,8}|\d{1,3}(?:\.\d{1,3})?)"
    r"|(?<![一二两三四五六七八九十])(?P<tenths>[一二两三四五六七八九十])成(?P<more>[半一二三四五六七八九])?(?![一二三四五六七八九十])",
    re.I,
)
_DIGITS = {"零": 0, "〇": 0, "一": 1, "二": 2, "两": 2, "三": 3, "四": 4, "五": 5, "六": 6, "七": 7, "八": 8, "九": 9, "十": 10}
_LEAST = frozenset((">", ">=", "≥", "at least", "more than", "over", "above", "至少", "超过", "高于"))
_MOST_SCALE = 100.0
_MOST_PLAIN = 2.0  # 1.7 is a probability that is none; 8.5 is one on another scale


class Value(NamedTuple):
    """A number from 0 to 1, or outside where it was stated so; None for a range, of which an end may be open.

    `is_unscaled` says that it may be meant on any scale: 8, 85 or 1 without a point, a percent sign or "of 10".
    """

    p: float | None
    low: float | None = None
    high: float | None = None
    is_unscaled: bool = False


def value_of(match: re.Match[str]) -> Value | None:
    """Return what a match of `VALUE` states; None where it is the whole scale, or a range that is none of probabilities.

    >>> [value_of(VALUE.search(text)) for text in ("80%", "8/10", "八成半", "百分之八十五")]  # doctest: +NORMALIZE_WHITESPACE
    [Value(p=0.8, low=None, high=None, is_unscaled=False), Value(p=0.8, low=None, high=None, is_unscaled=False),
     Value(p=0.85, low=None, high=None, is_unscaled=False), Value(p=0.85, low=None, high=None, is_unscaled=False)]
    >>> value_of(VALUE.search("80-90%")), value_of(VALUE.search("between 0 and 1")), value_of(VALUE.search(">= 0.8")).low
    (Value(p=None, low=0.8, high=0.9, is_unscaled=False), None, 0.8)
    """
    if match["low"]:
        return _range(match)
    if match["hundredths"]:
        return Value(_han(match["hundredths"]) / 100)
    if match["tenths"]:
        tail = 5 if match["more"] == "半" else _DIGITS.get(match["more"] or "零", 0)
        return Value((10 * _DIGITS[match["tenths"]] + tail) / 100)
    one = _one(match)
    if one is None or not match["bound"] or one.p is None:
        return one
    if one.p > 1:
        return None
    is_least = match["bound"].strip().lower() in _LEAST
    return Value(None, one.p if is_least else None, None if is_least else one.p)


def _one(match: re.Match[str]) -> Value | None:
    number = float(match["one"]) * (-1 if match["sign"] else 1)
    if match["unit"]:
        return Value(_rounded(number / 100))
    if match["n"]:
        return Value(_rounded(number / float(match["n"]))) if 0 < float(match["n"]) <= _MOST_SCALE else None
    if abs(number) > _MOST_SCALE:
        return None  # a year, an amount
    return Value(number, is_unscaled="." not in match["one"] or number > _MOST_PLAIN)


def _range(match: re.Match[str]) -> Value | None:
    is_percent = bool(match["highunit"] or match["lowunit"])
    low, high = (_rounded(float(match[end]) / (100 if is_percent else 1)) for end in ("low", "high"))
    if low >= high or high > 1 or (low, high) == (0, 1):
        return None
    return Value(None, low, high)


def _rounded(value: float) -> float:
    return round(value, 12)  # 0.55 where a division gives 0.5499999999999999


def _han(text: str) -> float:
    if text[0].isdigit():
        return float(text)
    whole, _, part = text.partition("点")
    total, digit = 0.0, 0
    for sign in whole:
        if (unit := {"十": 10, "百": 100}.get(sign)) is None:
            digit = _DIGITS[sign]
            continue
        total, digit = total + (digit or 1) * unit, 0
    tail = "".join(str(_DIGITS.get(sign, 0)) for sign in part)
    return total + digit + float(f"0.{tail or 0}")
