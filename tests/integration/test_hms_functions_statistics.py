"""Functions, column statistics and configuration through the Metastore protocol."""

import random
from typing import Any

import pytest
from hmsclient.genthrift.hive_metastore.ttypes import (
    AlreadyExistsException,
    BinaryColumnStatsData,
    BooleanColumnStatsData,
    ColumnStatistics,
    ColumnStatisticsData,
    ColumnStatisticsDesc,
    ColumnStatisticsObj,
    Date,
    DateColumnStatsData,
    Decimal,
    DecimalColumnStatsData,
    DoubleColumnStatsData,
    Function,
    FunctionType,
    InvalidObjectException,
    LongColumnStatsData,
    MetaException,
    NoSuchObjectException,
    PartitionsStatsRequest,
    PrincipalType,
    ResourceType,
    ResourceUri,
    StringColumnStatsData,
    TableStatsRequest,
)

from tests.integration.conftest import Client
from tests.integration.hms_objects import database, partition, table


def function(name: str, kind: str = "x.Y") -> Function:
    resources = [ResourceUri(ResourceType.JAR, "file:/a.jar")]
    return Function(name, "default", kind, "ann", PrincipalType.USER, 0, FunctionType.JAVA, resourceUris=resources)


def test_functions(client: Client) -> None:
    client.create_function(function("Plus"))
    client.create_function(function("minus"))
    found = client.get_function("default", "PLUS")
    assert (found.functionName, found.className, found.dbName) == ("plus", "x.Y", "default")
    assert found.resourceUris == [ResourceUri(ResourceType.JAR, "file:/a.jar")]
    assert found.createTime > 1_700_000_000
    assert client.get_functions("default", "*") == ["minus", "plus"]
    assert client.get_functions("default", "p*") == ["plus"]
    assert [one.functionName for one in client.get_all_functions().functions] == ["minus", "plus"]
    with pytest.raises(AlreadyExistsException):
        client.create_function(function("plus"))
    with pytest.raises(InvalidObjectException, match="not legal"):
        client.create_function(function("a b"))
    client.alter_function("default", "plus", function("add", "x.Z"))
    assert client.get_function("default", "add").className == "x.Z"
    with pytest.raises(NoSuchObjectException):
        client.get_function("default", "plus")
    with pytest.raises(MetaException, match="not legal"):
        client.alter_function("default", "add", function("", "x.Z"))
    assert [one.functionName for one in client.get_all_functions().functions] == ["add", "minus"]
    client.drop_function("default", "add")
    with pytest.raises(NoSuchObjectException):
        client.drop_function("default", "add")
    with pytest.raises(NoSuchObjectException):
        client.create_function(Function("f", "nowhere", "x.Y", "", PrincipalType.USER, 0, FunctionType.JAVA))
    assert client.get_functions("default", "*") == ["minus"]


def test_a_function_moves_to_another_database(client: Client) -> None:
    client.create_database(database("d"))
    client.create_function(function("plus"))
    before = client.get_function("default", "plus")
    moved = function("Add", "x.Z")
    moved.dbName = "D"
    client.alter_function("default", "PLUS", moved)
    found = client.get_function("d", "add")
    assert (found.dbName, found.functionName, found.className) == ("d", "add", "x.Z")
    assert found.createTime == before.createTime
    assert client.get_functions("default", "*") == []
    client.create_function(function("plus"))
    with pytest.raises(MetaException, match=r"function d\.add already exists"):
        client.alter_function("default", "plus", moved)
    moved.dbName = "none"
    with pytest.raises(MetaException, match="no database 'none'"):
        client.alter_function("default", "plus", moved)
    with pytest.raises(MetaException, match=r"Function default\.none does not exist"):
        client.alter_function("default", "none", function("x"))
    assert client.get_functions("default", "*") == ["plus"]


@pytest.mark.parametrize(
    ("field", "error", "said"),
    [
        ("functionName", MetaException, "name of the function is null"),
        ("dbName", MetaException, "name of the database is null"),
        ("ownerType", MetaException, "no ownerType"),
        ("functionType", MetaException, "no functionType"),
        ("className", InvalidObjectException, "no class"),
    ],
)
def test_a_function_without_what_every_function_has(
    client: Client, field: str, error: type[Exception], said: str
) -> None:
    client.create_function(function("plus"))
    bad = function("minus")
    setattr(bad, field, None)
    with pytest.raises(error, match=said):
        client.create_function(bad)
    with pytest.raises(MetaException, match=said):
        client.alter_function("default", "plus", bad)
    assert client.get_functions("default", "*") == ["plus"]


