"""Checks the arguments of public functions against their annotations.

``checked`` decorates a public function, or a class with public methods. A value of another type, a number out of range
or a text that is not Unicode raises InvalidArgument with the name of the parameter, before anything happens. So it
never becomes an error of protobuf, Arrow or Python. Annotations are the only place that says what a parameter takes;
``Between`` and ``Called`` add what a type cannot express.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime as dt
import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import repeat
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

from lakemark_core.errors import InvalidArgument

T = TypeVar("T")
_Check: TypeAlias = Callable[[str, Any], Any]
"""(parameter name, value) -> the value to use. Raises _OtherKind, or InvalidArgument for what is inside the value."""

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
_SHOWN_CHARS_MAX: Final = 80


@dataclasses.dataclass(frozen=True, slots=True)
class Between:
    """Inclusive bounds of a number or a duration, used as ``Annotated[int, Between(0, 9)]``."""

    least: Any
    most: Any


@dataclasses.dataclass(frozen=True, slots=True)
class Called:
    """How messages describe the expected value, where its type would be cryptic."""

    words: str


class _Shallow:
    """Marks a sequence whose elements are not checked: it may be long, and its conversion reports what is wrong."""


SHALLOW: Final = _Shallow()

Number64: TypeAlias = Annotated[int, Between(-INT64_MAX - 1, INT64_MAX)]
"""A number as the service's messages hold it."""

Natural: TypeAlias = Annotated[int, Between(0, INT64_MAX)]
"""A version, an instant, a count."""

Count: TypeAlias = Annotated[int, Between(0, INT32_MAX)]
"""A limit."""

Duration: TypeAlias = Annotated[dt.timedelta, Between(dt.timedelta(0), dt.timedelta.max)]


class _OtherKind(Exception):
    """The value is not what the annotation says."""


def checked(target: T) -> T:
    """A function whose arguments are checked, or a class all of whose public methods check theirs."""
    if not isinstance(target, type):
        return typing.cast(T, _wrapped(typing.cast(Callable[..., Any], target)))
    for name, member in list(vars(target).items()):
        if inspect.isfunction(member) and not name.startswith("_"):
            setattr(target, name, _wrapped(member))
    return target


def check(value: Any, annotation: Any, name: str) -> Any:
    """The value to use. Raises InvalidArgument that calls the value ``name``."""
    return _require(_check_of(annotation), annotation, name, value)


def _wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    known: _Parameters | None = None

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal known
        if known is None:  # on the first call, when everything that annotations name is imported
            known = _Parameters.of(function)
        if len(args) > 1 or not known.method:
            args = known.placed(args)
        for name, value in kwargs.items():
            kwargs[name] = known.named(name, value)
        return function(*args, **kwargs)

    return call


