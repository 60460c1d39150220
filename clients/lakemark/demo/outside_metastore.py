"""A program: Hive's own metastore, from the jars inside pyspark, and a Spark that knows no other one; in one JVM.

``python -m lakemark.demo.outside_metastore DIRECTORY PORT`` listens on loopback, prints ``ready``, and answers each
SQL statement on its standard input by one line of JSON, the rows. It ends with its input.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from pyspark.sql import SparkSession


def serve(spark: SparkSession, directory: str, port: int) -> None:
    """Starts the metastore, on an embedded Derby database in the directory. Returns when it listens."""
    java: Any = spark.sparkContext._jvm
    hive, thrift = java.org.apache.hadoop.hive, java.org.apache.thrift
    settings = {
        "hive.metastore.uris": "",  # it is the metastore itself
        "hive.metastore.warehouse.dir": f"file:{directory}/warehouse",
        "hive.metastore.schema.verification": "false",
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={directory}/derby;create=true",
        "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
        "datanucleus.schema.autoCreateAll": "true",
        "datanucleus.connectionPoolingType": "HikariCP",  # the default pool is not among Spark's jars
    }
    configuration = hive.conf.HiveConf()
    for name, value in settings.items():
        configuration.set(name, value)
    handler = hive.metastore.HiveMetaStore.HMSHandler("outside", configuration, False)
    calls = hive.metastore.RetryingHMSHandler.getProxy(configuration, handler, False)
    # Hive's main program would listen on all addresses.
    socket = thrift.transport.TServerSocket(java.java.net.InetSocketAddress("127.0.0.1", port))
    arguments = thrift.server.TThreadPoolServer.Args(socket).processor(hive.metastore.TSetIpAddressProcessor(calls))
    server = thrift.server.TThreadPoolServer(arguments)
    threading.Thread(target=server.serve, name="outside", daemon=True).start()


def main() -> None:
    directory, port = sys.argv[1], int(sys.argv[2])
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.hive.metastore.uris", f"thrift://127.0.0.1:{port}")
        .config("spark.ui.enabled", "false")
        .enableHiveSupport()
        .getOrCreate()
    )
    serve(spark, directory, port)
    print("ready", flush=True)
    for statement in sys.stdin:
        rows = [list(row) for row in spark.sql(statement).collect()]
        print(json.dumps(rows, default=str), flush=True)


if __name__ == "__main__":
    main()
