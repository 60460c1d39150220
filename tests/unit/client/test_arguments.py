"""What ``lakemark.arguments`` accepts, how it converts it, and its messages."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from lakemark.arguments import SHALLOW, Between, Called, Count, Duration, Natural, check, checked
from lakemark.errors import InvalidArgument


@dataclass(frozen=True)
class Point:
    x: int
    name: str = ""


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (str, "é"),
        (int, 10**30),
        (int | None, None),
        (bool, True),
        (float, 1),
        (Literal["a", "b"], "b"),
        (Sequence[str], ["a"]),
        (Sequence[str], ("a", "b")),
        (Mapping[str, int], {"a": 1}),
        (dt.datetime | int | str, dt.datetime(2026, 1, 1)),
        (Point, Point(1)),
        (Natural, 2**63 - 1),
        (Count, 0),
        (Duration, dt.timedelta(0)),
        (Any, object),
        (Annotated[Point, SHALLOW], Point("x")),  # type: ignore[arg-type]
    ],
)
def test_what_fits_passes_as_it_is(annotation: Any, value: Any) -> None:
    assert check(value, annotation, "it") == value


@pytest.mark.parametrize(
    ("annotation", "value", "words"),
    [
        (str, 5, "it must be a text, not 5"),
        (str, "a\udc80", r"it is not Unicode text: 'a\\udc80' has a lone surrogate at character 2"),
        (int, True, "it must be a whole number, not True"),
        (int, 1.0, r"it must be a whole number, not 1\.0"),
        (bool, 1, "it must be True or False, not 1"),
        (float, True, "it must be a number, not True"),
        (int | str | None, [], "it must be a whole number, a text or None, not a list"),
        (Literal["a", "b"], "c", "it 'c' is not one of a, b"),
        (Sequence[str], "abc", r"it must be a list \(each a text\), not 'abc'"),
        (Sequence[str], ["a", 5], r"it\[1\] must be a text, not 5"),
        (Iterable[str], {"a": 1}, r"it must be a list \(each a text\), not a dict"),
        (Mapping[str, str], {"a": 5}, r"it\['a'\] must be a text, not 5"),
        (Mapping[str, str], {5: "a"}, "a key of it must be a text, not 5"),
        (Point, "x", "it must be a Point, not 'x'"),
        (Point, Point("x"), r"it\.x must be a whole number, not 'x'"),  # type: ignore[arg-type]
        (Natural, -1, r"it must be a whole number from 0 to 2\^63-1, not -1"),
        (Natural | None, "1", r"it must be a whole number from 0 to 2\^63-1 or None, not '1'"),
        (Count, 10**4000, "not a number of very many digits"),
        (Annotated[float, Between(0, 9)], float("nan"), "it must be a number from 0 to 9, not nan"),
        (Duration, dt.timedelta(days=-1), "it must be a datetime.timedelta that is not negative"),
        (Annotated[int, Called("a day of the week")], "x", "it must be a day of the week, not 'x'"),
        (str, b"x" * 1000, "not b'x{80}'…$"),
    ],
)
def test_what_does_not_fit_is_named(annotation: Any, value: Any, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        check(value, annotation, "it")


def test_numbers_of_numpy_are_numbers_and_iterators_are_read_once() -> None:
    found = check(np.int32(5), int, "it")
    assert (found, type(found)) == (5, int)
    assert check((one for one in "ab"), Iterable[str], "it") == ["a", "b"]


@checked
class Counter:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def add(self, first: int, *more: int, times: Natural = 1, **named: str) -> Counter:
        self.seen.append((first, more, times, named))
        return self

    def _private(self, first: int) -> int:
        return first


def test_all_ways_to_give_arguments_are_looked_at() -> None:
    counter = Counter()
    counter.add(1).add(1, 2, 3, times=2, other="x").add(first=1)
    assert counter.seen == [(1, (), 1, {}), (1, (2, 3), 2, {"other": "x"}), (1, (), 1, {})]
    for call, words in (
        (lambda: counter.add("1"), "first must be"),  # type: ignore[arg-type]
        (lambda: counter.add(1, 2, "3"), "more must be"),  # type: ignore[arg-type]
        (lambda: counter.add(1, times=-1), "times must be"),
        (lambda: counter.add(1, other=5), "other must be a text"),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidArgument, match=words):
            call()
    assert counter._private("x") == "x"  # type: ignore[arg-type]
    assert Counter.add.__name__ == "add"


def test_arguments_that_are_missing_are_pythons_own_business() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'first'"):
        Counter().add()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'nothing'"):
        one_number(nothing=1)  # type: ignore[call-arg]


@checked
def one_number(number: int = 0) -> int:
    return number
