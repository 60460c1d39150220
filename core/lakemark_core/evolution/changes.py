"""Changes of a table's schema, as values. docs/schemas.md says which of them are legal.

Columns are named by paths (``lakemark_core.evolution.paths``): ``address.city``, ``points.element.x`` or
``prices.value``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from lakemark_core.types import Field, Type


@dataclass(frozen=True, slots=True)
class AddColumn:
    """A new column, or a field of the struct ``parent``. It comes last, ``first``, or ``after`` a sibling."""

    field: Field
    parent: str = ""
    first: bool = False
    after: str = ""


@dataclass(frozen=True, slots=True)
class DropColumn:
    """Takes the column and its values away. Its id is never used again."""

    column: str


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """Gives the column a new name, which is a name alone, without a path."""

    column: str
    new_name: str


@dataclass(frozen=True, slots=True)
class WidenColumn:
    """Changes the column's type to one that holds every value of the old one."""

    column: str
    type: Type


@dataclass(frozen=True, slots=True)
class MoveColumn:
    """Moves the column among its siblings: ``first``, or ``after`` one of them."""

    column: str
    first: bool = False
    after: str = ""


@dataclass(frozen=True, slots=True)
class CommentColumn:
    """ "" takes the comment away."""

    column: str
    comment: str


@dataclass(frozen=True, slots=True)
class RelaxColumn:
    """Makes a NOT NULL column nullable. There is no change in the other direction."""

    column: str


SchemaChange: TypeAlias = AddColumn | DropColumn | RenameColumn | WidenColumn | MoveColumn | CommentColumn | RelaxColumn
