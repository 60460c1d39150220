"""Catalogs: the level above databases that Hive 3 has added."""

from __future__ import annotations

from lakemark_core.errors import InvalidArgument, UnsupportedOperation
from lakemark_hms.given import given_name, given_struct, short
from lakemark_hms.handlers.subject import Subject, method
from lakemark_hms.services import Services
from lakemark_hms.wire.codec import decode_struct, encode_struct
from lakemark_hms.wire.cut import I32, STRING, find, patch
from lakemark_hms.wire.dispatch import Call
from lakemark_hms.wire.splice import i32_value, reply_struct, string_value, struct, struct_field
from lakemark_proto.store.v1.store_pb2 import CatalogRecord
from lakemark_server.admission.ranks import Rank
from lakemark_thrift.ttypes import Catalog, GetCatalogsResponse

_NAME, _DESCRIPTION, _LOCATION, _CREATE_TIME = 1, 2, 3, 4


class Catalogs(Subject, title="Catalogs"):
    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._catalogs = services.warehouse.catalogs

    @method("create_catalog", Rank.WRITE)
    def create(self, call: Call) -> None:
        sent = given_struct(call, Catalog, 1, 1)
        name = given_name("catalog", sent.value.name)
        if not sent.value.locationUri:
            raise InvalidArgument(f"You must specify a path for the catalog {short(name)}: locationUri is empty")
        self._catalogs.create(name, sent.value.locationUri, sent.raw)

    @method("alter_catalog", Rank.WRITE)
    def alter(self, call: Call) -> None:
        """As in Hive, an empty location or description leaves what there is."""
        name = given_name("catalog", call.args.rqst.name)
        sent = given_struct(call, Catalog, 1, 2)
        if (sent.value.name or name).lower() != name.lower():
            raise UnsupportedOperation(
                f"You cannot change a catalog's name, here {short(name)} to {short(sent.value.name)}"
            )

        def change(old: CatalogRecord) -> tuple[str, bytes]:
            before = decode_struct(Catalog, old.hive)
            location = sent.value.locationUri or before.locationUri or old.location
            kept: dict[int, tuple[int, bytes] | None] = {_LOCATION: (STRING, string_value(location))}
            if not sent.value.description and before.description:
                kept[_DESCRIPTION] = (STRING, string_value(before.description))
            return location, patch(sent.raw, kept)

        self._catalogs.alter(name, change)

    @method("get_catalog", Rank.READ)
    def get(self, call: Call) -> bytes:
        record = self._catalogs.get(given_name("catalog", call.args.catName.name))
        return reply_struct(call.name, call.seqid, struct(struct_field(1, self._struct(record))))

    def _struct(self, record: CatalogRecord) -> bytes:
        """The serialized Thrift Catalog: its location is as the client wrote it."""
        if not record.hive:
            location = self._services.for_engines(record.location)
            return encode_struct(Catalog(name=record.name, description="Lakemark", locationUri=location))
        created = (I32, i32_value(record.created_ms // 1000))
        return patch(record.hive, {_NAME: (STRING, string_value(record.name)), _CREATE_TIME: created})

    @method("get_catalogs", Rank.READ)
    def get_all(self, _call: Call) -> GetCatalogsResponse:
        return GetCatalogsResponse(names=self._catalogs.names())

    @method("drop_catalog", Rank.WRITE)
    def drop(self, call: Call) -> None:
        request = call.args.catName
        # Hive 4.0 does not send it, and expects an error; the default is that of later releases.
        if_exists = find(call.body, 0, (1, 2)) is not None and bool(request.ifExists)
        self._catalogs.drop(given_name("catalog", request.name), if_exists=if_exists)
