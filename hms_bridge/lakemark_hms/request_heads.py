"""Decodes requests with many partitions without the partitions, which are taken as bytes (``Call.cut``)."""

from __future__ import annotations

from typing import Any, ClassVar

from lakemark_hms.wire.cut import STRUCT
from lakemark_thrift.base import Struct
from lakemark_thrift.services import alter_partitions_args
from lakemark_thrift.ttypes import AddPartitionsRequest, AlterPartitionsRequest


def _without(spec: tuple[Any, ...], *field_ids: int) -> tuple[Any, ...]:
    return tuple(None if at in field_ids else entry for at, entry in enumerate(spec))


class _AddRequest(Struct):
    __slots__ = AddPartitionsRequest.__slots__
    thrift_spec: ClassVar[tuple[Any, ...]] = _without(AddPartitionsRequest.thrift_spec, 3)
    dbName: str | None  # noqa: N815 - the names of the wire
    tblName: str | None  # noqa: N815
    catName: str | None  # noqa: N815
    ifNotExists: bool | None  # noqa: N815
    needResult: bool | None  # noqa: N815

    def __init__(self) -> None:
        for name in self.__slots__:
            setattr(self, name, None)


class AddPartitionsHead(Struct):
    """The arguments of ``add_partitions_req`` without the partitions."""

    __slots__ = ("request",)
    thrift_spec: ClassVar[tuple[Any, ...]] = (
        None,
        (1, STRUCT, "request", [_AddRequest, _AddRequest.thrift_spec], None),
    )

    def __init__(self) -> None:
        self.request = _AddRequest()


class _AlterRequest(Struct):
    __slots__ = AlterPartitionsRequest.__slots__
    thrift_spec: ClassVar[tuple[Any, ...]] = _without(AlterPartitionsRequest.thrift_spec, 4)
    dbName: str | None  # noqa: N815
    tableName: str | None  # noqa: N815
    catName: str | None  # noqa: N815

    def __init__(self) -> None:
        for name in self.__slots__:
            setattr(self, name, None)


class AlterPartitionsHead(Struct):
    """The arguments of ``alter_partitions_req`` without the partitions."""

    __slots__ = ("request",)
    thrift_spec: ClassVar[tuple[Any, ...]] = (
        None,
        (1, STRUCT, "request", [_AlterRequest, _AlterRequest.thrift_spec], None),
    )

    def __init__(self) -> None:
        self.request = _AlterRequest()


class AlterHead(Struct):
    """The first arguments of the methods that alter one or several partitions, which name the table."""

    __slots__ = ("db_name", "tbl_name")
    thrift_spec: ClassVar[tuple[Any, ...]] = alter_partitions_args.thrift_spec[:3]

    def __init__(self) -> None:
        self.db_name: str | None = None
        self.tbl_name: str | None = None
