"""A proxy before a server's Unix socket that cuts connections, or falls silent, at a chosen message."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path
from typing import Literal

Fault = Literal["cut before", "cut after", "silence"]


class SocketProxy:
    """Forwards ``front`` to ``back``. After ``arm``, the fault strikes at the next message that contains ``pattern``.

    "cut before": the server never sees the message, and the connection is lost. "cut after": the server sees it, but
    the client loses the connection instead of getting a response. "silence": the server sees it, but the client gets
    neither a response nor an end.
    """

    def __init__(self, front: Path, back: Path) -> None:
        self._back = str(back)
        self._pattern = b""
        self._fault: Fault = "silence"
        self.hits = 0
        self.connections = 0
        self._sockets: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(front))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, pattern: bytes, fault: Fault) -> None:
        self._fault, self._pattern = fault, pattern

    def close(self) -> None:
        for each in (self._listener, *self._sockets):
            self._end(each)

    def _accept(self) -> None:
        while True:
            try:
                client = self._listener.accept()[0]
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._back)
            self.connections += 1
            self._sockets += [client, server]
            silent = threading.Event()  # set once the client gets no more responses
            threading.Thread(target=self._requests, args=(client, server, silent), daemon=True).start()
            threading.Thread(target=self._answers, args=(client, server, silent), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, silent: threading.Event) -> None:
        try:
            while data := client.recv(1 << 16):
                met = bool(self._pattern) and self._pattern in data
                if met:
                    self._pattern = b""
                    self.hits += 1
                    silent.set()
                    if self._fault == "cut before":
                        break
                server.sendall(data)
                if met and self._fault == "cut after":
                    # The server has the whole request, and closes the connection when it notices that the client left.
                    server.shutdown(socket.SHUT_WR)
                    while server.recv(1 << 16):
                        pass
                    break
        except OSError:
            pass
        if not (silent.is_set() and self._fault == "silence"):
            self._end(client)
            self._end(server)

    def _answers(self, client: socket.socket, server: socket.socket, silent: threading.Event) -> None:
        try:
            while not silent.is_set() and (data := server.recv(1 << 16)):
                if not silent.is_set():
                    client.sendall(data)
        except OSError:
            pass
        if not silent.is_set():
            self._end(client)

    @staticmethod
    def _end(each: socket.socket) -> None:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()
