"""What plain Spark cannot do with lake tables: refused in words that name the way, and what stays behind is told."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lakemark import Client
from lakemark.errors import TableNotFound
from tests.e2e.spark_runner import SparkProcess, SparkStatementError

pytestmark = pytest.mark.spark


@pytest.fixture
def warehouse(client: Client) -> Path:
    return Path(client.databases.get("default").location.removeprefix("file:"))


def test_a_refused_create_table_as_select_says_what_it_leaves(
    client: Client, spark: SparkProcess, spark_version: str, warehouse: Path
) -> None:
    """Spark writes the rows first and asks for the table then. The service cannot know that they are nobody's."""
    name = f"chosen{spark_version.replace('.', '')}"
    create = f"CREATE TABLE default.{name}"
    lake = "USING parquet TBLPROPERTIES ('lakemark.type'='lake')"
    with pytest.raises(SparkStatementError) as refused:
        spark.sql(f"{create} {lake} AS SELECT 1 AS id")
    told = str(refused.value)
    assert f"the directory file:{warehouse}/{name} has files in it" in told
    assert "CREATE TABLE … AS SELECT" in told
    assert "delete the directory if it holds nothing else" in told
    assert list((warehouse / name).glob("*.parquet")), "nothing is deleted that may be somebody's data"
    with pytest.raises(TableNotFound):
        client.tables.get(f"default.{name}")

    with pytest.raises(SparkStatementError, match="LOCATION_ALREADY_EXISTS"):  # by Spark itself
        spark.sql(f"{create} (id INT) {lake}")
    shutil.rmtree(warehouse / name)
    spark.sql(f"{create} (id INT) {lake}")
    assert client.tables.get(f"default.{name}").kind == "lake"
    assert spark.sql(f"SELECT * FROM default.{name}") == []


def test_options_of_the_files_make_no_lake_table(
    client: Client, spark: SparkProcess, spark_version: str, warehouse: Path
) -> None:
    saved, created = (f"{one}{spark_version.replace('.', '')}" for one in ("saved", "created"))
    with pytest.raises(SparkStatementError) as refused:
        spark.python(f"spark.range(3).write.option('lakemark.type', 'lake').saveAsTable('default.{saved}'); result = 1")
    told = str(refused.value)
    assert "lakemark.type is given as an option of the files" in told
    assert "TBLPROPERTIES ('lakemark.type'='lake')" in told
    assert f"the directory file:{warehouse}/{saved} has files in it" in told
    with pytest.raises(SparkStatementError, match=r"TBLPROPERTIES \('lakemark.type'='lake'\)") as refused:
        spark.sql(f"CREATE TABLE default.{created} (id INT) USING parquet OPTIONS ('lakemark.type'='lake')")
    assert "has files in it" not in str(refused.value)
    with pytest.raises(SparkStatementError, match=r"'lakemark.typ' is not known; did you mean 'lakemark.type'"):
        spark.sql(f"CREATE TABLE default.{created} (id INT) USING parquet TBLPROPERTIES ('lakemark.typ'='lake')")
    assert {saved, created}.isdisjoint(one.name for one in client.tables.list("default"))
