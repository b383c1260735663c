"""The controller: agents' frames in, console and verdict out, and the words that end a job."""

import os
import signal
import time
from collections.abc import Mapping, Sequence

from mcjax_launch import errors, transport, verdict
from mcjax_launch.agent import wire
from mcjax_launch.agent.loop import READ, Loop, Signals
from mcjax_launch.console import Console, Style
from mcjax_launch.dump import Dump
from mcjax_launch.errors import LaunchError
from mcjax_launch.labels import common_folder, labels
from mcjax_launch.link import Link
from mcjax_launch.plan import Facts, Host, Job, Plan, make_plan, orders, place, split_address
from mcjax_launch.stacks import in_words

# Less than the pipe from the agent holds, so that the agent seldom has to wait for room.
_MOST_WINDOW = 3 << 18
_WINDOW_OF_ALL = 16 << 20
_READER_MOST_S = 5.0
_AGENT_END_S = 10.0
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)


class Launcher:
    """Runs one job once, on `hosts`.

    Args:
        job: what to run.
        hosts: where; there are slots enough.
        agents: the started agent of each host.
        style: how the console looks.
        log_dir: where each rank's whole output goes, if anywhere; may hold placeholders.
        environ: what ranks on this machine inherit.

    """

    def __init__(
        self,
        job: Job,
        hosts: Sequence[Host],
        agents: Sequence[transport.Pipes],
        style: Style,
        *,
        log_dir: str | None,
        environ: Mapping[str, str],
    ) -> None:
        self._job = job
        self._hosts = hosts
        self._agents = agents
        self._log_dir = log_dir
        self._environ = environ
        self._job_id = os.urandom(4).hex()
        self._loop = Loop()
        self._console = Console(style, self._loop, self._reader_gone, self._give_credit)
        self._history = verdict.History(hosts=len(hosts))
        self._links: list[Link] = []
        self._facts: dict[Host, Facts] = {}
        self._ports: dict[Host, list[int]] = {}
        self._plan: Plan | None = None
        self._events = 0
        self._stopping = False
        self._error: LaunchError | None = None
        self._dump: Dump | None = None
        self._stop_after_dump: verdict.Stop | None = None
        # Deadlines, in time.monotonic's seconds.
        self._job_at: float | None = None
        self._start_at: float | None = None
        self._give_up_at: float | None = None

    def run(self) -> int:
        """Run the job; the launcher's exit status.

        Raises:
            LaunchError: it could not be started; nothing of it runs.

        """
        wanted = [*_ENDING, *_PASSED_ON, signal.SIGQUIT, signal.SIGCHLD]
        if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # nohup
            wanted.remove(signal.SIGHUP)
        self._signals = Signals(wanted)
        self._loop.watch(self._signals.fd, READ, lambda ready: self._read_signals())
        try:
            self._connect()
            while not self._over():
                self._loop.turn(self._deadline())
                self._expire()
            self._job_at = self._start_at = None
        finally:
            self._hang_up()
        if self._error is not None:
            raise self._error
        return self._conclude()

    # --- start ---

    def _connect(self) -> None:
        window = min(_MOST_WINDOW, _WINDOW_OF_ALL // len(self._hosts))
        for host, pipes in zip(self._hosts, self._agents, strict=True):
            link = Link(host, pipes, self._loop, window, self._handle, self._agent_ended)
            self._links.append(link)
            link.send(wire.PREPARE, **self._questions(host))

    def _questions(self, host: Host) -> dict[str, object]:
        job = self._job
        local = sum(other is host for other, _ in place(job, self._hosts))
        ports: list[tuple[str, int]] = []
        if host is self._hosts[0]:
            ports.append(split_address(job.coordinator) if job.coordinator else ("", 0))
        if job.cpu_transfers:
            ports += [("127.0.0.1", 0)] * local
        return {
            "ports": ports,
            "gpus": job.gpus_per_process is not None,
            "cores": local if job.bind_cores else 0,
        }

    def _ready(self, link: Link, body: Mapping[str, object]) -> None:
        ports: list[int] = body["ports"]  # type: ignore[assignment]
        self._ports[link.host] = ports
        transfers = ports[1:] if link.host is self._hosts[0] else ports
        self._facts[link.host] = Facts(
            gpus=body.get("gpus", 0),  # type: ignore[arg-type]
            cores=tuple(tuple(share) for share in body.get("cores", ())),  # type: ignore[attr-defined]
            transfer_ports=tuple(transfers),
        )
        if len(self._facts) == len(self._hosts) and not self._stopping:
            try:
                self._start()
            except LaunchError as error:
                self._fail(error)

    def _start(self) -> None:
        job = self._job
        given = split_address(job.coordinator)[0] if job.coordinator else "127.0.0.1"
        host = f"[{given}]" if ":" in given else given
        self._plan = plan = make_plan(
            job,
            self._hosts,
            self._facts,
            job_id=self._job_id,
            coordinator=f"{host}:{self._ports[self._hosts[0]][0]}",
            environ=self._environ,
        )
        named = labels(plan, self._log_dir)
        self._console.add_ranks(named)
        self._history.log_dir = common_folder(named)
        for rank in plan.ranks:
            self._history.ranks[rank.process_id] = verdict.RankEnd(rank.process_id, rank.host.name)
        now = time.monotonic()
        self._job_at = now + job.timeout if job.timeout is not None else None
        self._start_at = now + job.start_timeout if job.start_timeout is not None else None
        for link in self._links:
            link.send(wire.START, **orders(plan, link.host, job.grace_s("failure")))
            link.open_window()
        self._console.detail(
            f"job {plan.job_id}: {len(plan.ranks)} ranks, coordinator {plan.coordinator}"
        )

    def _fail(self, error: LaunchError) -> None:
        """The job cannot be started, or not all of it."""
        if self._error is None:
            self._error = error
        self._stop(signal.SIGKILL, 0)

    # --- what agents say ---

    def _handle(self, link: Link, frame: wire.Frame) -> None:
        kind, rank = frame.kind, frame.rank
        if kind == wire.DATA:
            self._console.feed(rank, frame.stream, frame.payload)
            if self._console.has_room:
                link.give_credit()
            return
        body = frame.body()
        if kind == wire.READY:
            self._ready(link, body)
        elif kind == wire.STARTED:
            self._console.detail(f"rank {rank} on {link.host.name}: pid {body['pid']}")
        elif kind == wire.EXITED:
            self._exited(rank, body)
        elif kind == wire.HOOKED:
            self._hooked(rank, body)
        elif kind == wire.STACKS and self._dump is not None:
            self._dump.add(link, rank, body)
        elif kind == wire.DUMPED and self._dump is not None:
            self._dump.told_all(link)
        elif kind == wire.REFUSED:
            self._fail(self._refusal(link, body))
        elif kind == wire.ENDING:
            self._lose(link, f"its agent was ended: {body['why']}")
        elif kind == wire.BYE:
            link.said_bye = True
            self._history.unkillable += body["unkillable"]
            if body["stragglers"]:
                self._console.detail(
                    f"{link.host.name}: ended {body['stragglers']} stray processes"
                )

    def _refusal(self, link: Link, body: Mapping[str, object]) -> LaunchError:
        what = body["message"]
        if "errno" not in body:
            option = self._job.coordinator
            return LaunchError(f"--coordinator {option}: {what}; choose another, or leave it out")
        number = int(body["errno"])  # type: ignore[call-overload]
        missing = number in (2, 20)  # ENOENT, ENOTDIR
        status = errors.NOT_FOUND if missing else errors.NOT_EXECUTABLE
        return LaunchError(f"{what}: {os.strerror(number)} (on {link.host.name})", status)

    def _exited(self, rank: int, body: Mapping[str, object]) -> None:
        end = self._history.ranks[rank]
        end.status = body["status"]  # type: ignore[assignment]
        end.sent = body["sent"]  # type: ignore[assignment]
        end.order = end.order or self._next_event()
        self._console.detail(f"rank {rank}: {verdict.status_in_words(end.status or 0)}")
        if end.status != 0:
            self._stop_others()

    def _hooked(self, rank: int, body: Mapping[str, Mapping[str, object]]) -> None:
        end = self._history.ranks[rank]
        end.joining = end.joining or "joining" in body
        end.joined = end.joined or "joined" in body
        if "failed" in body and end.failure is None:
            end.failure = body["failed"]
            end.order = self._next_event()
            if end.failure["joined"]:
                self._stop_others()

    def _stop_others(self) -> None:
        """A rank failed. Its own agent knows; the other hosts' must be told."""
        if not self._stopping:
            self._stop(signal.SIGTERM, self._job.grace_s("failure"))

    def _agent_ended(self, link: Link) -> None:
        if link.said_bye or self._error is not None:
            return
        words = link.errors.decode("utf-8", "replace").strip().splitlines()
        self._lose(link, "its agent is gone" + (f": {words[-1]}" if words else ""))

    def _lose(self, link: Link, why: str) -> None:
        stop = verdict.Stop(f"host {link.host.name}: {why}", errors.HOST_LOST)
        self._end_job(stop, signal.SIGTERM, self._job.grace_s("failure"))

    # --- reasons to end it ---

    def _next_event(self) -> int:
        self._events += 1
        return self._events

    def _stop(self, signum: int, grace: float) -> None:
        self._stopping = True
        for link in self._links:
            link.send(wire.STOP, signal=int(signum), grace=grace)

    def _end_job(self, stop: verdict.Stop, signum: int, grace: float) -> None:
        """End the job for a reason of the launcher's or the user's."""
        if self._history.stop is None:
            self._history.stop = stop
            self._history.stop_order = self._next_event()
        self._stop(signum, grace)

    def _read_signals(self) -> None:
        for signum in self._signals.read():
            if signum in _ENDING:
                self._interrupted(signal.Signals(signum))
            elif signum in _PASSED_ON:
                for link in self._links:
                    link.send(wire.SIGNAL, signal=signum)
            elif signum == signal.SIGQUIT:
                self._ask_for_stacks()

    def _interrupted(self, signum: signal.Signals) -> None:
        again = self._history.stop is not None
        grace = 0.0 if again else self._job.grace_s(signum.name[3:])
        if self._plan is None or self._all_exited():
            grace = 0.0
            if again:  # the reader is what keeps us
                self._give_up_at = time.monotonic()
        if not again and grace > 0:
            self._console.note(
                f"{signum.name}: passed on to the ranks, which get {grace:g} s; again to kill them"
            )
        self._end_job(verdict.interrupted(signum), signum, grace)

    def _reader_gone(self) -> None:
        stop = verdict.Stop("nobody reads the output any more", errors.READER_GONE)
        self._end_job(stop, signal.SIGTERM, self._job.grace_s("failure"))

    def _ask_for_stacks(self, then: verdict.Stop | None = None) -> None:
        """Ask all ranks for their stacks; `then` stop for that reason."""
        self._stop_after_dump = self._stop_after_dump or then
        if self._dump is None and self._plan is not None:
            self._dump = Dump(self._links)

    def _show_stacks(self, dump: Dump) -> None:
        self._dump = None
        self._console.say(in_words(dump.stacks))
        if self._stop_after_dump is not None:
            stop = self._stop_after_dump
            self._end_job(stop, signal.SIGTERM, self._job.grace_s("failure"))

    # --- time ---

    def _deadline(self) -> float | None:
        times = (
            self._job_at,
            self._start_at,
            None if self._dump is None else self._dump.deadline,
            self._give_up_at,
            self._console.deadline,
        )
        return min((at for at in times if at is not None), default=None)

    def _expire(self) -> None:
        now = time.monotonic()
        self._console.expire()
        if self._history.stop is not None and self._give_up_at is None and self._all_exited():
            self._give_up_at = now + _READER_MOST_S  # a job that was stopped waits for no reader
        if self._dump is not None and self._dump.complete:
            self._show_stacks(self._dump)
        if self._job_at is not None and now >= self._job_at:
            self._job_at = None
            assert self._job.timeout is not None
            self._time_out(verdict.timed_out("--timeout", self._job.timeout))
        if self._start_at is not None:
            missing = [end for end in self._history.ranks.values() if not _has_started(end)]
            if not missing:
                self._start_at = None
            elif now >= self._start_at:
                self._start_at = None
                assert self._job.start_timeout is not None
                self._time_out(verdict.not_joined(self._job.start_timeout, missing))

    def _time_out(self, stop: verdict.Stop) -> None:
        if not self._stopping:
            self._ask_for_stacks(then=stop)

    # --- the end ---

    def _all_exited(self) -> bool:
        return all(end.status is not None for end in self._history.ranks.values())

    def _give_credit(self) -> None:
        if self._console.has_room:
            for link in self._links:
                link.give_credit()

    def _over(self) -> bool:
        return self._given_up() or all(link.ended for link in self._links)

    def _given_up(self) -> bool:
        return self._give_up_at is not None and time.monotonic() >= self._give_up_at

    def _hang_up(self) -> None:
        """Let go of the agents and wait, not for ever, until their processes have ended."""
        for link in self._links:
            link.close()
        deadline = time.monotonic() + _AGENT_END_S
        while not self._reaped() and time.monotonic() < deadline:
            self._loop.turn(deadline)  # SIGCHLD wakes it

    def _reaped(self) -> bool:
        return [link.reap() for link in self._links].count(False) == 0

    def _conclude(self) -> int:
        """Print what is left, and the report; the exit status."""
        self._console.finish_ranks()
        for number, end in self._history.ranks.items():
            end.stderr = self._console.stderr_tail(number)
        result = verdict.judge(self._history)
        if result.report:
            self._console.say("\n".join(result.report))
        if not all(link.ended for link in self._links):
            self._console.say("nobody took the rest of the output: it is lost")
        while not self._console.empty and not self._given_up():
            self._loop.turn(self._give_up_at)
            self._expire()
        return result.status


def _has_started(end: verdict.RankEnd) -> bool:
    return end.joined or end.status is not None
