"""The public names: added on purpose, never removed by accident."""

import inspect
import pydoc
import re
import subprocess
import sys
from typing import get_type_hints

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
        "Consumer",
        "DataFile",
        "Database",
        "DroppedTable",
        "Event",
        "EventStream",
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
    functions = ["append", "changes", "cluster", "compact", "delete", "delete_keys", "insert", "merge", "overwrite"]
    names = ["Changed", "Merge", "StreamWriter", *functions, "read", "stream_writer", "update", "upsert"]
    assert sorted(lakemark_spark.__all__) == names


def test_the_client_needs_no_extra() -> None:
    """The client and the command line import neither the service, nor its parser, nor Spark."""
    code = (
        "import sys; import lakemark, lakemark.parquet, lakemark.cli;"
        "print([m for m in ('lakemark_server', 'lakemark_hms', 'sqlglot', 'sqlalchemy', 'pyspark', 'pydantic_settings')"
        " if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_help_names_what_a_client_has() -> None:
    shown = pydoc.plain(pydoc.render_doc(lakemark.Client))
    for name in ("databases", "tables", "timeline", "branches", "tags", "quotas", "consumers"):
        attribute = inspect.getattr_static(lakemark.Client, name)
        document = inspect.getdoc(attribute)
        assert document
        assert f" {name}\n" in shown
        assert document.partition("\n")[0] in shown
        namespace = get_type_hints(attribute.fget)["return"]
        assert all(hasattr(namespace, method) for method in re.findall("``(.*?)``", document))
