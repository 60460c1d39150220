"""What the data files of a table should be like, as its properties say it (docs/writing.md). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, cast, get_args

from lakemark_core.errors import InvalidArgument, InvalidSchema
from lakemark_core.property_values import whole_number
from lakemark_core.types import Field, ListOf, MapOf, Schema, Struct, format_type

FILE_SIZE_PROPERTY: Final = "lakemark.write.target-file-size-bytes"
CLUSTERING_COLUMNS_PROPERTY: Final = "lakemark.clustering.columns"
"""Columns, separated by commas, by which a clustering puts rows in order."""
CLUSTERING_ORDER_PROPERTY: Final = "lakemark.clustering.order"
PROPERTIES: Final = (FILE_SIZE_PROPERTY, CLUSTERING_COLUMNS_PROPERTY, CLUSTERING_ORDER_PROPERTY)

FILE_BYTES: Final = 128 << 20
FILE_BYTES_MIN: Final = 10_000
"""A parquet file of a few rows has some hundred bytes for each column."""
COLUMNS_MAX: Final = 8

ClusteringOrder: TypeAlias = Literal["sort", "z-order"]


@dataclass(frozen=True, slots=True)
class FileLayout:
    """``file_bytes``: how large files should be; None: the table does not say. Made by ``layout_of``.

    ``columns``: by which a clustering puts rows in order, as the property has them; () without the property.
    """

    file_bytes: int | None = None
    columns: tuple[str, ...] = ()
    order: ClusteringOrder = "sort"

    @property
    def target_bytes(self) -> int:
        """How large files should be."""
        return FILE_BYTES if self.file_bytes is None else self.file_bytes

    def fields(self, schema: Schema) -> tuple[Field, ...]:
        """The columns, in their order. Raises InvalidArgument with the first that is not there or has no order."""
        try:
            fields = tuple(schema.field(name) for name in self.columns)
        except InvalidSchema as error:
            raise InvalidArgument(f"{CLUSTERING_COLUMNS_PROPERTY}: {error.message}") from error
        for field in fields:
            if isinstance(field.type, Struct | ListOf | MapOf):
                raise InvalidArgument(
                    f"{CLUSTERING_COLUMNS_PROPERTY}: column '{field.name}' is {format_type(field.type)}; rows are put "
                    "in order by columns that are not nested"
                )
            if schema.is_partition(field.name):
                raise InvalidArgument(
                    f"{CLUSTERING_COLUMNS_PROPERTY}: column '{field.name}' partitions the table, so that all rows of a "
                    "file have one value; name others"
                )
        if len(set(fields)) < len(fields):
            raise InvalidArgument(f"{CLUSTERING_COLUMNS_PROPERTY} = {','.join(self.columns)!r} names a column twice")
        return fields


def layout_of(properties: Mapping[str, str]) -> FileLayout:
    """The layout that a table's properties ask for. Raises InvalidArgument for illegal values."""
    size = whole_number(properties, FILE_SIZE_PROPERTY, FILE_BYTES_MIN) if FILE_SIZE_PROPERTY in properties else None
    columns: tuple[str, ...] = ()
    if CLUSTERING_COLUMNS_PROPERTY in properties:
        columns = clustering_columns(properties[CLUSTERING_COLUMNS_PROPERTY].split(","))
    elif CLUSTERING_ORDER_PROPERTY in properties:
        raise InvalidArgument(
            f"{CLUSTERING_ORDER_PROPERTY} says how rows are put in order, but names no columns: "
            f"set {CLUSTERING_COLUMNS_PROPERTY}, too"
        )
    return FileLayout(size, columns, clustering_order(properties.get(CLUSTERING_ORDER_PROPERTY, "sort")))


def clustering_columns(names: Iterable[str]) -> tuple[str, ...]:
    """The names without spaces around them. Raises InvalidArgument if they are too many, or one is empty."""
    columns = tuple(name.strip() for name in names)
    if not columns or not all(columns):
        raise InvalidArgument(f"{','.join(columns)!r} is not a list of columns to cluster by, such as 'x' or 'x,y'")
    if len(columns) > COLUMNS_MAX:
        raise InvalidArgument(
            f"{len(columns)} columns to cluster by are more than {COLUMNS_MAX}: with each, the others prune less"
        )
    return columns


def clustering_order(word: str) -> ClusteringOrder:
    """Raises InvalidArgument for an unknown one."""
    order = word.strip().lower()
    if order not in get_args(ClusteringOrder):
        raise InvalidArgument(
            f"{CLUSTERING_ORDER_PROPERTY} = {word!r} is not known; use {' or '.join(get_args(ClusteringOrder))}"
        )
    return cast(ClusteringOrder, order)
