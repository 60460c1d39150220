"""The first examples that a stranger meets: those of README.md, and of the site's first page, docs/index.md."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import lakemark
from lakemark_server.process import Service
from tests.e2e.conftest import StartSpark

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = "127.0.0.1:9090"


def test_the_examples_of_the_readme_print_what_it_says(service: Service, start_spark: StartSpark) -> None:
    spark = start_spark("4.3", service.hms_uri)
    blocks = BLOCK.findall((ROOT / "README.md").read_text())
    (sql,) = (text for language, text in blocks if language == "sql")
    (python,) = (text for language, text in blocks if language == "python")
    after_sql, after_python = (text for language, text in blocks if language == "text")

    rows = [row for statement in sql.split(";") if statement.strip() for row in spark.sql(statement)]
    assert [" ".join(map(str, row)) for row in rows] == after_sql.splitlines()

    program = [sys.executable, "-c", python.replace(ADDRESS, service.grpc_address)]
    assert subprocess.run(program, check=True, capture_output=True, text=True).stdout == after_python
    spark.sql("DROP VIEW flights")


def test_the_first_example_of_the_site_prints_what_it_says(service: Service, start_spark: StartSpark) -> None:
    spark = start_spark("4.3", service.hms_uri)
    blocks = BLOCK.findall((ROOT / "docs" / "index.md").read_text())
    (python,) = (text for language, text in blocks if language == "python")
    told = re.findall(r"^print\((.*)\)  # (Row\(.*=\d+\))", python, re.MULTILINE)
    assert len(told) == 2

    program = re.sub(r"^print\(.*$", "", python, flags=re.MULTILINE)
    program = program.replace("thrift://127.0.0.1:9083", service.hms_uri)
    spark.python(program.replace('"default.flights")', f'"default.flights", server={service.grpc_address!r})'))
    for expression, row in told:
        assert spark.python(f"result = str({expression})") == row
    spark.sql("DROP VIEW flights")


def test_a_database_of_spark_lies_below_its_warehouse_directory(service: Service, start_spark: StartSpark) -> None:
    """As docs/locations.md says, and what it tells to set."""
    spark = start_spark("4.3", service.hms_uri)
    spark.sql("CREATE DATABASE of_spark")
    with lakemark.connect(service.grpc_address) as client:
        client.databases.create("of_ours")
        of_spark, of_ours = (client.databases.get(name).location for name in ("of_spark", "of_ours"))
        client.databases.drop("of_ours")
    spark.sql("DROP DATABASE of_spark")

    (row,) = spark.sql("SET spark.sql.warehouse.dir")
    assert of_spark == f"file:{str(row[1]).removeprefix('file:')}/of_spark.db"
    assert of_ours == f"{service.settings.warehouse_uri}/of_ours.db"
