"""The columns that Spark keeps in a table's properties, with their case and its own types.

Spark writes the JSON of its StructType as ``spark.sql.sources.schema``, in several parts if it is long. The column list
that the Metastore has beside it is in lower case, and has placeholders for types that Hive lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lakemark_core.errors import InvalidSchema
from lakemark_core.types import Field
from lakemark_core.types.spark_json import columns_from_spark_json

_SCHEMA: Final = "spark.sql.sources.schema"


def spark_columns(parameters: Mapping[str, str]) -> list[Field] | None:
    """The columns with id 0, or None if there are none. Raises InvalidSchema for what cannot be read."""
    text = _schema_text(parameters)
    if text is None:
        return None
    try:
        return columns_from_spark_json(text)
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidSchema(f"the table property {_SCHEMA} cannot be read: {error!r}") from error


def _schema_text(parameters: Mapping[str, str]) -> str | None:
    whole = parameters.get(_SCHEMA)
    if whole is not None:
        return whole
    count = parameters.get(f"{_SCHEMA}.numParts")
    if count is None:
        return None
    parts = [parameters.get(f"{_SCHEMA}.part.{at}") for at in range(int(count))]
    if None in parts:
        raise InvalidSchema(f"of the table properties {_SCHEMA}.part.* some are missing")
    return "".join(part for part in parts if part is not None)
