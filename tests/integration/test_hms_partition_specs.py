"""Partition specs, expressions and privileges of partitions, and how many one answer may have."""

from collections.abc import Iterator

import pytest
from hmsclient.genthrift.hive_metastore.ttypes import (
    DropPartitionsExpr,
    DropPartitionsRequest,
    MetaException,
    NoSuchObjectException,
    PartitionsByExprRequest,
    PartitionSpec,
    PartitionSpecWithSharedSD,
    PartitionWithoutSD,
    RequestPartsSpec,
)

from lakemark_hms.bridge import HmsBridge
from lakemark_server.catalog.service import Catalog
from lakemark_thrift import ttypes
from lakemark_thrift.ttypes import GetPartitionsFilterSpec, GetPartitionsRequest, GetProjectionsSpec
from tests.integration.conftest import Client
from tests.integration.hms_objects import partition, storage, table
from tests.integration.hms_raw import Raw

GROUPING = {"hive.hcatalog.partition.spec.grouping.enabled": "TRUE"}
KRYO = b"\x01\x00org.apache.hadoop.hive.ql.plan.ExprNodeGenericFuncDes\xe3"


@pytest.fixture
def raw(hms: HmsBridge) -> Iterator[Raw]:
    made = Raw(hms.port)
    yield made
    made.close()


@pytest.fixture
def days(client: Client, warehouse: object) -> Client:
    """A client of ``default.t`` with the partitions 1/a and 1/b below it and 2/a elsewhere."""
    client.create_table(table("t", keys="month int, day string"))
    client.add_partitions([partition(values, of="t") for values in (["1", "a"], ["1", "b"])])
    client.add_partition(partition(["2", "a"], of="t", location=f"file:{warehouse}/elsewhere"))
    return client


def test_a_spec_lists_partitions_as_they_are(days: Client) -> None:
    (spec,) = days.get_partitions_pspec("default", "T", -1)
    assert (spec.dbName, spec.tableName, spec.sharedSDPartitionSpec) == ("default", "t", None)
    assert spec.rootPath == days.get_table("default", "t").sd.location
    assert spec.partitionList.partitions == days.get_partitions("default", "t", -1)
    (spec,) = days.get_part_specs_by_filter("default", "t", "day = 'a'", -1)
    assert [one.values for one in spec.partitionList.partitions] == [["1", "a"], ["2", "a"]]
    (spec,) = days.get_part_specs_by_filter("default", "t", "day = 'z'", -1)
    assert spec.partitionList.partitions == []


def test_partitions_of_one_storage_share_it(days: Client) -> None:
    grouped = days.get_table("default", "t")
    grouped.parameters |= GROUPING
    days.alter_table("default", "t", grouped)
    shared, others = days.get_partitions_pspec("default", "t", -1)
    inner = shared.sharedSDPartitionSpec
    assert inner.sd.location == shared.rootPath == grouped.sd.location
    assert [(one.values, one.relativePath) for one in inner.partitions] == [
        (["1", "a"], "/month=1/day=a"),
        (["1", "b"], "/month=1/day=b"),
    ]
    assert inner.partitions[0].parameters == days.get_partition("default", "t", ["1", "a"]).parameters
    assert [one.values for one in others.partitionList.partitions] == [["2", "a"]]


def test_specs_are_added_and_come_back(days: Client) -> None:
    days.create_table(table("copy", keys="month int, day string"))
    root = days.get_table("default", "copy").sd.location
    shared = PartitionSpecWithSharedSD(
        [PartitionWithoutSD([str(n), "x"], 0, 0, f"/at={n}", {"n": str(n)}) for n in range(3)], storage(location=root)
    )
    assert days.add_partitions_pspec([PartitionSpec("DEFAULT", "Copy", root, shared)]) == 3
    found = days.get_partitions("default", "copy", -1)
    assert [(one.values, one.sd.location, one.parameters["n"]) for one in found] == [
        ([str(n), "x"], f"{root}/at={n}", str(n)) for n in range(3)
    ]
    specs = days.get_partitions_pspec("default", "copy", 1)
    days.drop_partition("default", "copy", ["0", "x"], False)
    assert days.add_partitions_pspec(specs) == 1
    assert len(days.get_partitions("default", "copy", -1)) == 3
    with pytest.raises(MetaException, match="neither a list of partitions nor a shared"):
        days.add_partitions_pspec([PartitionSpec("default", "copy", root)])
    assert days.add_partitions_pspec([]) == 0


def specs(raw: Raw, fields: list[str], mode: int, *filters: str, **patterns: str) -> list[ttypes.PartitionSpec]:
    request = GetPartitionsRequest(
        dbName="default",
        tblName="t",
        projectionSpec=GetProjectionsSpec(fieldList=fields, **patterns),
        filterSpec=GetPartitionsFilterSpec(filterMode=mode, filters=list(filters)),
    )
    found = raw.call("get_partitions_with_specs", request=request)
    assert found.o1 is None, found.o1
    answer: list[ttypes.PartitionSpec] = found.success.partitionSpec
    return answer


