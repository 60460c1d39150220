"""The command line: ``lakemark --help``."""

import os
import sys

__all__ = ["main"]


def main() -> None:
    """Runs the command of ``sys.argv`` and exits with 0, with 2 for wrong usage, or with the error's own exit code."""
    # Some commands start Spark's JVM beside a client. With gRPC's handlers of forks about one such start in a hundred
    # is aborted if calls run, since they bring gRPC's threads to life in the child, whose files are closed before the
    # JVM replaces it. gRPC reads the variable once, when it is imported.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    from lakemark.cli.app import run

    sys.exit(run(sys.argv[1:]))
