"""A scheduler that survives its machines: jobs run once or every so often, on whichever worker is connected.

A job that is due goes to the next worker in turn, and to another one when it is not done in time: at least once.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from container import ClusteredService, read_snapshot, write_snapshot
from container.api import ClientSession, CloseReason, Cluster, Header, MessageBuffer, SnapshotImage, SnapshotPublication
from container.api import TimeUnit as Unit

MAX_REQUEST_LENGTH, MAX_JOBS = 1_024, 10_000
RETRY_MS = 10_000  # until a job that is not done goes to another worker
_PER_MS = {Unit.MILLIS: 1, Unit.MICROS: 1_000, Unit.NANOS: 1_000_000}
type Id = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
type DurationMs = Annotated[int, msgspec.Meta(ge=0, le=366 * 24 * 3_600_000)]


class Request(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    """Sent by clients, in MessagePack."""

    request_id: Id


class Schedule(Request):
    """Adds a job that is due after a time; with ``every_ms`` it is due again that long after each run."""

    task: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    after_ms: DurationMs
    every_ms: DurationMs = 0


class Cancel(Request):
    """Removes a job."""

    job_id: Id


class Work(Request):
    """Makes this session a worker, until it is closed."""


class Finish(Cancel):
    """Ends a run of a job: a worker has done it."""

    run: Id


class Reply(msgspec.Struct, tag=True, frozen=True):
    """The job, or what is wrong."""

    request_id: int
    job_id: int = 0
    error: str = ""


class Run(msgspec.Struct, tag=True, frozen=True):
    """Sent to a worker: do this now; a repetition has the same number ``run``."""

    job_id: int
    run: int
    task: str


class Job(msgspec.Struct):
    """One that is not done, or will be due again."""

    task: str
    every_ms: int
    run: int = 1
    wakes_at: int = 0  # cluster time
    worker: int = 0  # id of the session that got this run last; 0: none, as it was not due yet


class State(msgspec.Struct):
    """Everything that a snapshot holds."""

    last_id: int = 0
    jobs: dict[int, Job] = {}
    workers: dict[int, None] = {}  # ids of sessions: the first one gets the next job


class Scheduler(ClusteredService):
    """The jobs on every member of the cluster."""

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        self.cluster = cluster
        self.state = State() if snapshot_image is None else read_snapshot(snapshot_image, State)

    def on_take_snapshot(self, snapshot_publication: SnapshotPublication) -> None:
        write_snapshot(snapshot_publication, self.state)

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        if session is not None:
            session.send(msgspec.msgpack.encode(self._reply(bytes(buffer[:MAX_REQUEST_LENGTH]), session.id)))

    def on_session_close(self, session: ClientSession, timestamp: int, close_reason: CloseReason) -> None:
        self.state.workers.pop(session.id, None)

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        job = self.state.jobs.get(correlation_id)
        if job is None or timestamp < job.wakes_at:
            return  # it was cancelled or done while the timer fired
        self._wake(correlation_id, RETRY_MS)
        job.worker = next((worker for worker in self.state.workers if worker != job.worker), job.worker)
        if session := self.cluster.get_client_session(job.worker):
            self.state.workers[job.worker] = self.state.workers.pop(job.worker)
            session.send(msgspec.msgpack.encode(Run(correlation_id, job.run, job.task)))

    def _reply(self, payload: bytes, session_id: int) -> Reply:
        try:
            request = msgspec.msgpack.decode(payload, type=Schedule | Cancel | Work | Finish)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return Reply(0, error=f"not understood: {error}")
        if isinstance(request, Work):
            self.state.workers[session_id] = None
            return Reply(request.request_id)
        if isinstance(request, Schedule):
            if len(self.state.jobs) >= MAX_JOBS:
                return Reply(request.request_id, error="too many jobs")
            self.state.last_id += 1
            self.state.jobs[self.state.last_id] = Job(request.task, request.every_ms)
            self._wake(self.state.last_id, request.after_ms)
            return Reply(request.request_id, self.state.last_id)
        job = self.state.jobs.get(request.job_id)
        if job is None:
            return Reply(request.request_id, error=f"no job {request.job_id}")
        if isinstance(request, Finish) and (job.run != request.run or not job.worker):
            return Reply(request.request_id, request.job_id, f"run {request.run} is over, or not due")
        if isinstance(request, Finish) and job.every_ms:
            job.run, job.worker = job.run + 1, 0
            self._wake(request.job_id, job.every_ms)
        else:
            del self.state.jobs[request.job_id]
            while not self.cluster.cancel_timer(request.job_id):
                self.cluster.idle()
        return Reply(request.request_id, request.job_id)

    def _wake(self, job_id: int, after_ms: int) -> None:
        wakes_at = self.cluster.time + after_ms * _PER_MS[self.cluster.time_unit or Unit.MILLIS]
        self.state.jobs[job_id].wakes_at = wakes_at
        while not self.cluster.schedule_timer(job_id, wakes_at):
            self.cluster.idle()
