"""Tables with only those fields for which a client asked (``GetProjectionsSpec``), as Hive answers them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lakemark_core.errors import InvalidArgument
from lakemark_hms.errors import NotGiven
from lakemark_hms.wire.cut import I32, STRUCT, field_head, fields
from lakemark_hms.wire.splice import i32_value
from lakemark_thrift.ttypes import GetProjectionsSpec

_SD, _SERDE = 7, 7
_SINGLE: Final[Mapping[str, tuple[int, ...]]] = {
    "id": (25,),
    "tableName": (1,),
    "dbName": (2,),
    "owner": (3,),
    "ownerType": (18,),
    "createTime": (4,),
    "lastAccessTime": (5,),
    "retention": (6,),
    "sd.location": (_SD, 2),
    "sd.inputFormat": (_SD, 3),
    "sd.outputFormat": (_SD, 4),
    "sd.compressed": (_SD, 5),
    "sd.numBuckets": (_SD, 6),
    "sd.serdeInfo.name": (_SD, _SERDE, 1),
    "sd.serdeInfo.serializationLib": (_SD, _SERDE, 2),
    "sd.serdeInfo.description": (_SD, _SERDE, 4),
    "sd.serdeInfo.serializerClass": (_SD, _SERDE, 5),
    "sd.serdeInfo.deserializerClass": (_SD, _SERDE, 6),
    "sd.serdeInfo.serdeType": (_SD, _SERDE, 7),
    "sd.storedAsSubDirectories": (_SD, 12),
    "viewOriginalText": (10,),
    "viewExpandedText": (11,),
    "rewriteEnabled": (15,),
    "tableType": (12,),
    "writeId": (19,),
}
"""The fields that can be left out, with their ids."""

_MULTIPLE: Final = frozenset(
    (
        *("values", "parameters", "sd.parameters", "sd.bucketCols", "sd.serdeInfo.parameters"),
        *("sd.cols.name", "sd.cols.type", "sd.cols.comment", "sd.sortCols.col", "sd.sortCols.order"),
        *("sd.skewedInfo.skewedColNames", "sd.skewedInfo.skewedColValues", "sd.skewedInfo.skewedColValueLocationMaps"),
        *("partitionKeys.name", "partitionKeys.type", "partitionKeys.comment"),
    )
)
"""Who asks for one of these gets whole tables."""

_TIMES: Final = (4, 5, 6)
"""Numbers which every table of Hive has, 0 if nobody asked for them."""


_DATABASE, _CATALOG = (2,), (17,)


@dataclass(frozen=True, slots=True)
class Projection:
    """Which fields to answer: paths of field ids, as ``(7, 2)`` for the location in the storage descriptor."""

    paths: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, spec: GetProjectionsSpec | None) -> Projection | None:
        """What a client asks for; None: whole tables. Raises InvalidArgument, NotGiven for unknown fields."""
        names = list(spec.fieldList or ()) if spec is not None else []
        if spec is not None and not names and (spec.includeParamKeyPattern or spec.excludeParamKeyPattern):
            raise InvalidArgument(
                "a projection of tables cannot choose parameters by patterns: name the fields in fieldList"
            )
        unknown = [name for name in names if name not in _SINGLE and name not in _MULTIPLE]
        if unknown:
            raise NotGiven(
                f"tables have no fields {', '.join(unknown[:5])} for a projection; those of one value are "
                f"{', '.join(_SINGLE)}"
            )
        if not names or not _MULTIPLE.isdisjoint(names):
            return None
        paths = [_SINGLE[name] for name in names]
        if _DATABASE in paths:
            paths.append(_CATALOG)
        return cls(tuple(dict.fromkeys(paths)))

    def apply(self, table: bytes) -> bytes:
        """The serialized table with these fields only."""
        given = fields(table)
        asked = {path[0] for path in self.paths}
        zeros = [field_head(I32, time) + i32_value(0) for time in _TIMES if time not in asked or time not in given]
        return b"".join([*_kept(table, self.paths), *zeros, b"\0"])


def _kept(struct: bytes, paths: Sequence[tuple[int, ...]]) -> list[bytes]:
    """The fields of the struct to which the paths lead, without the struct's end."""
    given = fields(struct)
    pieces: list[bytes] = []
    for field_id in dict.fromkeys(path[0] for path in paths):
        field = given.get(field_id)
        if field is None:
            continue
        below = [path[1:] for path in paths if path[0] == field_id and len(path) > 1]
        value = struct[field.start : field.end]
        if below and field.ttype == STRUCT:
            value = b"".join([*_kept(value, below), b"\0"])
        pieces += (field_head(field.ttype, field_id), value)
    return pieces