@dataclasses.dataclass(frozen=True, slots=True)
class _Parameters:
    """The parameters of one function.

    ``method``: the first parameter is the object. ``rest`` and ``others``: the names of ``*args`` and ``**kwargs``; ""
    if there are none.
    """

    names: tuple[str, ...]
    method: bool
    rest: str
    others: str
    annotations: Mapping[str, Any]
    checks: Mapping[str, _Check]

    @classmethod
    def of(cls, function: Callable[..., Any]) -> _Parameters:
        annotations = typing.get_type_hints(function, include_extras=True)
        annotations.pop("return", None)
        parameters = inspect.signature(function).parameters.values()

        def of_kind(*kinds: object) -> tuple[str, ...]:
            return tuple(parameter.name for parameter in parameters if parameter.kind in kinds)

        names = of_kind(inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        rest, others = of_kind(inspect.Parameter.VAR_POSITIONAL), of_kind(inspect.Parameter.VAR_KEYWORD)
        checks = {name: _check_of(annotation) for name, annotation in annotations.items()}
        return cls(names, names[:1] == ("self",), "".join(rest), "".join(others), annotations, checks)

    def placed(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Checks the positional arguments."""
        names = (*self.names, *repeat(self.rest, len(args) - len(self.names)))
        return tuple(self._checked(name, name, value) for name, value in zip(names, args, strict=False))

    def named(self, name: str, value: Any) -> Any:
        """Checks a keyword argument."""
        return self._checked(name if name in self.checks else self.others, name, value)

    def _checked(self, own: str, name: str, value: Any) -> Any:
        """Checks one argument.

        A parameter without an annotation (``self``) passes unchecked, and so does an unknown one, which Python itself
        refuses.
        """
        check = self.checks.get(own)
        return value if check is None else _require(check, self.annotations[own], name, value)


def _require(check: _Check, annotation: Any, name: str, value: Any) -> Any:
    try:
        return check(name, value)
    except _OtherKind:
        raise InvalidArgument(f"{name} must be {_words(annotation)}, not {_shown(value)}") from None


@functools.lru_cache(maxsize=1_000)
def _check_of(annotation: Any) -> _Check:
    """The check of an annotation. An annotation that is unknown here, or says nothing, accepts everything."""
    origin, inside = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _annotated(inside[0], inside[1:])
    if origin in (typing.Union, types.UnionType):
        return _any_of([_check_of(member) for member in inside])
    if origin is Literal:
        return _one_of(inside)
    if origin in (collections.abc.Mapping, dict):
        return _mapping(*inside)
    if origin in (collections.abc.Sequence, collections.abc.Iterable, list, tuple):
        return _several(inside[0])
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    if dataclasses.is_dataclass(annotation):
        return _object(typing.cast(type, annotation))
    return _instance(annotation) if isinstance(annotation, type) and annotation is not object else _anything


def _annotated(annotation: Any, extras: Sequence[Any]) -> _Check:
    if SHALLOW in extras and isinstance(annotation, type):
        return _instance(annotation)
    bounds = next((extra for extra in extras if isinstance(extra, Between)), None)
    inner = _check_of(annotation)
    if bounds is None:
        return inner
    least, most = bounds.least, bounds.most

    def bounded(name: str, value: Any) -> Any:
        taken = inner(name, value)
        if not least <= taken <= most:
            raise InvalidArgument(f"{name} must be {_range(bounds, annotation)}, not {_shown(value)}")
        return taken

    return bounded


def _any_of(checks: Sequence[_Check]) -> _Check:
    def of_any(name: str, value: Any) -> Any:
        for check in checks:
            try:
                return check(name, value)
            except _OtherKind:
                continue
        raise _OtherKind

    return of_any


def _one_of(words: Sequence[Any]) -> _Check:
    def of_these(name: str, value: Any) -> Any:
        if not isinstance(value, str):
            raise _OtherKind
        if value not in words:
            raise InvalidArgument(f"{name} {_shown(value)} is not one of {', '.join(map(str, words))}")
        return value

    return of_these


def _mapping(keys: Any, values: Any) -> _Check:
    of_key, of_value = _check_of(keys), _check_of(values)

    def pairs(name: str, value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise _OtherKind
        try:
            return {of_key("", key): of_value("", item) for key, item in value.items()}
        except (_OtherKind, InvalidArgument):  # again, to name the wrong item
            return {
                _require(of_key, keys, f"a key of {name}", key): _require(
                    of_value, values, f"{name}[{_shown(key)}]", item
                )
                for key, item in value.items()
            }

    return pairs


def _several(element: Any) -> _Check:
    inner = _check_of(element)

    def elements(name: str, value: Any) -> Any:
        # Python takes a text for a sequence of texts, which is hardly ever meant.
        if isinstance(value, str | bytes | Mapping | type) or not isinstance(value, Iterable):
            raise _OtherKind
        items = value if isinstance(value, list | tuple) else list(value)
        try:
            taken = [inner("", item) for item in items]
        except (_OtherKind, InvalidArgument):  # again, to give the place of the wrong item
            taken = [_require(inner, element, f"{name}[{place}]", item) for place, item in enumerate(items)]
        return tuple(taken) if isinstance(value, tuple) else taken

    return elements


def _object(of: type) -> _Check:
    """The check of a class. A dataclass does not check its own fields, so they are checked here."""

    @functools.cache
    def fields() -> Mapping[str, tuple[_Check, Any]]:
        hints = typing.get_type_hints(of, include_extras=True)
        return {field.name: (_check_of(hints[field.name]), hints[field.name]) for field in dataclasses.fields(of)}

    def looked_into(name: str, value: Any) -> Any:
        if not isinstance(value, of):
            raise _OtherKind
        for field, (inner, annotation) in fields().items():
            _require(inner, annotation, f"{name}.{field}", getattr(value, field))
        return value

    return looked_into


def _instance(of: type) -> _Check:
    def instance(_: str, value: Any) -> Any:
        if not isinstance(value, of):
            raise _OtherKind
        return value

    return instance


def _anything(_: str, value: Any) -> Any:
    return value


def _text(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        raise _OtherKind
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgument(
                f"{name} is not Unicode text: {_shown(value)} has a lone surrogate at character {error.start + 1}"
            ) from None
    return value


def _whole(_: str, value: Any) -> Any:
    """An integer; those of numpy count too."""
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise _OtherKind
    return value.__index__()


def _number(_: str, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _OtherKind
    return value


_PLAIN: Final[Mapping[Any, _Check]] = {
    str: _text,
    int: _whole,
    float: _number,
    type(None): _instance(type(None)),
    Any: _anything,
}
_WORDS: Final[Mapping[Any, str]] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    bytes: "bytes",
    type(None): "None",
    dt.timedelta: "a datetime.timedelta",
    dt.datetime: "a datetime.datetime",
    dt.date: "a datetime.date",
    Decimal: "a decimal.Decimal",
}


def _words(annotation: Any) -> str:
    """The annotation in words, like ``a text or None``."""
    origin, inside = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        said = [
            _range(extra, inside[0]) if isinstance(extra, Between) else extra.words
            for extra in inside[1:]
            if extra is not SHALLOW
        ]
        return said[0] if said else _words(inside[0])
    if origin in (typing.Union, types.UnionType):
        *most, last = dict.fromkeys(map(_words, inside))
        return f"{', '.join(most)} or {last}" if most else last
    if origin is Literal:
        return "one of " + ", ".join(map(str, inside))
    if origin in (collections.abc.Mapping, dict):
        return f"a mapping with {_words(inside[1])} for each name"
    if origin in (collections.abc.Sequence, collections.abc.Iterable, list, tuple):
        return f"a list (each {_words(inside[0])})"
    return _WORDS.get(annotation) or f"a {getattr(annotation, '__name__', annotation)}"


def _range(bounds: Between, annotation: Any) -> str:
    if isinstance(bounds.least, dt.timedelta):
        return "a datetime.timedelta that is not negative"
    most = "2^63-1" if bounds.most == INT64_MAX else bounds.most
    least = "-2^63" if bounds.least == -INT64_MAX - 1 else bounds.least
    return f"{_words(annotation)} from {least} to {most}"


def _shown(value: Any) -> str:
    """The value, short and printable."""
    if not isinstance(value, str | bytes | bool | int | float | dt.date | dt.timedelta | Decimal | types.NoneType):
        return f"a {type(value).__name__}"
    if isinstance(value, int) and abs(value) >= 10**_SHOWN_CHARS_MAX:
        return "a number of very many digits"
    text = repr(value[:_SHOWN_CHARS_MAX]) if isinstance(value, str | bytes) else repr(value)
    return text + ("…" if isinstance(value, str | bytes) and len(value) > _SHOWN_CHARS_MAX else "")
