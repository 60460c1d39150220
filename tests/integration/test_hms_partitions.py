"""Partitions through the Metastore protocol."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from hmsclient.genthrift.hive_metastore.ttypes import (
    AddPartitionsRequest,
    AlreadyExistsException,
    DropPartitionsRequest,
    InvalidObjectException,
    InvalidOperationException,
    MetaException,
    NoSuchObjectException,
    RequestPartsSpec,
)

from lakemark_hms.bridge import HmsBridge
from lakemark_server.catalog import partition_sets
from lakemark_server.catalog.partition_sets import PartitionSets
from lakemark_server.catalog.service import Catalog
from lakemark_thrift import ttypes
from tests.integration.conftest import Client, Connect
from tests.integration.hms_objects import partition, path, table
from tests.integration.hms_raw import Raw


@pytest.fixture
def days(client: Client) -> Client:
    """A client of ``default.t``, partitioned by month and day: 1/a, 1/b, 2/a."""
    client.create_table(table("t", keys="month int, day string"))
    client.add_partitions([partition(values, of="t") for values in (["1", "a"], ["1", "b"], ["2", "a"])])
    return client


def names(client: Client) -> list[str]:
    return list(client.get_partition_names("default", "t", -1))


def test_a_partition_gets_its_place_and_its_times(days: Client, warehouse: Path) -> None:
    found = days.get_partition("default", "T", ["1", "b"])
    assert found.sd.location == f"file:{warehouse}/t/month=1/day=b"
    assert path(found.sd.location).is_dir()
    assert (found.dbName, found.tableName, found.values) == ("default", "t", ["1", "b"])
    assert found.createTime > 1_700_000_000
    assert found.parameters["transient_lastDdlTime"] == str(found.createTime)
    assert days.get_partition_by_name("default", "t", "month=1/day=b") == found
    assert days.get_partition_with_auth("default", "t", ["1", "b"], "u", []) == found


def test_values_are_escaped_in_names_and_paths(days: Client) -> None:
    days.add_partition(partition(["3", "x/y=z 10:00"], of="t"))
    assert names(days)[-1] == "month=3/day=x%2Fy%3Dz 10%3A00"
    found = days.get_partition_by_name("default", "t", "month=3/day=x%2Fy%3Dz 10%3A00")
    assert found.values == ["3", "x/y=z 10:00"]
    assert found.sd.location.endswith("/month=3/day=x%2Fy%3Dz 10%3A00")
    assert days.partition_name_to_vals("a=1/b=x%2Fy") == ["1", "x/y"]
    assert days.partition_name_to_spec("a=1/b=x%2Fy") == {"a": "1", "b": "x/y"}


def test_looking_up_several(days: Client) -> None:
    def values(found: list[ttypes.Partition]) -> list[str]:
        return ["/".join(one.values or ()) for one in found]

    for _ in range(2):  # read by their keys, then from memory
        assert values(days.get_partitions("default", "t", 2)) == ["1/a", "1/b"]
        assert values(days.get_partitions_ps("default", "t", ["1"], -1)) == ["1/a", "1/b"]
        assert values(days.get_partitions_ps("default", "t", ["", "a"], -1)) == ["1/a", "2/a"]
        assert values(days.get_partitions_ps_with_auth("default", "t", ["", "a"], 1, "u", [])) == ["1/a"]
        assert days.get_partition_names_ps("default", "t", ["1", ""], 1) == ["month=1/day=a"]
        found = days.get_partitions_by_names("default", "t", ["month=2/day=a", "month=9/day=a", "month=1/day=a"])
        assert values(found) == ["2/a", "1/a"]
        assert values(days.get_partitions("default", "t", -1)) == ["1/a", "1/b", "2/a"]
    assert values(days.get_partitions_with_auth("default", "t", -1, "u", [])) == ["1/a", "1/b", "2/a"]
    assert names(days) == ["month=1/day=a", "month=1/day=b", "month=2/day=a"]
    assert days.get_partitions("default", "t", 0) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "1/a 1/b 2/a"),
        ("month = 1", "1/a 1/b"),
        ('month = 1 and day = "b"', "1/b"),
        ('(day = "b" or month = 2)', "1/b 2/a"),
        ("month > 1 and month <= 3", "2/a"),
        ('day != "a"', "1/b"),
        ('day like "a.*"', "1/a 2/a"),
        ('(day) in ("b", "c")', "1/b"),
        ('(day) not in ("b", "c")', "1/a 2/a"),
        ("month > 10", ""),
        ('day like "a%"', "1/a 2/a"),
    ],
)
def test_filters_select_exactly_or_more(days: Client, text: str, expected: str) -> None:
    found = days.get_partitions_by_filter("default", "t", text, -1)
    assert ["/".join(one.values) for one in found] == expected.split()
    assert days.get_num_partitions_by_filter("default", "t", text) == len(expected.split())
    assert len(days.get_partitions_by_filter("default", "t", text, 1)) == min(1, len(expected.split()))


@pytest.mark.parametrize("text", ["length(day) = 1", "month = = 1"])
def test_a_filter_that_is_not_understood_selects_all_but_is_not_counted(days: Client, text: str) -> None:
    assert len(days.get_partitions_by_filter("default", "t", text, -1)) == 3  # the client filters again
    with pytest.raises(MetaException, match="not understood"):
        days.get_num_partitions_by_filter("default", "t", text)


def test_a_filter_by_what_is_no_partition_column_is_refused(days: Client) -> None:
    for ask in (days.get_num_partitions_by_filter, lambda *args: days.get_partitions_by_filter(*args, -1)):
        with pytest.raises(MetaException, match=r"'nosuch', which is no partition column: there are \[month, day\]"):
            ask("default", "t", 'nosuch = "x" or month = 1')


def test_filters_compare_by_type_and_know_null(client: Client) -> None:
    client.create_table(table("t", keys="n int, d date"))
    texts = (["2", "2024-01-31"], ["10", "2024-02-01"], ["__HIVE_DEFAULT_PARTITION__", "2024-02-02"])
    client.add_partitions([partition(values, of="t") for values in texts])
    for text, expected in (
        ("n > 9", ["10"]),
        ("n < 9", ["2"]),
        ("n != 2", ["10"]),
        ('d >= "2024-02-01"', ["10", "__HIVE_DEFAULT_PARTITION__"]),
        ("d >= 2024-02-01 and n > 0", ["10"]),
    ):
        assert [one.values[0] for one in client.get_partitions_by_filter("default", "t", text, -1)] == expected, text


def test_a_value_that_does_not_fit_its_type_makes_filters_select_all(client: Client) -> None:
    client.create_table(table("t", keys="n int"))
    client.add_partitions([partition([value], of="t") for value in ("1", "x")])
    assert len(client.get_partitions_by_filter("default", "t", "n = 1", -1)) == 2


def test_errors_are_the_declared_ones(days: Client) -> None:
    with pytest.raises(AlreadyExistsException, match="Partition already exists: month=1/day=a"):
        days.add_partition(partition(["1", "a"], of="t"))
    with pytest.raises(AlreadyExistsException):
        days.add_partitions([partition(["7", "a"], of="t"), partition(["1", "a"], of="t")])
    assert len(names(days)) == 3
    with pytest.raises(MetaException, match=r"\[month, day\], the values are \[1\]"):
        days.add_partition(partition(["1"], of="t"))
    with pytest.raises(MetaException, match="twice"):
        days.add_partitions([partition(["7", "a"], of="t"), partition(["7", "a"], of="t")])
    with pytest.raises(MetaException, match="does not belong to target table"):
        days.add_partitions([partition(["7", "a"], of="t"), partition(["7", "a"], of="other")])
    with pytest.raises(InvalidObjectException, match="none table not found"):
        days.add_partition(partition(["1", "a"], of="none"))
    with pytest.raises(NoSuchObjectException, match="no partition month=9/day=a"):
        days.get_partition("default", "t", ["9", "a"])
    with pytest.raises(MetaException, match="Invalid partition key"):
        days.get_partition("default", "t", ["9"])
    assert days.get_partition_by_name("default", "t", "day=a/month=1").values == ["1", "a"]
    for name in ("month=1", "MONTH=1/day=a", "month=1/day", "x"):
        with pytest.raises(NoSuchObjectException, match="does not fit"):
            days.get_partition_by_name("default", "t", name)
    assert days.get_partitions_by_names("default", "t", ["", "x", "month=1", "MONTH=1/day=a"]) == []
    with pytest.raises(NoSuchObjectException):
        days.get_partitions("default", "none", -1)
    with pytest.raises(NoSuchObjectException):
        days.drop_partition("default", "t", ["9", "a"], True)
    with pytest.raises(InvalidOperationException, match="no partition"):
        days.alter_partition("default", "t", partition(["9", "a"], of="t"))
    days.create_table(table("flat"))
    with pytest.raises(MetaException, match="not partitioned"):
        days.add_partition(partition(["1"], of="flat"))
    assert days.get_partitions("default", "flat", -1) == []


def test_add_if_not_exists_gives_what_is_new(days: Client) -> None:
    parts = [partition(values, of="t") for values in (["1", "a"], ["5", "a"])]
    found = days.add_partitions_req(AddPartitionsRequest("default", "t", parts, ifNotExists=True))
    assert [one.values for one in found.partitions] == [["5", "a"]]
    silent = AddPartitionsRequest("default", "t", parts, ifNotExists=True, needResult=False)
    assert days.add_partitions_req(silent).partitions is None
    with pytest.raises(AlreadyExistsException):
        days.add_partitions_req(AddPartitionsRequest("default", "t", parts, ifNotExists=False))


def test_append_takes_storage_from_the_table(days: Client) -> None:
    made = days.append_partition("default", "t", ["8", "x"])
    assert [c.name for c in made.sd.cols] == ["a", "b"]
    assert path(made.sd.location).is_dir()
    assert days.append_partition_by_name("default", "t", "month=9/day=y").values == ["9", "y"]
    assert len(names(days)) == 5


def test_alter_replaces_all_but_the_values(days: Client, tmp_path: Path) -> None:
    before = days.get_partition("default", "t", ["1", "a"])
    changed = partition(["1", "a"], of="t", location=f"{tmp_path}/new")
    changed.parameters = {"numRows": "7"}
    other = partition(["1", "b"], of="t")
    days.alter_partitions("default", "t", [changed, other])
    after = days.get_partition("default", "t", ["1", "a"])
    assert after.sd.location == f"file:{tmp_path}/new"
    assert after.parameters["numRows"] == "7"
    assert days.get_partition("default", "t", ["1", "b"]).sd.location == before.sd.location[:-1] + "b"
    with pytest.raises(InvalidOperationException):
        days.alter_partitions("default", "t", [partition(["1", "a"], of="t"), partition(["9", "z"], of="t")])
    assert days.get_partition("default", "t", ["1", "a"]).parameters["numRows"] == "7"


def test_rename_moves_the_directory(days: Client) -> None:
    old = days.get_partition("default", "t", ["1", "a"])
    (path(old.sd.location) / "file").write_text("x")
    new = days.get_partition("default", "t", ["1", "a"])
    new.values = ["4", "c"]
    days.rename_partition("default", "t", ["1", "a"], new)
    found = days.get_partition("default", "t", ["4", "c"])
    assert found.sd.location.endswith("/month=4/day=c")
    assert (path(found.sd.location) / "file").read_text() == "x"
    assert not path(old.sd.location).exists()
    assert found.createTime == old.createTime
    assert names(days) == ["month=1/day=b", "month=2/day=a", "month=4/day=c"]
    new.values = ["2", "a"]
    with pytest.raises(InvalidOperationException, match=r"already exists|exists already"):
        days.rename_partition("default", "t", ["4", "c"], new)
    assert path(found.sd.location).is_dir()
    with pytest.raises(InvalidOperationException, match="no partition"):
        days.rename_partition("default", "t", ["7", "x"], new)


def test_drop_deletes_the_data_and_empty_parents(days: Client) -> None:
    location = path(days.get_partition("default", "t", ["1", "a"]).sd.location)
    assert days.drop_partition("default", "t", ["1", "a"], True)
    assert not location.exists()
    assert location.parent.is_dir()
    assert days.drop_partition_by_name("default", "t", "month=1/day=b", True)
    assert not location.parent.exists()
    kept = path(days.get_partition("default", "t", ["2", "a"]).sd.location)
    days.drop_partition("default", "t", ["2", "a"], False)
    assert kept.is_dir()
    assert names(days) == []


def test_partitions_of_external_tables_keep_their_data(client: Client, tmp_path: Path) -> None:
    client.create_table(table("t", keys="p string", parameters={"EXTERNAL": "TRUE"}, location=f"{tmp_path}/ext"))
    client.add_partition(partition(["1"], of="t"))
    client.drop_partition("default", "t", ["1"], True)
    assert (tmp_path / "ext" / "p=1").is_dir()


def test_several_are_dropped_by_name_or_not_at_all(days: Client) -> None:
    spec = RequestPartsSpec(names=["month=1/day=a", "month=9/day=a"])
    request = DropPartitionsRequest("default", "t", spec, deleteData=True, ifExists=False)
    with pytest.raises(NoSuchObjectException):
        days.drop_partitions_req(request)
    assert len(names(days)) == 3
    request.ifExists = True
    found = days.drop_partitions_req(request)
    assert [one.values for one in found.partitions] == [["1", "a"]]
    assert names(days) == ["month=1/day=b", "month=2/day=a"]


def test_what_others_change_is_seen_at_once(days: Client, catalog: Catalog, hms: HmsBridge) -> None:
    """A second service process on the same store, with its own cache."""
    assert len(names(days)) == 3
    with HmsBridge(catalog) as second:
        other = Raw(second.port)
        added = ttypes.Partition(
            values=["3", "c"],
            dbName="default",
            tableName="t",
            sd=ttypes.StorageDescriptor(cols=[], serdeInfo=ttypes.SerDeInfo()),
            parameters={},
        )
        for month in range(3, 8):
            added.values = [str(month), "c"]
            other.call("add_partition", new_part=added)
            other.call("drop_partition", db_name="default", tbl_name="t", part_vals=["1", "a"], deleteData=True)
            assert names(days)[:2] == ["month=1/day=b", "month=2/day=a"]
            assert names(days)[-1] == f"month={month}/day=c"
            found = other.call("get_partition_names", db_name="default", tbl_name="t", max_parts=-1).success
            assert found == names(days)
        other.close()


def test_of_two_that_add_the_same_partition_one_wins(connect: Connect) -> None:
    clients = [connect() for _ in range(4)]
    clients[0].create_table(table("t", keys="p string"))
    barrier = Barrier(len(clients))

    def add(client: Client) -> list[str]:
        answers = []
        for value in range(20):
            barrier.wait()
            try:
                client.add_partition(partition([str(value)], of="t"))
                answers.append("added")
            except AlreadyExistsException:
                answers.append("exists")
        return answers

    with ThreadPoolExecutor(len(clients)) as pool:
        answers = list(pool.map(add, clients))
    for round_ in zip(*answers, strict=True):
        assert sorted(round_) == ["added", "exists", "exists", "exists"]
    assert len(names(clients[0])) == 20


def test_many_partitions_in_one_request(client: Client) -> None:
    client.create_table(table("t", keys="n int, s string"))
    many = [partition([str(at), f"s{at % 7}"], of="t", location=f"/nowhere/{at}") for at in range(200)]
    for one in many:
        one.sd.location = None
        one.parameters = {"filler": "x" * 30_000}
    assert client.add_partitions(many) == 200  # 6 MB: several transactions
    assert len(client.get_partitions("default", "t", -1)) == 200
    many.append(partition(["300", "s"], of="t"))
    with pytest.raises(AlreadyExistsException):
        client.add_partitions(many[::-1])
    assert len(names(client)) == 200


def test_many_partitions_are_changed_and_dropped_in_one_request(client: Client, warehouse: Path) -> None:
    client.create_table(table("t", keys="n int, s string"))
    many = [partition([str(at), "s"], of="t") for at in range(100)]
    for one in many:
        one.sd.location = None
        one.parameters = {"filler": "x" * 30_000}
    client.add_partitions(many)
    for one in many:
        one.parameters = {"filler": "y" * 30_000}
    with pytest.raises(InvalidOperationException, match="no partition n=300"):
        client.alter_partitions("default", "t", [*many, partition(["300", "s"], of="t")])
    assert {one.parameters["filler"][:1] for one in client.get_partitions("default", "t", -1)} == {"x"}
    client.alter_partitions("default", "t", many)  # 3 MB before and after: several transactions
    assert {one.parameters["filler"][:1] for one in client.get_partitions("default", "t", -1)} == {"y"}
    found = [f"n={at}/s=s" for at in range(100)]
    longer = "long" * 200
    places = {at: f"{warehouse}/elsewhere/{at}" for at in range(100, 220)}  # such a name is none for a directory
    client.add_partitions([partition([str(at), longer], of="t", location=place) for at, place in places.items()])
    wanted = [*found, *(f"n={at}/s={longer}" for at in places)]
    request = DropPartitionsRequest("default", "t", RequestPartsSpec(names=[*wanted, "n=300/s=s"]), ifExists=False)
    with pytest.raises(NoSuchObjectException):
        client.drop_partitions_req(request)
    assert len(names(client)) == 220
    request.parts.names = wanted
    assert len(client.drop_partitions_req(request).partitions) == 220
    assert names(client) == []


def test_ten_thousand_partitions(client: Client) -> None:
    client.create_table(table("t", keys="n int, s string", parameters={"EXTERNAL": "TRUE"}))
    for start in range(0, 10_000, 2_500):
        parts = [partition([str(at), f"s{at % 100}"], of="t") for at in range(start, start + 2_500)]
        assert client.add_partitions(parts) == 2_500
    assert len(client.get_partitions("default", "t", -1)) == 10_000
    assert len(client.get_partitions_by_filter("default", "t", 'n >= 100 and n < 400 and s = "s7"', -1)) == 3
    client.drop_partition("default", "t", ["5", "s5"], False)
    client.add_partition(partition(["20000", "s5"], of="t"))
    assert len(client.get_partitions_by_filter("default", "t", 's = "s5"', -1)) == 100
    found = names(client)
    assert len(found) == 10_000
    assert "n=5/s=s5" not in found


def test_names_of_more_partitions_than_memory_may_have(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client.create_table(table("t", keys="p string, q int"))
    made = [partition([f"a b/{number:03}", str(number % 7)], of="t") for number in range(200)]
    client.add_partitions(made)
    names = client.get_partition_names("default", "t", -1)
    assert len(names) == 200
    monkeypatch.setattr(PartitionSets, "get_if_kept", lambda *_: None)
    monkeypatch.setattr(partition_sets, "_PAGE", 30)
    assert client.get_partition_names("default", "t", -1) == names
    assert client.get_partition_names("default", "t", 5) == names[:5]
    assert client.get_partition_names("default", "none", -1) == []
