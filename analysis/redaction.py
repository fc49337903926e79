"""Secrets out: keys, tokens, passwords, e-mail addresses and names in home paths, by pattern and by entropy.

Decides what counts as a secret and what must survive: uuids, digests, ids of calls, code. A secret is replaced by
`[redacted:KIND]`. Texts may be JSON in JSON at any depth: a match neither begins within an escape nor ends in one, so
what could be parsed can be parsed after. It counts how many of a kind there were and never keeps what they were.
Best effort: what looks like nothing special stays. (detect-secrets reads 0.07 MB/s, line by line, and replaces nothing.)
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from analysis.errors import UnknownNameError

#: Tokens that say by their first letters whose they are.
_PREFIXED = (
    r"sk-[A-Za-z0-9_-]{20,}", r"(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,}", r"gh[pousr]_[A-Za-z0-9]{30,}",
    r"github_pat_[A-Za-z0-9_]{30,}", r"glpat-[A-Za-z0-9_-]{20,}", r"xox[abeprs]-[A-Za-z0-9-]{10,}",
    r"(?:AKIA|ASIA)[A-Z0-9]{16}", r"AIza[A-Za-z0-9_-]{35}", r"ya29\.[A-Za-z0-9_-]{20,}", r"hf_[A-Za-z0-9]{30,}",
    r"npm_[A-Za-z0-9]{36}", r"pypi-AgE[A-Za-z0-9_-]{50,}", r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",
    r"lsv2_(?:pt|sk)_[a-f0-9_]{30,}", r"dop_v1_[a-f0-9]{60,}", r"AGE-SECRET-KEY-1[A-Z0-9]{50,}",
    r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
)  # fmt: skip
_PREFIXES = (
    "sk-", "k_live_", "k_test_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "AKIA", "ASIA", "AIza",
    "ya29.", "hf_", "npm_", "pypi-", "SG.", "lsv2_", "dop_v1_", "AGE-", "eyJ",
)  # fmt: skip
_NAME_HINTS = (
    *[f"{end}{sign}key" for end in ("api", "cess", "vate", "ret") for sign in ("", "_", "-")], "secret", "passw", "passphrase",
    *[f"{end}{sign}token" for end in ("auth", "cess", "resh", "arer") for sign in ("", "_", "-")],
)  # fmt: skip
_NAMES = "(?:api|access|private|secret)[_-]?key|secret|passw(?:or)?d|passphrase|(?:auth|access|refresh|bearer)[_-]?token"
_LONG = 32
_RUN = re.compile(rf"[A-Za-z0-9_-]{{{_LONG}}}")
_ESCAPE = re.compile(r"\\+(?:u[0-9a-fA-F]{4}|.)", re.DOTALL)

_DIGEST = re.compile(r"[0-9a-fA-F]+(?:-[0-9a-fA-F]+)*")  # hexadecimal: uuids, commits, checksums
_CALL_ID = re.compile(r"(?:toolu|tooluse|call|msg|req|resp|chatcmpl|run|thread|asst|step|file|fc|rs|item|gen)[_-]")
_NO_ADDRESS = re.compile(r"git@|.*@(?:[\w-]+\.)*(?:example|test|invalid|localhost)(?:\.(?:com|org|net))?$")
_PLACEHOLDER = re.compile(r"(?i).*(?:your|example|placeholder|xxxx|redacted|changeme|\*\*\*|\.\.\.)")
_NO_PERSON = frozenset({
    "user", "username", "users", "runner", "ubuntu", "root", "node", "vscode", "app", "shared", "public", "me", "you", "name",
    "default", "work", "workspace", "sandbox", "agent", "admin", "guest", "jovyan", "linuxbrew",
})  # fmt: skip


def bits(text: str) -> float:
    """Return the entropy of the characters of a text, in bits a character.

    >>> bits("aaaa"), bits("abcd")
    (0.0, 2.0)
    """
    return sum(n / len(text) * math.log2(len(text) / n) for n in Counter(text).values())


def _is_random(match: re.Match[str]) -> bool:
    """64 letters drawn at random n times have about 6 - 63 / (2 n ln 2) bits a character; words have less by far."""
    found = match["secret"]
    if _DIGEST.fullmatch(found) or _CALL_ID.match(found):
        return False
    has_all = all(any(map(is_one, found)) for is_one in (str.islower, str.isupper, str.isdigit))
    return has_all and bits(found) >= 6 - 63 / (2 * math.log(2) * len(found)) - 0.3


def _is_given(match: re.Match[str]) -> bool:
    """What is given to a name such as `api_key` is a secret if it is quoted, or too long and mixed for a name of a program."""
    found = match["secret"]
    is_mixed = any(c.isdigit() for c in found) and any(c.isalpha() for c in found)
    is_path = re.fullmatch(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+", found) is not None
    is_long = len(found) >= (8 if match["quote"] else 16)
    return is_mixed and is_long and not is_path and not _PLACEHOLDER.match(found) and bits(found) >= 2.5


def _always(match: re.Match[str]) -> bool:
    return True


def _is_person(match: re.Match[str]) -> bool:
    return match["secret"].lower() not in _NO_PERSON


def _is_filled(match: re.Match[str]) -> bool:
    return not _PLACEHOLDER.match(match["secret"])


class _Kind(NamedTuple):
    """What is looked for, in texts that hold one of `hints`; the group `secret` is what is replaced.

    `folded`: hints are in lower case, and any case will do. `is_raw`: a backslash is part of it and not of an escape.
    """

    name: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    is_secret: Callable[[re.Match[str]], bool] = _is_filled
    folded: bool = False
    is_raw: bool = False

    def is_hinted(self, text: str, folded: str) -> bool:
        """Tell whether it is worth looking for it; what has no hints stands in long words."""
        if not self.hints:
            return max(map(len, text.split()), default=0) >= _LONG and _RUN.search(text) is not None
        if self.folded:
            text = folded
        for hint in self.hints:  # noqa: SIM110 - a generator takes three times as long
            if hint in text:
                return True
        return False


_KINDS = (
    _Kind("private-key", ("PRIVATE KEY",), re.compile(
        r"(?P<secret>-----BEGIN [A-Z ]*PRIVATE KEY-----[\sA-Za-z0-9+/=:,.-]{0,20000}?-----END [A-Z ]*PRIVATE KEY-----)")),
    _Kind("token", _PREFIXES, re.compile(rf"(?<![A-Za-z0-9_])(?P<secret>{'|'.join(_PREFIXED)})")),
    _Kind("token", ("earer ",), re.compile(r"\b[Bb]earer +(?P<secret>[A-Za-z0-9._~+/-]{16,}=*)")),
    _Kind("password", ("://",), re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s/:@\"']+:(?P<secret>[^\s/:@\"'\[\]]+)(?=@)")),
    _Kind("password", _NAME_HINTS, re.compile(
        rf"(?i:{_NAMES})[A-Za-z0-9_-]{{0,20}}[\"'`]?\s*(?::|=>?)\s*(?P<quote>[\"'`]?)"
        r"(?P<secret>[A-Za-z0-9+/_.~!@#$%^&*-]{8,}=*)(?![\w(])"), _is_given, folded=True),
    _Kind("home-path", ("/home/", "/Users/"), re.compile(
        r"(?<![\w.)-])/(?:home|Users)/(?P<secret>[^\s/\"'`<>|:*?,;(){}\[\]$]+)"),
        _is_person),
    _Kind("home-path", (":\\",), re.compile(
        r"\b[A-Za-z]:\\+Users\\+(?P<secret>[^\s/\\\"'`<>|:*?,;(){}\[\]$]+)"), _is_person, is_raw=True),
    _Kind("email", ("@",), re.compile(
        r"(?<![A-Za-z0-9._%+-])(?P<secret>[A-Za-z0-9][A-Za-z0-9._%+-]*@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,})\b"),
        lambda match: _NO_ADDRESS.match(match["secret"]) is None),
    _Kind("entropy", (), re.compile(r"(?<![A-Za-z0-9_/+=.-])(?P<secret>[A-Za-z0-9_-]{32,128})(?![A-Za-z0-9_/+=.-])"), _is_random),
)  # fmt: skip

#: What a text with a secret of a known kind holds, as one expression: Arrow finds it ten times as fast as Python each hint.
_HINTED = "|".join([
    *[re.escape(hint) for kind in _KINDS if not kind.folded for hint in kind.hints],
    *[f"(?i:{re.escape(hint)})" for kind in _KINDS if kind.folded for hint in kind.hints], _RUN.pattern,
])  # fmt: skip


class Redactor:
    """Takes secrets out of texts; `counts` says how many of each kind were found, never what they were."""

    def __init__(self, custom: Sequence[str] = ()) -> None:
        """Prepare for the known kinds, and for regular expressions of one's own, whose kind is `custom`.

        Raises
        ------
        UnknownNameError
            If one of them is no regular expression, or matches the empty text.
        """
        self.counts: Counter[str] = Counter()
        self._custom = [_Kind("custom", ("",), _compiled(text), _always) for text in custom]
        self._kinds = (*self._custom, *_KINDS)

    def text(self, text: str) -> str:
        r"""Return a text without secrets; doing it again changes nothing.

        >>> Redactor().text(r'{"q": "{\"to\": \"ann@firm.com\", \"in\": \"/home/ann/x\"}"}')
        '{"q": "{\\"to\\": \\"[redacted:email]\\", \\"in\\": \\"/home/[redacted:home-path]/x\\"}"}'
        """
        hidden: str | None = None
        for kind in self._kinds_in(text):
            if hidden is None:
                hidden = _without_escapes(text)
            clean = self._without(kind, text, text if kind.is_raw else hidden)
            text, hidden = (text, hidden) if clean is text else (clean, None)
        return text

    def may_hold(self, texts: Sequence[str]) -> list[bool]:
        """Tell fast of each text whether it, or a text that is part of it, could hold a secret."""
        if self._custom:
            return [True] * len(texts)
        found: list[bool] = pc.match_substring_regex(pa.array(texts, pa.string()), _HINTED).to_pylist()
        return found

    def _kinds_in(self, text: str) -> list[_Kind]:
        folded = text.lower()
        return [kind for kind in self._kinds if kind.is_hinted(text, folded)]

    def value(self, value: Any) -> Any:
        """Return a JSON value whose texts, not the names of its fields, hold no secrets; the same object if none did."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            members = {name: self.value(member) for name, member in value.items()}
            return members if any(members[name] is not value[name] for name in value) else value
        if isinstance(value, list | tuple):
            items = [self.value(item) for item in value]
            return type(value)(items) if any(new is not old for new, old in zip(items, value, strict=True)) else value
        return value

    def _without(self, kind: _Kind, text: str, hidden: str) -> str:
        """Return `text` with the secrets of a kind replaced that `hidden`, of the same length, shows."""
        spans = [match.span("secret") for match in kind.pattern.finditer(hidden) if kind.is_secret(match)]
        if not spans:
            return text
        self.counts[kind.name] += len(spans)
        ends = [0, *(end for _, end in spans)]
        parts = [f"{text[before:begin]}[redacted:{kind.name}]" for before, (begin, _) in zip(ends, spans, strict=False)]
        return "".join(parts) + text[ends[-1] :]


def _without_escapes(text: str) -> str:
    """Return a text of the same length with blanks for what is escaped, quotes excepted: a word after `\\n` begins there."""
    return _ESCAPE.sub(_blank, text) if "\\" in text else text


def _blank(match: re.Match[str]) -> str:
    found = match[0]
    return " " * (len(found) - 1) + (found[-1] if found[-1] in "\"'" else " ")


def _compiled(text: str) -> re.Pattern[str]:
    try:
        pattern = re.compile(f"(?P<secret>{text})")
    except re.error as error:
        raise UnknownNameError("--redact-pattern", "not a regular expression", got=text, hint=str(error)) from None
    if pattern.match(""):
        raise UnknownNameError("--redact-pattern", "matches the empty text", got=text, hint="write what it has to find")
    return pattern
