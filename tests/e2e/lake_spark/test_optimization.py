"""Tasks of optimizations by Spark: instants that a plan has opened, bounded runs, and what came between the two."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest

from lakemark import Client
from lakemark.errors import InstantStateError
from tests.e2e.lake_spark.snippets import run
from tests.e2e.spark_runner import SparkProcess, interpreter, java_home, java_options
from tests.integration.grpc_server import connected, running_service

pytestmark = [pytest.mark.spark, pytest.mark.one_spark]

KEYED = {"lakemark.primary-key": "id", "lakemark.bucket.count": "1", "lakemark.write.mode": "merge-on-read"}


def planned(server: Client, table: str, operation: str, request_id: str) -> int:
    """An instant that is only requested, as a plan opens it."""
    return server.begin(table, operation, start=False, request_id=request_id).instant  # type: ignore[arg-type]


def test_a_change_that_was_in_flight_at_the_plan_is_not_put_on_top(
    server: Client, spark: SparkProcess, table: str
) -> None:
    server.tables.create(table, "id bigint, v string", properties={**KEYED, "lakemark.conflict.policy": "row"})
    early = planned(server, table, "upsert", f"{table}-early")
    upsert = "ls.upsert(spark.sql(\"select 1L id, '{0}' v\"), t, server=client, request_id={1})"
    run(spark, upsert.format("late", "None"), t=table)
    plan = planned(server, table, "compact", f"{table}-plan")
    run(spark, upsert.format("early", "early"), t=table, early=f"{table}-early")
    assert {file.path.partition("/")[0] for file in server.plan(table)} >= {str(early)}

    read = "result = [row.v for row in ls.read(spark, t, server=client).collect()]"
    assert run(spark, read) == ["late"], "the greater instant wins"
    run(
        spark,
        "ls.compact(spark, t, server=client, request_id=plan_id, instant=plan)",
        t=table,
        plan_id=f"{table}-plan",
        plan=plan,
    )
    assert run(spark, read) == ["late"], "also after the plan was carried out"
    run(spark, "ls.compact(spark, t, server=client)")
    assert run(spark, read) == ["late"]
    assert [file.kind for file in server.plan(table)] == ["base"]


def test_a_run_takes_small_files_and_no_more_than_its_bytes(server: Client, spark: SparkProcess, table: str) -> None:
    server.tables.create(table, "id bigint, v string")
    run(
        spark,
        """
        from lakemark.files.runs import RunLimits
        for at in range(6):
            ls.append(spark.range(100).coalesce(1).selectExpr("id", "uuid() v"), t, server=client)
        """,
        t=table,
    )
    size = max(file.size_bytes for file in server.plan(table))
    instant = planned(server, table, "cluster", f"{table}-plan")
    run(
        spark,
        "ls.compact(spark, t, server=client, request_id=r, instant=i, limits=RunLimits(1 << 20, most))",
        t=table,
        r=f"{table}-plan",
        i=instant,
        most=4 * size,
    )
    assert sorted(file.row_count for file in server.plan(table)) == [100, 100, 400]
    assert server.timeline.instant(table, instant).state == "completed"

    given_up = planned(server, table, "cluster", f"{table}-other")
    server.timeline.rollback(table, given_up, "its worker was lost")
    with pytest.raises(InstantStateError, match="its worker was lost"):
        server.begin(table, "cluster", start=False, request_id=f"{table}-other", instant=given_up)


def test_a_worker_with_spark_puts_a_partition_in_order(spark_version: str, tmp_path: Path) -> None:
    settings = {"optimizer": True, "optimizer_interval_s": 0.1}
    with running_service(tmp_path / "lake", **settings) as service, connected(service) as client:
        properties = {"lakemark.clustering.columns": "v"}
        client.tables.create("default.t", "id bigint, v bigint", properties=properties)
        for first in (0, 500):
            with client.begin("default.t") as writer:
                rows = {"id": range(first, first + 500), "v": [(one * 7919) % 1_000 for one in range(500)]}
                writer.write(pa.table(rows))
                writer.commit()
        client.optimizations.run("default.t", kind="full")
        told = client.optimizations.explain("default.t")
        assert told.partition_states[0].kind == "full"
        command = [interpreter(spark_version), "-m", "lakemark", "-s", service.grpc_address]
        command += ["optimizer", "run", "--executor", "spark", "--tasks", "1", "--master", "local[1]"]
        environment = os.environ | {
            "SPARK_LOCAL_IP": "127.0.0.1",
            "JAVA_HOME": str(java_home() or ""),
            "JAVA_TOOL_OPTIONS": java_options(interpreter(spark_version)),
        }
        finished = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=180, check=False
        )
        assert finished.returncode == 0, finished.stderr[-4_000:]
        (done,) = client.optimizations.runs("default.t")
        ended = done.state, done.kind, done.executor, done.message
        assert ended == ("done", "full", "spark", ""), finished.stderr[-4_000:]
        values = client.read("default.t").column("v").to_pylist()
        assert values == sorted(values)
        assert len(values) == 1_000
