"""What kind of table a lake table is, as its properties say it (docs/keyed-tables.md). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias, cast, get_args

from lakemark_core import bucket_tree
from lakemark_core.bucket_directory import Directory
from lakemark_core.bucket_tree import DEPTH_MAX
from lakemark_core.errors import InvalidArgument, InvalidSchema
from lakemark_core.file_layout import FILE_BYTES_MIN
from lakemark_core.property_values import whole_number
from lakemark_core.types import Field, Schema, format_type, is_floating, is_nested

KEY_PROPERTY: Final = "lakemark.primary-key"
"""Columns, separated by commas, whose values no two rows share."""
WRITE_MODE_PROPERTY: Final = "lakemark.write.mode"
ORDERING_PROPERTY: Final = "lakemark.merge.ordering-column"
"""Of the changes of a row the one with the greatest value wins; without it the latest commit."""
MERGE_BY_PROPERTY: Final = "lakemark.merge.by"
BUCKETS_PROPERTY: Final = "lakemark.bucket.count"
INDEX_PROPERTY: Final = "lakemark.bucket.index"
"""Whether there are always so many buckets, or more where the table grows."""
SPLIT_PROPERTY: Final = "lakemark.bucket.split-size-bytes"
"""A bucket of a partition that is larger is to be split."""
DELETES_PROPERTY: Final = "lakemark.merge.deletes.retain-ms"
"""For how many milliseconds compactions keep a delete, so that older changes which arrive later lose to it."""
PROPERTIES: Final = (
    KEY_PROPERTY,
    WRITE_MODE_PROPERTY,
    ORDERING_PROPERTY,
    MERGE_BY_PROPERTY,
    BUCKETS_PROPERTY,
    INDEX_PROPERTY,
    SPLIT_PROPERTY,
    DELETES_PROPERTY,
)

FIXED: Final = (KEY_PROPERTY, ORDERING_PROPERTY, MERGE_BY_PROPERTY, BUCKETS_PROPERTY, INDEX_PROPERTY)
"""Properties by which files were written: a table keeps those that it was created with."""

BUCKETS_MAX: Final = 1 << DEPTH_MAX
SPLIT_BYTES: Final = 256 << 20
DELETES_RETAINED_MS: Final = 7 * 24 * 3_600_000

NEVER_WAITS: Final = frozenset({"row", "column"})
"""Conflict policies under which writers of the same new keys do not exclude each other, so that none may begin a file
group."""

WriteMode: TypeAlias = Literal["copy-on-write", "merge-on-read"]
MergeBy: TypeAlias = Literal["row", "column"]
BucketIndex: TypeAlias = Literal["fixed", "extendible"]


@dataclass(frozen=True, slots=True)
class TableKind:
    """``key``: names of columns as the property has them, () without a key. ``buckets`` 0: there is no bucket index.

    ``ordering_column`` "": changes are ordered by their commits. ``deletes_retained_ms``: how long compactions keep
    deletes; 0: not at all. ``directory``: into which buckets rows of an extendible index are written; None: the index
    is fixed. Made by ``kind_of``.
    """

    key: tuple[str, ...] = ()
    write_mode: WriteMode = "copy-on-write"
    ordering_column: str = ""
    merge_by: MergeBy = "row"
    buckets: int = 0
    deletes_retained_ms: int = 0
    directory: Directory | None = None
    split_bytes: int = SPLIT_BYTES

    @property
    def merges_on_read(self) -> bool:
        """Whether changes of rows are written as deltas."""
        return self.write_mode == "merge-on-read"

    def key_fields(self, schema: Schema) -> tuple[Field, ...]:
        """The key's columns, in its order. Raises InvalidSchema for one that is not there."""
        return tuple(schema.field(name) for name in self.key)

    def bucket_fields(self, schema: Schema) -> tuple[Field, ...]:
        """The columns whose hash is the bucket: those of the key that do not partition the table."""
        return tuple(field for field in self.key_fields(schema) if not schema.is_partition(field.name))

    def in_one_partition(self, schema: Schema) -> TableKind:
        """The kind by which rows of one partition are merged: the partition columns tell none of them apart."""
        return replace(self, key=tuple(field.name for field in self.bucket_fields(schema)))

    def identifying_fields(self, schema: Schema) -> list[Field]:
        """The columns that a row of a delete has: the key's and the ordering column, in the schema's order."""
        key, ordering = self.key_fields(schema), self.ordering_column.lower()
        return [field for field in schema.columns if field in key or field.name.lower() == ordering]

    def deletes_schema(self, schema: Schema) -> Schema:
        """The ``identifying_fields`` as a schema, with the table's partition columns, which belong to the key."""
        return Schema(tuple(self.identifying_fields(schema)), schema.partition_columns, schema.schema_id)

    def required_fields(self, schema: Schema) -> list[Field]:
        """The columns that have a value in every row, beside those of the key."""
        ordering = self.ordering_column.lower()
        return [field for field in schema.columns if not field.nullable or field.name.lower() == ordering]

    def partitions_beside_key(self, schema: Schema) -> list[str]:
        """The partition columns that the key does not have: rows of several partitions may have one key."""
        key = {field.name for field in self.key_fields(schema)}
        return [name for name in schema.partition_columns if name not in key]

    def group_name(self, bucket: int) -> str:
        """The name of a bucket's file group, the same in every partition."""
        return f"bucket-{bucket}" if self.directory is None else bucket_tree.group_name(bucket)

    def buckets_of(self, key_hash: int) -> Sequence[int]:
        """The buckets in which rows of this hash may be. Those of an extendible index may have been written at any
        depth."""
        if self.directory is None:
            return (key_hash % self.buckets,)
        return bucket_tree.above(bucket_tree.at_depth(key_hash, DEPTH_MAX))

    def why_no_bucket(self, bucket: int) -> str:
        """Why the table can have no files of a bucket; "" if it can."""
        if self.directory is not None:
            if 1 <= bucket <= bucket_tree.NUMBER_MAX:
                return ""
            return (
                f"bucket {bucket} is no bucket of an extendible index: these are 2^depth + remainder, up to depth "
                f"{DEPTH_MAX}"
            )
        if bucket < self.buckets:
            return ""
        return f"bucket {bucket} is not one of the table's {self.buckets} buckets, 0 to {self.buckets - 1}"

    def check(self, schema: Schema) -> None:
        """Raises InvalidArgument with the first thing that does not fit the schema."""
        try:
            fields = self.key_fields(schema)
            ordering = schema.field(self.ordering_column) if self.ordering_column else None
        except InvalidSchema as error:
            name = ORDERING_PROPERTY if self._has_key(schema) else KEY_PROPERTY
            raise InvalidArgument(f"{name}: {error.message}") from error
        for field in fields:
            if is_nested(field.type) or is_floating(field.type):
                raise InvalidArgument(
                    f"{KEY_PROPERTY}: column '{field.name}' is {format_type(field.type)}; columns of a key are neither "
                    "nested nor of floating point, because such values are not equal or unequal for certain"
                )
        if len(set(fields)) < len(fields):
            raise InvalidArgument(f"{KEY_PROPERTY} = {','.join(self.key)!r} names a column twice")
        if ordering is not None and (is_nested(ordering.type) or ordering in fields):
            raise InvalidArgument(
                f"{ORDERING_PROPERTY}: column '{ordering.name}' is {format_type(ordering.type)}"
                f"{' and belongs to the key' if ordering in fields else ''}; rows of one key are put in order by a "
                "number, a text or a time that is not part of the key"
            )
        if ordering is not None and not self.buckets:
            raise InvalidArgument(
                f"{ORDERING_PROPERTY} = '{self.ordering_column}' needs {BUCKETS_PROPERTY}: without buckets the later "
                "commit wins"
            )
        if self.buckets:
            self._check_buckets(schema)

    def _has_key(self, schema: Schema) -> bool:
        return all(schema.find(name) is not None for name in self.key)

    def _check_buckets(self, schema: Schema) -> None:
        missing = self.partitions_beside_key(schema)
        if missing:
            raise InvalidArgument(
                f"{KEY_PROPERTY} = {','.join(self.key)!r} lacks the partition column{'s' if len(missing) > 1 else ''} "
                f"{', '.join(missing)}: buckets are kept for each partition, so a key can only be unique within one; "
                "add them to the key, or leave out the bucket count"
            )
        if not self.bucket_fields(schema):
            raise InvalidArgument(
                f"{KEY_PROPERTY} = {','.join(self.key)!r} has only partition columns: there is nothing to make a "
                "bucket of; add a column, or leave out the bucket count"
            )


