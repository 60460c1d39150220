"""``fdb://`` URLs: the cluster file, and the prefix below which a store's keys live."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl

from lakemark_core.errors import InvalidArgument

PREFIX: Final = "lakemark"

_PREFIX_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,30}")
_FORM: Final = (
    "fdb://relative/path/to/fdb.cluster or fdb:///absolute/path/to/fdb.cluster, perhaps with ?prefix=lakemark"
)


@dataclass(frozen=True, slots=True)
class FdbTarget:
    """The place of a store. Several may share a cluster, each below a prefix of its own."""

    cluster_file: Path
    prefix: str = PREFIX


def parse(url: str) -> FdbTarget:
    """The place that the URL names. Raises InvalidArgument."""
    path, _, query = url.removeprefix("fdb://").partition("?")
    prefix = PREFIX
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name != "prefix":
            raise InvalidArgument(
                f"{url!r} has a parameter {name!r}, which no store in FoundationDB knows: write {_FORM}"
            )
        prefix = value
    if not path.strip("/"):
        raise InvalidArgument(f"{url!r} names no cluster file: write {_FORM}")
    if not _PREFIX_NAME.fullmatch(prefix):
        raise InvalidArgument("the prefix of a store is a name of at most 30 letters, digits, '_', '.' and '-'")
    return FdbTarget(Path(path), prefix)
