"""A worker: takes tasks of its group, has them done, says how they ended, and says all the time that it lives."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from lakemark import Client
from lakemark.client.optimization import OptimizationTask, OptimizerWorker
from lakemark_core.errors import CommitConflict, InvalidArgument, LakemarkError
from lakemark_optimizer.executor import Executor, Result, conflict
from lakemark_optimizer.spark import SparkExecutor

HEARTBEAT_S: Final = 10.0
ASK_S: Final = 1.0
RETRY_S: Final = 5.0
"""After an error of the service: it is away, perhaps, and is asked again for ever."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Running:
    task: OptimizationTask
    cancelled: threading.Event = field(default_factory=threading.Event)


class Worker:
    """``run`` works until ``stop``. ``executors`` by name; small tasks go to "arrow" if it is there."""

    def __init__(
        self,
        client: Client,
        group: str,
        executors: Mapping[str, Executor],
        slots: int = 1,
        *,
        release: str = "",
        ask_s: float = ASK_S,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        if not executors:
            raise InvalidArgument("a worker needs an executor: arrow, spark or spark-submit")
        self._client, self._tasks, self._group = client, client.optimizer_tasks, group
        self._executors, self._slots, self._release = executors, slots, release
        self._ask_s, self._heartbeat_s = ask_s, heartbeat_s
        self._lock = threading.Lock()
        self._running: dict[tuple[int, int], _Running] = {}
        self._worker: OptimizerWorker | None = None
        self._stopped = threading.Event()
        self._free = threading.Semaphore(slots)
        self.finished = 0

    def run(self, tasks_max: int = 0) -> None:
        """Works until ``stop`` is called, or until so many tasks have ended (0: no bound)."""
        beats = threading.Thread(target=self._beat, name="lakemark-worker-heartbeat", daemon=True)
        with ThreadPoolExecutor(self._slots, thread_name_prefix="lakemark-task") as pool:
            beats.start()
            taken = 0
            while not self._stopped.is_set() and not (tasks_max and taken >= tasks_max):
                if not self._free.acquire(timeout=self._ask_s):
                    continue
                task = self._next()
                if task is None:
                    self._free.release()
                    continue
                taken += 1
                pool.submit(self._do, task)
            if self._stopped.is_set():
                self._leave()  # first: others can begin with its tasks while this one comes to an end
                self._give_up()
        self._stopped.set()
        beats.join()
        self._leave()
        for executor in self._executors.values():
            executor.close()

    def stop(self) -> None:
        """Takes no more tasks, and gives back those that run."""
        self._stopped.set()

    def _next(self) -> OptimizationTask | None:
        """The next task; None, after a pause, if there is none."""
        try:
            worker = self._registered()
            task = self._tasks.take(self._group, worker.worker_id)
        except LakemarkError as error:
            if error.code == "worker_unknown":
                self._forget()
                return None
            if isinstance(error, InvalidArgument):
                self._stopped.set()
                raise  # of another release, or an illegal group: it will never be otherwise
            _log.warning("the service gives no task: %s", error.message)
            self._stopped.wait(RETRY_S)
            return None
        if task is None:
            self._rest()
            self._stopped.wait(self._ask_s)
            return None
        with self._lock:
            self._running[task.table_id, task.instant] = _Running(task)
        return task

    def _registered(self) -> OptimizerWorker:
        with self._lock:
            worker = self._worker
        if worker is None:
            worker = self._tasks.register(
                self._group, socket.gethostname()[:100], self._slots, sorted(self._executors), self._release
            )
            _log.info("worker %s of group %s", worker.worker_id, self._group)
            with self._lock:
                self._worker = worker
        return worker

    def _forget(self) -> None:
        """The service has given this worker up: what it was doing belongs to others."""
        with self._lock:
            self._worker = None
        self._give_up()

    def _give_up(self) -> None:
        with self._lock:
            for running in self._running.values():
                running.cancelled.set()

    def _do(self, task: OptimizationTask) -> None:
        name = task.table_id, task.instant
        with self._lock:
            running = self._running[name]
            worker_id = self._worker.worker_id if self._worker is not None else ""
        executor = self._executor(task)
        try:
            self._tasks.acknowledge(worker_id, task)
            result = _done(executor, task, running.cancelled)
            if not running.cancelled.is_set():
                ended = self._tasks.complete(worker_id, task, result.outcome, result.message[:2_000], executor.name)
                _log.info("%s %s of %s: %s %s", task.kind, task.partition, task.table, ended.state, ended.message)
        except LakemarkError as error:
            # The service sees by the instant, or by the silence, how it ended.
            _log.warning("%s of %s: %s", task.kind, task.table, error.message)
        finally:
            with self._lock:
                self._running.pop(name, None)
                self.finished += 1
            self._free.release()

    def _executor(self, task: OptimizationTask) -> Executor:
        if not task.needs_spark and "arrow" in self._executors:
            return self._executors["arrow"]
        return next(one for name, one in sorted(self._executors.items()) if name != "arrow")

    def _beat(self) -> None:
        while not self._stopped.wait(self._heartbeat_s):
            with self._lock:
                worker, tasks = self._worker, [one.task for one in self._running.values()]
            if worker is None:
                continue
            try:
                lost = self._tasks.heartbeat(self._group, worker.worker_id, tasks)
            except LakemarkError as error:
                if error.code == "worker_unknown":
                    self._forget()
                continue  # the next one tries again
            with self._lock:
                for name in lost & self._running.keys():
                    self._running[name].cancelled.set()

    def _rest(self) -> None:
        for executor in self._executors.values():
            if isinstance(executor, SparkExecutor):
                executor.rest()

    def _leave(self) -> None:
        with self._lock:
            worker, self._worker = self._worker, None
        if worker is not None:
            try:
                self._tasks.leave(self._group, worker.worker_id)
            except LakemarkError as error:
                _log.warning("the service was not told that the worker goes: %s", error.message)


def _done(executor: Executor, task: OptimizationTask, cancelled: threading.Event) -> Result:
    """The result, whatever goes wrong: a task that fails must not end the worker."""
    try:
        return executor.run(task, cancelled)
    except CommitConflict as error:
        return conflict(error)
    except LakemarkError as error:
        return Result("failed", error.message)
    except Exception as error:
        _log.exception("%s of %s failed", task.kind, task.table)
        return Result("failed", f"{type(error).__name__}: {error}")
