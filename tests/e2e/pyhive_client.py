"""Runs statements by PyHive at the Thrift Server on a port of this machine; prints the rows of the last one as JSON.

Runs in the environment of the peers: it imports nothing of Lakemark. ``pyhive_client.py PORT USER STATEMENT…``; an
error of a statement is printed as ``{"error": …}``.
"""

from __future__ import annotations

import json
import sys

from pyhive import hive
from pyhive.exc import OperationalError


def main(port: int, user: str, statements: list[str]) -> None:
    connection = hive.connect(host="127.0.0.1", port=port, username=user)
    cursor = connection.cursor()
    answer: object = []
    try:
        for statement in statements:
            cursor.execute(statement)
        if cursor.description:
            answer = cursor.fetchall()
    except OperationalError as error:
        answer = {"error": str(error)}
    finally:
        connection.close()
    print(json.dumps(answer, default=str))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
