"""Applies changes to a table's schema, and says which are refused and why. Pure. See docs/schemas.md.

Every legal change keeps the files of all older schemas readable (``lakemark_core.evolution.readable_with``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from lakemark_core.errors import InvalidArgument, InvalidSchema, LimitExceeded
from lakemark_core.evolution import (
    AddColumn,
    CommentColumn,
    DropColumn,
    MoveColumn,
    RelaxColumn,
    RenameColumn,
    SchemaChange,
    WidenColumn,
    keeps_text,
    parse_path,
    why_not_widen,
)
from lakemark_core.types import Field, Schema, Struct, assign_ids, format_type, is_nested
from lakemark_core.types.text import DEPTH_MAX
from lakemark_server.catalog.column_ids import without_ids
from lakemark_server.catalog.schema_tree import Siblings, count_of, depth_of, edit

CHANGES_MAX: Final = 1_000
FIELDS_MAX: Final = 20_000
"""Columns and all fields within them."""
COMMENT_CHARS_MAX: Final = 4_000

_Existing: TypeAlias = DropColumn | RenameColumn | WidenColumn | MoveColumn | CommentColumn | RelaxColumn
_FIXED: Final = "it is what its list or map consists of, and can only be widened or become nullable"


@dataclass(frozen=True, slots=True)
class ColumnUse:
    """A table property that names a column. ``exact``: the column's values are hashed, so its type cannot change."""

    property: str
    exact: bool


def apply_changes(
    schema: Schema, last_column_id: int, changes: Sequence[SchemaChange], uses: Mapping[str, ColumnUse]
) -> tuple[Schema, int]:
    """The schema after all changes, made in their order, and the highest column id ever used.

    ``uses``: the columns that table properties name, by name in lower case. The schema keeps its id; the caller gives a
    new version the next one. Raises InvalidSchema with every change that is refused and why, LimitExceeded.
    """
    if not changes:
        raise InvalidArgument("no change of the schema is given")
    if len(changes) > CHANGES_MAX:
        raise LimitExceeded(
            f"{len(changes)} changes of a schema in one request; at most {CHANGES_MAX} are made at once"
        )
    refused: list[str] = []
    for change in changes:
        try:
            schema, last_column_id = _apply(schema, last_column_id, change, uses)
        except InvalidSchema as error:
            refused.append(f"{describe(change)}: {error.message}")
    if refused:
        raise InvalidSchema("; ".join(refused))
    return schema, last_column_id


def describe(change: SchemaChange) -> str:
    """The change in a few words: ``drop column fare``."""
    match change:
        case AddColumn(field, parent):
            return f"add column {parent + '.' if parent else ''}{field.name} {format_type(field.type)}"
        case DropColumn(column):
            return f"drop column {column}"
        case RenameColumn(column, new_name):
            return f"rename column {column} to {new_name}"
        case WidenColumn(column, new_type):
            return f"widen column {column} to {format_type(new_type)}"
        case MoveColumn(column, _, after):
            return f"move column {column} {f'after {after}' if after else 'first'}"
        case CommentColumn(column):
            return f"comment on column {column}"
        case RelaxColumn(column):
            return f"let column {column} be null"


def _apply(schema: Schema, last_id: int, change: SchemaChange, uses: Mapping[str, ColumnUse]) -> tuple[Schema, int]:
    if isinstance(change, AddColumn):
        columns = _add(schema, change)
    else:
        path = parse_path(change.column)
        top = schema.field(path[0])
        if len(path) == 1:
            _check_partition_column(schema, top, change)
            _check_use(top, change, uses)
        _check_place(schema, path[:-1], change)
        columns = edit(Siblings(schema.columns), path, lambda siblings, at: _changed(siblings, at, change))
    if any(depth_of(column.type) > DEPTH_MAX for column in columns):
        raise InvalidSchema(f"types are nested deeper than {DEPTH_MAX} levels")
    if count_of(columns) > FIELDS_MAX:
        raise InvalidSchema(f"the table would have more than {FIELDS_MAX} columns and fields within them")
    # The same rules as for a new table: names, at least one data column, partition columns last.
    return assign_ids(Schema.build(columns, schema.partition_columns, schema.schema_id), last_id)


