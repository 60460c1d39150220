"""Our description of the wire against two others: ``hmsclient``'s generated classes and the classes in Spark's jars."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hmsclient.genthrift.hive_metastore import ThriftHiveMetastore
from hmsclient.genthrift.hive_metastore import ttypes as theirs

from lakemark_thrift import services
from lakemark_thrift import ttypes as ours

# Structs whose numbering changed after Hive 2.3: the older form has a struct of its own.
OLDER_FORM = {
    "AddDynamicPartitions": "AddDynamicPartitionsHive2",
    "InsertEventRequestData": "InsertEventRequestDataHive2",
    "GetOpenTxnsResponse": "GetOpenTxnsResponseHive2",
}
NO_METHOD_USES = {"Schema", "Version"}
RENAMED = {("LockComponent", "isAcid"): "isTransactional"}
# Hive 3 put an exception before the one that Hive 2.3 knows; both hold one text.
OTHER_ERROR = {("get_partition_names", 1)}


def shape(ttype: int, args: Any) -> Any:
    """The part of a field's type that shows on the wire: types of elements, names of structs."""
    if ttype == 12:
        return args[0].__name__
    if ttype in (14, 15):
        return ttype, shape(args[0], args[1])
    if ttype == 13:
        return ttype, shape(args[0], args[1]), shape(args[2], args[3])
    return ttype


def entries(cls: Any) -> dict[int, tuple[str, Any]]:
    spec = getattr(cls, "thrift_spec", None) or ()
    return {entry[0]: (entry[2], shape(entry[1], entry[3])) for entry in spec if entry is not None}


def their_structs() -> list[str]:
    return sorted(
        name
        for name, cls in vars(theirs).items()
        if isinstance(cls, type) and cls.__module__ == theirs.__name__ and hasattr(cls, "read")
        if name not in NO_METHOD_USES
    )


@pytest.mark.parametrize("name", their_structs())
def test_every_struct_of_hive_2_has_the_same_ids_and_types(name: str) -> None:
    known = entries(getattr(ours, OLDER_FORM.get(name, name)))
    for field_id, (field, field_shape) in entries(getattr(theirs, name)).items():
        assert field_id in known, f"{name}.{field} ({field_id}) is missing"
        expected = RENAMED.get((name, field), field), field_shape
        assert known[field_id] == expected


def their_methods() -> list[str]:
    return sorted(name.removesuffix("_args") for name in vars(ThriftHiveMetastore) if name.endswith("_args"))


@pytest.mark.parametrize("name", their_methods())
def test_every_method_of_hive_2_has_the_same_arguments_and_results(name: str) -> None:
    method = services.METHODS[name]
    known = entries(method.args)
    for field_id, argument in entries(getattr(ThriftHiveMetastore, f"{name}_args")).items():
        assert known[field_id] == argument
    their_result = getattr(ThriftHiveMetastore, f"{name}_result", None)
    if method.oneway:
        assert their_result is None
        return
    results = entries(method.result)
    for field_id, (field, field_shape) in entries(their_result).items():
        if (name, field_id) not in OTHER_ERROR:
            assert results[field_id] == (field, field_shape)


def test_enums_have_the_numbers_of_hive_2() -> None:
    classes = [cls for cls in vars(theirs).values() if getattr(cls, "__module__", None) == theirs.__name__]
    enums = [cls for cls in classes if hasattr(cls, "_VALUES_TO_NAMES")]
    assert len(enums) > 10
    for enum in enums:
        for value, name in enum._VALUES_TO_NAMES.items():
            assert getattr(ours, enum.__name__)[name] == value


def spark_jar() -> Path:
    pyspark: ModuleType = pytest.importorskip("pyspark")
    return next(Path(pyspark.__path__[0], "jars").glob("hive-metastore-2.3.*.jar"))


def test_every_method_of_sparks_built_in_client_is_described() -> None:
    pattern = re.compile(r".*/ThriftHiveMetastore\$(\w+)_args\.class")
    with zipfile.ZipFile(spark_jar()) as jar:
        names = {found[1] for found in map(pattern.fullmatch, jar.namelist()) if found}
    assert len(names) == 154
    assert names <= set(services.METHODS)


def test_declared_exceptions_carry_one_text() -> None:
    errors = {error for method in services.METHODS.values() for error in method.exceptions}
    assert errors
    for error in errors:
        assert entries(error) == {1: ("message", 11)}
        assert str(error("why")) == "why"


@pytest.mark.parametrize(
    ("struct", "field", "field_id"),
    [  # of Hive 3 and 4, which no package here describes: read off their wire
        ("Table", "catName", 17),
        ("Table", "txnId", 28),
        ("Partition", "fileMetadata", 13),
        ("GetTableRequest", "validWriteIdList", 6),
        ("GetTableRequest", "id", 11),
        ("AlterTableRequest", "expectedParameterValue", 11),
        ("AddPartitionsRequest", "environmentContext", 10),
        ("DropTableRequest", "envContext", 5),
        ("CreateTableRequest", "checkConstraints", 8),
        ("GetPartitionsFilterSpec", "filterMode", 7),
        ("GetPartitionsRequest", "projectionSpec", 7),
        ("PartitionsStatsRequest", "engine", 7),
        ("LockRequest", "locklessReadsEnabled", 8),
        ("NotificationEventRequest", "eventTypeList", 7),
    ],
)
def test_fields_of_later_releases(struct: str, field: str, field_id: int) -> None:
    assert entries(getattr(ours, struct))[field_id][0] == field
