"""The examples of docs/keyed-tables.md and docs/writing.md, run in their order."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from lakemark import Client
from lakemark_server.process import Service
from tests.e2e.conftest import StartSpark
from tests.e2e.lake_spark.snippets import run

pytestmark = pytest.mark.spark

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```(sql|python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["keyed-tables", "writing"])
def test_the_examples_of_the_page_do_what_it_says(
    client: Client, service: Service, start_spark: StartSpark, page: str, tmp_path: Path
) -> None:
    spark = start_spark("4.3", service.hms_uri)
    client.databases.create("db", if_not_exists=True)
    run(spark, "import lakemark; client = lakemark.connect(server)", server=service.grpc_address)
    run(spark, "", directory=str(tmp_path))
    blocks = BLOCK.findall((DOCS / f"{page}.md").read_text())
    assert [language for language, _ in blocks].count("text") > 3

    rows: list[tuple[object, ...]] = []
    try:
        for language, text in blocks:
            match language:
                case "sql":
                    rows = spark.sql(text)
                case "python":
                    spark.python(text)
                case _:
                    assert [" ".join(map(str, row)) for row in rows] == text.splitlines()
    finally:  # other tests use the same session, and list its tables
        spark.python(
            "[spark.catalog.dropTempView(one.viewName) for one in spark.sql('SHOW VIEWS').collect() if one.isTemporary]"
        )


@pytest.mark.slow
def test_the_command_compacts(client: Client, service: Service, start_spark: StartSpark) -> None:
    spark = start_spark("4.3", service.hms_uri)
    client.databases.create("db", if_not_exists=True)
    properties = {
        "lakemark.primary-key": "id",
        "lakemark.bucket.count": "2",
        "lakemark.write.mode": "merge-on-read",
        "lakemark.conflict.policy": "row",
    }
    client.tables.create("db.by_command", "id bigint", properties=properties)
    run(
        spark,
        "import lakemark_spark; lakemark_spark.upsert(spark.range(5), 'db.by_command', server=server)",
        server=service.grpc_address,
    )

    command = [sys.executable, "-m", "lakemark", "--server", service.grpc_address, "tables", "compact", "db.by_command"]
    told = [
        subprocess.run(
            [*command, "--master", "local[1]", "--conf", "spark.driver.bindAddress=127.0.0.1"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for _ in range(2)
    ]

    assert told == ["compacted db.by_command: version 2\n", "db.by_command has nothing to merge\n"]
    assert client.read("db.by_command").num_rows == 5


@pytest.mark.slow
def test_the_commands_merge_small_files_and_put_rows_in_order(client: Client) -> None:
    client.databases.create("db", if_not_exists=True)
    table = "db.by_commands"
    client.tables.create(table, "x int, y string", properties={"lakemark.clustering.columns": "x"})
    for at in range(2):
        with client.begin(table, "append") as writer:
            writer.write(pa.table({"x": pa.array([at, 9 - at], pa.int32()), "y": ["a", "b"]}))
            writer.commit()
    server = ["--server", client.address, "tables"]
    spark = ["--master", "local[1]", "--conf", "spark.driver.bindAddress=127.0.0.1"]
    commands = [["compact", table], ["cluster", table], ["cluster", table, "--by", "y,x", "--where", "x > 100"]]
    told = [
        subprocess.run(
            [sys.executable, "-m", "lakemark", *server, *command, *spark], check=True, capture_output=True, text=True
        ).stdout
        for command in commands
    ]

    assert told == [
        f"compacted {table}: version 3\n",
        f"clustered {table}: version 4\n",
        f"{table} has no such files\n",
    ]
    assert client.read(table).column("x").to_pylist() == [0, 1, 8, 9]
