"""Data connectors of Hive 4 are kept as they were sent."""

from __future__ import annotations

from typing import Any

from lakemark_thrift.ttypes import (
    AlterDataConnectorRequest,
    CreateDataConnectorRequest,
    DataConnector,
    DropDataConnectorRequest,
    GetDataConnectorRequest,
    GetLatestCommittedCompactionInfoRequest,
)
from tests.integration.hms_raw import Raw


def mysql(name: str | None = "Orders", **more: Any) -> DataConnector:
    parameters = {"hive.sql.dbcp.username": "ann"}
    return DataConnector(name=name, type="mysql", url="jdbc:mysql://db/orders", parameters=parameters, **more)


def get(raw: Raw, name: str) -> Any:
    return raw.call("get_dataconnector_req", request=GetDataConnectorRequest(connectorName=name))


def test_connectors_come_back_as_they_were_sent(raw: Raw) -> None:
    assert raw.call("get_dataconnectors").success == []
    raw.call("create_dataconnector_req", connectorReq=CreateDataConnectorRequest(connector=mysql(ownerName="bob")))
    raw.call("create_dataconnector", connector=mysql("b"))
    kept = get(raw, "ORDERS").success
    assert (kept.name, kept.type, kept.url, kept.ownerName) == ("orders", "mysql", "jdbc:mysql://db/orders", "bob")
    assert kept.parameters == {"hive.sql.dbcp.username": "ann"}
    assert kept.createTime > 1_700_000_000
    assert raw.call("get_dataconnectors").success == ["b", "orders"]
    changed = DataConnector(name="other", type="derby", url="jdbc:derby:x")
    alter = AlterDataConnectorRequest(connectorName="orders", newConnector=changed)
    assert raw.call("alter_dataconnector_req", alterReq=alter).o1 is None
    after = get(raw, "orders").success
    assert (after.name, after.type, after.ownerName, after.createTime) == ("orders", "derby", "bob", kept.createTime)
    raw.call("alter_dataconnector", name="b", connector=mysql("b", description="new"))
    assert get(raw, "b").success.description == "new"
    raw.call("drop_dataconnector", name="B", ifNotExists=False, checkReferences=True)
    drop = DropDataConnectorRequest(connectorName="orders", ifNotExists=False)
    raw.call("drop_dataconnector_req", dropDcReq=drop)
    assert raw.call("get_dataconnectors").success == []


def test_what_is_refused(raw: Raw) -> None:
    raw.call("create_dataconnector", connector=mysql("a"))
    assert "already exists" in raw.call("create_dataconnector", connector=mysql("A")).o1.message
    assert "not legal" in raw.call("create_dataconnector", connector=mysql("a b")).o2.message
    assert raw.call("create_dataconnector", connector=mysql(None)).o3 is not None
    assert "does not exist" in get(raw, "b").o1.message
    assert raw.call("alter_dataconnector", name="b", connector=mysql("b")).o2 is not None
    missing = DropDataConnectorRequest(connectorName="b")
    assert raw.call("drop_dataconnector_req", dropDcReq=missing).o1 is not None
    missing.ifNotExists = True
    assert raw.call("drop_dataconnector_req", dropDcReq=missing).o1 is None
    assert "64,000" in raw.call("create_dataconnector", connector=mysql("c", description="x" * 70_000)).o3.message


def test_a_hundred_are_kept(raw: Raw) -> None:
    for number in range(100):
        assert raw.call("create_dataconnector", connector=mysql(f"c{number}")).o3 is None
    assert "can be no more" in raw.call("create_dataconnector", connector=mysql("c")).o3.message
    assert len(raw.call("get_dataconnectors").success) == 100


def test_nothing_was_compacted(raw: Raw) -> None:
    rqst = GetLatestCommittedCompactionInfoRequest(dbname="default", tablename="t")
    assert raw.call("get_latest_committed_compaction_info", rqst=rqst).success.compactions == []
