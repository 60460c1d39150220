"""Transactions of Hive's clients, and the write ids that they have in tables."""

from __future__ import annotations

from typing import Final

from lakemark_core.errors import InvalidArgument, Unimplemented
from lakemark_hms.given import given_number, given_struct
from lakemark_hms.handlers.subject import Subject, method
from lakemark_hms.names import database_name
from lakemark_hms.wire import cut
from lakemark_hms.wire.dispatch import Call
from lakemark_hms.wire.splice import i64_value, reply_struct, struct, value_field
from lakemark_server.admission.ranks import Rank
from lakemark_server.transactions import visibility
from lakemark_server.transactions.conflicts import Place
from lakemark_server.transactions.requests import Client, OpenTransactions
from lakemark_server.transactions.txns import TARGETED
from lakemark_server.transactions.write_id_manager import READ_ONLY
from lakemark_server.transactions.write_ids import TableKey
from lakemark_thrift.ttypes import (
    AddDynamicPartitionsHive2,
    AllocateTableWriteIdsResponse,
    GetLatestCommittedCompactionInfoResponse,
    GetOpenTxnsInfoResponse,
    GetOpenTxnsResponse,
    GetValidWriteIdsResponse,
    HeartbeatTxnRangeResponse,
    MaxAllocatedTableWriteIdResponse,
    OpenTxnsResponse,
    TableValidWriteIds,
    TxnInfo,
    TxnState,
    TxnToWriteId,
)

_EXCL_WRITE_ENABLED: Final = (1, 6)
"""Where in commit_txn's arguments a client of Hive 4 says that its updates have locked others out."""


