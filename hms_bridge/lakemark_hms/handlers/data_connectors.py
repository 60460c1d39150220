"""Data connectors of Hive 4, which say how another database is reached: kept, and nothing is done with them."""

from __future__ import annotations

from lakemark_core.errors import NotFound
from lakemark_hms.given import given_name, given_struct
from lakemark_hms.handlers.subject import Subject, method
from lakemark_hms.services import Services
from lakemark_hms.wire.codec import decode_struct
from lakemark_hms.wire.cut import I32, STRING, Cut, patch
from lakemark_hms.wire.dispatch import Call
from lakemark_hms.wire.splice import i32_value, reply_struct, string_value
from lakemark_server.admission.ranks import Rank
from lakemark_thrift.ttypes import DataConnector

_NAME, _OWNER, _CREATE_TIME = 1, 6, 8


class DataConnectors(Subject, title="Data connectors"):
    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._connectors = services.warehouse.connectors

    @method("create_dataconnector", Rank.WRITE)
    def create(self, call: Call) -> None:
        self._create(call, given_struct(call, DataConnector, 1))

    @method("create_dataconnector_req", Rank.WRITE)
    def create_req(self, call: Call) -> None:
        self._create(call, given_struct(call, DataConnector, 1, 1))

    def _create(self, call: Call, sent: Cut[DataConnector]) -> None:
        name = given_name("data connector", sent.value.name)
        owner = sent.value.ownerName or call.session.user
        self._connectors.create(name, _stored(sent, name, owner, self._services.now()))

    @method("get_dataconnector_req", Rank.READ)
    def get(self, call: Call) -> bytes:
        name = given_name("data connector", call.args.request.connectorName)
        return reply_struct(call.name, call.seqid, self._connectors.get(name))

    @method("get_dataconnectors", Rank.READ)
    def names(self, _call: Call) -> list[str]:
        return self._connectors.names()

    @method("alter_dataconnector", Rank.WRITE)
    def alter(self, call: Call) -> None:
        self._alter(call.args.name, given_struct(call, DataConnector, 2))

    @method("alter_dataconnector_req", Rank.WRITE)
    def alter_req(self, call: Call) -> None:
        self._alter(call.args.alterReq.connectorName, given_struct(call, DataConnector, 1, 2))

    def _alter(self, name: str | None, sent: Cut[DataConnector]) -> None:
        """The name, and when it was made, stay as they were."""
        given = given_name("data connector", name)

        def change(stored: bytes) -> bytes:
            old = decode_struct(DataConnector, stored)
            return _stored(sent, old.name or given, sent.value.ownerName or old.ownerName, old.createTime or 0)

        self._connectors.alter(given, change)

    @method("drop_dataconnector", Rank.WRITE)
    def drop(self, call: Call) -> None:
        self._drop(call.args.name, call.args.ifNotExists)

    @method("drop_dataconnector_req", Rank.WRITE)
    def drop_req(self, call: Call) -> None:
        request = call.args.dropDcReq
        self._drop(request.connectorName, request.ifNotExists)

    def _drop(self, name: str | None, may_be_missing: bool | None) -> None:
        """As in Hive, whether a database names it is not looked at, whatever ``checkReferences`` says."""
        try:
            self._connectors.drop(given_name("data connector", name))
        except NotFound:
            if not may_be_missing:
                raise


def _stored(sent: Cut[DataConnector], name: str, owner: str | None, time: int) -> bytes:
    changes: dict[int, tuple[int, bytes] | None] = {
        _NAME: (STRING, string_value(name.strip().lower())),
        _CREATE_TIME: (I32, i32_value(time)),
    }
    if owner:
        changes[_OWNER] = (STRING, string_value(owner))
    return patch(sent.raw, changes)
