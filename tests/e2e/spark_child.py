"""The Spark side of `spark_runner`: one SparkSession that runs what arrives on stdin, one JSON object a line.

Arguments: one JSON object of Spark settings. Requests: `{"sql": text}` or `{"python": code}`; the code sees `spark`
and leaves its answer in `result`, and its names live on in later requests. Replies: `{"value": …}` or
`{"error": class, "message": text, "condition": text or null}`. The first reply tells that the session is up.
"""

import json
import os
import sys
import traceback
from typing import Any, TextIO

from spark_values import to_json  # type: ignore[import-not-found,unused-ignore] # beside this script


def _take_streams() -> tuple[TextIO, TextIO]:
    """The protocol's streams; stdin and stdout proper are then empty and the log, whoever else uses them."""
    requests, replies = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w", buffering=1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    return requests, replies


def _session(settings: dict[str, str]) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.enableHiveSupport()
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    return spark


def _answer(spark: Any, names: dict[str, Any], request: dict[str, str]) -> dict[str, Any]:
    try:
        if "sql" in request:
            return {"value": to_json(spark.sql(request["sql"]).collect())}
        names.pop("result", None)
        exec(compile(request["python"], "<test>", "exec"), names)  # noqa: S102 - the test's own code
        return {"value": to_json(names.get("result"))}
    except Exception as error:
        traceback.print_exc()
        condition = getattr(error, "getCondition", None) or getattr(error, "getErrorClass", None)
        return {
            "error": type(error).__name__,
            "message": str(error),
            "condition": condition() if condition else None,
        }


def main() -> None:
    """Serve requests until stdin ends."""
    requests, replies = _take_streams()
    spark = _session(json.loads(sys.argv[1]))
    names: dict[str, Any] = {"spark": spark}
    replies.write(json.dumps({"value": spark.version}) + "\n")
    for line in requests:
        replies.write(json.dumps(_answer(spark, names, json.loads(line))) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