def test_a_function_without_resources_has_an_empty_list_of_them(client: Client) -> None:
    bare = function("plus")
    bare.resourceUris = None
    client.create_function(bare)
    assert client.get_function("default", "plus").resourceUris == []


def numbers(column: str, high: int) -> ColumnStatisticsObj:
    data = ColumnStatisticsData(longStats=LongColumnStatsData(lowValue=0, highValue=high, numNulls=1, numDVs=2))
    return ColumnStatisticsObj(column, "int", data)


def test_column_statistics_come_back_as_they_were_given(client: Client) -> None:
    client.create_table(table("t", keys="p string"))
    client.add_partition(partition(["1"], of="t"))
    of_table = ColumnStatisticsDesc(True, "default", "t")
    of_partition = ColumnStatisticsDesc(False, "default", "t", "p=1")
    assert client.update_table_column_statistics(ColumnStatistics(of_table, [numbers("a", 9), numbers("b", 8)]))
    assert client.update_partition_column_statistics(ColumnStatistics(of_partition, [numbers("a", 7)]))
    assert client.get_table_column_statistics("default", "t", "A").statsObj == [numbers("a", 9)]
    assert client.get_partition_column_statistics("default", "t", "p=1", "a").statsObj == [numbers("a", 7)]
    found = client.get_table_statistics_req(TableStatsRequest("default", "t", ["b", "a", "c"]))
    assert found.tableStats == [numbers("b", 8), numbers("a", 9)]
    request = PartitionsStatsRequest("default", "t", ["a"], ["p=1", "p=2"])
    assert client.get_partitions_statistics_req(request).partStats == {"p=1": [numbers("a", 7)]}
    with pytest.raises(NoSuchObjectException):
        client.get_table_column_statistics("default", "t", "c")
    missing = ColumnStatisticsDesc(False, "default", "t", "p=9")
    with pytest.raises(NoSuchObjectException):
        client.update_partition_column_statistics(ColumnStatistics(missing, [numbers("a", 7)]))
    assert client.delete_table_column_statistics("default", "t", "a")
    assert client.get_table_statistics_req(TableStatsRequest("default", "t", ["a", "b"])).tableStats == [
        numbers("b", 8)
    ]
    client.drop_partition("default", "t", ["1"], True)
    client.add_partition(partition(["1"], of="t"))
    assert client.get_partitions_statistics_req(request).partStats == {}


