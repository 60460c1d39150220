"""Changes of a schema as protobuf messages, and back."""

from __future__ import annotations

from lakemark_core.errors import InvalidArgument
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
from lakemark_core.messages.types import field_from_proto, field_to_proto, type_from_proto, type_to_proto
from lakemark_proto.v1 import catalog_pb2 as pb


def change_to_proto(change: SchemaChange) -> pb.SchemaChange:
    match change:
        case AddColumn(field, parent, first, after):
            column = field_to_proto(field)
            add = pb.SchemaChange.AddColumn(parent=parent, column=column, position=_position(first=first, after=after))
            return pb.SchemaChange(add=add)
        case DropColumn(column):
            return pb.SchemaChange(drop=pb.SchemaChange.DropColumn(column=column))
        case RenameColumn(column, new_name):
            return pb.SchemaChange(rename=pb.SchemaChange.RenameColumn(column=column, new_name=new_name))
        case WidenColumn(column, new_type):
            return pb.SchemaChange(widen=pb.SchemaChange.WidenColumn(column=column, type=type_to_proto(new_type)))
        case MoveColumn(column, first, after):
            position = _position(first=first, after=after)
            return pb.SchemaChange(move=pb.SchemaChange.MoveColumn(column=column, position=position))
        case CommentColumn(column, comment):
            return pb.SchemaChange(comment=pb.SchemaChange.CommentColumn(column=column, comment=comment))
        case RelaxColumn(column):
            return pb.SchemaChange(relax=pb.SchemaChange.RelaxColumn(column=column))


def change_from_proto(message: pb.SchemaChange) -> SchemaChange:
    """Raises InvalidArgument, InvalidSchema."""
    match message.WhichOneof("change"):
        case "add":
            add = message.add
            return AddColumn(field_from_proto(add.column), add.parent, add.position.first, add.position.after)
        case "drop":
            return DropColumn(message.drop.column)
        case "rename":
            return RenameColumn(message.rename.column, message.rename.new_name)
        case "widen":
            return WidenColumn(message.widen.column, type_from_proto(message.widen.type))
        case "move":
            return MoveColumn(message.move.column, message.move.position.first, message.move.position.after)
        case "comment":
            return CommentColumn(message.comment.column, message.comment.comment)
        case "relax":
            return RelaxColumn(message.relax.column)
        case _:
            raise InvalidArgument("a change of a schema is empty: say add, drop, rename, widen, move, comment or relax")


def _position(*, first: bool, after: str) -> pb.SchemaChange.Position | None:
    """Raises InvalidArgument if both are given."""
    if first and after:
        raise InvalidArgument(f"a column comes first or after {after!r}, not both")
    if first:
        return pb.SchemaChange.Position(first=True)
    return pb.SchemaChange.Position(after=after) if after else None
