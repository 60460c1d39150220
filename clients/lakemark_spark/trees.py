"""Files whose partitions Spark reads off their paths: many partitions in one scan, and no join."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from lakemark_core.types import (
    BIGINT,
    DATE,
    INT,
    STRING,
    ColumnValue,
    Schema,
    name_of_partition,
    unescape_path_name,
)

_READ_ALIKE: Final = frozenset({STRING, INT, BIGINT, DATE})
"""Types of partition columns that Spark reads from a path as they were written, whatever its session says."""


class Tree(NamedTuple):
    """A directory of the table, and the partition column that each directory below it has beside the table's."""

    root: str
    column: str


def trees_of(
    files: Mapping[str, Sequence[ColumnValue]], schema: Schema, scanned: Collection[str]
) -> dict[Tree, list[str]] | None:
    """The files, by their paths in the table and with their partitions, as trees; None: they are not laid out as such.

    In a tree each file lies in the directories of its partition and then in one of a column that no file has: so writes
    ``layout``. ``scanned``: the columns that are read from the files.
    """
    fields = schema.partition_fields
    taken = {name.lower() for name in (*scanned, *(field.name for field in fields))}
    if len(taken) < len(scanned) + len(fields) or not all(field.type in _READ_ALIKE for field in fields):
        return None
    names: dict[Sequence[ColumnValue], str] = {}
    trees: dict[Tree, list[str]] = {}
    for path, values in files.items():
        if values not in names:
            names[values] = f"{name_of_partition(values, schema)}/"
        root, _, below = path.partition("/")
        directory, _, name = below.removeprefix(names[values]).partition("/")
        escaped, _, number = directory.partition("=")
        column = unescape_path_name(escaped)
        # Spark fails on a directory that lacks either of them, as a group named by Base64 does.
        if not below.startswith(names[values]) or not column or not number or "/" in name or column.lower() in taken:
            return None
        trees.setdefault(Tree(root, column), []).append(path)
    return trees