class Transactions(Subject, title="Transactions and write ids"):
    @method("open_txns", Rank.WRITE)
    def open(self, call: Call) -> OpenTxnsResponse:
        request = call.args.rqst
        _refuse_replication(call, request.replPolicy)
        client = Client(request.user or "", request.hostname or "", request.agentInfo or "")
        ids = self._services.transactions.registry.open(request.num_txns or 0, client, request.txn_type or 0)
        return OpenTxnsResponse(txn_ids=ids)

    @method("commit_txn", Rank.WRITE)
    def commit(self, call: Call) -> None:
        """Clients that say nothing of exclusive locks (Hive 3, Trino) share the locks of their updates: the second
        one that has changed the same rows is aborted, as by Hive 3."""
        request = call.args.rqst
        _refuse_replication(call, request.replPolicy)
        if request.keyValue is not None:
            raise Unimplemented("commit_txn does not set a parameter of a table; use alter_table before")
        said = cut.find(call.message.data, call.message.header.body, _EXCL_WRITE_ENABLED)
        locked_out = said is not None and bool(request.exclWriteEnabled)
        self._services.transactions.registry.commit(
            given_number("txnid", request.txnid), first_committer_wins=not locked_out
        )

    @method("abort_txn", Rank.WRITE)
    def abort(self, call: Call) -> None:
        _refuse_replication(call, call.args.rqst.replPolicy)
        self._services.transactions.registry.abort(given_number("txnid", call.args.rqst.txnid))

    @method("abort_txns", Rank.WRITE)
    def abort_all(self, call: Call) -> None:
        self._services.transactions.registry.abort_all(call.args.rqst.txn_ids or ())

    @method("heartbeat_txn_range", Rank.VITAL)
    def heartbeat_range(self, call: Call) -> HeartbeatTxnRangeResponse:
        txns = call.args.txns
        first, last = given_number("min", txns.min), given_number("max", txns.max)
        aborted, missing = self._services.transactions.registry.heartbeat_range(first, last)
        return HeartbeatTxnRangeResponse(aborted=aborted, nosuch=missing)

    @method("get_open_txns", Rank.READ)
    def get_open(self, call: Call) -> bytes:
        """Without read-only ones, as Hive. Clients of Hive 2 read a set where later ones read a list.

        Both are sent: a client skips the field that has not the type which it knows.
        """
        now = self._services.transactions.registry.open_transactions((READ_ONLY,))
        numbers = b"".join(i64_value(one.id) for one in now.transactions)
        ids = bytes((cut.I64,)) + len(now.transactions).to_bytes(4, "big") + numbers
        aborted = visibility.bits([one.aborted for one in now.transactions])
        first_open = _first_open(now)
        return reply_struct(
            call.name,
            call.seqid,
            struct(
                value_field(cut.I64, 1, i64_value(now.high_water_mark)),
                value_field(cut.SET, 2, ids),
                value_field(cut.LIST, 2, ids),
                () if first_open is None else value_field(cut.I64, 3, i64_value(first_open)),
                value_field(cut.STRING, 4, len(aborted).to_bytes(4, "big") + aborted),
            ),
        )

    @method("get_open_txns_req", Rank.READ)
    def get_open_req(self, call: Call) -> GetOpenTxnsResponse:
        excluded = call.args.getOpenTxnsRequest.excludeTxnTypes or ()
        return _open_response(self._services.transactions.registry.open_transactions(excluded))

    @method("get_open_txns_info", Rank.READ)
    def get_open_info(self, _call: Call) -> GetOpenTxnsInfoResponse:
        now = self._services.transactions.registry.open_transactions(beats=True)
        infos = [
            TxnInfo(
                id=one.id,
                state=TxnState.ABORTED if one.aborted else TxnState.OPEN,
                user=one.record.user,
                hostname=one.record.host,
                agentInfo=one.record.agent or None,
                heartbeatCount=0,
                startedTime=one.record.started_ms,
                lastHeartbeatTime=one.beat_ms or one.record.ended_ms,
            )
            for one in now.transactions
        ]
        return GetOpenTxnsInfoResponse(txn_high_water_mark=now.high_water_mark, open_txns=infos)

    @method("seed_txn_id", Rank.WRITE)
    def seed(self, call: Call) -> None:
        self._services.transactions.registry.seed_transaction_ids(given_number("seedTxnId", call.args.rqst.seedTxnId))

    @method("allocate_table_write_ids", Rank.WRITE)
    def allocate(self, call: Call) -> AllocateTableWriteIdsResponse:
        request = call.args.rqst
        _refuse_replication(call, request.replPolicy)
        table = _table_key(request.dbName, request.tableName)
        pairs = self._services.transactions.write_ids.allocate(table, request.txnIds or ())
        return AllocateTableWriteIdsResponse(
            txnToWriteIds=[TxnToWriteId(txnId=txn_id, writeId=write_id) for txn_id, write_id in pairs]
        )

    @method("get_valid_write_ids", Rank.READ)
    def get_valid(self, call: Call) -> GetValidWriteIdsResponse:
        request = call.args.rqst
        names = request.fullTableNames or []
        seen = None
        if request.validTxnList:
            seen = visibility.parse_valid_transactions(request.validTxnList)
        tables = [_table_of(name) for name in names]
        valid = self._services.transactions.write_ids.valid(tables, seen, request.writeId or 0)
        return GetValidWriteIdsResponse(
            tblValidWriteIds=[
                TableValidWriteIds(
                    fullTableName=name,
                    writeIdHighWaterMark=one.high_water_mark,
                    invalidWriteIds=list(one.invalid),
                    minOpenWriteId=one.first_open,
                    abortedBits=visibility.bits(one.aborted),
                )
                for name, one in zip(names, valid, strict=True)
            ]
        )

    @method("get_max_allocated_table_write_id", Rank.READ)
    def get_max(self, call: Call) -> MaxAllocatedTableWriteIdResponse:
        table = _table_key(call.args.rqst.dbName, call.args.rqst.tableName)
        return MaxAllocatedTableWriteIdResponse(maxWriteId=self._services.transactions.write_ids.last(table))

    @method("seed_write_id", Rank.WRITE)
    def seed_write_id(self, call: Call) -> None:
        request = call.args.rqst
        table = _table_key(request.dbName, request.tableName)
        self._services.transactions.write_ids.seed(table, given_number("seedWriteId", request.seedWriteId))

    @method("add_write_ids_to_min_history", Rank.WRITE)
    def ignore(self, _call: Call) -> None:
        """Tells Hive's cleaner what a reader still needs. This service removes no files of transactions."""

    @method("add_dynamic_partitions", Rank.WRITE)
    def add_partitions(self, call: Call) -> None:
        """A client of Hive 2 sends no write id, so that its other fields have other numbers."""
        request = call.args.rqst
        if request.writeid is None:
            old = given_struct(call, AddDynamicPartitionsHive2, 1)
            request = old.value
        table = _table_key(request.dbname, request.tablename)
        changes_rows = request.operationType in TARGETED
        targets = [Place(*table, name) for name in request.partitionnames or ()] if changes_rows else []
        self._services.transactions.registry.add_targets(given_number("txnid", request.txnid), targets)

    @method("get_latest_committed_compaction_info", Rank.READ)
    def latest_compactions(self, _call: Call) -> GetLatestCommittedCompactionInfoResponse:
        """None: there is no queue of Hive's compactor here."""
        return GetLatestCommittedCompactionInfoResponse(compactions=[])


def _refuse_replication(call: Call, policy: str | None) -> None:
    if policy:
        raise Unimplemented(
            f"{call.name} with the replication policy {policy!r}: transactions are not replicated from another "
            "Metastore; copy its tables instead"
        )


def _table_key(database: str | None, table: str | None) -> TableKey:
    name = database_name(database)
    return TableKey(name.catalog, name.name, (table or "").lower())


def _table_of(full_name: str) -> TableKey:
    database, separator, table = full_name.partition(".")
    if not separator or not database or not table or "." in table:
        raise InvalidArgument(f"{full_name!r} is not of the form database.table")
    return _table_key(database, table)


def _open_response(now: OpenTransactions) -> GetOpenTxnsResponse:
    return GetOpenTxnsResponse(
        txn_high_water_mark=now.high_water_mark,
        open_txns=[one.id for one in now.transactions],
        min_open_txn=_first_open(now),
        abortedBits=visibility.bits([one.aborted for one in now.transactions]),
    )


def _first_open(now: OpenTransactions) -> int | None:
    return next((one.id for one in now.transactions if not one.aborted), None)