def of_each_kind(chance: random.Random) -> list[ColumnStatisticsObj]:
    """Statistics of a partition, as an engine computes them."""
    low, high = sorted(chance.randint(-(10**6), 10**6) for _ in range(2))
    nulls, distinct = chance.randint(0, 100), chance.randint(1, 100)
    kinds = {
        "long": ("bigint", "longStats", LongColumnStatsData(low, high, nulls, distinct)),
        "double": ("double", "doubleStats", DoubleColumnStatsData(low / 8, high / 8, nulls, distinct)),
        "text": ("string", "stringStats", StringColumnStatsData(distinct, distinct / 2, nulls, distinct)),
        "bytes": ("binary", "binaryStats", BinaryColumnStatsData(distinct, distinct / 4, nulls)),
        "flag": ("boolean", "booleanStats", BooleanColumnStatsData(distinct, nulls, chance.randint(0, 9))),
        "price": (
            "decimal(38,2)",
            "decimalStats",
            DecimalColumnStatsData(amount(low * 10**20, 2), amount(high * 10**20, 2), nulls, distinct),
        ),
        "day": ("date", "dateStats", DateColumnStatsData(Date(low // 100), Date(high // 100), nulls, distinct)),
    }
    return [
        ColumnStatisticsObj(name, kind, ColumnStatisticsData(**{field: data}))
        for name, (kind, field, data) in kinds.items()
    ]


def amount(unscaled: int, scale: int) -> Decimal:
    return Decimal(unscaled=unscaled.to_bytes(16, "big", signed=True), scale=scale)


def test_statistics_of_several_partitions_together(client: Client) -> None:
    client.create_table(table("t", keys="p string"))
    client.create_table(table("empty", keys="p string"))
    chance = random.Random(3)
    names = [f"p={number}" for number in range(5)]
    stored = {}
    for number, name in enumerate(names):
        client.add_partition(partition([str(number)], of="t"))
        if number < 4:
            stored[name] = of_each_kind(chance)[: 7 if number else 1]
            place = ColumnStatisticsDesc(False, "default", "t", name)
            client.update_partition_column_statistics(ColumnStatistics(place, stored[name]))

    def asked(columns: list[str], places: list[str], of: str = "t") -> Any:
        return client.get_aggr_stats_for(PartitionsStatsRequest("default", of, columns, places))

    columns = ["LONG", "double", "text", "bytes", "flag", "price", "day"]
    more = asked(columns, [*names, "p=77"])
    assert more.partsFound == 3
    assert more.colStats[0].statsData.longStats.numNulls > sum(
        one.statsData.longStats.numNulls for structs in stored.values() for one in structs if one.colName == "long"
    )
    stored.pop("p=0")
    together = asked(columns, list(stored))
    assert together.partsFound == 3
    data = {one.colName: one.statsData for one in together.colStats}
    assert list(data) == [column.lower() for column in columns]
    longs = [one.statsData.longStats for structs in stored.values() for one in structs if one.colName == "long"]
    assert len(longs) == 3
    assert data["long"].longStats == LongColumnStatsData(
        min(one.lowValue for one in longs),
        max(one.highValue for one in longs),
        sum(one.numNulls for one in longs),
        max(one.numDVs for one in longs),
    )
    prices = [one.statsData.decimalStats for structs in stored.values() for one in structs if one.colName == "price"]
    lows = {int.from_bytes(one.lowValue.unscaled, "big", signed=True): one.lowValue for one in prices}
    assert data["price"].decimalStats.lowValue == lows[min(lows)]
    days = [one.statsData.dateStats for structs in stored.values() for one in structs if one.colName == "day"]
    assert data["day"].dateStats.highValue.daysSinceEpoch == max(one.highValue.daysSinceEpoch for one in days)
    flags = [one.statsData.booleanStats for structs in stored.values() for one in structs if one.colName == "flag"]
    assert data["flag"].booleanStats.numTrues == sum(one.numTrues for one in flags)
    texts = [one.statsData.stringStats for structs in stored.values() for one in structs if one.colName == "text"]
    assert data["text"].stringStats.avgColLen == max(one.avgColLen for one in texts)
    assert (asked(["long"], names).partsFound, asked(["long", "text"], names).partsFound) == (4, 3)
    for nothing in (asked([], names), asked(["long"], []), asked(["other"], names), asked(["long"], ["p=1"], "empty")):
        assert (nothing.colStats, nothing.partsFound) == ([], 0)
    with pytest.raises(NoSuchObjectException):
        asked(["long"], ["p=1"], "missing")


def test_a_column_whose_type_has_changed_has_no_statistics_together(client: Client) -> None:
    client.create_table(table("t", keys="p string"))
    texts = ColumnStatisticsData(stringStats=StringColumnStatsData(3, 2.0, 1, 2))
    for name, one in (("1", numbers("a", 7)), ("2", ColumnStatisticsObj("a", "string", texts))):
        client.add_partition(partition([name], of="t"))
        place = ColumnStatisticsDesc(False, "default", "t", f"p={name}")
        client.update_partition_column_statistics(ColumnStatistics(place, [one, numbers("b", 3)]))
    together = client.get_aggr_stats_for(PartitionsStatsRequest("default", "t", ["a", "b"], ["p=1", "p=2"]))
    assert ([one.colName for one in together.colStats], together.partsFound) == (["b"], 2)


def test_configuration(client: Client) -> None:
    assert client.get_config_value("hive.metastore.warehouse.dir", "x") == client.get_database("default").locationUri
    assert client.get_config_value("no.such.setting", "mine") == "mine"
    client.setMetaConf("hive.x", "1")
    assert client.getMetaConf("hive.x") == "1"


def test_a_database_with_functions_is_not_empty(client: Client) -> None:
    client.create_database(database("d"))
    client.create_function(Function("f", "d", "x.Y", "", PrincipalType.USER, 0, FunctionType.JAVA))
    with pytest.raises(Exception, match="functions"):
        client.drop_database("d", True, False)
