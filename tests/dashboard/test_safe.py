"""Untrusted text loses its power and none of its content."""

from __future__ import annotations

import csv
import html
import io
import re
import unicodedata

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamlit.testing.v1 import AppTest

from dashboard import safe

JOINER = "\u2060"
PUNCTUATION = r"[!-/:-@\[-`{-~]"
#: Format characters that have a glyph of their own: Arabic and Kaithi number signs, hieroglyph joiners.
WITH_GLYPH = re.compile("[\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd\U00013430-\U0001343f]")
texts = st.text(st.characters(codec=None), max_size=60)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x00b\x1b[31m\x7f\x85", "a⟦U+0000⟧b⟦U+001B⟧[31m⟦U+007F⟧⟦U+0085⟧"),
        ("safe\u202egpj.exe", "safe⟦U+202E⟧gpj.exe"),
        ("\u2066a\u2069\u200e\u200f", "⟦U+2066⟧a⟦U+2069⟧⟦U+200E⟧⟦U+200F⟧"),
        ("pass\u200bword\ufeff\u00ad", "pass⟦U+200B⟧word⟦U+FEFF⟧⟦U+00AD⟧"),
        ("\ud83d half", "⟦U+D83D⟧ half"),
        ("tag \U000e0041\U000e0042", "tag ⟦U+E0041⟧⟦U+E0042⟧"),
        ("a\u200db a\ufe0f", "a⟦U+200D⟧b a⟦U+FE0F⟧"),
        ("one\r\ntwo\rthree", "one\ntwo⟦U+000D⟧three"),
    ],
)
def test_what_a_screen_hides_is_shown_by_its_number(text: str, shown: str) -> None:
    assert safe.visible(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "line\n\ttab",
        "日本語と中文、한국어",
        "👩\u200d💻 👨\u200d👩\u200d👧 👩🏽\u200d🚀 ❤\ufe0f\u200d🔥 🏳\ufe0f\u200d🌈 1\ufe0f\u20e3",
        "می\u200cخواهم",
        "क\u094d\u200dष",
        "葛\U000e0100城",
    ],
)
def test_real_writing_stays_as_it_is(text: str) -> None:
    assert safe.visible(text) == text


@given(texts)
def test_nothing_invisible_is_left_outside_emoji_and_words(text: str) -> None:
    left = [
        c for c in safe.visible(text) if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") and not WITH_GLYPH.match(c)
    ]
    assert set(left) <= {"\n", "\t", "\u200c", "\u200d"}


@given(texts, st.integers(2, 50))
def test_a_line_is_one_line_and_within_its_limit(text: str, limit: int) -> None:
    line = safe.line(text, limit)
    assert len(line) <= limit
    assert len(line.splitlines()) <= 1


def test_a_cut_line_says_so_and_a_whole_one_does_not() -> None:
    assert safe.line("abcdef", 6) == "abcdef"
    assert safe.line("abcdefg", 6) == "abcde…"
    assert safe.line("a" + " " * 100 + "b", 6) == "a…"


@given(texts)
def test_markdown_escapes_every_punctuation_and_gives_the_text_back(text: str) -> None:
    escaped = safe.markdown(text)
    plain = re.sub(rf"\\({PUNCTUATION})", r"\1", escaped)
    assert plain.replace(JOINER, "") == safe.line(text)
    assert not re.search(PUNCTUATION, re.sub(rf"\\{PUNCTUATION}", "", escaped))


@pytest.mark.parametrize("link", ["http://a.b", "HTTPS://a.b", "www.a.b", "WWW.a.b", "x@a.b", "mailto:x@a.b", ":material/home:"])
def test_what_links_by_itself_is_split(link: str) -> None:
    shown = re.sub(rf"\\({PUNCTUATION})", r"\1", safe.markdown(f"see {link} now"))
    assert link not in shown
    assert not re.search(r"(?i)https?://|www\.|[-.\w+]@[-\w]|:\w+", shown)