def _add(schema: Schema, change: AddColumn) -> tuple[Field, ...]:
    if not change.field.nullable:
        raise InvalidSchema("a new column cannot be NOT NULL: the rows that exist have no value for it")
    _check_comment(change.field.comment)
    # Ids chosen by a client would collide with those that statistics refer to.
    (new,) = without_ids(Schema.build([change.field])).columns
    if not change.parent:
        _check_place(schema, (), change)
        return (
            *Siblings(schema.data_columns).inserted(new, first=change.first, after=change.after),
            *schema.partition_fields,
        )

    def add(siblings: Siblings, at: int) -> tuple[Field, ...]:
        parent = siblings.fields[at]
        if not isinstance(parent.type, Struct):
            advice = "; name its element or value" if is_nested(parent.type) else ""
            raise InvalidSchema(f"'{change.parent}' is {format_type(parent.type)}, which has no fields{advice}")
        within = Siblings(parent.type.fields, parent.name)
        fields = within.inserted(new, first=change.first, after=change.after)
        return siblings.replaced(at, replace(parent, type=Struct(fields)))

    return edit(Siblings(schema.columns), parse_path(change.parent), add)


def _changed(siblings: Siblings, at: int, change: _Existing) -> tuple[Field, ...]:
    field = siblings.fields[at]
    if siblings.fixed and not isinstance(change, WidenColumn | RelaxColumn):
        raise InvalidSchema(_FIXED)
    match change:
        case DropColumn():
            return siblings.without(at)
        case RenameColumn(_, new_name):
            return siblings.replaced(at, replace(field, name=new_name))
        case WidenColumn(_, new_type):
            reason = why_not_widen(field.type, new_type)
            if reason:
                raise InvalidSchema(f"it is {format_type(field.type)}: {reason}")
            return siblings.replaced(at, replace(field, type=new_type))
        case MoveColumn(_, first, after):
            if not first and not after:
                raise InvalidSchema("say where to: first, or after which column")
            if after.lower() == field.name.lower():
                raise InvalidSchema("a column cannot come after itself")
            others = replace(siblings, fields=siblings.without(at))
            return others.inserted(field, first=first, after=after)
        case CommentColumn(_, comment):
            _check_comment(comment)
            return siblings.replaced(at, replace(field, comment=comment))
        case RelaxColumn():
            return siblings.replaced(at, replace(field, nullable=True))


def _check_comment(comment: str) -> None:
    if len(comment) > COMMENT_CHARS_MAX:
        raise InvalidSchema(f"the comment has {len(comment)} characters; at most {COMMENT_CHARS_MAX} are kept")


def _check_place(schema: Schema, parent: tuple[str, ...], change: SchemaChange) -> None:
    if not parent and isinstance(change, AddColumn | MoveColumn) and schema.is_partition(change.after):
        raise InvalidSchema(f"'{change.after}' is a partition column, and partition columns come last")


def _check_partition_column(schema: Schema, column: Field, change: _Existing) -> None:
    """A partition's name (``month=1``) consists of names and values of columns, so these can never change."""
    if not schema.is_partition(column.name):
        return
    match change:
        case DropColumn():
            raise InvalidSchema("it is a partition column: every file belongs to one of its values")
        case RenameColumn():
            raise InvalidSchema("it is a partition column: its name is part of every partition's name and path")
        case MoveColumn():
            raise InvalidSchema("it is a partition column: their order is that of every partition's name and path")
        case WidenColumn(_, new_type):
            if not why_not_widen(column.type, new_type) and not keeps_text(column.type, new_type):
                raise InvalidSchema(
                    f"it is a partition column: as {format_type(new_type)} its values have other texts than as "
                    f"{format_type(column.type)}, and those are part of every partition's name and path"
                )


def _check_use(column: Field, change: _Existing, uses: Mapping[str, ColumnUse]) -> None:
    use = uses.get(column.name.lower())
    if use is None:
        return
    if isinstance(change, DropColumn | RenameColumn):
        raise InvalidSchema(f"the table property {use.property} names it")
    if isinstance(change, WidenColumn) and use.exact and change.type != column.type:
        raise InvalidSchema(f"the table property {use.property} names it: hashes of its values depend on the type")
