"""Locks on databases, tables and partitions."""

from __future__ import annotations

from typing import Any, Final

from lakemark_core.errors import InvalidArgument
from lakemark_hms.given import given_number
from lakemark_hms.handlers.subject import Subject, method
from lakemark_hms.names import database_name
from lakemark_hms.wire.dispatch import Call
from lakemark_server.admission.ranks import Rank
from lakemark_server.transactions.conflicts import Block, Component, LockType, Place
from lakemark_server.transactions.requests import Client, LockAnswer, LockRequest, LockState, ShownLock
from lakemark_server.transactions.txns import TARGETED
from lakemark_thrift.ttypes import LockResponse, ShowLocksResponse, ShowLocksResponseElement

_TYPES: Final = frozenset(LockType)


class Locks(Subject, title="Locks"):
    @method("lock", Rank.WRITE)
    def lock(self, call: Call) -> LockResponse:
        request = call.args.rqst
        components = [_component(one) for one in request.component or ()]
        transaction_id = request.txnid or 0
        # What is written to partitions that only the statement finds out is told by add_dynamic_partitions.
        targets = {
            component.place
            for component, one in zip(components, request.component or (), strict=True)
            if transaction_id
            and one.operationType in TARGETED
            and one.isTransactional
            and not one.isDynamicPartitionWrite
        }
        answer = self._services.transactions.locks.lock(
            LockRequest(
                components,
                Client(request.user or "", request.hostname or "", request.agentInfo or ""),
                transaction_id,
                targets,
                reads_wait=not request.zeroWaitReadEnabled,
                writes_wait=not request.exclusiveCTAS,
            )
        )
        return _response(answer, exclusive_ctas=bool(request.exclusiveCTAS))

    @method("check_lock", Rank.WRITE)
    def check(self, call: Call) -> LockResponse:
        return _response(self._services.transactions.locks.check(given_number("lockid", call.args.rqst.lockid)))

    @method("unlock", Rank.WRITE)
    def unlock(self, call: Call) -> None:
        self._services.transactions.locks.unlock(given_number("lockid", call.args.rqst.lockid))

    @method("show_locks", Rank.READ)
    def show(self, call: Call) -> ShowLocksResponse:
        request = call.args.rqst
        place = None
        if request.dbname:
            name = database_name(request.dbname, request.catname)
            place = Place(name.catalog, name.name, (request.tablename or "").lower(), request.partname or "")
        shown = self._services.transactions.locks.shown(place, request.txnid or 0)
        return ShowLocksResponse(locks=[_element(one) for one in shown])

    @method("heartbeat", Rank.VITAL)
    def heartbeat(self, call: Call) -> None:
        ids = call.args.ids
        self._services.transactions.locks.heartbeat(ids.lockid or 0, ids.txnid or 0)


def _component(sent: Any) -> Component:
    name = database_name(sent.dbname, sent.catName)
    if sent.type not in _TYPES:
        known = ", ".join(f"{one.value} ({one.name})" for one in LockType)
        raise InvalidArgument(f"there is no lock type {sent.type}; Hive has {known}")
    place = Place(name.catalog, name.name, (sent.tablename or "").lower(), sent.partitionname or "")
    return Component(place, LockType(sent.type))


def _response(answer: LockAnswer, *, exclusive_ctas: bool = False) -> LockResponse:
    response = LockResponse(lockid=answer.lock_id, state=answer.state.value)
    if answer.state is LockState.NOT_ACQUIRED and answer.blocked_by is not None:
        response.errorMessage = (
            "Failed to initiate a concurrent CTAS operation with the same table name, lockInfo : "
            if exclusive_ctas
            else "Unable to acquire read lock due to an existing exclusive lock "
        ) + _described(answer.blocked_by)
    return response


def _described(block: Block) -> str:
    component = block.by.component
    place = "/".join(filter(None, component.place))
    return f"{{{component.type.name} lockid:{block.by.lock_id} txnid:{block.by.transaction_id} {place}}}"


def _element(shown: ShownLock) -> ShowLocksResponseElement:
    place, record = shown.component.place, shown.record
    state = LockState.ACQUIRED if record.acquired_ms else LockState.WAITING
    element = ShowLocksResponseElement(
        lockid=shown.lock_id,
        dbname=place.database,
        tablename=place.table or None,
        partname=place.partition or None,
        state=state.value,
        type=int(shown.component.type),
        txnid=record.transaction_id,
        lastheartbeat=shown.beat_ms,
        acquiredat=record.acquired_ms or None,
        user=record.user,
        hostname=record.host,
        heartbeatCount=0,
        agentInfo=record.agent,
        lockIdInternal=shown.number + 1,
        catname=place.catalog,
    )
    if shown.blocked_by is not None:
        element.blockedByExtId = shown.blocked_by.lock_id
        element.blockedByIntId = shown.blocked_by.number + 1
    return element
