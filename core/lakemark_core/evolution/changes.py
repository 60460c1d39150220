"""Changes of a table's schema, as values. What each may do is docs/schemas.md.

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
    """The column and its values; its id is never used again."""

    column: str


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """``new_name`` is a name alone, without a path."""

    column: str
    new_name: str


@dataclass(frozen=True, slots=True)
class WidenColumn:
    """To a type that holds every value of the old one."""

    column: str
    type: Type


@dataclass(frozen=True, slots=True)
class MoveColumn:
    """Among its siblings: ``first``, or ``after`` one of them."""

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
    """NOT NULL becomes nullable; never the other way round."""

    column: str


SchemaChange: TypeAlias = AddColumn | DropColumn | RenameColumn | WidenColumn | MoveColumn | CommentColumn | RelaxColumn