def kind_of(properties: Mapping[str, str], directory: bytes = b"") -> TableKind:
    """The kind that a table's properties ask for. Raises InvalidArgument for illegal values and combinations.

    ``directory``: of an extendible index, as ``Directory.to_bytes`` makes it; empty: that of a new table.
    """
    key = _columns(properties, KEY_PROPERTY)
    if not key:
        for name in (WRITE_MODE_PROPERTY, ORDERING_PROPERTY, MERGE_BY_PROPERTY, BUCKETS_PROPERTY, INDEX_PROPERTY):
            if name in properties and properties[name].strip().lower() not in ("copy-on-write", "fixed"):
                raise InvalidArgument(f"{name} is for tables with a key: set {KEY_PROPERTY}, too")
    buckets = _buckets(properties)
    kind = TableKind(
        key,
        cast(WriteMode, _word(properties, WRITE_MODE_PROPERTY, get_args(WriteMode))),
        properties.get(ORDERING_PROPERTY, "").strip(),
        cast(MergeBy, _word(properties, MERGE_BY_PROPERTY, get_args(MergeBy))),
        buckets,
        _deletes_retained_ms(properties),
        _directory(properties, buckets, directory),
        _split_bytes(properties),
    )
    if ORDERING_PROPERTY in properties and not kind.ordering_column:
        raise InvalidArgument(f"{ORDERING_PROPERTY} = '' names no column; leave it out to go by the order of commits")
    if DELETES_PROPERTY in properties and not kind.ordering_column:
        raise InvalidArgument(
            f"{DELETES_PROPERTY} is for tables with {ORDERING_PROPERTY}: elsewhere a change that comes after a delete "
            "is newer than it, so that no delete has to be kept"
        )
    if kind.merges_on_read and not kind.buckets:
        raise InvalidArgument(
            f"{WRITE_MODE_PROPERTY} = 'merge-on-read' needs {BUCKETS_PROPERTY}: the bucket of a key says which file "
            "group its changes belong to; about one bucket for each 100-200 MB of a partition is a good number"
        )
    if kind.merge_by == "column" and kind.ordering_column:
        raise InvalidArgument(
            f"{MERGE_BY_PROPERTY} = 'column' goes by the order of commits: one column cannot say for each of the "
            f"others how new it is; leave out {ORDERING_PROPERTY}"
        )
    return kind


