"""Whether two objects of Metastores are the same, field by field, and in words what differs. Pure.

An empty field, a missing one and a zero are the same: some Metastores fill them in, others leave them out. An empty
parameter is not a missing one: ``serialization.null.format`` says which texts are NULL. Times are the Metastore's own.
A parameter that only the copy has does not count if Metastores and engines write it by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lakemark_core import storage
from lakemark_core.errors import LakemarkError
from lakemark_hms.listener.facts import is_statistic
from lakemark_thrift.base import Struct
from lakemark_thrift.ttypes import PrincipalType

# Fields that say when, by whom or for whom something was answered, and not what it is.
_IGNORED: Final = frozenset(
    {"catName", "catalogName", "createTime", "lastAccessTime", "id", "writeId", "txnId", "isStatsCompliant", "colStats",
     "accessType", "requiredReadCapabilities", "requiredWriteCapabilities", "privileges", "lastAnalyzed", "engine",
     "fileMetadata", "dictionary"}
)  # fmt: skip
_LOCATIONS: Final = frozenset({"location", "locationUri", "managedLocationUri"})
_TIMES: Final = frozenset({"transient_lastDdlTime", "last_modified_time", "last_modified_by"})
_CHARS_TOLD: Final = 100


def plain(value: Any) -> Any:
    """A struct as dictionaries and lists, without what is empty or ignored."""
    if isinstance(value, Struct):
        fields = {name: plain(getattr(value, name)) for name in value.__slots__ if name not in _IGNORED}
        if fields.get("ownerType") == PrincipalType.USER:  # what Metastores of Hive 2 mean without saying so
            del fields["ownerType"]
        return {name: field for name, field in fields.items() if field}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    return value


def differences(source: Struct, copy: Struct) -> str:
    """In words: "sd.location is 'a' and was copied as 'b'"; "" if they are the same."""
    return "; ".join(_differences("", plain(source), plain(copy)))


def _differences(path: str, source: Any, copy: Any) -> list[str]:
    name = path.rpartition(".")[2]
    if name == "parameters":
        return _parameters(path, source or {}, copy or {})
    if isinstance(source, dict) or isinstance(copy, dict):
        source, copy = source or {}, copy or {}
        told = []
        for key in sorted(source.keys() | copy.keys()):
            told += _differences(f"{path}.{key}" if path else key, source.get(key), copy.get(key))
        return told
    if source == copy or (name in _LOCATIONS and _same_place(source, copy)) or not (source or copy):
        return []
    return [_differs(path, source, copy)]


def _parameters(path: str, source: Mapping[str, str], copy: Mapping[str, str]) -> list[str]:
    return [
        _differs(f"{path}.{key}", source.get(key), copy.get(key))
        for key in sorted(source.keys() | copy.keys())
        if source.get(key) != copy.get(key) and key not in _TIMES and (key in source or not is_statistic(key))
    ]


def _differs(path: str, source: Any, copy: Any) -> str:
    return f"{path} is {_told(source)} and in the copy {_told(copy)}"


def _same_place(source: str | None, copy: str | None) -> bool:
    if not source or not copy:
        return False
    try:
        return storage.place_of(source) == storage.place_of(copy)
    except LakemarkError:  # a location that cannot be read is the same only as text
        return False


def _told(value: Any) -> str:
    if value is None:
        return "missing"
    text = repr(value)
    return text if len(text) <= _CHARS_TOLD else f"{text[:_CHARS_TOLD]}…"
