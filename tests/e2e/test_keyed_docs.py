"""The examples of docs/keyed-tables.md, run in their order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lakemark import Client
from lakemark_server.process import Service
from tests.e2e.conftest import StartSpark
from tests.e2e.lake_spark.snippets import run

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[2] / "docs" / "keyed-tables.md"
BLOCK = re.compile(r"^```(sql|python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_examples_of_the_page_do_what_it_says(client: Client, service: Service, start_spark: StartSpark) -> None:
    spark = start_spark("4.3", service.hms_uri)
    client.databases.create("db", if_not_exists=True)
    run(spark, "import lakemark; client = lakemark.connect(server)", server=service.grpc_address)
    blocks = BLOCK.findall(PAGE.read_text())
    assert [language for language, _ in blocks].count("text") > 3

    rows: list[tuple[object, ...]] = []
    for language, text in blocks:
        match language:
            case "sql":
                rows = spark.sql(text)
            case "python":
                spark.python(text)
            case _:
                assert [" ".join(map(str, row)) for row in rows] == text.splitlines()
