"""An SMTP server on this machine: it takes mail, after STARTTLS and a login if told so, and can refuse it."""

from __future__ import annotations

import base64
import socketserver
import ssl
import threading
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.message import EmailMessage
from types import TracebackType
from typing import Any, Self, cast


@dataclass
class Behaviour:
    """What is refused. ``tls`` "": nothing is encrypted; "starttls"; "tls": from the beginning."""

    tls: str = ""
    login: tuple[str, str] | None = None
    refused: frozenset[str] = frozenset()
    refusal: str = "550 5.1.1 nobody here of that name"
    data_answer: str = "250 taken"


class MailServer(socketserver.ThreadingTCPServer):
    """``messages`` and ``recipients`` of what it took; ``encrypted``: whether that came by TLS."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, behaviour: Behaviour | None = None, certificate: tuple[str, str] | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Conversation)
        self.behaviour = behaviour or Behaviour()
        self.messages: list[EmailMessage] = []
        self.recipients: list[list[str]] = []
        self.encrypted: list[bool] = []
        self.arrived = threading.Condition()
        self.context: ssl.SSLContext | None = None
        if certificate is not None:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(*certificate)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def wait(self, count: int, seconds: float = 30.0) -> list[EmailMessage]:
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.messages) >= count, seconds)
        return self.messages

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes in the middle is part of the tests."""


class _Conversation(socketserver.StreamRequestHandler):
    server: MailServer

    def setup(self) -> None:
        self.secure = self.server.behaviour.tls == "tls"
        if self.secure:
            self._encrypt()
        super().setup()

    def _encrypt(self) -> None:
        assert self.server.context is not None
        self.request = self.server.context.wrap_socket(cast(Any, self.request), server_side=True)

    def handle(self) -> None:
        given = self.server.behaviour
        self._say("220 here")
        recipients: list[str] = []
        while line := self.rfile.readline():
            text = line.decode().strip()
            match text.split()[0].upper():
                case "EHLO":
                    offered = ["250-here"]
                    offered += ["250-STARTTLS"] if given.tls == "starttls" and not self.secure else []
                    self._say(*offered, "250 AUTH PLAIN" if given.login else "250 HELP")
                case "STARTTLS":
                    self._say("220 begin")
                    self._encrypt()
                    self.secure = True
                    super().setup()
                case "AUTH":
                    told = base64.b64decode(text.split()[2]).decode().split("\0")[1:]
                    self._say("235 welcome" if tuple(told) == given.login else "535 5.7.8 wrong user or password")
                case "RCPT":
                    address = text.partition("<")[2].partition(">")[0]
                    if address in given.refused:
                        self._say(given.refusal)
                    else:
                        recipients.append(address)
                        self._say("250 known")
                case "DATA":
                    self._say("354 go on")
                    self._take(recipients)
                    recipients = []
                case "QUIT":
                    self._say("221 bye")
                    return
                case _:
                    self._say("250 well")

    def _take(self, recipients: list[str]) -> None:
        lines = []
        while (line := self.rfile.readline()) != b".\r\n":
            lines.append(line.removeprefix(b".") if line.startswith(b"..") else line)
        if self.server.behaviour.data_answer.startswith("2"):
            with self.server.arrived:
                parsed = message_from_bytes(b"".join(lines), policy=policy.default)
                self.server.messages.append(cast(EmailMessage, parsed))
                self.server.recipients.append(recipients)
                self.server.encrypted.append(self.secure)
                self.server.arrived.notify_all()
        self._say(self.server.behaviour.data_answer)

    def _say(self, *lines: str) -> None:
        self.wfile.write("".join(f"{line}\r\n" for line in lines).encode())
