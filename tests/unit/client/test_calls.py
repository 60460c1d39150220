"""Retries and errors of calls, against a servicer with scripted responses."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest

from lakemark.client.calls import Backoff, Calls
from lakemark.client.client import Client
from lakemark.client.failures import translate
from lakemark.errors import (
    CommitConflict,
    DeadlineExceeded,
    DeadlineUnknown,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    LakemarkError,
    NotFound,
    Overloaded,
    StoreConflict,
    TableNotFound,
    Unavailable,
    Unimplemented,
    UnknownOutcome,
)
from lakemark_proto.v1 import catalog_pb2 as pb
from lakemark_proto.v1.catalog_pb2_grpc import (
    CatalogServiceServicer,
    CatalogServiceStub,
    add_CatalogServiceServicer_to_server,
)
from lakemark_proto.v1.types_pb2 import ErrorDetail

BACKOFF = Backoff(first_s=0.0, most_s=0.0, attempts_max=4)
Answer = Callable[[Any], Any]


class Scripted(CatalogServiceServicer):
    """Answers CreateDatabase with the next item of ``script``: a status, an error of ours, or None for success."""

    def __init__(self) -> None:
        self.script: list[grpc.StatusCode | LakemarkError | None] = []
        self.request_ids: list[str] = []
        self.words = "as told"
        self.release = threading.Event()

    def CreateDatabase(  # noqa: N802
        self, request: pb.CreateDatabaseRequest, context: grpc.ServicerContext
    ) -> pb.Database:
        self.request_ids.append(request.request_id)
        return self._answer(context)

    def GetDatabase(  # noqa: N802
        self, request: pb.GetDatabaseRequest, context: grpc.ServicerContext
    ) -> pb.Database:
        if request.name == "slow":
            self.release.wait(10)
        return self._answer(context)

    def _answer(self, context: grpc.ServicerContext) -> pb.Database:
        answer = self.script.pop(0) if self.script else None
        if isinstance(answer, LakemarkError):
            detail = ErrorDetail(
                code=answer.code, message=answer.message, details=answer.details, outcome=answer.outcome.value
            )
            context.set_trailing_metadata((("lakemark-error-bin", detail.SerializeToString()),))
            context.abort(grpc.StatusCode[answer.grpc_status], answer.message)
        if isinstance(answer, grpc.StatusCode):
            context.abort(answer, self.words)
        return pb.Database(name="made")


@pytest.fixture
def scripted() -> Iterator[tuple[Scripted, Client]]:
    servicer = Scripted()  # type: ignore[abstract] # the other methods are not called
    server = grpc.server(futures.ThreadPoolExecutor(4))
    add_CatalogServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with Client(f"127.0.0.1:{port}", 10, BACKOFF) as client:
        yield servicer, client
    servicer.release.set()
    server.stop(None).wait()


def test_the_exact_error_with_its_details_arrives(scripted: tuple[Scripted, Client]) -> None:
    servicer, client = scripted
    servicer.script = [TableNotFound("there is no table db.t", table="db.t")]

    with pytest.raises(TableNotFound, match=r"no table db\.t") as raised:
        client.databases.create("db")

    assert raised.value.details == {"table": "db.t"}
    assert len(servicer.request_ids) == 1, "what is fatal is not asked again"


@pytest.mark.parametrize("failure", [StoreConflict("busy"), UnknownOutcome("who knows"), grpc.StatusCode.UNAVAILABLE])
def test_what_may_help_is_asked_again_with_the_same_request_id(
    scripted: tuple[Scripted, Client], failure: LakemarkError | grpc.StatusCode
) -> None:
    servicer, client = scripted
    servicer.script = [failure, failure, None]

    assert client.databases.create("db").name == "made"
    client.databases.create("db")

    first, second, third, other = servicer.request_ids
    assert first == second == third != other
    assert first


def of_another_release(error: LakemarkError) -> LakemarkError:
    """An error with a code that this process does not know, like those of the service's stores."""
    vars(error)["code"] = "of_another_release"
    return error


@pytest.mark.parametrize("family", [StoreConflict, UnknownOutcome, Overloaded, DeadlineUnknown, DeadlineExceeded])
def test_what_may_help_is_asked_again_whatever_its_code(
    scripted: tuple[Scripted, Client], family: type[LakemarkError]
) -> None:
    servicer, client = scripted
    servicer.script = [of_another_release(family("busy")), None]
    assert client.databases.create("db").name == "made"

    servicer.script = [of_another_release(family("busy"))]
    with pytest.raises(grpc.RpcError) as raised:
        client.databases._stub.CreateDatabase(pb.CreateDatabaseRequest())
    told = translate(raised.value, client.address, mutation=True)
    assert (told.message, told.outcome, told.exit_code) == ("busy", family.outcome, family.exit_code)


@pytest.mark.parametrize("family", [FailedPrecondition, NotFound, InvalidArgument, CommitConflict, Internal])
def test_what_does_not_help_is_not_asked_again_whatever_its_code(
    scripted: tuple[Scripted, Client], family: type[LakemarkError]
) -> None:
    servicer, client = scripted
    servicer.script = [of_another_release(family("no"))]
    with pytest.raises(family, match="no"):
        client.databases.create("db")
    assert len(servicer.request_ids) == 1


def test_retries_end_with_what_is_known(scripted: tuple[Scripted, Client]) -> None:
    servicer, client = scripted
    busy = StoreConflict("busy")

    servicer.script = [busy] * 4
    with pytest.raises(StoreConflict):
        client.databases.create("db")
    assert len(servicer.request_ids) == BACKOFF.attempts_max

    servicer.script = [UnknownOutcome("who knows"), busy, busy, busy]
    with pytest.raises(UnknownOutcome):
        client.databases.create("db")


