"""What the call at the end of a statement means. Pure.

The call names a directory, but not the one that the statement wrote into: it names the one of a later look-up by the
same client. So all that is known is whose call it is. From this it follows:

* The statement's own directory is complete when its call comes. If all complete directories that the client was given
  are published before the call is answered, the statement's rows are there, whichever they are.
* Each statement makes a known number of calls. So many are answered well for those that were published, and no more.
* Once a statement is given up before its own call has come, it cannot be told which of the calls to come is its own. So
  for a while none is answered well, and what they might have ended is given up, too: a statement may fail whose rows
  are there, but none is done whose rows are not.
* A client whose connection broke goes on with another one, a session of its own here. Directories that it was given
  before are then among those of other sessions (``elsewhere``), which may as well belong to somebody else. Only if no
  directory of its own is left, and there is one elsewhere alone, it must be that one. In doubt nothing is published:
  the statements fail, all of them, and can be repeated.
* A call that comes over one connection comes in its turn, or the connection breaks. So what a client repeats over the
  same connection had a call about the door that failed here (``failed``): the rows that were complete when that call
  began may be those of a statement that has failed. Those of jobs that ended later are not: a statement makes its calls
  after its job.
* A call follows soon on the end of its job. So what was complete long before (``late``) is of a statement whose call
  was lost, or is on its way for very long. It has failed and was perhaps repeated, and is never published. But the call
  at hand may be its own, so nothing else is taken for the rows of that call either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakemark_server.doors.directories import GivenDirectory

NO_ROWS = (
    "no rows of a statement that has ended are there to be committed: each statement has to leave a file _SUCCESS, as "
    "Spark's own writer does (spark.sql.hive.convertMetastoreParquet must be true, and an INSERT OVERWRITE must go to "
    "the door for it); if the connection to the Metastore broke, repeat the statement; nothing was committed"
)
TOO_LATE = (
    "the rows were complete long before this call came (door_doubt_s), and may be those of a statement that has "
    "failed: nothing was committed; repeat the statement"
)
IN_DOUBT = (
    "several statements of this application, or of this user and host while a connection broke, have ended, and it "
    "cannot be told which of them ended with this call: it was not committed, unless an answer was lost; repeat it "
    "after half a minute"
)

CALL_FAILED = (
    "after these rows were complete, or shortly before, a call of this application about the same door has failed, and "
    "it cannot be told whether they were repeated: nothing was committed; repeat the statement after half a minute"
)
OVERWRITES_AT_ONCE = (
    "an INSERT OVERWRITE of partitions ended at the same time as another statement of this application, or after one "
    "that failed, and it cannot be told which of them is whole: none of them was committed; repeat the statement, one "
    "at a time, or as INSERT INTO the door for overwriting, which replaces the same"
)


@dataclass(frozen=True, slots=True)
class CompleteDirectory:
    """A directory in which a job has ended.

    ``emptied``: it was an INSERT OVERWRITE. Not ``marked``: that left no _SUCCESS, and if the job failed at its very
    end it looks the same.
    """

    directory: GivenDirectory
    emptied: bool = False
    marked: bool = True


@dataclass(frozen=True, slots=True)
class CallSituation:
    """When a call comes.

    ``own``: complete directories of the session that the call belongs to, ``elsewhere``: those of sessions that may
    have been the same client's; of neither anything was decided. ``owed``: calls of
    statements of all these sessions that were published, which have not come. ``doubtful``: the call may be that of a
    statement that was given up lately. ``late``: of any of these sessions, but complete for longer than a call takes to
    come. ``unfinished``: files lie in a directory of the session that is not complete, so the call may be of that one.
    ``failed``: a call has failed that may have been one at the end of a statement of the session, and the rows of that
    statement may be among ``own``.
    """

    own: Sequence[CompleteDirectory]
    elsewhere: Sequence[CompleteDirectory]
    owed: int
    doubtful: bool = False
    late: Sequence[CompleteDirectory] = ()
    unfinished: bool = False
    failed: bool = False

    @property
    def certain(self) -> bool:
        """Whether no other statement than that of the call can have ended."""
        complete = len(self.own) + len(self.elsewhere) + len(self.late)
        return complete <= 1 and not (self.owed or self.doubtful or self.unfinished or self.failed)


@dataclass(frozen=True, slots=True)
class CallEnd:
    """Publish these directories, or (``refusal``) retire these and tell why.

    Nothing to publish: the rows are there already.
    """

    publish: tuple[GivenDirectory, ...] = ()
    retire: tuple[GivenDirectory, ...] = ()
    refusal: str = ""


def decide(situation: CallSituation, *, replaces: bool, way: str) -> CallEnd:
    """``replaces``: the door is one for overwriting; else ``way`` names the one that is."""
    own, elsewhere, late = situation.own, situation.elsewhere, situation.late
    complete = (*own, *elsewhere, *late)
    beside = own or late or situation.owed or situation.unfinished
    # Without _SUCCESS it is not known when it ended, so it may be that of a driver that died long ago.
    alone = len(elsewhere) == 1 and elsewhere[0].marked
    if situation.failed:
        return _refused(complete, CALL_FAILED)
    if situation.doubtful or (elsewhere and (beside or not alone)) or (late and (own or situation.owed)):
        return _refused(complete, IN_DOUBT)
    if late:
        return _refused(late, TOO_LATE)
    if not complete and not situation.owed:
        return _refused((), NO_ROWS)
    if (len(complete) > 1 or situation.owed) and not all(one.marked for one in complete):
        return _refused(complete, OVERWRITES_AT_ONCE)
    if not replaces and any(one.emptied for one in complete):
        return _refused(
            complete,
            f"this was an INSERT OVERWRITE, and the door is not for that: nothing was committed; use {way}, or INSERT "
            "INTO",
        )
    return CallEnd(publish=tuple(one.directory for one in complete))


def _refused(complete: Sequence[CompleteDirectory], why: str) -> CallEnd:
    return CallEnd(retire=tuple(one.directory for one in complete), refusal=why)


def given_up(directories: Sequence[GivenDirectory], why: str) -> CallEnd:
    """None of these is published, since one of them cannot be."""
    others = ""
    if len(directories) > 1:
        others = f" ({len(directories)} statements of this application ended at once, and none of them was committed)"
    return CallEnd(retire=tuple(directories), refusal=f"{why}{others}")


def calls_of(*, partitioned: bool, files: int) -> int:
    """How many calls end a statement that wrote so many files.

    Spark takes the statistics of a door off once it has added partitions, and again when the statement is done.
    """
    return 2 if partitioned and files else 1