@given(texts)
def test_plotly_text_has_no_markup_template_or_formula_and_gives_the_text_back(text: str) -> None:
    shown = safe.plotly_text(text)
    assert not set("<>%$") & set(shown)
    assert html.unescape(shown) == safe.line(text, 200)


def test_csv_takes_the_power_from_formulas_and_leaves_numbers() -> None:
    frame = pd.DataFrame(
        {
            "=n": [-1.5, 2.0, np.nan],
            "text": ["=1+1", '+"a",b', None],
            "mixed": ["@x", -3, "two\nlines"],
            "kind": pd.Categorical(["-a", "b", "'-a"]),
        }
    )
    assert safe.csv_bytes(frame).decode("utf-8-sig") == (
        "'=n,text,mixed,kind\r\n"
        "-1.5,'=1+1,'@x,'-a\r\n"
        "2.0,\"'+\"\"a\"\",b\",-3,b\r\n"
        ",,\"two\nlines\",'-a\r\n"
    )  # fmt: skip


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20), min_size=1, max_size=5)
)
def test_csv_reads_back_and_no_cell_starts_a_formula(cells: list[str]) -> None:
    data = safe.csv_bytes(pd.DataFrame({"a": cells, "n": range(len(cells))}))
    assert data.startswith(b"\xef\xbb\xbf")
    _, *rows = csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""))
    read = [row[0] for row in rows]
    assert [cell.removeprefix("'") for cell in read] == [cell.removeprefix("'") for cell in cells]
    assert not any(cell.startswith(tuple("=+-@\t\r\n")) for cell in read)


def test_csv_leaves_its_input_alone() -> None:
    frame = pd.DataFrame({"a": ["=1"]}, index=[7])
    before = frame.copy()
    safe.csv_bytes(frame)
    pd.testing.assert_frame_equal(frame, before)


names = st.text(st.characters(codec=None), max_size=80) | st.from_regex(r"[a-zA-Z0-9._-]{1,70}", fullmatch=True)


@given(names)
def test_a_slug_is_a_name_every_system_takes(name: str) -> None:
    slug = safe.file_slug(name)
    assert re.fullmatch(r"[a-z0-9_]([a-z0-9._-]{0,62}[a-z0-9_-])?", slug)
    assert not re.fullmatch(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", slug)


@given(names, names)
def test_different_names_give_different_slugs(one: str, other: str) -> None:
    assert (safe.file_slug(one) == safe.file_slug(other)) == (one == other)
    assert safe.file_slug(one) != safe.file_slug(safe.file_slug(one) + "A")


@pytest.mark.parametrize(
    "name", ["con", "CON", "aux.txt", "nul.", "com1", "..", ".hidden", "-rf", "a/../b", "", "名前", "x" * 200]
)
def test_a_dangerous_name_ends_with_its_hash(name: str) -> None:
    assert re.search(r"(^|-)[0-9a-f]{8}$", safe.file_slug(name))


def test_a_changed_name_cannot_be_forged() -> None:
    changed = safe.file_slug("A")
    assert safe.file_slug(changed) != changed


def _long_block() -> None:
    from dashboard import safe

    safe.text_block("a" * 20_000 + "b" * 5_000, key="block")


def _short_block() -> None:
    from dashboard import safe

    safe.text_block("# not a heading\x1b", key="block")


def test_a_text_block_shows_a_short_text_whole() -> None:
    page = AppTest.from_function(_short_block).run()
    assert [block.value for block in page.code] == ["# not a heading⟦U+001B⟧"]
    assert not page.caption


def test_a_text_block_says_what_it_cuts_and_shows_it_on_the_next_page() -> None:
    page = AppTest.from_function(_long_block).run()
    assert page.caption[0].value == "Characters 1 to 20,000 of 25,000; the other parts are behind the page numbers."
    assert page.code[0].value == "a" * 20_000
    page.session_state["block"] = 2
    page.run()
    assert page.caption[0].value.startswith("Characters 20,001 to 25,000 of 25,000")
    assert page.code[0].value == "b" * 5_000
