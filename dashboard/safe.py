"""How untrusted text reaches the page: everything a trace says passes through here before it is drawn.

Hides which characters a screen does not show, what Streamlit's Markdown, Plotly's labels and spreadsheets
read as more than text, and how that is taken from them without losing the text.
"""

from __future__ import annotations

import hashlib
import html
import math
import re
import unicodedata

import pandas as pd

BLOCK = 20_000  # characters of one part of a long text

# Control characters but line feed and tab, lone surrogates, line separators, and whatever Unicode lets a
# renderer leave out (Default_Ignorable_Code_Point): bidi controls, zero-width characters, fillers, tags.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_JOINERS = "\u200c\u200d"
_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_PUNCTUATION = r"[!-/:-@\[-`{-~]"
# Where a word joiner goes, so that no URL, mail address, :shortcode: or arrow is recognised after unescaping.
_SPLIT = re.compile(rf"(?<={_PUNCTUATION})(?={_PUNCTUATION})|(?<=[:@])(?=\w)|(?<=www)(?=\.)", re.IGNORECASE)
# OWASP, "CSV injection": the full-width signs start a formula in some locales.
_FORMULA = re.compile(r"[=+\-@\t\r\n＝＋－＠]")
_SLUG = re.compile(r"(?!.*-[0-9a-f]{8}$)[a-z0-9_]([a-z0-9._-]{0,62}[a-z0-9_-])?")
_DEVICE = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?")


def visible(text: str) -> str:
    """Return `text` with every character that a screen hides shown by its number; line feeds and tabs stay.

    Joiners and variation selectors stay where they belong: in emoji, in Arabic and Indic words, after Han characters.

    >>> visible("admin\\u202etxt.exe\\x1b[2J"), visible("👩\\u200d💻 ❤\\ufe0f")
    ('admin⟦U+202E⟧txt.exe⟦U+001B⟧[2J', '👩\\u200d💻 ❤️')
    """
    return _HIDDEN.sub(_shown, text.replace("\r\n", "\n"))


def line(text: str, limit: int = 400) -> str:
    """Return `text` visible, on one line and at most `limit` characters long, for labels that are plain text.

    >>> line("one\\n  two", 5)
    'one …'
    """
    start = text[: 10 * limit]  # white space shrinks; no label needs to read a megabyte for it
    words = " ".join(visible(start).split())
    return words if len(words) <= limit and len(start) == len(text) else words[: limit - 1] + "…"


def markdown(text: str, limit: int = 400) -> str:
    """Return `text` as Markdown that shows exactly this text, on one line: for Streamlit's labels and messages.

    Invisible word joiners keep URLs, addresses and shortcodes from turning into links and icons.

    >>> markdown("![x](y) *now*")
    '\\\\!\\u2060\\\\[x\\\\]\\u2060\\\\(y\\\\) \\\\*now\\\\*'
    """
    return re.sub(_PUNCTUATION, r"\\\g<0>", _SPLIT.sub("\u2060", line(text, limit)))


def plotly_text(text: str, limit: int = 200) -> str:
    """Return `text` for Plotly's labels and hover boxes, which read some HTML, `%{...}` and `$...$`.

    >>> plotly_text("<b>%{x}</b> $5$")
    '&lt;b&gt;&#37;{x}&lt;/b&gt; &#36;5&#36;'
    """
    return html.escape(line(text, limit), quote=False).replace("%", "&#37;").replace("$", "&#36;")


def html_text(text: str) -> str:
    """Return `text` as HTML that shows exactly this text, in an element or in a quoted attribute; line feeds stay.

    >>> html_text('<b title="x">')
    '&lt;b title=&quot;x&quot;&gt;'
    """
    return html.escape(visible(text))


def text_block(text: str, *, key: str) -> None:
    """Draw a whole text of a trace; a long one in parts of 20,000 characters, with its length and a pager."""
    import streamlit as st

    n_parts = max(1, math.ceil(len(text) / BLOCK))
    part = 1
    if n_parts > 1:
        part = st.pagination(n_parts, key=key)
        first, last = (part - 1) * BLOCK, min(part * BLOCK, len(text))
        st.caption(f"Characters {first + 1:,} to {last:,} of {len(text):,}; the other parts are behind the page numbers.")
    st.code(visible(text[(part - 1) * BLOCK : part * BLOCK]), language=None, wrap_lines=True)


def csv_bytes(frame: pd.DataFrame) -> bytes:
    """Return the frame, without its index, as CSV for a spreadsheet: RFC 4180, UTF-8 with a mark.

    Texts and column names that a spreadsheet would run as a formula get a leading `'`; numbers stay as they are.

    >>> csv_bytes(pd.DataFrame({"n": [-1], "t": ["=1+1"]}))
    b"\\xef\\xbb\\xbfn,t\\r\\n-1,'=1+1\\r\\n"
    """
    columns = [_inert(name) for name in frame.columns]
    cells = [frame.iloc[:, n] for n in range(frame.shape[1])]
    texts = [cell if _is_plain(cell) else cell.astype(object).map(_inert) for cell in cells]
    safe = pd.DataFrame(dict(enumerate(texts)), index=frame.index)
    text: str = safe.to_csv(index=False, header=columns, lineterminator="\r\n")
    return text.encode("utf-8-sig", "replace")


def file_slug(name: str) -> str:
    """Return a file name, without folder or suffix, that every system takes; different names give different ones.

    The result matches `[a-z0-9._-]{1,64}`, starts with no dot or hyphen, ends with no dot and is no Windows device; where
    anything had to change, it ends with 8 hex digits of the hash of `name`.

    >>> file_slug("gates-1"), file_slug("../etc/Pass wd"), file_slug("con")
    ('gates-1', 'etc-pass-wd-9ea8d0d1', 'con-d1d8ab24')
    """
    if _SLUG.fullmatch(name) and not _DEVICE.fullmatch(name):
        return name
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    words = re.sub(r"[^a-z0-9._-]+", "-", name.lower())[:55].strip(".-")
    if _DEVICE.fullmatch(words):
        words = words.split(".")[0]
    return f"{words}-{digest}" if words else digest


def _shown(match: re.Match[str]) -> str:
    char, text, at = match[0], match.string, match.start()
    before, after = text[at - 1 : at] if at else "", text[at + 1 : at + 2]
    if char in _JOINERS:
        base = text[at - 2 : at - 1] if before == "\ufe0f" else before
        in_emoji = char == "\u200d" and _is_symbol(base) and _is_symbol(after)
        in_word = all("\u0600" <= c <= "\u0dff" and unicodedata.category(c)[0] in "LM" for c in (before or " ", after or " "))
        keep = in_emoji or in_word
    elif _SELECTORS.match(char):
        keep = _is_symbol(before) or after == "\u20e3" or unicodedata.name(before or " ", "").startswith("CJK")
    else:
        keep = False
    return char if keep else f"⟦U+{ord(char):04X}⟧"


def _is_symbol(char: str) -> bool:
    return bool(char) and not char.isascii() and unicodedata.category(char)[0] == "S"


def _is_plain(cells: pd.Series) -> bool:
    kinds = pd.api.types
    return bool(kinds.is_numeric_dtype(cells) or kinds.is_datetime64_any_dtype(cells) or kinds.is_timedelta64_dtype(cells))


def _inert(cell: object) -> object:
    return "'" + cell if isinstance(cell, str) and _FORMULA.match(cell) else cell
