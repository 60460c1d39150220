"""Partition specs: partitions packed together, either as a list or with one storage descriptor for many of them.

Partitions whose storage descriptors differ only in a location below that of their table share one descriptor, with the
table's location; each of them has the rest of its path (``relativePath``). Serialized structs are taken apart and put
together again, so that fields of descriptors survive which this release does not know.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lakemark_core.errors import InvalidPartition
from lakemark_core.wildcards import Wildcard, pattern_of
from lakemark_hms.wire.codec import decode_struct, encode_struct
from lakemark_hms.wire.cut import I32, LIST, MAP, STRING, STRUCT, Cut, field_head, fields, patch
from lakemark_hms.wire.heads import PartitionHead
from lakemark_hms.wire.splice import string_value, struct, struct_field, struct_list_field
from lakemark_thrift.ttypes import GetProjectionsSpec, Partition, PartitionSpec, PartitionWithoutSD, StorageDescriptor

_VALUES, _CREATE_TIME, _ACCESS_TIME, _SD, _PARAMETERS, _PRIVILEGES = 1, 4, 5, 6, 7, 8  # of a Partition
_SD_LOCATION = 2
_SHARED, _LISTED, _CATALOG = 4, 5, 6  # of a PartitionSpec
_RELATIVE_PATH = 4  # of a PartitionWithoutSD
_WITHOUT_SD: Final = {
    _VALUES: (LIST, 1), _CREATE_TIME: (I32, 2), _ACCESS_TIME: (I32, 3), _PARAMETERS: (MAP, 5), _PRIVILEGES: (STRUCT, 6),
}  # fmt: skip
_LIKE: Final = {"%": Wildcard.ANY, "_": Wildcard.ONE}


@dataclass(frozen=True, slots=True)
class SpecPlace:
    """The table of the partitions, and its location, which is the root of the specs."""

    catalog: str
    database: str
    table: str
    location: str


@dataclass(frozen=True, slots=True)
class Projection:
    """The fields that a client asks for (``sd.serdeInfo.serializationLib``), all if there are none.

    ``include`` and ``exclude`` are patterns of SQL for the keys of parameters; "": any, and none.
    """

    paths: Sequence[Sequence[str]] = ()
    include: str = ""
    exclude: str = ""

    @property
    def is_whole(self) -> bool:
        return not (self.paths or self.include or self.exclude)


def projection(spec: GetProjectionsSpec | None) -> Projection:
    """Raises InvalidPartition for a field that partitions do not have."""
    if spec is None:
        return Projection()
    paths = [tuple(text.strip().split(".")) for text in spec.fieldList or () if text.strip()]
    for path in paths:
        _check_path(Partition, path, ".".join(path))
    return Projection(paths, spec.includeParamKeyPattern or "", spec.excludeParamKeyPattern or "")


def listed_spec(place: SpecPlace, structs: Sequence[bytes]) -> bytes:
    """One PartitionSpec with these serialized partitions as they are."""
    return _spec(place, _LISTED, b"".join(struct(struct_list_field(1, structs))))


def grouped_specs(place: SpecPlace, structs: Sequence[bytes], wanted: Projection | None = None) -> list[bytes]:
    """The specs of serialized partitions: one for each storage descriptor that some share, one for all others."""
    shared: dict[bytes | None, list[bytes]] = {}
    others: list[bytes] = []
    for raw in structs:
        one = raw if wanted is None or wanted.is_whole else projected(raw, wanted)
        split = _without_location(place, one)
        if split is None:
            others.append(one)
        else:
            shared.setdefault(split[0], []).append(split[1])
    specs = []
    for descriptor, ones in shared.items():
        parts = [struct_list_field(1, ones)]
        if descriptor is not None:
            parts.append(struct_field(2, descriptor))
        specs.append(_spec(place, _SHARED, b"".join(struct(*parts))))
    if others or not specs:
        specs.append(listed_spec(place, others))
    return specs


def projected(raw: bytes, wanted: Projection) -> bytes:
    """The serialized partition with only the fields that are wanted."""
    whole = decode_struct(Partition, raw)
    if wanted.include or wanted.exclude:
        include, exclude = (pattern_of(text, _LIKE) for text in (wanted.include, wanted.exclude))
        whole.parameters = {
            key: value
            for key, value in (whole.parameters or {}).items()
            if (not wanted.include or include.fits(key)) and not (wanted.exclude and exclude.fits(key))
        }
    if not wanted.paths:
        return encode_struct(whole)
    return encode_struct(_only(whole, wanted.paths))


def partitions_of_spec(sent: Cut[PartitionSpec]) -> Iterator[Cut[PartitionHead]]:
    """The partitions of a spec that a client sent, under the names that the spec has.

    Raises InvalidPartition for a spec that has none, or one without a location for all of them.
    """
    spec = sent.value
    if spec.partitionList is not None:
        for one in spec.partitionList.partitions or ():
            yield _named(spec, one)
    elif spec.sharedSDPartitionSpec is not None:
        descriptor = spec.sharedSDPartitionSpec.sd
        if descriptor is None:
            raise InvalidPartition("the partition spec has no storage descriptor for its partitions")
        for bare in spec.sharedSDPartitionSpec.partitions or ():
            one = _with_descriptor(bare, descriptor)
            one.dbName, one.tableName = spec.dbName, spec.tableName
            yield _named(spec, one)
    else:
        raise InvalidPartition("the partition spec has neither a list of partitions nor a shared storage descriptor")


def _named(spec: PartitionSpec, one: Partition) -> Cut[PartitionHead]:
    raw = encode_struct(one)
    head = decode_struct(PartitionHead, raw)
    head.catName, head.dbName, head.tableName = one.catName or spec.catName, one.dbName, one.tableName
    return Cut(head, raw)


def _with_descriptor(bare: PartitionWithoutSD, shared: StorageDescriptor) -> Partition:
    descriptor = decode_struct(StorageDescriptor, encode_struct(shared))
    descriptor.location = (shared.location or "") + (bare.relativePath or "")
    return Partition(
        values=bare.values,
        createTime=bare.createTime,
        lastAccessTime=bare.lastAccessTime,
        sd=descriptor,
        parameters=bare.parameters,
        privileges=bare.privileges,
    )


def _without_location(place: SpecPlace, raw: bytes) -> tuple[bytes | None, bytes] | None:
    """The descriptor that can be shared, and the partition without it. None: the partition lies elsewhere."""
    of_partition = fields(raw)
    extra: list[bytes] = []
    descriptor: bytes | None = None
    stored = of_partition.get(_SD)
    if stored is not None:
        descriptor = raw[stored.start : stored.end]
        where = fields(raw, stored.start).get(_SD_LOCATION)
        if where is not None:
            location = raw[where.start + 4 : where.end].decode()
            root = place.location
            if not root or not (location == root or location.startswith(root + "/")):
                return None
            descriptor = patch(descriptor, {_SD_LOCATION: (STRING, string_value(root))})
            extra.append(field_head(STRING, _RELATIVE_PATH) + string_value(location[len(root) :]))
    pieces = [
        field_head(ttype, number) + raw[field.start : field.end]
        for of, (ttype, number) in _WITHOUT_SD.items()
        if (field := of_partition.get(of)) is not None
    ]
    return descriptor, b"".join((*pieces, *extra, b"\0"))


def _spec(place: SpecPlace, field: int, content: bytes) -> bytes:
    names = [(1, place.database), (2, place.table), (3, place.location), (_CATALOG, place.catalog)]
    heads = [field_head(STRING, number) + string_value(text) for number, text in names]
    return b"".join((*heads, field_head(STRUCT, field), content, b"\0"))


def _check_path(kind: Any, path: Sequence[str], text: str) -> None:
    if not path:
        return
    for entry in kind.thrift_spec:
        if entry is not None and entry[2] == path[0]:
            inner = _struct_in(entry[3])
            if len(path) > 1 and inner is None:
                break
            _check_path(inner, path[1:], text)
            return
    raise InvalidPartition(f"partitions have no field {text!r}")


def _struct_in(arguments: Any) -> Any:
    """The struct that a field, or the elements of its list, are; None: something else."""
    if isinstance(arguments, (list, tuple)):
        for one in arguments:
            if isinstance(one, type):
                return one
            inner = _struct_in(one)
            if inner is not None:
                return inner
    return None


def _only(value: Any, paths: Sequence[Sequence[str]]) -> Any:
    """The struct, or list of structs, with only the fields at these paths."""
    if isinstance(value, list):
        return [_only(one, paths) for one in value]
    if value is None or any(not path for path in paths):
        return value
    if not hasattr(value, "thrift_spec"):
        return value
    kept = {path[0] for path in paths}
    made = type(value)()
    for entry in value.thrift_spec:
        if entry is not None:
            name = entry[2]
            inner = [path[1:] for path in paths if path[0] == name]
            setattr(made, name, _only(getattr(value, name), inner) if name in kept else None)
    return made