def check_change(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Raises InvalidArgument if a property changes by which the table's files were written."""
    for name in FIXED:
        if before.get(name) != after.get(name):
            was = f"is {before[name]!r}" if name in before else "is not set"
            raise InvalidArgument(
                f"{name} {was} and cannot be changed: the table's files were written by it. Create a table with the "
                "property that you want, and copy the rows"
            )


def _columns(properties: Mapping[str, str], name: str) -> tuple[str, ...]:
    if name not in properties:
        return ()
    columns = tuple(column.strip() for column in properties[name].split(","))
    if not all(columns):
        raise InvalidArgument(f"{name} = {properties[name]!r} is not a list of columns, such as 'id' or 'id,day'")
    return columns


def _word(properties: Mapping[str, str], name: str, words: tuple[str, ...]) -> str:
    value = properties.get(name, words[0]).strip().lower()
    if value not in words:
        raise InvalidArgument(f"{name} = {properties[name]!r} is not known; use {' or '.join(words)}")
    return value


def _deletes_retained_ms(properties: Mapping[str, str]) -> int:
    if DELETES_PROPERTY in properties:
        return whole_number(properties, DELETES_PROPERTY, 0)
    return DELETES_RETAINED_MS if properties.get(ORDERING_PROPERTY, "").strip() else 0


def _directory(properties: Mapping[str, str], buckets: int, directory: bytes) -> Directory | None:
    if _word(properties, INDEX_PROPERTY, get_args(BucketIndex)) == "fixed":
        return None
    if not buckets:
        raise InvalidArgument(
            f"{INDEX_PROPERTY} = 'extendible' needs {BUCKETS_PROPERTY}: with how many buckets the table begins, which "
            "are the fewest that it has"
        )
    if buckets & (buckets - 1):
        raise InvalidArgument(
            f"{BUCKETS_PROPERTY} = {buckets}: an extendible index begins with a power of two, since a split makes two "
            f"buckets of one; use {1 << buckets.bit_length() - 1} or {1 << buckets.bit_length()}"
        )
    least = buckets.bit_length() - 1
    return Directory.from_bytes(directory, least) if directory else Directory.uniform(least)


def _split_bytes(properties: Mapping[str, str]) -> int:
    if SPLIT_PROPERTY not in properties:
        return SPLIT_BYTES
    if _word(properties, INDEX_PROPERTY, get_args(BucketIndex)) == "fixed":
        raise InvalidArgument(
            f"{SPLIT_PROPERTY} is for tables with {INDEX_PROPERTY} = 'extendible': other buckets are never split"
        )
    return whole_number(properties, SPLIT_PROPERTY, FILE_BYTES_MIN)


def _buckets(properties: Mapping[str, str]) -> int:
    if BUCKETS_PROPERTY not in properties:
        return 0
    count = whole_number(properties, BUCKETS_PROPERTY, 1)
    if count > BUCKETS_MAX:
        raise InvalidArgument(f"{BUCKETS_PROPERTY} = {count}; a table has at most {BUCKETS_MAX} buckets")
    return count
