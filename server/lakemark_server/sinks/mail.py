"""Mail: events as messages in plain text, by the SMTP server that the operator of the service has named."""

from __future__ import annotations

import contextlib
import json
import smtplib
import socket
import ssl
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.utils import formatdate, getaddresses, make_msgid, parseaddr
from typing import Final, Literal

import structlog

from lakemark_core.errors import FailedPrecondition, InvalidArgument
from lakemark_core.messages.cloud_events import event_data, event_id, kind_word
from lakemark_proto.v1.events_pb2 import OPTIMIZATION_STOPPED, Event
from lakemark_server.sinks.delivery import DeliveryAborted, DeliveryFailed

EVENTS_MAX: Final = 20
"""Of one message."""
TIMEOUT_MS: Final = 20_000
"""For each answer of the SMTP server."""
ATTEMPT_MS: Final = 60_000
"""For a whole message. After that time nothing more is sent, so that the lease of a sink outlasts each attempt."""
_DETAIL_CHARS_MAX: Final = 4_000
_SUBJECT_CHARS_MAX: Final = 200
_READY: Final = 220
_PERMANENT: Final = 500

MailTls = Literal["starttls", "tls", "none"]

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class MailPolicy:
    """The SMTP server of the service (``host`` "": there is none), and whom it may write to.

    ``tls``: from the beginning, after STARTTLS (without which nothing is sent), or not at all. ``sender``: with a name
    ("Lakemark <lake@example.com>") or without. ``domains``: of recipients; none: that of ``sender``. ``ca_file``: PEM
    file of certificates to trust beside those of the machine.
    """

    host: str = ""
    port: int = 587
    tls: MailTls = "starttls"
    user: str = ""
    password: str = field(default="", repr=False)
    sender: str = ""
    domains: tuple[str, ...] = ()
    ca_file: str = ""

    @property
    def sender_address(self) -> str:
        """That of ``sender``, without the name. Raises InvalidArgument if there is none."""
        given = [address for _, address in getaddresses([self.sender])]
        address = given[0] if len(given) == 1 else ""
        name, _, domain = address.rpartition("@")
        if not name or not domain or not address.isascii() or not self.sender.isprintable():
            raise InvalidArgument(
                f"mail_from: {self.sender!r} is not a mail address such as lake@example.com or "
                "Lakemark <lake@example.com> (LAKEMARK_MAIL_FROM)"
            )
        return address

    def check(self) -> None:
        """Raises FailedPrecondition or InvalidArgument if no mail can be sent at all."""
        if not self.host or not self.sender:
            raise FailedPrecondition(
                "this service cannot send mail: whoever runs it must name an SMTP server and a sender "
                "(LAKEMARK_MAIL_HOST, LAKEMARK_MAIL_FROM)"
            )
        _ = self.sender_address
        if self.user and self.tls == "none":
            raise FailedPrecondition("a password is not sent without TLS: set LAKEMARK_MAIL_TLS to starttls or tls")
        if not self.user.isascii() or not self.password.isascii():  # smtplib's error would show a part of it
            raise FailedPrecondition("LAKEMARK_MAIL_USER and LAKEMARK_MAIL_PASSWORD must be ASCII: SMTP knows no other")

    def allows(self, address: str) -> bool:
        """Whether mail may go to this address."""
        domain = address.rpartition("@")[2].lower()
        return domain in (self.domains or (self.sender_address.rpartition("@")[2].lower(),))

    def context(self) -> ssl.SSLContext:
        """Raises OSError if the file cannot be read."""
        context = ssl.create_default_context()
        if self.ca_file:
            context.load_verify_locations(self.ca_file)
        return context


