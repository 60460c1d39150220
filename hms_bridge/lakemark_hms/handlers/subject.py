"""How a method of the Hive Metastore comes to be served: one line at its handler declares it.

    class Tables(Subject, title="Tables"):
        @method("get_table", Rank.READ)
        def get(self, call: Call) -> bytes: ...

The line gives the name of the method and its rank for admission; the subject is the row of docs/hms.md that lists it.
Several methods may share a handler, with a line for each. A name that the contract does not have, or that is declared
twice, fails at import.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar, Final, TypeVar

from lakemark_hms.services import Services
from lakemark_hms.wire.dispatch import Handler
from lakemark_server.admission.ranks import Rank
from lakemark_thrift.services import METHODS

H = TypeVar("H", bound=Callable[..., object])

_DECLARED: Final = "_hms_methods"


def method(name: str, rank: Rank) -> Callable[[H], H]:
    """Declares that the handler serves the method. Raises ValueError for a name that the contract does not have."""
    if name not in METHODS:
        raise ValueError(f"the contract has no method {name!r}")

    def declare(handler: H) -> H:
        # Decorators are applied from the last to the first.
        setattr(handler, _DECLARED, [(name, rank), *getattr(handler, _DECLARED, ())])
        return handler

    return declare


class Subject:
    """Handlers of some methods that belong together. ``ranks`` has their ranks by method name, in order."""

    title: ClassVar[str]
    ranks: ClassVar[dict[str, Rank]]
    _handlers: ClassVar[dict[str, str]]  # attributes by method name

    def __init_subclass__(cls, *, title: str) -> None:
        declared = [
            (name, rank, attribute)
            for attribute in vars(cls)
            for name, rank in getattr(getattr(cls, attribute), _DECLARED, ())
        ]
        require_distinct(name for name, _, _ in declared)
        cls.title = title
        cls.ranks = {name: rank for name, rank, _ in declared}
        cls._handlers = {name: attribute for name, _, attribute in declared}

    def __init__(self, services: Services) -> None:
        self._services = services

    def handlers(self) -> dict[str, Handler]:
        """Handlers by method name."""
        return {name: getattr(self, attribute) for name, attribute in self._handlers.items()}


def require_distinct(names: Iterable[str]) -> None:
    """Raises ValueError for a method that is declared twice."""
    known: set[str] = set()
    for name in names:
        if name in known:
            raise ValueError(f"the method {name!r} is declared twice")
        known.add(name)
