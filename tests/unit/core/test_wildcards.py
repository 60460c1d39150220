"""Patterns with wildcards: the same answers as a slow model of two lines, at a cost that no pattern drives up."""

from __future__ import annotations

import time
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark_core.wildcards import Wildcard, WildcardPattern, pattern_of

ANY, ONE = Wildcard.ANY, Wildcard.ONE
SIGNS = {"*": ANY, ".": ONE}
SECONDS_MAX = 5.0
"""Far more than a linear matcher needs, and far less than a backtracking one."""


def fits_slowly(pattern: str, text: str) -> bool:
    """Tries everything."""

    @cache
    def fits(at: int, place: int) -> bool:
        if at == len(pattern):
            return place == len(text)
        if pattern[at] == "*":
            return fits(at + 1, place) or (place < len(text) and fits(at, place + 1))
        return place < len(text) and pattern[at] in (".", text[place]) and fits(at + 1, place + 1)

    return fits(0, 0)


@given(st.text("ab*.", max_size=12), st.text("ab.", max_size=12))
def test_patterns_fit_as_in_a_model_that_tries_everything(pattern: str, text: str) -> None:
    # A dot of the text is a character like others, and no wildcard.
    assert pattern_of(pattern, SIGNS).fits(text) == fits_slowly(pattern, text)


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "ab", ANY, ONE]), st.text("abc", max_size=3)), max_size=8))
def test_what_a_pattern_was_made_into_fits_it(drawn: list[tuple[str | Wildcard, str]]) -> None:
    tokens = [token for token, _ in drawn]
    text = "".join(
        token if isinstance(token, str) else filling if token is ANY else (filling or "x")[0]
        for token, filling in drawn
    )
    assert WildcardPattern.of(tokens).fits(text)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("*a*a*a*a*a*ab", "a" * 100),
        ("*" + "a*" * 50 + "b", "a" * 100_000),
        ("*" + "a" * 5_000 + "b*", "a" * 100_000),
        ("*" + "a." * 2_000 + "b*", "a" * 20_000),
        ("*" * 100_000 + "b", "a" * 100_000),
        ("*.*.*.*.*.*.*.*.*.*.*.*.b", "a" * 100_000),
    ],
)
def test_no_pattern_takes_long(pattern: str, text: str) -> None:
    compiled = pattern_of(pattern, SIGNS)
    begun = time.process_time()
    assert not compiled.fits(text)
    assert time.process_time() - begun < SECONDS_MAX
