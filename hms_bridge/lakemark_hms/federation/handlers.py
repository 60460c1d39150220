"""Stands before the handlers of the facade: calls about a mounted database go to the Metastore that has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lakemark_core.errors import UnsupportedOperation
from lakemark_hms.admission import tenant_of
from lakemark_hms.federation.mounted import Mounted
from lakemark_hms.federation.places import database_in, renamed
from lakemark_hms.handlers import rank_of
from lakemark_hms.names import database_name, database_pattern, matcher
from lakemark_hms.outside import Call as OutsideCall
from lakemark_hms.wire.dispatch import Call, Handler
from lakemark_proto.v1.mounts_pb2 import Mount
from lakemark_server.admission.ranks import Rank
from lakemark_server.catalog.names import DEFAULT_CATALOG
from lakemark_thrift.services import METHODS

# Reads that have the rank of a write.
_READS: Final = frozenset({"fetch_partition_names_req"})


def with_mounts(handlers: Mapping[str, Handler], mounted: Mounted) -> dict[str, Handler]:
    """The handlers, with mounted databases beside our own."""
    listings = {
        "get_all_databases": _all_databases,
        "get_databases": _databases,
        "get_table_meta": _table_meta,
    }
    wrapped = dict(handlers)
    for name, handler in handlers.items():
        if name in listings:
            wrapped[name] = _listing(handler, listings[name], mounted)
        elif rank_of(name) is not Rank.VITAL and METHODS[name].args.__slots__:
            wrapped[name] = _routed(handler, mounted)
    return wrapped


def _routed(handler: Handler, mounted: Mounted) -> Handler:
    def handle(call: Call) -> object:
        mounts = mounted.all(DEFAULT_CATALOG)
        if not mounts:
            return handler(call)
        text = database_in(call.name, call.args)
        mount = mounts.get(database_name(text).name) if text else None
        # Another catalog may have the name for itself.
        if mount is None or database_name(text, tenant_of(call)).catalog != DEFAULT_CATALOG:
            return handler(call)
        if rank_of(call.name) is Rank.WRITE and call.name not in _READS:
            raise _refusal(mount)
        # The arguments are changed, and the call may be answered once more.
        return mounted.answer(mount, call.name, call.seqid, call.read(call.method.args))

    return handle


def _refusal(mount: Mount) -> UnsupportedOperation:
    return UnsupportedOperation(
        f"{mount.name} is the database {mount.database} of the Metastore at {mount.uri}, mounted here to be read: "
        "change it there, or move its tables here (docs/listener.md)",
        database=mount.name,
    )


def _listing(handler: Handler, more: Any, mounted: Mounted) -> Handler:
    def handle(call: Call) -> object:
        ours: Any = handler(call)
        return [*ours, *more(call, mounted)] if mounted.all(DEFAULT_CATALOG) else ours

    return handle


def _all_databases(_call: Call, mounted: Mounted) -> list[str]:
    return list(mounted.names(DEFAULT_CATALOG))


def _databases(call: Call, mounted: Mounted) -> list[str]:
    catalog, pattern = database_pattern(call.args.pattern)
    fits = matcher(pattern)
    return [name for name in mounted.names(catalog) if fits(name)]


def _table_meta(call: Call, mounted: Mounted) -> list[Any]:
    catalog, pattern = database_pattern(call.args.db_patterns)
    fits = matcher(pattern)
    metas: list[Any] = []
    for name, mount in mounted.all(catalog).items():
        if fits(name):
            asked = {"tbl_patterns": call.args.tbl_patterns, "tbl_types": call.args.tbl_types}
            answer = mounted.call(mount, OutsideCall("get_table_meta", {"db_patterns": mount.database, **asked}))
            metas += renamed(answer, mount.database, mount.name)
    return metas