def test_a_projection_has_only_what_is_asked_for(days: Client, raw: Raw) -> None:
    by_names, by_values, by_expression = range(3)
    (spec,) = specs(raw, ["values", "parameters"], by_values, "1")
    inner = spec.sharedSDPartitionSpec
    assert inner is not None
    assert inner.sd is None
    assert [one.values for one in inner.partitions or ()] == [["1", "a"], ["1", "b"]]
    assert {one.createTime for one in inner.partitions or ()} == {None}
    (spec,) = specs(raw, ["sd.location", "sd.serdeInfo.serializationLib"], by_names, "month=1/day=b", "nonsense")
    inner = spec.sharedSDPartitionSpec
    assert inner is not None
    assert inner.sd is not None
    assert (inner.sd.cols, inner.sd.serdeInfo and inner.sd.serdeInfo.parameters) == (None, None)
    assert [(one.values, one.relativePath) for one in inner.partitions or ()] == [(None, "/month=1/day=b")]
    found = specs(raw, ["values"], by_expression, "month = 1", "day > 'a'")
    assert [one.values for one in found[0].sharedSDPartitionSpec.partitions or ()] == [["1", "b"]]  # type: ignore[union-attr]
    (spec,) = specs(raw, ["parameters"], by_values, "1", excludeParamKeyPattern="transient%")
    assert spec.sharedSDPartitionSpec is not None
    assert [one.parameters for one in spec.sharedSDPartitionSpec.partitions or ()] == [{}, {}]


def test_a_projection_of_what_partitions_do_not_have_is_refused(days: Client, raw: Raw) -> None:
    for field in ("nosuch", "sd.nosuch", "values.x"):
        request = GetPartitionsRequest(
            dbName="default", tblName="t", projectionSpec=GetProjectionsSpec(fieldList=[field])
        )
        found = raw.call("get_partitions_with_specs", request=request)
        assert f"partitions have no field '{field}'" in found.o1.message


def test_partitions_by_expression(days: Client) -> None:
    def ask(expression: bytes) -> tuple[list[str], bool]:
        found = days.get_partitions_by_expr(PartitionsByExprRequest("default", "t", expression, maxParts=-1))
        return ["/".join(one.values) for one in found.partitions], found.hasUnknownPartitions

    assert ask(b"month = 1 and day = 'b'") == (["1/b"], False)
    assert ask(b"\xff") == (["1/a", "1/b", "2/a"], False)
    assert ask(KRYO) == (["1/a", "1/b", "2/a"], True)


def test_partitions_are_dropped_by_what_is_understood(days: Client) -> None:
    def drop(*expressions: bytes, if_exists: bool = False) -> list[list[str]]:
        parts = RequestPartsSpec(exprs=[DropPartitionsExpr(one) for one in expressions])
        request = DropPartitionsRequest("default", "t", parts, deleteData=True, ifExists=if_exists)
        return [one.values for one in days.drop_partitions_req(request).partitions]

    for expression in (KRYO, b"\xff", b"", b" ", b"length(day) = 1"):
        with pytest.raises(MetaException, match="drop the partitions by name"):
            drop(expression)
    with pytest.raises(MetaException, match="no partition column"):
        drop(b"nosuch = 1")
    with pytest.raises(NoSuchObjectException, match="no partition for which month = 7 holds"):
        drop(b"month = 1", b"month = 7")
    assert len(days.get_partition_names("default", "t", -1)) == 3
    assert drop(b"month = 7", if_exists=True) == []
    assert drop(b"month = 1", b"day = 'a'") == [["1", "a"], ["1", "b"], ["2", "a"]]


def test_privileges_are_told_where_partitions_have_their_own(days: Client) -> None:
    assert days.get_partition_with_auth("default", "t", ["1", "a"], "u", ["g"]).privileges is None
    own = days.get_table("default", "t")
    own.parameters["PARTITION_LEVEL_PRIVILEGE"] = "true"
    days.alter_table("default", "t", own)
    for found in (
        [days.get_partition_with_auth("default", "t", ["1", "a"], "u", ["g"])],
        days.get_partitions_with_auth("default", "t", -1, "u", ["g"]),
        days.get_partitions_ps_with_auth("default", "t", ["1"], -1, "u", ["g"]),
    ):
        for one in found:
            granted = one.privileges
            assert (granted.userPrivileges, granted.groupPrivileges) == ({"u": []}, {"g": []})
            assert granted.rolePrivileges == {"public": []}
    assert days.get_partition("default", "t", ["1", "a"]).privileges is None


def test_an_answer_has_only_so_many_partitions(days: Client, catalog: Catalog) -> None:
    with HmsBridge(catalog, partitions_max=2) as limited:
        raw = Raw(limited.port)
        asked = {"db_name": "default", "tbl_name": "t"}
        for name, more in (
            ("get_partitions", {"max_parts": -1}),
            ("get_partitions_by_filter", {"filter": "", "max_parts": 3}),
            ("get_partitions_pspec", {"max_parts": -1}),
            ("get_partitions_by_names", {"names": days.get_partition_names("default", "t", -1)}),
        ):
            found = raw.call(name, **asked, **more)
            refused = found.o1 if name in ("get_partitions_by_filter", "get_partitions_by_names") else found.o2
            assert "would have 3 partitions; at most 2" in refused.message, name
        assert len(raw.call("get_partitions", **asked, max_parts=2).success) == 2
        assert len(raw.call("get_partition_names", **asked, max_parts=-1).success) == 3
        raw.close()
