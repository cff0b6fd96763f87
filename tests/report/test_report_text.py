"""Text made safe to show, code in coloured pieces, and fewer points that look the same."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wmrl_envs.report.highlight import coloured_pieces
from wmrl_envs.report.text import clean_text, escaped_json, for_plotly, short_text
from wmrl_envs.report.thinning import evenly, extremes, rounded, smooth

anything = st.text(st.characters(exclude_categories=()), max_size=300)


@given(
    st.recursive(anything | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(anything, inner))
)
def test_json_stays_inside_its_script_tag(value: object) -> None:
    text = escaped_json(value)
    assert not set(text) & set("<>&\u2028\u2029")
    assert json.loads(text) == value


def test_json_refuses_what_it_has_not() -> None:
    with pytest.raises(ValueError):
        escaped_json([float("nan")])


@given(anything)
def test_no_control_character_is_left(text: str) -> None:
    found = clean_text(text)
    left = [letter for letter in found if (ord(letter) < 32 and letter not in "\n\t") or 0x7F <= ord(letter) < 0xA0]
    assert left == []
    assert not any(0x202A <= ord(letter) <= 0x202E for letter in found)
    found.encode("utf-8")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]0;a title that never ends", "␛]0;a title that never ends"),
        ("10%\r100%\r\ndone", "10%\n100%\ndone"),
        ("bell\x07 null\x00 delete\x7f", "bell␇ null␀ delete␡"),
        ("a\u202eb", "a⟨U+202E⟩b"),
        ("\ud800", "\ufffd"),
        ("tab\tstays, ünï too", "tab\tstays, ünï too"),
    ],
)
def test_what_terminals_read_is_dropped_or_shown(text: str, shown: str) -> None:
    assert clean_text(text) == shown


def test_long_lines_and_texts_are_cut_with_a_note() -> None:
    assert clean_text("A" * 5_000) == "A" * 2_000 + " … [3,000 more characters of this line left out]"
    found = clean_text("first\n" + "line\n" * 400_000 + "last")
    assert found.startswith("first\nline\n") and found.endswith("line\nlast")
    assert len(found) < 13_000 and "characters left out] …" in found
    assert len(clean_text("A" * 50_000_000)) < 12_500


def test_names_are_one_short_line_and_no_markup_of_plotly() -> None:
    assert short_text("a\n b\t c") == "a b c"
    assert short_text({"a": [1]}) == '{"a": [1]}'
    assert len(short_text("x" * 999, 20)) == 20
    assert for_plotly("<b>&amp;") == "&lt;b&gt;&amp;amp;"


@given(anything)
def test_pieces_put_together_are_the_code(code: str) -> None:
    text = clean_text(code)
    pieces = coloured_pieces(text)
    assert "".join(pieces[1::2]) == text
    assert set(pieces[::2]) <= {"", "c", "k", "s", "n", "f", "b"}


def test_pieces_have_colours() -> None:
    pieces = coloured_pieces("def f(x):\n    return 'a' + 1  # why\n")
    found = {text.strip(): name for name, text in zip(pieces[::2], pieces[1::2], strict=True)}
    assert (found["def"], found["f"], found["'a'"], found["1"], found["# why"]) == ("k", "f", "s", "n", "c")


def test_extremes_of_a_long_curve_are_kept() -> None:
    y = np.sin(np.linspace(0, 50, 100_000))
    y[[31_234, 77_777]] = 9.0, -9.0
    y[500:900] = np.nan
    kept = extremes(y, 200)
    assert len(kept) <= 200 and {0, 31_234, 77_777, 99_999} <= set(kept.tolist())
    assert np.isfinite(y[kept]).all() and (np.diff(kept) > 0).all()
    assert extremes(np.array([1.0, np.nan, 2.0]), 4).tolist() == [0, 2]


@given(st.integers(0, 500), st.integers(0, 50))
def test_evenly_keeps_both_ends(n: int, most: int) -> None:
    kept = evenly(range(n), most)
    assert len(kept) <= most and kept == sorted(set(kept))
    if n and most > 1:
        assert (kept[0], kept[-1]) == (0, n - 1)


def test_rounded_and_smooth() -> None:
    assert rounded([0.123456, 2.0, float("nan"), float("inf"), 1e6]) == [0.1235, 2, None, None, 1_000_000]
    assert smooth(np.full(30, 0.5)).tolist() == [0.5] * 30
