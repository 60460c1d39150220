"""Names of doors: ``t__append``, ``t__overwrite`` …, and ``t__dev__append`` for a branch. Pure.

Hive's clients refuse to alter a table whose name has other characters than letters, digits and ``_``, so there is no
``@`` here as in names of snapshots.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

SEPARATOR: Final = "__"
KINDS: Final = ("append", "overwrite", "upsert", "delete", "insert")


@dataclass(frozen=True, slots=True)
class DoorName:
    """``branch`` "": main; ``kind``: one of ``KINDS``."""

    table: str
    branch: str
    kind: str


def door_names(name: str) -> Iterator[DoorName]:
    """What a name can stand for: a table is asked for with each of its possible names, the longest first."""
    above, separator, kind = name.lower().rpartition(SEPARATOR)
    if not separator or not above or kind not in KINDS:
        return
    yield DoorName(above, "", kind)
    table, separator, branch = above.rpartition(SEPARATOR)
    if separator and table and branch:
        yield DoorName(table, branch, kind)


def door_of(table: str, kind: str, branch: str = "") -> str:
    """The name of a table's door."""
    return SEPARATOR.join((table, branch, kind) if branch else (table, kind))
