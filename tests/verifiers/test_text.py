import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifiers.text import collapsed, last_line, normal_form, section


@pytest.mark.parametrize(
    ("text", "line"), [("", ""), (" \n ", ""), ("46", "46"), ("a\n\n b \r\n 46 \n\n", "46"), ("a\n\x0b", "\x0b")]
)
def test_the_last_line_is_the_last_that_is_not_blank(text, line):
    assert last_line(text) == line


def test_words_are_what_ascii_whitespace_separates():
    assert collapsed("  a\t\r\nb\u00a0c \x1cd ") == "a b\u00a0c \x1cd"
    assert collapsed(" \n") == ""


def test_a_text_is_normalised_unless_that_would_take_long():
    assert normal_form("e\u0301", "NFC") == "é"
    assert normal_form("ﬁ", "NFC") == "ﬁ"
    assert normal_form("ﬁ", "NFKC") == "fi"
    assert normal_form("a" + "\u0315\u0300" * 15, "NFC") is not None
    assert normal_form("a" + "\u0315\u0300" * 50_000, "NFC") is None


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_is_read(text):
    assert last_line(text) in text
    assert section(f"<x>{text}</x>", "x") == (text if "<x>" not in text and "</x>" not in text else None)
    normal = normal_form(text, "NFKC")
    assert normal is None or normal_form(normal, "NFKC") in (normal, None)
