"""Directories of S3 buckets by boto3, which the service has: listing, deletion in batches, copies, lost uploads.

A directory is nothing but the keys that begin with its name and a slash; a key that is exactly that is a marker, which
other programs write. pyarrow's file system would keep up markers of its own, at several requests for each, and deletes
single keys one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

from lakemark_core.errors import FailedPrecondition, LakemarkError
from lakemark_core.storage.connections import pause, s3_client, s3_settings
from lakemark_core.storage.errors import translated
from lakemark_core.storage.uris import S3Place

KEYS_A_REQUEST: Final = 1_000
COPIES_AT_ONCE: Final = 16
_COPY_BYTES_MAX: Final = 5 << 30  # of an object that one request copies
_AGAIN: Final = ("InternalError", "SlowDown", "ServiceUnavailable", "RequestTimeout")
_NOT_EMPTY: Final = "DirectoryNotEmpty"  # a part of the code
_NO_UPLOADS: Final = ("AccessDenied", "NotImplemented", "MethodNotAllowed", "NoSuchUpload")

Error = tuple[str, str]
"""A key, and the code of what S3 says about it."""


class S3Directory:
    """The keys below a location. Methods raise StorageRefused, StorageUnavailable."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.place = S3Place.of(uri)
        self._settings = s3_settings(self.place)
        self._client = s3_client(self._settings)

    def is_there(self) -> bool:
        """Whether there is a key in it, or a marker of it."""
        with self._telling("cannot be looked at"):
            return bool(self._first_keys(1))

    def is_empty(self) -> bool:
        """Whether there is no key in it but perhaps a marker of it."""
        with self._telling("cannot be read"):
            return all(key == self.place.prefix for key in self._first_keys(2))

    def check_bucket(self) -> None:
        """Raises unless its bucket can be listed."""
        with self._telling("cannot be made"):
            self._first_keys(1)

    def delete(self, may_go_on: Callable[[], None], *, uploads: bool = True) -> None:
        """Deletes all keys in it, by ``KEYS_A_REQUEST``. ``uploads``: ends multipart uploads that go on in it, too.

        ``may_go_on`` is called before each request that deletes, and raises if nothing must be deleted any more.
        """
        self._require_not_bucket()
        with self._telling("cannot be deleted"):
            markers: list[str] = []
            for page in self._pages():
                may_go_on()
                # The other way round, markers come after what lies in their directories.
                markers += self._delete([str(each["Key"]) for each in reversed(page)])
            if markers:
                may_go_on()
                self._delete(markers[::-1])
            if uploads:
                may_go_on()
                self._abort_uploads()

    def delete_copied(self, copy: S3Directory, may_go_on: Callable[[], None], *, copies: bool) -> None:
        """Deletes the keys here that are in ``copy``, too, and were copied there; or (``copies``) the copies of them.

        What was written here after it was copied, or there by somebody else, stays. Both sides are listed in order.
        """
        gone = copy if copies else self
        gone._require_not_bucket()
        with gone._telling("cannot be deleted"):
            doomed: list[str] = []
            for mine, other in _pairs(self, copy):
                if mine["Size"] == other["Size"] and mine["LastModified"] <= other["LastModified"]:
                    doomed.append(str((other if copies else mine)["Key"]))
                if len(doomed) >= KEYS_A_REQUEST:
                    may_go_on()
                    gone._delete(doomed[::-1])
                    doomed.clear()
            if doomed:
                may_go_on()
                gone._delete(doomed[::-1])

    def delete_keys(self, keys: Sequence[str]) -> dict[str, LakemarkError]:
        """Deletes single keys by ``KEYS_A_REQUEST``, whether they are there or not; why some could not be deleted."""
        failed: dict[str, LakemarkError] = {}
        for batch in _batches(keys):
            try:
                with self._telling("has files that cannot be deleted"):
                    self._delete(batch)
            except LakemarkError as error:
                failed.update(dict.fromkeys(batch, error))
        return failed

    def copy_to(self, target: S3Directory, may_go_on: Callable[[], None]) -> bool:
        """Copies all keys, within the server; False if there is none. What was copied is deleted if a copy fails.

        ``may_go_on`` is called before each page, and raises if nothing must be copied or deleted any more.
        """
        copied = False
        try:
            with self._telling(f"cannot be copied to {target.uri!r}"), ThreadPoolExecutor(COPIES_AT_ONCE) as pool:
                for page in self._pages():
                    may_go_on()
                    copied = True
                    list(pool.map(lambda each: self._copy(each, target.place), page))
        except LakemarkError:
            if copied:
                target.delete(may_go_on)
            raise
        return copied

    def _copy(self, listed: Any, target: S3Place) -> None:
        key = target.prefix + listed["Key"].removeprefix(self.place.prefix)
        source = {"Bucket": self.place.bucket, "Key": listed["Key"]}
        copy = self._client.copy_object if listed["Size"] <= _COPY_BYTES_MAX else self._client.copy
        copy(CopySource=source, Bucket=target.bucket, Key=key)

    def _first_keys(self, count: int) -> list[str]:
        answer = self._client.list_objects_v2(Bucket=self.place.bucket, Prefix=self.place.prefix, MaxKeys=count)
        return [str(each["Key"]) for each in answer.get("Contents", ())]

    def _pages(self) -> Iterator[list[Any]]:
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self.place.bucket, Prefix=self.place.prefix, PaginationConfig={"PageSize": KEYS_A_REQUEST}
        )
        for page in pages:
            if page.get("Contents"):
                yield page["Contents"]

    def _delete(self, keys: Sequence[str]) -> list[str]:
        """Keys that the server could not delete just now are tried again, others are not.

        Returns the markers that stay because their directory is not empty: servers that keep keys as files say so.
        """
        left = list(keys)
        stay: list[str] = []
        for attempt in range(self._settings.max_attempts):
            answer = self._client.delete_objects(
                Bucket=self.place.bucket, Delete={"Objects": [{"Key": key} for key in left], "Quiet": True}
            )
            said: list[Error] = [(each["Key"], each["Code"]) for each in answer.get("Errors", ())]
            wrong = [(key, code) for key, code in said if not (key.endswith("/") and _NOT_EMPTY in code)]
            stay += [key for key, code in said if (key, code) not in wrong]
            left = [key for key, code in wrong if code in _AGAIN]
            final = next((code for _, code in wrong if code not in _AGAIN), wrong[0][1] if wrong else "")
            if len(left) < len(wrong) or (left and attempt + 1 == self._settings.max_attempts):
                raise _KeysLeftError(final)
            if not left:
                break
            pause(attempt)
        return stay

    def _abort_uploads(self) -> None:
        """Their parts are paid for, and no list of keys shows them. Left alone where that is not allowed or known."""
        from botocore.exceptions import ClientError

        pages = self._client.get_paginator("list_multipart_uploads").paginate(
            Bucket=self.place.bucket, Prefix=self.place.prefix
        )
        try:
            for page in pages:
                for upload in page.get("Uploads", ()):
                    self._client.abort_multipart_upload(
                        Bucket=self.place.bucket, Key=upload["Key"], UploadId=upload["UploadId"]
                    )
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") not in _NO_UPLOADS:
                raise

    def _require_not_bucket(self) -> None:
        if not self.place.key:
            raise FailedPrecondition(f"{self.uri!r} is a whole bucket, which is not deleted", location=self.uri)

    @contextmanager
    def _telling(self, what: str) -> Iterator[None]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except (BotoCoreError, ClientError, _KeysLeftError) as error:
            raise translated(f"directory {self.uri!r} {what}", self.uri, error, self._settings) from error


def _pairs(first: S3Directory, second: S3Directory) -> Iterator[tuple[Any, Any]]:
    """The keys that both have, which S3 lists in the order of their bytes."""
    others = (other for page in second._pages() for other in page)
    other = next(others, None)
    for page in first._pages():
        for mine in page:
            name = mine["Key"].removeprefix(first.place.prefix).encode()
            while other is not None and other["Key"].removeprefix(second.place.prefix).encode() < name:
                other = next(others, None)
            if other is None:
                return
            if other["Key"].removeprefix(second.place.prefix).encode() == name:
                yield mine, other


class _KeysLeftError(Exception):
    """DeleteObjects was answered, but not all of the keys were deleted; in the form of boto3's ClientError."""

    operation_name = "DeleteObjects"

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.response = {"Error": {"Code": code}}


def _batches(keys: Iterable[str]) -> Iterator[list[str]]:
    listed = list(keys)
    for start in range(0, len(listed), KEYS_A_REQUEST):
        yield listed[start : start + KEYS_A_REQUEST]