def calls_of(client: Client, timeout_s: float, pauses: list[float]) -> tuple[Calls, CatalogServiceStub]:
    """Calls that record their pauses instead of sleeping."""
    calls = Calls(client.address, timeout_s, BACKOFF, pauses.append)
    return calls, CatalogServiceStub(calls.channel)


def test_a_full_service_is_asked_again_after_the_time_that_it_names(scripted: tuple[Scripted, Client]) -> None:
    servicer, client = scripted
    refusals = BACKOFF.attempts_max + 3
    servicer.script = [Overloaded("full", retry_after_ms="200")] * refusals
    pauses: list[float] = []
    calls, stub = calls_of(client, 10, pauses)

    calls(stub.CreateDatabase, pb.CreateDatabaseRequest(), mutation=True)

    assert len(pauses) == refusals, "refusals are no failed attempts: there is still time"
    assert all(0.2 <= pause <= 0.3 for pause in pauses)
    assert len(set(pauses)) > 1, "those who were sent away together do not come back together"
    calls.close()


def test_a_delay_beyond_the_deadline_is_not_waited_for(scripted: tuple[Scripted, Client]) -> None:
    servicer, client = scripted
    servicer.script = [Overloaded("full", retry_after_ms="5000")]
    pauses: list[float] = []
    calls, stub = calls_of(client, 4, pauses)

    with pytest.raises(Overloaded):
        calls(stub.CreateDatabase, pb.CreateDatabaseRequest(), mutation=True)

    assert pauses == []
    calls.close()


@pytest.mark.parametrize(
    ("status", "of_mutation", "of_read"),
    [
        (grpc.StatusCode.UNAVAILABLE, UnknownOutcome, Unavailable),
        (grpc.StatusCode.UNKNOWN, UnknownOutcome, Unavailable),
        (grpc.StatusCode.DEADLINE_EXCEEDED, DeadlineUnknown, DeadlineExceeded),
        (grpc.StatusCode.UNIMPLEMENTED, Unimplemented, Unimplemented),
        (grpc.StatusCode.INVALID_ARGUMENT, InvalidArgument, InvalidArgument),
        (grpc.StatusCode.NOT_FOUND, NotFound, NotFound),
        (grpc.StatusCode.ABORTED, CommitConflict, CommitConflict),
        (grpc.StatusCode.INTERNAL, Internal, Internal),
        (grpc.StatusCode.PERMISSION_DENIED, FailedPrecondition, FailedPrecondition),
    ],
)
def test_a_bare_status_becomes_an_error_of_the_tree(
    scripted: tuple[Scripted, Client],
    status: grpc.StatusCode,
    of_mutation: type[LakemarkError],
    of_read: type[LakemarkError],
) -> None:
    servicer, client = scripted
    servicer.script = [status] * 4
    with pytest.raises(LakemarkError) as mutation:
        client.databases.create("db")
    servicer.script = [status] * 4
    with pytest.raises(LakemarkError) as read:
        client.databases.get("db")

    assert (type(mutation.value), type(read.value)) == (of_mutation, of_read)


def test_a_server_that_takes_no_more_requests_is_asked_again(scripted: tuple[Scripted, Client]) -> None:
    """In gRPC's own words: the server had not even room to answer."""
    servicer, client = scripted
    servicer.words = "Concurrent RPC limit exceeded!"
    servicer.script = [grpc.StatusCode.RESOURCE_EXHAUSTED] * 3
    assert client.databases.create("db").name == "made"
    assert len(servicer.request_ids) == 4


@pytest.mark.parametrize("status", list(grpc.StatusCode))
def test_no_status_reaches_the_user_raw(scripted: tuple[Scripted, Client], status: grpc.StatusCode) -> None:
    if status is grpc.StatusCode.OK:
        return
    servicer, client = scripted
    servicer.script = [status] * 4
    with pytest.raises(LakemarkError):
        client.databases.get("db")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere.invalid:9090"])
def test_a_service_that_is_not_there(address: str) -> None:
    with Client(address, 5, BACKOFF) as client, pytest.raises(Unavailable, match=f"{address}; is it running"):
        client.databases.create("db")


def test_a_deadline_ends_a_call_that_gets_no_answer(scripted: tuple[Scripted, Client]) -> None:
    _, client = scripted
    with Client(client.address, 0.2, BACKOFF) as hasty, pytest.raises(Unavailable, match="did not answer in time"):
        hasty.databases.get("slow")


def test_a_closed_client_says_so(scripted: tuple[Scripted, Client]) -> None:
    _, client = scripted
    with Client(client.address) as other:
        pass
    with pytest.raises(FailedPrecondition, match="closed"):
        other.databases.list()


def test_pauses_grow_and_are_bounded() -> None:
    backoff = Backoff(first_s=0.1, most_s=1.0)
    pauses = [backoff.pause_s(attempt) for attempt in range(20)]
    assert all(0.05 <= pause <= 1.0 for pause in pauses)
    assert min(pauses[5:]) > max(pauses[:2])


def test_a_timeout_is_positive() -> None:
    with pytest.raises(InvalidArgument):
        Calls("127.0.0.1:1", 0, BACKOFF)


@pytest.mark.parametrize("number", [1.5, float("inf"), 2**64])
def test_a_quota_that_is_no_whole_number_is_refused_in_words(number: float) -> None:
    with Client("127.0.0.1:1") as client, pytest.raises(InvalidArgument, match="tables must be a whole number below"):
        client.quotas.set("hive", tables=number)
