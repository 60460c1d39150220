"""What users import: names are added on purpose and never vanish by accident."""

import subprocess
import sys

import lakemark
import lakemark_spark


def test_the_names_of_lakemark() -> None:
    assert sorted(lakemark.__all__) == [
        "Aggregates",
        "Changes",
        "Client",
        "ColumnStatistics",
        "Commit",
        "CommitConflict",
        "Comparison",
        "DataFile",
        "Database",
        "Instant",
        "LakemarkError",
        "Merge",
        "Plan",
        "PlanSummary",
        "Reference",
        "SchemaVersion",
        "Snapshot",
        "SnapshotOf",
        "Table",
        "TableSummary",
        "UncommittedWarning",
        "Version",
        "Writer",
        "connect",
    ]
    assert all(hasattr(lakemark, name) for name in lakemark.__all__)


def test_the_names_of_lakemark_spark() -> None:
    assert sorted(lakemark_spark.__all__) == ["append", "delete", "overwrite", "read", "upsert"]


def test_the_client_needs_no_extra() -> None:
    """Neither the service, nor its parser, nor Spark is imported by the client or the command line."""
    code = (
        "import sys; import lakemark, lakemark.parquet, lakemark.cli;"
        "print([m for m in ('lakemark_server', 'lakemark_hms', 'sqlglot', 'sqlalchemy', 'pyspark', 'pydantic_settings')"
        " if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
