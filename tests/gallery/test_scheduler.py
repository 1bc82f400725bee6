"""The scheduler of the gallery: jobs run when they are due, and again on another worker until they are done."""

from __future__ import annotations

import random

import msgspec
import pytest

from container.testing import MemoryMember, MemorySession
from examples.gallery import scheduler
from examples.gallery.scheduler import RETRY_MS, Cancel, Finish, Reply, Request, Run, Schedule, Scheduler, Work

_ANSWERS: msgspec.msgpack.Decoder[Reply | Run] = msgspec.msgpack.Decoder(Reply | Run)


def ask(client: MemorySession, request: Request) -> Reply:
    """The reply to a request."""
    answer = _ANSWERS.decode(client.send(msgspec.msgpack.encode(request))[-1])
    assert isinstance(answer, Reply)
    return answer


def runs(worker: MemorySession) -> list[Run]:
    """All that a worker was given to do."""
    answers = [_ANSWERS.decode(answer) for answer in worker.egress]
    return [answer for answer in answers if isinstance(answer, Run)]


def life(member: MemoryMember) -> None:
    """Workers that do some of their jobs, and leave."""
    draws = random.Random(1)
    clients = [member.open_session() for _ in range(4)]
    for client in clients[1:]:
        ask(client, Work(1))
    for number in range(100):
        client = draws.choice(clients)
        ask(client, Schedule(number, f"task {number}", draws.randrange(9_000), draws.choice([0, 3_000])))
        member.advance(draws.randrange(2_000))
        for run in runs(client)[-3:]:
            ask(client, Finish(number, run.job_id, run.run))
        ask(client, Cancel(number, draws.randrange(number + 1)))
        if number == 50:
            clients.pop().close()


def test_a_job_is_done_once_when_it_is_due() -> None:
    with MemoryMember(Scheduler) as member:
        client, worker = member.open_session(), member.open_session()
        ask(worker, Work(1))
        assert ask(client, Schedule(1, "mail", 500)) == Reply(1, 1)
        member.advance(499)
        assert runs(worker) == []
        member.advance(1)
        assert runs(worker) == [Run(1, 1, "mail")]
        assert ask(worker, Finish(2, 1, 1)) == Reply(2, 1)
        assert ask(worker, Finish(3, 1, 1)) == Reply(3, error="no job 1")
        member.advance(10 * RETRY_MS)
        assert (len(runs(worker)), member.timers, member.service.state.jobs) == (1, {}, {})


def test_a_job_that_is_not_done_goes_to_the_next_worker() -> None:
    with MemoryMember(Scheduler) as member:
        client = member.open_session()
        ask(client, Schedule(1, "mail", 0))
        member.advance(1)  # there is no worker
        workers = [member.open_session() for _ in range(3)]
        for worker in workers:
            ask(worker, Work(1))
        member.advance(RETRY_MS)
        workers[1].close()
        member.advance(RETRY_MS)
        assert [len(runs(worker)) for worker in workers] == [1, 0, 1]


def test_a_job_does_not_stay_with_a_worker_that_never_finishes() -> None:
    with MemoryMember(Scheduler) as member:
        stuck, worker, client = (member.open_session() for _ in range(3))
        ask(stuck, Work(1))
        ask(worker, Work(1))
        ask(client, Schedule(1, "one", 1_000))
        ask(client, Schedule(2, "two", 1_000, RETRY_MS))
        member.advance(1_000)
        assert (runs(stuck), runs(worker)) == ([Run(1, 1, "one")], [Run(2, 1, "two")])
        assert ask(worker, Finish(2, 2, 1)) == Reply(2, 2)
        member.advance(RETRY_MS)
        assert Run(1, 1, "one") in runs(worker)
        assert ask(worker, Finish(3, 1, 1)) == Reply(3, 1)


def test_a_single_worker_gets_again_what_it_did_not_do() -> None:
    with MemoryMember(Scheduler) as member:
        worker = member.open_session()
        ask(worker, Work(1))
        ask(worker, Schedule(1, "mail", 1))
        member.advance(1 + RETRY_MS)
        assert runs(worker) == [Run(1, 1, "mail")] * 2


def test_a_run_that_is_not_due_cannot_be_finished() -> None:
    with MemoryMember(Scheduler) as member:
        worker = member.open_session()
        ask(worker, Work(1))
        ask(worker, Schedule(1, "once", 3_600_000))
        ask(worker, Schedule(2, "often", 100, 1_000))
        for job_id in (1, 2):
            assert ask(worker, Finish(3, job_id, 1)) == Reply(3, job_id, "run 1 is over, or not due")
        member.advance(100)
        assert ask(worker, Finish(4, 2, 1)) == Reply(4, 2)
        assert ask(worker, Finish(5, 2, 2)) == Reply(5, 2, "run 2 is over, or not due")
        member.advance(3_600_000)
        assert Run(1, 1, "once") in runs(worker)


def test_a_job_is_due_again_and_again_until_it_is_cancelled() -> None:
    with MemoryMember(Scheduler) as member:
        worker = member.open_session()
        ask(worker, Work(1))
        ask(worker, Schedule(2, "mail", 100, 1_000))
        member.advance(100)
        ask(worker, Finish(3, 1, 1))
        assert ask(worker, Finish(4, 1, 1)) == Reply(4, 1, "run 1 is over, or not due")
        member.advance(999)
        assert runs(worker) == [Run(1, 1, "mail")]
        member.advance(1)
        assert runs(worker) == [Run(1, 1, "mail"), Run(1, 2, "mail")]
        assert ask(worker, Cancel(5, 1)) == Reply(5, 1)
        assert member.timers == {}
        assert ask(worker, Cancel(6, 1)) == Reply(6, error="no job 1")


def test_a_timer_that_fires_while_a_run_is_finished_does_not_begin_the_next_one() -> None:
    with MemoryMember(Scheduler) as member:
        worker = member.open_session()
        ask(worker, Work(1))
        ask(worker, Schedule(2, "mail", 1, 1_000))
        member.advance(1)
        ask(worker, Finish(3, 1, 1))
        member.fire_timer(1)
        assert runs(worker) == [Run(1, 1, "mail")]


def test_jobs_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "MAX_JOBS", 1)
    with MemoryMember(Scheduler) as member:
        client = member.open_session()
        assert [ask(client, Schedule(1, "x", 5)).error for _ in range(2)] == ["", "too many jobs"]


def test_jobs_survive_a_restart() -> None:
    with MemoryMember(Scheduler) as member:
        life(member)
        state, timers = member.service.state, member.timers
        assert state.jobs
        assert timers == {job_id: state.jobs[job_id].wakes_at for job_id in timers}
        assert len(timers) == len(state.jobs)
        member.restart(member.take_snapshot())
        assert (member.service.state, member.timers) == (state, timers)
