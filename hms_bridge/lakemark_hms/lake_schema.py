"""The schema changes that lead to the columns which a Metastore client sends. Pure.

``alter_table`` has the columns after the change, but does not say what was done. Columns are matched by name. One name
that is replaced by another at the same place is a renaming, as Hive's CHANGE COLUMN sends it. What could be several
changes is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from lakemark_core.errors import InvalidSchema
from lakemark_core.evolution import (
    AddColumn,
    CommentColumn,
    DropColumn,
    MoveColumn,
    RelaxColumn,
    RenameColumn,
    SchemaChange,
    WidenColumn,
    format_path,
    why_not_widen,
)
from lakemark_core.types import Field, ListOf, MapOf, Schema, Struct, Type, format_type


def changes_between(schema: Schema, columns: Sequence[Field], *, nulls_known: bool) -> list[SchemaChange]:
    """The changes that turn the schema's columns into ``columns``, in which partition columns may stand anywhere.

    ``nulls_known``: the client says which columns may be null; Hive's column lists do not. Raises InvalidSchema.
    """
    data = [column for column in columns if not schema.is_partition(column.name)]
    partitions = {column.name.lower(): column for column in columns if schema.is_partition(column.name)}
    missing = [field.name for field in schema.partition_fields if field.name.lower() not in partitions]
    if missing:
        raise InvalidSchema(
            f"drop column {missing[0]}: it is a partition column: every file belongs to one of its values"
        )
    diff = _Diff(nulls_known)
    diff.fields(schema.data_columns, data, ())
    for field in schema.partition_fields:
        diff.field(field, partitions[field.name.lower()], (field.name,))
    return diff.changes


class _Diff:
    def __init__(self, nulls_known: bool) -> None:
        self.changes: list[SchemaChange] = []
        self._nulls_known = nulls_known

    def fields(self, old: Sequence[Field], new: Sequence[Field], path: tuple[str, ...]) -> None:
        """Renamings come first: the changes after them use the new names."""
        renamed = _renamed(old, new)
        if renamed is not None:
            self.changes.append(RenameColumn(format_path((*path, renamed[0].name)), renamed[1].name))
        names = {field.name.lower(): field.name for field in new}
        gone = [
            field for field in old if field.name.lower() not in names and (renamed is None or field is not renamed[0])
        ]
        self.changes += [DropColumn(format_path((*path, field.name))) for field in gone]
        order = [
            renamed[1].name.lower() if renamed is not None and field is renamed[0] else field.name.lower()
            for field in old
            if field not in gone
        ]
        by_name = dict(zip(order, [field for field in old if field not in gone], strict=True))
        for at, field in enumerate(new):
            name = field.name.lower()
            after = new[at - 1].name if at else ""
            if name not in by_name:
                self.changes.append(AddColumn(field, format_path(path) if path else "", first=not at, after=after))
                order.insert(at, name)
            elif order[at] != name:
                order.remove(name)
                order.insert(at, name)
                self.changes.append(MoveColumn(format_path((*path, field.name)), first=not at, after=after))
        for field in new:
            kept = by_name.get(field.name.lower())
            if kept is not None:
                self.field(kept, field, (*path, field.name))

    def field(self, old: Field, new: Field, path: tuple[str, ...]) -> None:
        self._type(old.type, new.type, path)
        if old.comment != new.comment:
            self.changes.append(CommentColumn(format_path(path), new.comment))
        if self._nulls_known and old.nullable != new.nullable:
            if not new.nullable:
                raise InvalidSchema(
                    f"column {format_path(path)} cannot become NOT NULL: rows that exist may have nulls"
                )
            self.changes.append(RelaxColumn(format_path(path)))

    def _type(self, old: Type, new: Type, path: tuple[str, ...]) -> None:
        match old, new:
            case Struct(fields), Struct(others):
                if self._nulls_known:
                    self.fields(fields, others, path)
                elif format_type(old).lower() != format_type(new).lower():
                    # Hive's types have no comments, so the fields keep theirs.
                    comments = {field.name.lower(): field.comment for field in fields}
                    kept = [
                        Field(0, field.name, field.type, comment=comments.get(field.name.lower(), ""))
                        for field in others
                    ]
                    self.fields(fields, kept, path)
            case ListOf(element), ListOf(other):
                self._type(element, other, (*path, "element"))
            case MapOf(key, value), MapOf(other_key, other_value):
                self._type(key, other_key, (*path, "key"))
                self._type(value, other_value, (*path, "value"))
            case _:
                if format_type(old) != format_type(new):
                    self.changes.append(WidenColumn(format_path(path), new))


def _renamed(old: Sequence[Field], new: Sequence[Field]) -> tuple[Field, Field] | None:
    """The one column that has another name at the same place, with the same type or one that its values fit into."""
    old_names, new_names = ({field.name.lower() for field in fields} for fields in (old, new))
    gone = [field for field in old if field.name.lower() not in new_names]
    fresh = [field for field in new if field.name.lower() not in old_names]
    if not gone or not fresh:
        return None
    same_place = len(old) == len(new) and len(gone) == len(fresh) == 1 and old.index(gone[0]) == new.index(fresh[0])
    if same_place and (format_type(gone[0].type) == format_type(fresh[0].type) or _widens(gone[0].type, fresh[0].type)):
        return gone[0], fresh[0]
    raise InvalidSchema(
        f"columns {_shown(gone)} are gone and {_shown(fresh)} are new: whether they are renamed or replaced cannot be "
        "told from that; do one after the other, or use lakemark schema"
    )


def _widens(old: Type, new: Type) -> bool:
    return not why_not_widen(old, new)


def _shown(fields: Sequence[Field]) -> str:
    return ", ".join(field.name for field in fields[:5]) + (" …" if len(fields) > 5 else "")