class MailSender:
    """A ``Sender``. A connection is made for each message: alarms are rare."""

    events_max = EVENTS_MAX

    def __init__(self, recipients: Sequence[str], policy: MailPolicy) -> None:
        policy.check()
        self._recipients, self._policy = tuple(recipients), policy
        self._server: smtplib.SMTP | None = None
        self._aborted = threading.Event()

    def send(self, events: Sequence[Event], *, resent: bool = False) -> int:
        """One message. Raises DeliveryFailed, DeliveryAborted.

        Only a refusal for good of this message, or of all recipients, counts as an attempt: an alarm must not be given
        up because of a server that is away or asks for patience, or a password that was changed.
        """
        some = events[: self.events_max]
        forbidden = [address for address in self._recipients if not self._policy.allows(address)]
        if forbidden:  # the operator has changed the domains since the sink was made
            raise DeliveryFailed(
                f"this service sends no mail to {', '.join(forbidden)}: create the sink again without them, or whoever "
                "runs the service allows the domain (LAKEMARK_MAIL_DOMAINS)",
                events=len(some),
                counts=False,
            )
        late = threading.Event()
        timer = threading.Timer(ATTEMPT_MS / 1_000, self._end, (late,))
        timer.daemon = True
        timer.start()
        try:
            message = message_of(some, self._recipients, self._policy.sender, resent=resent)
            refused = self._hand_over(message, late)
        except smtplib.SMTPRecipientsRefused as error:
            told = "; ".join(f"{one}: {_words(*reply)}" for one, reply in error.recipients.items())
            raise DeliveryFailed(
                f"the mail server refuses all recipients: {told}",
                events=len(some),
                counts=all(code >= _PERMANENT for code, _ in error.recipients.values()),
            ) from None
        except smtplib.SMTPResponseException as error:  # a wrong password, too, which is not part of the text
            told = _words(error.smtp_code, error.smtp_error)
            raise DeliveryFailed(
                f"the mail server {self._policy.host}:{self._policy.port} refuses: {told}",
                events=len(some),
                counts=isinstance(error, smtplib.SMTPDataError) and error.smtp_code >= _PERMANENT,
            ) from None
        except (smtplib.SMTPException, OSError, ValueError) as error:
            if self._aborted.is_set():
                raise DeliveryAborted("the sink was stopped") from None
            told = f"it took longer than {ATTEMPT_MS / 1_000:g} s" if late.is_set() else str(error)
            raise DeliveryFailed(
                f"the mail server {self._policy.host}:{self._policy.port} cannot be used: {told}",
                events=len(some),
                counts=False,
            ) from None
        finally:
            timer.cancel()
            self.close()
        for address, reply in refused.items():
            _log.warning("a mail server refuses a recipient", recipient=address, reason=_words(*reply))
        return len(some)

    def abort(self) -> None:
        """As ``Sender`` says."""
        self._end(self._aborted)

    def _end(self, why: threading.Event) -> None:
        """Ends what is under way, from another thread."""
        why.set()
        server = self._server
        connection = server.sock if server is not None else None  # looked at once: the other thread may close it
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """As ``Sender`` says."""
        server, self._server = self._server, None
        if server is not None:
            server.close()

    def _hand_over(self, message: EmailMessage, late: threading.Event) -> dict[str, tuple[int, bytes]]:
        """The recipients that the server has refused. Raises what smtplib raises."""
        policy, timeout_s = self._policy, TIMEOUT_MS / 1_000

        def check_wanted() -> None:
            """A socket cannot be ended from another thread before smtplib has it."""
            if self._aborted.is_set() or late.is_set():
                raise OSError("stopped")

        server = (
            smtplib.SMTP_SSL(timeout=timeout_s, context=policy.context())
            if policy.tls == "tls"
            else smtplib.SMTP(timeout=timeout_s)
        )
        # The name that a certificate must have. Only a constructor that connects sets it, and that cannot be ended.
        server._host = policy.host  # type: ignore[attr-defined]
        self._server = server
        check_wanted()
        code, told = server.connect(policy.host, policy.port)
        check_wanted()
        if code != _READY:
            raise smtplib.SMTPConnectError(code, told)
        if policy.tls == "starttls":
            server.starttls(context=policy.context())
            check_wanted()
        if policy.user:
            server.login(policy.user, policy.password)
        refused = server.send_message(message, policy.sender_address, self._recipients)
        with contextlib.suppress(smtplib.SMTPException, OSError):  # the message was taken
            server.quit()
        return refused


def message_of(events: Sequence[Event], recipients: Sequence[str], sender: str, *, resent: bool) -> EmailMessage:
    """The message that tells of these events. Whoever gets one twice sees it by its Message-ID."""
    first = events[0]
    more = f" and {len(events) - 1} more" if len(events) > 1 else ""
    message = EmailMessage()
    message["Subject"] = f"[lakemark] {_title(first)}{more}"[:_SUBJECT_CHARS_MAX]
    message["From"] = sender
    message["To"] = ", ".join(recipients)
    message["Date"] = formatdate()
    message["Message-ID"] = _message_id(first, events[-1], sender)
    message["Auto-Submitted"] = "auto-generated"
    if resent:
        message["X-Lakemark-Resent"] = "true"
    message.set_content("\n\n".join(map(_paragraph, events)) + "\n")
    return message


def _message_id(first: Event, last: Event, sender: str) -> str:
    domain = parseaddr(sender)[1].rpartition("@")[2]
    name = f"{first.catalog}-{event_id(first)}..{event_id(last)}"
    return f"<lakemark-{name}@{domain}>" if name.isascii() and domain else make_msgid("lakemark")


def _title(event: Event) -> str:
    """One line: what has happened to what."""
    name = ".".join(filter(None, (event.database, event.table))) or event.catalog
    text = f"{kind_word(event.kind).replace('_', ' ')}: {name}"
    if event.kind == OPTIMIZATION_STOPPED and event.optimization.partition:
        text += f" {event.optimization.partition}"
    return "".join(char if char.isprintable() else " " for char in text)


def _paragraph(event: Event) -> str:
    lines = [_title(event)]
    if event.kind == OPTIMIZATION_STOPPED:
        told = event.optimization
        table = f"{event.database}.{event.table}"
        lines += [
            f"The optimizer has stopped after {told.failures} failures in a row. The last one:",
            f"  {told.last_error}",
            f"Why: lakemark optimize why {table}",
            f"Mend what failed, then: lakemark optimize resume {table}",
        ]
        return "\n".join(lines)
    detail = json.dumps(event_data(event), ensure_ascii=False, indent=2)
    return "\n".join([*lines, detail[:_DETAIL_CHARS_MAX]])


def _words(code: int, told: bytes | str) -> str:
    text = told.decode(errors="replace") if isinstance(told, bytes) else told
    return f"{code} {text}"[:_SUBJECT_CHARS_MAX]
