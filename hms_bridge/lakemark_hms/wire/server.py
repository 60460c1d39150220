"""The socket server: one loop thread for all connections, a few worker threads for calls.

Clients of the Hive Metastore keep their connections open and mostly idle, so a connection takes a socket and an object
but no thread. The loop reads and finds whole messages. A worker runs the call and writes the reply itself, so an answer
needs one switch of threads. Calls of one connection run one at a time, in the order in which they were sent.

What is answered again and again needs no worker: the loop itself sends replies that are ready (``ready.ReadyAnswers``).
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from typing import Final

from lakemark_hms.wire import codec
from lakemark_hms.wire.connection import Connection
from lakemark_hms.wire.dispatch import Dispatcher, RefusedError
from lakemark_hms.wire.inbox import Inbox, Message, RejectedError
from lakemark_hms.wire.lanes import LaneChoice, Lanes, main_lane
from lakemark_hms.wire.layers import LayerError
from lakemark_hms.wire.limits import Room, ServerSettings, Unbounded
from lakemark_hms.wire.logins import Logins
from lakemark_hms.wire.ready import REQUEST_BYTES_MAX, ReadyAnswers
from lakemark_hms.wire.sasl import Proven, Refused, SaslLayer, Step
from lakemark_hms.wire.security import Security
from lakemark_hms.wire.together import Together, Waiting

log = logging.getLogger(__name__)

_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_RECEIVE_BYTES = 256 * 1024
_FIRST_RECEIVE_BYTES = 16 * 1024  # memory for all of them is taken anew each time, and most requests are small
_RECEIVES_MAX = 8  # in a row, before other connections get their turn
_SWEEP_SECONDS = 0.25
_REJECT_SECONDS = 2.0
_IDLE_SWEEP_SECONDS = 10.0
_LOGIN_THREADS: Final = 2


class HmsServer:
    """Serves a dispatcher on one address; ``port`` 0 takes a free one. Use as a context manager, or start and stop.

    ``lane_of`` chooses the lane of each call; ``room`` bounds the bytes of calls that wait or run. ``ready`` has
    answers that are there before the call is made. ``security``: what clients have to do before their calls are heard.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        host: str = "127.0.0.1",
        port: int = 0,
        settings: ServerSettings | None = None,
        *,
        lane_of: LaneChoice = main_lane,
        room: Room | None = None,
        ready: ReadyAnswers | None = None,
        security: Security | None = None,
    ) -> None:
        self._dispatcher = dispatcher
        self._lane_of = lane_of
        self._room = room or Unbounded()
        self._ready = ready
        self._together = Together(ready, self._on_answer) if ready is not None else None
        self._settings = settings or ServerSettings()
        self._security = security or Security()
        # Checks of passwords take long on purpose; they are not to take the workers from calls.
        self._logins = Logins(_LOGIN_THREADS, self._settings.peer_logins_max)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server(
            (host, port), family=family, backlog=1024, reuse_port=self._settings.shared_port
        )
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._connections: set[Connection] = set()
        self._of_host: Counter[str] = Counter()
        self._waiting: set[Connection] = set()  # connections with a deadline, or whose walk was put off
        self._notices: deque[Connection] = deque()
        self._unanswered: deque[Waiting] = deque()  # whose kept answers do not hold
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._received = 0  # bytes of requests that are not worked on
        self._wake_out.setblocking(False)
        self._accept_at = 0.0
        self._swept_at = 0.0
        self._idle_at = 0.0
        self._stop_by: float | None = None
        self._loop_thread = threading.Thread(target=self._loop, name="hms-loop", daemon=True)
        self._lanes: Lanes[tuple[Connection, Message]] = Lanes(
            self._settings.workers, self._settings.reserved_workers, self._settings.waiting_max, self._work
        )

    @property
    def connections(self) -> int:
        """Open connections now."""
        return len(self._connections)

    def start(self) -> None:
        self._lanes.start()
        if self._together is not None:
            self._together.start()
        self._loop_thread.start()

    @property
    def lanes(self) -> Lanes[tuple[Connection, Message]]:
        return self._lanes

    def stop(self, deadline_seconds: float = 10.0) -> None:
        """Accepts nothing more, waits until the deadline for running calls and their replies, and closes the rest."""
        if not self._loop_thread.ident:
            self._end()
            return
        stop_by = self._stop_by = time.monotonic() + deadline_seconds
        self._wake()
        self._loop_thread.join()
        if self._together is not None:
            self._together.stop(max(0.0, stop_by - time.monotonic()))
        self._logins.stop()
        self._lanes.stop(lambda: max(0.0, stop_by - time.monotonic()))

    def __enter__(self) -> HmsServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # ---- workers

    def _work(self, call: tuple[Connection, Message]) -> None:
        connection, message = call
        reply = None
        if not connection.broken:  # else its client left while the call waited
            reply = self._dispatcher.answer(message, connection.session)
        self._room.leave(message.size)
        self._finish(connection, reply)

    def _on_answer(self, call: Waiting, reply: bytes | None) -> None:
        """Called by the thread that checks kept answers. Without a reply the loop hands the call to a worker."""
        if reply is None and not call.connection.broken:
            self._unanswered.append(call)
            self._wake()
        else:
            self._finish(call.connection, reply)

    def _finish(self, connection: Connection, reply: bytes | None) -> None:
        if self._write(connection, reply) or self._stop_by is not None:
            self._notices.append(connection)
            self._wake()

    def _log_in(self, connection: Connection, sasl: SaslLayer, step: Step) -> None:
        """Runs in a thread for logins. A client that has left meanwhile costs no step."""
        refused = True
        try:
            if connection.broken or connection.eof or connection.rejected:
                log.info("%s left before it was logged in", connection.session.peer)
                return
            said = step.run()
            self._tell(connection, sasl, said)
            refused = isinstance(said, Refused)
        finally:  # else the connection would stay for ever
            connection.broken = connection.broken or refused
            connection.finish(None)
            self._notices.append(connection)
            self._wake()

    @staticmethod
    def _tell(connection: Connection, sasl: SaslLayer, said: bytes | Proven | Refused) -> None:
        """Tells the client what came of its login. Its calls are heard once it has proved who it is."""
        if isinstance(said, Proven):
            connection.session.prove(said.user, sasl.mechanism)
            log.info("user %r logged in from %s", said.user, connection.session.peer)
        elif isinstance(said, Refused):
            log.warning("refused the login of %s: %s", connection.session.peer, said.details or said.why)
        sasl.go_on(said)
        connection.say()

    @staticmethod
    def _write(connection: Connection, reply: bytes | None) -> bool:
        """Ends a call. Returns whether the loop has to attend to the connection."""
        rest = None if reply is None or connection.broken else connection.write(reply)
        connection.used_at = time.monotonic()
        return connection.finish(rest)

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):  # full: the loop is awake already; closed: it has ended
            self._wake_out.send(b"\0")

    # ---- the loop: everything from here on runs in its thread

    def _loop(self) -> None:
        self._selector.register(self._listener, _READ)
        self._selector.register(self._wake_in, _READ)
        try:
            while not self._stopped():
                for key, events in self._selector.select(self._pause()):
                    if isinstance(key.data, Connection):
                        self._on_event(key.data, events)
                    elif key.fileobj is self._listener:
                        self._accept()
                    else:
                        self._wake_in.recv(4096)
                while self._notices:
                    self._on_notice(self._notices.popleft())
                while self._unanswered:
                    call = self._unanswered.popleft()
                    self._give_to_worker(call.connection, call.message)
                self._sweep(time.monotonic())
        finally:
            self._end()

    def _pause(self) -> float:
        retries = [c.inbox.retry_at for c in self._waiting if c.inbox.retry_at is not None]
        if not retries:
            return _SWEEP_SECONDS
        return max(0.0, min(_SWEEP_SECONDS, min(retries) - time.monotonic()))

    def _accept(self) -> None:
        while True:
            try:
                sock, address = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:  # out of file descriptors: open connections go on, new ones wait in the backlog
                log.warning("cannot accept connections for now: %s", error)
                self._selector.unregister(self._listener)
                self._accept_at = time.monotonic() + 1.0
                return
            peer = f"{address[0]}:{address[1]}"
            if not self._make_room(address[0]):
                log.warning(
                    "closed %s: %d connections are open, %d of them its own, and none is idle",
                    peer,
                    len(self._connections),
                    self._of_host[address[0]],
                )
                sock.close()
                continue
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            bytes_max = self._settings.message_bytes_max
            connection = Connection(sock, peer, bytes_max, *self._security.layers(bytes_max))
            if not connection.open:
                connection.deadline = time.monotonic() + self._settings.message_seconds_max
                self._waiting.add(connection)
            self._connections.add(connection)
            self._of_host[connection.host] += 1
            self._watch(connection, _READ)

    def _make_room(self, host: str) -> bool:
        """Closes the connection that is idle longest if the house is full, or full of this host's; False: none is.

        In a full house a host that has many connections loses one before a host that has few.
        """
        settings, of_host = self._settings, self._of_host
        of_its_own = of_host[host] >= settings.peer_connections_max
        if not of_its_own and len(self._connections) < settings.connections_max:
            return True
        used_by = time.monotonic() - settings.idle_seconds_min
        candidates = [one for one in self._idle() if one.used_at <= used_by and (not of_its_own or one.host == host)]
        if not candidates:
            return False
        longest = max(candidates, key=lambda one: (of_host[one.host], -one.used_at))
        log.warning(
            "closed %s, idle for %.0f seconds, for another: %d connections are open, %d of them from there",
            longest.session.peer,
            time.monotonic() - longest.used_at,
            len(self._connections),
            of_host[longest.host],
        )
        self._close(longest)
        return True

    def _watch(self, connection: Connection, interest: int) -> None:
        if interest == connection.interest:
            return
        if not connection.interest:
            self._selector.register(connection.sock, interest, connection)
        elif interest:
            self._selector.modify(connection.sock, interest, connection)
        else:
            self._selector.unregister(connection.sock)
        connection.interest = interest

    def _on_event(self, connection: Connection, events: int) -> None:
        if connection.closed:
            return
        if events & _WRITE:
            self._flush(connection)
        if events & _READ and not connection.closed:
            self._read(connection)

    def _on_notice(self, connection: Connection) -> None:
        if connection.closed:
            return
        if connection.out is not None:
            self._flush(connection)
        elif not connection.running:
            self._advance(connection)

    def _read(self, connection: Connection) -> None:
        room = _FIRST_RECEIVE_BYTES
        for _ in range(_RECEIVES_MAX):
            try:
                chunk = connection.receive(room)
            except (BlockingIOError, InterruptedError):
                break
            except LayerError as error:
                log.warning("turned away %s: %s", connection.session.peer, error)
                self._turn_away(connection, error.answer)
                return
            except OSError:
                self._close(connection)
                return
            if chunk is None:
                if not self._count(connection):
                    return
                continue
            if not chunk:
                connection.eof = True
                self._watch(connection, connection.interest & ~_READ)
                break
            connection.used_at = time.monotonic()
            if len(chunk) <= REQUEST_BYTES_MAX and self._answer_at_once(connection, chunk):
                return
            if not connection.rejected:
                connection.inbox.feed(chunk)
                if not self._count(connection):
                    return
            if len(chunk) < room and not connection.ended:  # else the end is read at once: no event tells of it
                break
            room = _RECEIVE_BYTES
        self._advance(connection)

    def _answer_at_once(self, connection: Connection, chunk: bytes) -> bool:
        """Answers the request, if it is one whose answer is ready. False: nothing was done.

        ``running`` is set in this thread only, so no lock is needed to see that it is not.
        """
        if connection.running or connection.inbox.size or connection.rejected or self._stop_by is not None:
            return False
        if not connection.open:
            return False
        reply = self._ready.at_once(chunk) if self._ready is not None else None
        if reply is None:
            return False
        connection.out = connection.write(reply)
        if connection.out is not None:
            with connection.lock:
                connection.running = True
            self._flush(connection)
        elif connection.broken:
            self._close(connection)
        return True

    def _count(self, connection: Connection) -> bool:
        """Updates the sum of the bytes received. False if it grew too large; the connection is closed then."""
        grown = connection.held - connection.counted
        connection.counted += grown
        self._received += grown
        if grown <= 0 or self._received <= self._settings.received_bytes_max:
            return True
        log.warning(
            "closed %s: with it, %d bytes of requests are received, too many", connection.session.peer, self._received
        )
        self._close(connection)
        return False

    def _drop_received(self, connection: Connection) -> None:
        connection.inbox = Inbox(0)
        if connection.sasl is not None:
            connection.sasl.drop()
        self._count(connection)

    def _advance(self, connection: Connection) -> None:
        """Hands the next whole message to a worker, if there is one and no call runs."""
        with connection.lock:
            running = connection.running
        if running:
            if connection.inbox.size > self._settings.read_ahead_bytes_max:
                self._watch(connection, connection.interest & ~_READ)
            return
        if connection.broken or (self._stop_by is not None) or (connection.rejected and connection.eof):
            self._close(connection)
            return
        if connection.rejected:
            return
        sasl = connection.sasl
        step = sasl.step() if sasl is not None and not sasl.open else None
        if sasl is not None and step is not None and not self._begin_login(connection, sasl, step):
            return
        now = time.monotonic()
        try:
            message = connection.inbox.take(now)
            self._count(connection)
        except RejectedError as error:
            self._reject(connection, error.header, str(error))
            return
        if message is not None:
            connection.deadline = None
            self._waiting.discard(connection)
            if connection.inbox.size <= self._settings.read_ahead_bytes_max and not connection.eof:
                self._watch(connection, connection.interest | _READ)
            with connection.lock:
                connection.running = True
            self._hand_over(connection, message)
        elif connection.eof:
            if connection.held:
                log.info("%s closed in the middle of a message of which %d bytes came", *_who(connection))
            self._close(connection)
        else:
            self._await_more(connection, now)

    def _begin_login(self, connection: Connection, sasl: SaslLayer, step: Step) -> bool:
        """Logs the client in if it is known, or lets the step be run. Returns whether it is logged in already."""
        if step.known is not None:
            self._tell(connection, sasl, step.known)
            if connection.broken:
                self._close(connection)
            return not connection.broken
        with connection.lock:
            connection.running = True
        if self._logins.put(connection.host, lambda: self._log_in(connection, sasl, step)):
            return False
        with connection.lock:
            connection.running = False
        log.warning("refused the login of %s: too many of its address wait", connection.session.peer)
        sasl.go_on(Refused("too many logins of this address wait: try again in a second"))
        connection.say()
        self._turn_away(connection)
        return False

    def _hand_over(self, connection: Connection, message: Message) -> None:
        """Answers from what is kept, or lets that be checked, or gives the message to a worker."""
        kept = self._ready.kept(message) if self._ready is not None else None
        if kept is None or self._ready is None or self._together is None:
            self._give_to_worker(connection, message)
            return
        reply = self._ready.now(kept, message.header.seqid)
        if reply is None:
            self._together.put(Waiting(connection, message, kept))
        elif self._write(connection, reply):
            self._notices.append(connection)
            self._wake()

    def _give_to_worker(self, connection: Connection, message: Message) -> None:
        """Gives the message to a worker, or tells the client why not."""
        reason = f"the service is full: {self._lanes.pending} calls wait or run; try again in a second"
        try:
            self._room.enter(message.size)
            lane = self._lane_of(message.header.name, self._lanes)
            if lane is not None:
                lane.put((connection, message))
                return
            self._room.leave(message.size)
        except RefusedError as error:
            reason = str(error)
        if self._write(connection, self._dispatcher.refuse(message, connection.session, reason)):
            self._notices.append(connection)
            self._wake()

    def _await_more(self, connection: Connection, now: float) -> None:
        self._watch(connection, connection.interest | _READ)
        if connection.held == 0 and connection.open:
            connection.deadline = None
            self._waiting.discard(connection)
            return
        if connection.deadline is None:
            connection.deadline = now + self._settings.message_seconds_max
        self._waiting.add(connection)

    def _flush(self, connection: Connection) -> None:
        """Writes more of a reply that the socket did not take at once. The call ends when all of it is written."""
        if connection.out is None:
            return
        before = len(connection.out)
        connection.out = connection.resume()
        if connection.out is not None:
            if connection.deadline is None or len(connection.out) < before:
                connection.deadline = time.monotonic() + self._settings.write_stall_seconds_max
                self._waiting.add(connection)
            self._watch(connection, connection.interest | _WRITE)
            return
        connection.deadline = None
        self._waiting.discard(connection)
        self._watch(connection, connection.interest & ~_WRITE)
        with connection.lock:
            connection.running = False
        self._advance(connection)

    def _reject(self, connection: Connection, header: codec.Header | None, reason: str) -> None:
        """Answers what is wrong, if there is a header, and drops the connection: its next message cannot be found."""
        log.warning("rejected %s (user %s): %s", connection.session.peer, connection.session.user, reason)
        self._drop_received(connection)
        if header is None:
            self._close(connection)
            return
        number = codec.INVALID_MESSAGE_TYPE if header.kind not in (codec.CALL, codec.ONEWAY) else codec.PROTOCOL_ERROR
        connection.write(codec.application_error(header.name, header.seqid, number, reason))
        self._turn_away(connection)

    def _turn_away(self, connection: Connection, answer: bytes = b"") -> None:
        """Drops a connection that has been told why, or is by ``answer``, as it goes to the socket."""
        self._drop_received(connection)
        if answer:
            with contextlib.suppress(OSError):
                connection.sock.send(answer)
        # Closing with unread bytes would reset the connection before the peer has read the reason.
        connection.rejected = True
        connection.receive = connection.sock.recv
        with contextlib.suppress(OSError):
            connection.sock.shutdown(socket.SHUT_WR)
        connection.deadline = time.monotonic() + _REJECT_SECONDS
        self._waiting.add(connection)
        self._watch(connection, _READ)
        if connection.eof:
            self._close(connection)

    def _sweep(self, now: float) -> None:
        """Repeats walks that were put off, and closes connections whose time is over."""
        for connection in [c for c in self._waiting if c.inbox.retry_at is not None and c.inbox.retry_at <= now]:
            self._advance(connection)
        if now - self._swept_at < _SWEEP_SECONDS:
            return
        self._swept_at = now
        self._close_idle(now)
        if self._accept_at and now >= self._accept_at:
            self._accept_at = 0.0
            self._selector.register(self._listener, _READ)
        for connection in [c for c in self._waiting if c.deadline is not None and c.deadline <= now]:
            if connection.out is not None:
                log.warning("closed %s: it does not take its reply, %d bytes are left", *_who(connection))
            elif not connection.rejected:
                log.warning("closed %s: its request did not come whole in time, only %d bytes", *_who(connection))
            self._close(connection)

    def _close_idle(self, now: float) -> None:
        most = self._settings.idle_seconds_max
        if now < self._idle_at:
            return
        self._idle_at = now + min(most / 4, _IDLE_SWEEP_SECONDS)
        for connection in list(self._idle()):
            if not connection.held and now - connection.used_at >= most:
                log.info("closed %s: nothing came for %.0f seconds", connection.session.peer, most)
                self._close(connection)

    def _close(self, connection: Connection) -> None:
        self._watch(connection, 0)
        self._waiting.discard(connection)
        self._drop_received(connection)
        with connection.lock:
            if connection.running and connection.out is None:
                connection.abort()  # the worker's notice comes when the call has ended
                return
        connection.closed = True
        connection.session.data.clear()  # what handlers keep for it tells whether it is open
        connection.sock.close()
        self._connections.discard(connection)
        self._of_host[connection.host] -= 1
        if not self._of_host[connection.host]:
            del self._of_host[connection.host]

    # ---- the end

    def _stopped(self) -> bool:
        if self._stop_by is None:
            return False
        if self._listener.fileno() >= 0:
            with contextlib.suppress(KeyError):  # while it may not accept, it is not registered
                self._selector.unregister(self._listener)
            self._listener.close()
            self._accept_at = 0.0
        for connection in list(self._idle()):
            self._close(connection)
        return not self._connections or time.monotonic() >= self._stop_by

    def _idle(self) -> Iterator[Connection]:
        for connection in self._connections:
            with connection.lock:
                running = connection.running
            if not running:
                yield connection

    def _end(self) -> None:
        for connection in self._connections:
            log.warning("stopped while a call of %s ran", connection.session.peer)
            connection.abort()
        self._listener.close()
        self._selector.close()
        self._wake_out.close()
        self._wake_in.close()


def _who(connection: Connection) -> tuple[str, int]:
    return connection.session.peer, len(connection.out) if connection.out is not None else connection.held
