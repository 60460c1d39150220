"""Transactions and write ids by the Metastore protocol, with the bindings of Hive 2.3 and in later forms."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hmsclient.genthrift.hive_metastore.ttypes import (
    AbortTxnRequest,
    AbortTxnsRequest,
    AddDynamicPartitions,
    CommitTxnRequest,
    DataOperationType,
    HeartbeatRequest,
    HeartbeatTxnRangeRequest,
    LockComponent,
    LockLevel,
    LockRequest,
    LockType,
    NoSuchTxnException,
    OpenTxnRequest,
    TxnAbortedException,
    TxnState,
)
from thrift.Thrift import TApplicationException

from lakemark_hms.bridge import HmsBridge
from lakemark_server.catalog.service import Catalog
from lakemark_server.kv import Store
from lakemark_server.transactions.limits import TransactionLimits
from lakemark_server.transactions.service import Transactions
from lakemark_server.verify import verify
from lakemark_thrift import ttypes
from tests.integration.conftest import Client, Connect
from tests.integration.hms_objects import table
from tests.integration.hms_raw import Raw


@pytest.fixture
def hms(catalog: Catalog) -> Iterator[HmsBridge]:
    limits = TransactionLimits(open=2_000, aborted=50)
    with HmsBridge(catalog, transactions=Transactions(catalog.mutations, limits)) as bridge:
        yield bridge


@pytest.fixture(autouse=True)
def _verified(store: Store) -> Iterator[None]:
    yield
    assert verify(store) == []


def open_txn(client: Client) -> int:
    return int(client.open_txns(OpenTxnRequest(1, "me", "here")).txn_ids[0])


def allocate(raw: Raw, *ids: int, of: str = "t") -> dict[int, int]:
    rqst = ttypes.AllocateTableWriteIdsRequest(dbName="default", tableName=of, txnIds=list(ids))
    result = raw.call("allocate_table_write_ids", rqst=rqst)
    assert result.success is not None, result
    return {one.txnId: one.writeId for one in result.success.txnToWriteIds}


def valid(raw: Raw, of: str = "default.t", **more: Any) -> ttypes.TableValidWriteIds:
    rqst = ttypes.GetValidWriteIdsRequest(fullTableNames=[of], **more)
    (one,) = raw.call("get_valid_write_ids", rqst=rqst).success.tblValidWriteIds
    assert one.fullTableName == of
    return one  # type: ignore[no-any-return]


def test_open_transactions_as_old_and_new_clients_read_them(client: Client, raw: Raw) -> None:
    ids = client.open_txns(OpenTxnRequest(5, "me", "here", "agent")).txn_ids
    first = ids[0]
    assert ids == list(range(first, first + 5))
    rqst = ttypes.OpenTxnRequest(num_txns=1, user="me", hostname="here", txn_type=ttypes.TxnType.READ_ONLY)
    (reader,) = raw.call("open_txns", rqst=rqst).success.txn_ids
    client.commit_txn(CommitTxnRequest(ids[0]))
    client.abort_txn(AbortTxnRequest(ids[2]))
    old = client.get_open_txns()  # Hive 2.3 reads a set
    assert (old.txn_high_water_mark, old.open_txns, old.min_open_txn) == (reader, set(ids[1:]), ids[1])
    new = raw.call("get_open_txns").success  # later ones a list
    assert (new.txn_high_water_mark, new.open_txns, new.min_open_txn) == (reader, ids[1:], ids[1])
    assert new.abortedBits == bytes([0b10])
    request = ttypes.GetOpenTxnsRequest(excludeTxnTypes=[])
    assert raw.call("get_open_txns_req", getOpenTxnsRequest=request).success.open_txns == [*ids[1:], reader]
    infos = {one.id: one for one in client.get_open_txns_info().open_txns}
    assert infos.keys() == {*ids[1:], reader}
    assert (infos[ids[2]].state, infos[ids[3]].state) == (TxnState.ABORTED, TxnState.OPEN)
    assert (infos[ids[1]].user, infos[ids[1]].hostname, infos[ids[1]].agentInfo) == ("me", "here", "agent")


def test_ends_of_transactions(client: Client) -> None:
    committed, aborted, another = client.open_txns(OpenTxnRequest(3, "me", "here")).txn_ids
    client.commit_txn(CommitTxnRequest(committed))
    client.commit_txn(CommitTxnRequest(committed))  # a client that got no answer asks again
    client.abort_txns(AbortTxnsRequest([aborted, committed, 10**6]))
    client.abort_txn(AbortTxnRequest(aborted))
    with pytest.raises(TxnAbortedException):
        client.commit_txn(CommitTxnRequest(aborted))
    with pytest.raises(NoSuchTxnException, match="already committed"):
        client.abort_txn(AbortTxnRequest(committed))
    for ended in (client.commit_txn, client.abort_txn):
        with pytest.raises(NoSuchTxnException, match="No such transaction"):
            ended(CommitTxnRequest(10**6) if ended == client.commit_txn else AbortTxnRequest(10**6))
    with pytest.raises(TxnAbortedException):
        client.heartbeat(HeartbeatRequest(txnid=aborted))
    answer = client.heartbeat_txn_range(HeartbeatTxnRangeRequest(committed, another + 1))
    assert (answer.aborted, answer.nosuch) == ({aborted}, {committed, another + 1})


def test_limits_of_transactions(client: Client, raw: Raw) -> None:
    with pytest.raises(TApplicationException, match="at least one"):
        client.open_txns(OpenTxnRequest(0, "me", "here"))
    assert len(client.open_txns(OpenTxnRequest(5_000, "me", "here")).txn_ids) == 1_000
    ids = client.open_txns(OpenTxnRequest(1_000, "me", "here")).txn_ids
    with pytest.raises(TApplicationException, match="2,000 open transactions"):
        open_txn(client)
    client.abort_txns(AbortTxnsRequest(ids[:60]))
    with pytest.raises(TApplicationException, match="60 aborted transactions"):
        open_txn(client)
    with pytest.raises(TApplicationException, match=r"10,001 transactions; at most 10,000"):
        client.heartbeat_txn_range(HeartbeatTxnRangeRequest(1, 10_001))
    with pytest.raises(AssertionError, match="replication policy 'p'"):
        raw.call("open_txns", rqst=ttypes.OpenTxnRequest(num_txns=1, user="a", hostname="b", replPolicy="p"))


def test_write_ids_are_dense_and_belong_to_a_table(client: Client, raw: Raw) -> None:
    one, two, three = client.open_txns(OpenTxnRequest(3, "me", "here")).txn_ids
    assert allocate(raw, two) == {two: 1}
    assert allocate(raw, one, three) == {one: 2, three: 3}
    assert allocate(raw, one, two) == {one: 2, two: 1}  # asked again
    assert allocate(raw, one, of="U") == allocate(raw, one, of="u") == {one: 1}
    request = ttypes.MaxAllocatedTableWriteIdRequest(dbName="default", tableName="T")
    assert raw.call("get_max_allocated_table_write_id", rqst=request).success.maxWriteId == 3
    none = ttypes.MaxAllocatedTableWriteIdRequest(dbName="default", tableName="none")
    assert raw.call("get_max_allocated_table_write_id", rqst=none).success.maxWriteId == 0
    client.commit_txn(CommitTxnRequest(one))
    client.abort_txn(AbortTxnRequest(two))
    rqst = ttypes.AllocateTableWriteIdsRequest(dbName="default", tableName="t", txnIds=[three, two])
    assert raw.call("allocate_table_write_ids", rqst=rqst).o2 is not None
    rqst.txnIds = [one]
    assert "already committed" in raw.call("allocate_table_write_ids", rqst=rqst).o1.message
    read_only = ttypes.OpenTxnRequest(num_txns=1, user="me", hostname="here", txn_type=ttypes.TxnType.READ_ONLY)
    rqst.txnIds = raw.call("open_txns", rqst=read_only).success.txn_ids
    assert "read-only" in raw.call("allocate_table_write_ids", rqst=rqst).o3.message


def test_what_readers_see(client: Client, raw: Raw) -> None:
    assert valid(raw).writeIdHighWaterMark == 0
    one, two, three, four = client.open_txns(OpenTxnRequest(4, "me", "here")).txn_ids
    allocate(raw, one, two, three, four)  # write ids 1 to 4
    client.commit_txn(CommitTxnRequest(one))
    client.abort_txn(AbortTxnRequest(two))
    seen = valid(raw)
    assert (seen.writeIdHighWaterMark, seen.invalidWriteIds, seen.minOpenWriteId) == (4, [2, 3, 4], 3)
    assert seen.abortedBits == bytes([0b1])
    # A reader that has taken its list before sees what was committed by then.
    old = f"{three}:{one}:{one},{three}:{two}"
    client.commit_txn(CommitTxnRequest(three))
    seen = valid(raw, validTxnList=old)
    assert (seen.writeIdHighWaterMark, seen.invalidWriteIds, seen.minOpenWriteId) == (3, [1, 2, 3], 1)
    assert seen.abortedBits == bytes([0b10])
    # By its write id, a transaction sees its own writes.
    seen = valid(raw, writeId=4)
    assert (seen.writeIdHighWaterMark, seen.invalidWriteIds, seen.minOpenWriteId) == (4, [2], None)
    assert seen.abortedBits == bytes([0b1])
    result = raw.call(
        "get_valid_write_ids", rqst=ttypes.GetValidWriteIdsRequest(fullTableNames=["default.t"], writeId=99)
    )
    assert "invalid write id 99" in result.o1.message
    bad = raw.call("get_valid_write_ids", rqst=ttypes.GetValidWriteIdsRequest(fullTableNames=["t"]))
    assert "database.table" in bad.o2.message


def test_a_table_that_becomes_transactional(client: Client, raw: Raw) -> None:
    seed = ttypes.SeedTableWriteIdsRequest(dbName="default", tableName="t", seedWriteId=7)
    assert raw.call("seed_write_id", rqst=seed).o1 is None
    assert "write ids already" in raw.call("seed_write_id", rqst=seed).o1.message
    txn = open_txn(client)
    assert allocate(raw, txn) == {txn: 8}
    seen = valid(raw)
    assert (seen.writeIdHighWaterMark, seen.invalidWriteIds) == (8, [8])
    assert raw.call("seed_txn_id", rqst=ttypes.SeedTxnIdRequest(seedTxnId=100)).o1 is None
    assert open_txn(client) == 100
    assert "highWaterMark is 100" in raw.call("seed_txn_id", rqst=ttypes.SeedTxnIdRequest(seedTxnId=100)).o1.message


def test_write_ids_of_a_table_that_is_renamed_or_dropped(client: Client, raw: Raw) -> None:
    client.create_table(table("t"))
    one, two = client.open_txns(OpenTxnRequest(2, "me", "here")).txn_ids
    allocate(raw, one, two)
    client.alter_table("default", "t", table("u"))
    assert valid(raw).writeIdHighWaterMark == 0
    assert valid(raw, "default.u").invalidWriteIds == [1, 2]
    assert allocate(raw, two, of="u") == {two: 2}
    client.drop_table("default", "u", True)
    assert valid(raw, "default.u").writeIdHighWaterMark == 0
    client.create_table(table("u"))
    assert allocate(raw, two, of="u") == {two: 1}
    client.commit_txn(CommitTxnRequest(two))
    assert valid(raw, "default.u").invalidWriteIds == []


def update(client: Client, txn: int, part: str | None = None, operation: int = DataOperationType.UPDATE) -> None:
    component = LockComponent(
        LockType.SHARED_WRITE, LockLevel.TABLE, "default", "t", part, operationType=operation, isAcid=True
    )
    client.lock(LockRequest([component], txn, "me", "here"))


def commit_of_hive_4(raw: Raw, txn: int, *, locked_out: bool) -> Any:
    return raw.call("commit_txn", rqst=ttypes.CommitTxnRequest(txnid=txn, exclWriteEnabled=locked_out))


def test_the_first_of_two_that_change_the_same_rows_commits(client: Client, raw: Raw) -> None:
    one, two, three, four = client.open_txns(OpenTxnRequest(4, "me", "here")).txn_ids
    update(client, one)
    update(client, two, "p=1", DataOperationType.DELETE)
    update(client, three, operation=DataOperationType.INSERT)
    client.commit_txn(CommitTxnRequest(one))
    with pytest.raises(TxnAbortedException, match=f"write conflict on default/t/p=1 committed by txnid:{one}"):
        client.commit_txn(CommitTxnRequest(two))
    client.commit_txn(CommitTxnRequest(three))  # inserts conflict with nothing
    update(client, four)
    assert commit_of_hive_4(raw, four, locked_out=True).o2 is None  # it says that its lock was exclusive
    later = open_txn(client)
    update(client, later)
    client.commit_txn(CommitTxnRequest(later))  # it began after the others had committed


def test_partitions_that_only_the_statement_finds_out(client: Client, raw: Raw) -> None:
    one, two, three = client.open_txns(OpenTxnRequest(3, "me", "here")).txn_ids
    update_op = DataOperationType.UPDATE
    client.add_dynamic_partitions(AddDynamicPartitions(one, "default", "t", ["p=1", "p=2"], update_op))
    for txn, name in ((two, "p=3"), (three, "p=2")):
        rqst = ttypes.AddDynamicPartitions(
            txnid=txn, writeid=1, dbname="default", tablename="T", partitionnames=[name], operationType=update_op
        )
        raw.call("add_dynamic_partitions", rqst=rqst)
    assert commit_of_hive_4(raw, one, locked_out=False).o2 is None
    assert commit_of_hive_4(raw, two, locked_out=False).o2 is None
    assert "p=2" in commit_of_hive_4(raw, three, locked_out=False).o2.message
    with pytest.raises(TxnAbortedException):
        client.add_dynamic_partitions(AddDynamicPartitions(three, "default", "t", ["p=1"], update_op))


def test_many_transactions_at_once(connect: Connect, hms: HmsBridge) -> None:
    """Ids are unique and dense, write ids too, whoever asks at the same moment."""
    clients, raws = [connect() for _ in range(4)], [Raw(hms.port) for _ in range(4)]

    def work(pair: tuple[Client, Raw]) -> list[tuple[int, int]]:
        client, raw = pair
        pairs = []
        for _ in range(5):
            txn = open_txn(client)
            pairs.append((txn, allocate(raw, txn)[txn]))
            client.commit_txn(CommitTxnRequest(txn))
        return pairs

    with ThreadPoolExecutor(4) as pool:
        pairs = [pair for some in pool.map(work, zip(clients, raws, strict=True)) for pair in some]
    assert sorted(txn for txn, _ in pairs) == list(range(1, 21))
    assert sorted(write_id for _, write_id in pairs) == list(range(1, 21))
    seen = valid(raws[0])
    assert (seen.writeIdHighWaterMark, seen.invalidWriteIds) == (20, [])
    for raw in raws:
        raw.close()
