"""Python snippets in the Spark process."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

from tests.e2e.spark_runner import SparkProcess


def run(spark: SparkProcess, code: str, **names: Any) -> Any:
    """What the snippet leaves in ``result``; it sees ``names``, and they live on."""
    for name, value in names.items():
        spark.python(f"{name} = {value!r}")
    return spark.python(dedent(code))
