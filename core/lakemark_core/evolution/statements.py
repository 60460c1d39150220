"""Changes of a schema as SQL writes them: what follows ``ALTER TABLE t`` in Spark, several with semicolons between.

::

    ADD COLUMN tip DECIMAL(8,2) COMMENT 'text' AFTER fare        ADD COLUMN address.street STRING FIRST
    DROP COLUMN tip                                              RENAME COLUMN fare TO price
    ALTER COLUMN id TYPE BIGINT                                  ALTER COLUMN id COMMENT 'the key'
    ALTER COLUMN id FIRST                                        ALTER COLUMN id DROP NOT NULL
"""

from __future__ import annotations

import re
from typing import Final

from lakemark_core.errors import InvalidSchema
from lakemark_core.evolution.changes import (
    AddColumn,
    CommentColumn,
    DropColumn,
    MoveColumn,
    RelaxColumn,
    RenameColumn,
    SchemaChange,
    WidenColumn,
)
from lakemark_core.evolution.paths import format_path, parse_path
from lakemark_core.types import Struct, parse_type

_PATH: Final = r"(?P<path>(?:`[^`]+`|[^\s`.;']+)(?:\.(?:`[^`]+`|[^\s`.;']+))*)"
_TEXT: Final = r"'(?P<text>(?:[^'\\]|\\.|'')*)'"
_PLACE: Final = r"(?:FIRST|AFTER\s+(?P<after>`[^`]+`|[^\s`.;']+))"
_FORMS: Final = tuple(
    (kind, re.compile(pattern, re.IGNORECASE | re.DOTALL))
    for kind, pattern in (
        ("add", rf"ADD\s+COLUMN\s+{_PATH}\s+(?P<rest>.+?)(?P<place>(?<!\s)\s+{_PLACE})?"),
        ("drop", rf"DROP\s+COLUMN\s+{_PATH}"),
        ("rename", rf"RENAME\s+COLUMN\s+{_PATH}\s+TO\s+(?P<name>`[^`]+`|[^\s`.;']+)"),
        ("widen", rf"ALTER\s+COLUMN\s+{_PATH}\s+TYPE\s+(?P<type>.+)"),
        ("comment", rf"ALTER\s+COLUMN\s+{_PATH}\s+COMMENT\s+{_TEXT}"),
        ("relax", rf"ALTER\s+COLUMN\s+{_PATH}\s+DROP\s+NOT\s+NULL"),
        ("move", rf"ALTER\s+COLUMN\s+{_PATH}\s+(?P<place>{_PLACE})"),
    )
)
_STATEMENT: Final = re.compile(r"(?:[^;'`]|'(?:[^'\\]|\\.|'')*'|`[^`]*`)+", re.DOTALL)
_HELP: Final = (
    "write ADD COLUMN name TYPE [COMMENT 'text'] [FIRST | AFTER other], DROP COLUMN name, RENAME COLUMN name TO new, "
    "ALTER COLUMN name TYPE type | COMMENT 'text' | FIRST | AFTER other | DROP NOT NULL"
)


def parse_changes(text: str) -> list[SchemaChange]:
    """One change or more. Raises InvalidSchema that shows the forms."""
    if _STATEMENT.sub("", text).strip("; \t\n"):
        raise InvalidSchema(f"a quote in {text[:100]!r} is not closed; {_HELP}")
    statements = [one.strip() for one in _STATEMENT.findall(text)]
    changes = [_change(one) for one in statements if one]
    if not changes:
        raise InvalidSchema(f"no change of the schema is given; {_HELP}")
    return changes


def _change(statement: str) -> SchemaChange:
    for kind, form in _FORMS:
        match = form.fullmatch(statement)
        if match is not None:
            return _of(kind, match)
    raise InvalidSchema(f"{statement[:100]!r} is not a change of a schema; {_HELP}")


def _of(kind: str, match: re.Match[str]) -> SchemaChange:
    path = match["path"]
    if kind == "add":
        *parent, name = parse_path(path)
        column = parse_type(f"struct<`{name}` {match['rest']}>")
        if not isinstance(column, Struct) or len(column.fields) != 1:
            raise InvalidSchema(f"{match['rest']!r} is not one column's type; {_HELP}")
        return AddColumn(column.fields[0], format_path(parent), *_place(match))
    if kind == "drop":
        return DropColumn(path)
    if kind == "rename":
        return RenameColumn(path, match["name"].strip("`"))
    if kind == "widen":
        return WidenColumn(path, parse_type(match["type"]))
    if kind == "comment":
        return CommentColumn(path, re.sub(r"\\(.)|''", lambda one: one.group(1) or "'", match["text"], flags=re.DOTALL))
    if kind == "relax":
        return RelaxColumn(path)
    return MoveColumn(path, *_place(match))


def _place(match: re.Match[str]) -> tuple[bool, str]:
    after = (match["after"] or "").strip("`")
    return bool(match["place"]) and not after, after
