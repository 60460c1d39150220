"""``lakemark optimizer``: the program that does the work."""

from __future__ import annotations

import importlib.util
import logging
import shlex
import signal
from importlib import metadata
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Final

import typer

from lakemark.cli.context import invocation
from lakemark.cli.pairs import parse_pairs
from lakemark_core.errors import FailedPrecondition, InvalidArgument

if TYPE_CHECKING:
    from lakemark import Client
    from lakemark_optimizer.executor import Executor

app = typer.Typer(help="Runs workers that optimize tables.", no_args_is_help=True)
_KNOWN: Final = ("arrow", "spark", "spark-submit")


@app.command()
def run(
    context: typer.Context,
    group: Annotated[str, typer.Option(help="group whose tables to work on")] = "default",
    slots: Annotated[int, typer.Option(min=1, max=1_000, help="number of tasks to work on at the same time")] = 2,
    executor: Annotated[
        list[str] | None,
        typer.Option(
            help="arrow, spark or spark-submit; may be repeated. Default: arrow, and spark if PySpark is installed"
        ),
    ] = None,
    master: Annotated[str, typer.Option(help="where Spark runs; default: local[*], or yarn with spark-submit")] = "",
    deploy_mode: Annotated[str, typer.Option(help="deploy mode of spark-submit")] = "cluster",
    spark_submit: Annotated[
        str, typer.Option(help="the program spark-submit, and its first arguments")
    ] = "spark-submit",
    conf: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="a setting of Spark; may be repeated")
    ] = None,
    py_files: Annotated[
        list[str] | None, typer.Option(help="Python files that spark-submit sends along; may be repeated")
    ] = None,
    idle: Annotated[float, typer.Option(min=0, help="stop Spark after this many seconds without a task")] = 300.0,
    tasks: Annotated[int, typer.Option(min=0, help="end after this many tasks; 0: never")] = 0,
) -> None:
    """Runs a worker, which takes tasks from the service and does them until it is interrupted.

    You can run any number of workers, on any machine, and stop each of them at any time. Small tasks need no Spark.
    """
    from lakemark_optimizer.worker import Worker

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    call = invocation(context)
    wanted = executor or ["arrow", *(["spark"] if importlib.util.find_spec("pyspark") else [])]
    with call.client() as client:
        executors = _executors(
            client, wanted, call.server, master, deploy_mode, spark_submit, conf or [], py_files or [], idle
        )
        worker = Worker(client, group, executors, slots, release=metadata.version("lakemark"))

        def stop(number: int, frame: FrameType | None) -> None:
            del number, frame
            worker.stop()

        for one in (signal.SIGTERM, signal.SIGINT):
            signal.signal(one, stop)
        typer.echo(f"lakemark optimizer ready group={group} slots={slots} executors={','.join(sorted(executors))}")
        worker.run(tasks)


def _executors(
    client: Client,
    wanted: list[str],
    server: str,
    master: str,
    deploy_mode: str,
    spark_submit: str,
    conf: list[str],
    py_files: list[str],
    idle_s: float,
) -> dict[str, Executor]:
    from lakemark_optimizer.arrow import ArrowExecutor
    from lakemark_optimizer.spark import SparkExecutor
    from lakemark_optimizer.submission import Submission, SubmitExecutor

    configuration = parse_pairs(conf, "conf")
    made: dict[str, Executor] = {}
    for name in dict.fromkeys(wanted):
        if name == "arrow":
            made[name] = ArrowExecutor(client)
        elif name == "spark":
            if not importlib.util.find_spec("pyspark"):
                raise FailedPrecondition(
                    "the executor 'spark' needs PySpark, which is not installed here: pip install 'lakemark[spark]', "
                    "or run with --executor arrow"
                )
            made[name] = SparkExecutor(client, master or "local[*]", configuration, idle_s)
        elif name == "spark-submit":
            submission = Submission(
                server, shlex.split(spark_submit), master or "yarn", deploy_mode, configuration, py_files
            )
            made[name] = SubmitExecutor(client, submission)
        else:
            raise InvalidArgument(f"executor {name!r} is not known; use {', '.join(_KNOWN)}")
    return made
