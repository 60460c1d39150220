"""An S3 server that throttles, fails and cuts at random: what Spark has committed is right and complete."""

from __future__ import annotations

import pytest

from lakemark_server.verify import check_files, verify
from tests.e2e.spark_runner import SparkStatementError
from tests.e2e.storage.conftest import SparkWorld

pytestmark = pytest.mark.spark


def test_what_is_acknowledged_is_there_whatever_the_store_does(world: SparkWorld, table: str) -> None:
    world.client.tables.create(table, "id bigint, p int", partitioned_by=["p"])
    acknowledged: list[int] = []
    with world.proxy.failing_at_random(7, 0.1, ("slow down", "internal error", "cut before", "cut after")):
        for number in range(2):
            try:
                world.run(
                    "ls.append(spark.range(n, n + 1).selectExpr('id', '0 p'), t, server=client)",
                    n=number,
                    t=table,
                )
                acknowledged.append(number)
            except SparkStatementError:
                pass
        assert world.ids(table) == acknowledged
        assert world.sql_ids(table) == acknowledged
    assert acknowledged, "retries carry a writer over a tenth of failing requests"
    assert world.proxy.faults.total() >= 10
    store = world.service.store
    assert (verify(store), check_files(store).problems) == ([], [])
