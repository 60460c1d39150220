"""The public names: added on purpose, never removed by accident."""

import inspect
import os
import pkgutil
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
    assert set(lakemark.__all__) <= set(dir(lakemark))


def test_the_modules_of_lakemark_need_no_import_of_their_own() -> None:
    code = "import lakemark; print(lakemark.errors.NotFound.__name__, lakemark.types.__name__)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["NotFound", "lakemark.types"]
    assert not any(hasattr(lakemark, name) for name in ("no_such_name", "__wrapped__", "no.such.module", ""))


def test_each_name_and_each_module_of_lakemark_can_be_what_a_program_imports_first() -> None:
    """Each in a process of its own: in one that has imported others, a circular import is not noticed."""
    modules = [module.name for module in pkgutil.walk_packages(lakemark.__path__, "lakemark.")]
    imports = [f"from lakemark import {name}" for name in ("*", *lakemark.__all__)]
    imports += [f"import {module}" for module in modules if not module.startswith(("lakemark.demo", "lakemark.__main"))]
    code = (
        "import os, sys, traceback, lakemark.cli.app\n"  # what these import takes most of the time
        "for name in [name for name in sys.modules if name.split('.')[0] == 'lakemark']: del sys.modules[name]\n"
        "for line in sys.argv[1:]:\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        try: exec(line)\n"
        "        except BaseException: print(line); traceback.print_exc(); sys.stdout.flush(); os._exit(1)\n"
        "        os._exit(0)\n"
        "    os.waitpid(child, 0)\n"
    )
    environment = os.environ | {"GRPC_ENABLE_FORK_SUPPORT": "0"}
    told = subprocess.run(
        [sys.executable, "-c", code, *imports], env=environment, capture_output=True, text=True, check=True
    )
    assert told.stdout.splitlines() == [], told.stderr
    assert len(imports) > 100


def test_the_program_disables_the_fork_handlers_of_grpc_before_it_is_imported() -> None:
    code = (
        "import os, runpy, sys\n"
        "class Watch:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'grpc': print('grpc with', os.environ.get('GRPC_ENABLE_FORK_SUPPORT'))\n"
        "sys.meta_path.insert(0, Watch())\n"
        "sys.argv = ['lakemark', '--help']\n"
        "runpy.run_module('lakemark', run_name='__main__')\n"
    )
    for chosen, expected in (({}, "0"), ({"GRPC_ENABLE_FORK_SUPPORT": "1"}, "1")):
        kept = {name: value for name, value in os.environ.items() if name != "GRPC_ENABLE_FORK_SUPPORT"}
        told = subprocess.run(
            [sys.executable, "-c", code], env=kept | chosen, capture_output=True, text=True, check=True
        )
        assert told.stdout.splitlines()[0] == f"grpc with {expected}"


def test_the_names_of_lakemark_spark() -> None:
    functions = ["append", "changes", "cluster", "compact", "delete", "delete_keys", "insert", "merge", "overwrite"]
    names = ["Changed", "Merge", "StreamWriter", *functions, "read", "stream_writer", "update", "upsert"]
    assert sorted(lakemark_spark.__all__) == names


def test_the_client_needs_no_extra() -> None:
    """The client and the command line import neither the service, nor its parser, nor Spark."""
    code = (
        "import sys; import lakemark.client.client, lakemark.parquet, lakemark.cli.app;"
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
