"""`session`: ranks that stay, and make one call after another."""

from __future__ import annotations

import contextlib
import textwrap
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from mcjax_launch.errors import LaunchError
from mcjax_launch.features.session.client.calls import (
    LauncherAnswer,
    PackedCall,
    RankValues,
    pack_cell,
    pack_function,
    submit,
    unpickle_value,
)
from mcjax_launch.features.session.client.progress import (
    CallFailed,
    CallProgress,
    Due,
    describe_errors,
)
from mcjax_launch.features.session.client.run import PROCESSES, make_calling_job
from mcjax_launch.features.session.messages import (
    AskWaiting,
    EndCalls,
    Interrupt,
    NotSubmitted,
    Waiting,
)
from mcjax_launch.python.job import RunningJob
from mcjax_launch.python.keywords import Keywords, add_keywords
from mcjax_launch.python.result import JobFailed
from mcjax_launch.ranks import format_ranks, parse_ranges
from mcjax_launch.wire.timers import scale_time

T = TypeVar("T")
#: Numbers of ranks: all, one, some, or as in `"0,2-3"`.
Ranks = int | str | Iterable[int] | None

# Keywords that a session refuses, and why.
_REFUSED = {
    "max_restarts": "a restart would lose the state of their ranks; restart() does it",
    "num_hosts": "one launcher starts all their ranks",
}
_ENDING_S = scale_time(10.0)
_RESTARTED = ": all ranks have been started again, and their state is gone"
_RESTART = "restart() starts new ranks, without their state"


class Session:
    """Ranks of a JAX job that stay, and make one call after another.

    `mcjax_launch.session` makes it. At the end of a `with` block, when it is garbage, and when
    this process ends, no process of it is left. Every method may be called from any thread; calls
    wait for one another.
    """

    def __init__(
        self, keywords: Mapping[str, Any], *, initialize: bool, argv: Sequence[str] = ()
    ) -> None:
        for keyword, why in _REFUSED.items():
            if keywords.get(keyword):
                raise TypeError(f"{keyword!r} is not for sessions: {why}")
        if keywords.get("on_rank_failure") not in (None, "stop"):
            raise TypeError("'on_rank_failure' is not for sessions: all ranks end with the first")
        self._keywords = dict(keywords)
        self._argv = tuple(argv)  # sys.argv[1:] of the ranks; placeholders are filled in
        self._initializes = initialize
        self._cells = 0
        self._calling = threading.RLock()  # held during a call
        self._changed = threading.Condition(threading.RLock())
        self._is_closed = self._is_ready = False
        self._job: RunningJob
        self._values: RankValues
        self._progress: CallProgress  # of the latest call
        self._ending: weakref.finalize[Any, Any]
        self._begin()

    # --- for the caller ---

    def run(
        self,
        function: Callable[..., T],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
        ranks: Ranks = None,
    ) -> list[T]:
        """Call a function in ranks; return its values in order of rank.

        Args:
            function: pickled as for `mcjax_launch.run`.
            args: positional arguments of the function, the same in all ranks.
            kwargs: keyword arguments of the function, likewise.
            ranks: ranks that make the call; None for all.

        Raises:
            CallFailed: the function has raised an exception in some ranks.
            JobFailed: a rank has ended, and with it the session.
            LaunchError: the function cannot be pickled, or the session is over.

        """
        call = pack_function(function, args, kwargs, initializes=self._initializes)
        return self._call(call, ranks)

    def exec(
        self,
        source: str,
        ranks: Ranks = None,
        *,
        name: str | None = None,
        values: Mapping[str, object] | None = None,
    ) -> list[Any]:
        """Run a text in `__main__` of ranks; return the values of its last expression.

        What the text defines stays; it may use `await`. A value comes as a `Repr`, its text, if it
        is or holds a `jax.Array`, cannot be pickled, or needs what only `__main__` of the ranks
        defines.

        Args:
            source: Python code, which may be indented as a whole.
            ranks: ranks that run it; None for all.
            name: stands in place of a file in tracebacks; None for a number.
            values: values to give names there first.

        Raises: as `run`; a SyntaxError too comes as CallFailed.

        """
        return self._call(self._pack_cell(source, name, values=values), ranks)

    def show(self, source: str, ranks: Ranks = None) -> list[list[dict[str, str]]]:
        """Run a text as `exec` does; return what each rank has to show, for a notebook.

        Args:
            source: see `exec`.
            ranks: see `exec`.

        Returns:
            for each rank texts by MIME type, and pictures in base64: of the last expression's
            value, unless it is None, and of each open figure.

        """
        return self._call(self._pack_cell(source, shows=True), ranks)

    def show_one(self, source: str, rank: int) -> tuple[list[dict[str, str]], list[Any]]:
        """Run a text in one rank; return what it has to show, and its value.

        A value that can come is in a list, and is not among what is to be shown.
        """
        [(shown, value)] = self._call(self._pack_cell(source, shows=True, returns=True), rank)
        return shown, value

    def interrupt(self) -> None:
        """Interrupt the running call: its ranks get KeyboardInterrupt, and it raises CallFailed.

        Ranks that do not react within 3 s, as in a collective, are started again.
        """
        with self._changed:
            self._progress.record_interrupt(time.monotonic())
            self._job.send(Interrupt(self._progress.number))
            self._changed.notify_all()

    def restart(self) -> None:
        """Start the ranks again, at once and without their state; a running call ends.

        Raises:
            LaunchError: the ranks cannot be started.

        """
        self._job.discard()
        with self._calling:
            self._start_again()
            self._wait_until_ready()

    def close(self) -> None:
        """End the ranks: idle ranks by themselves, others at once."""
        self._is_closed = True
        is_idle = self._calling.acquire(blocking=False)
        try:
            if is_idle and self._is_ready:
                self._job.send(EndCalls())
                self._job.wait(_ENDING_S)
        except (TimeoutError, LaunchError):
            pass
        finally:
            if is_idle:
                self._calling.release()
            self._job.discard()
            self._ending.detach()

    @property
    def processes(self) -> int:
        """Number of ranks."""
        return self._job.ranks

    @property
    def job(self) -> RunningJob:
        """The job of the ranks, to send it signals; restart() begins another one."""
        return self._job

    @property
    def is_over(self) -> bool:
        """True if the ranks have ended."""
        return self._job.done

    def __enter__(self) -> Self:
        try:
            with self._calling:
                self._wait_until_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "over" if self.is_over else "running"
        return f"<Session: {self.processes} ranks, {state}>"

    # --- the ranks ---

    def _begin(self) -> None:
        """Start ranks, and let them call initialize().

        Raises:
            LaunchError: the job was refused before it began.

        """
        self._values = values = RankValues()
        self._job = job = make_calling_job(self._keywords, values, self._argv)
        self._ending = weakref.finalize(self, job.abandon)
        self._progress = CallProgress((), time.monotonic(), 1)
        # The job's thread must not keep this object alive.
        this = weakref.ref(self)
        values.on_answer = lambda rank: _notify(this, rank)
        values.on_answer_of_launcher = lambda answer: _notify(this, answer)
        job.on_over = lambda: _notify(this, None)
        job.start()
        self._progress.ranks = frozenset(range(job.ranks))
        submit(job, pack_cell("", "<start>", initializes=self._initializes), 1)

    def _start_again(self) -> None:
        """End the ranks, and start new ones, without waiting for them.

        Raises:
            LaunchError: the job was refused before it began.

        """
        self._job.discard()
        self._ending.detach()
        self._is_ready = False
        self._begin()

    def _wait_until_ready(self) -> None:
        """Wait until initialize() has returned in all ranks.

        Raises:
            CallFailed: it has raised an exception.
            JobFailed: a rank has ended.
            LaunchError: the session is over.

        """
        if self._is_closed:
            raise LaunchError("the session is closed")
        if not self._is_ready:
            self._finish(self._progress)
            self._is_ready = True

    def on_change(self, change: int | LauncherAnswer | None) -> None:
        """Record a rank's answer, or the launcher's, or the end of the job (None)."""
        with self._changed:
            if isinstance(change, Waiting):
                self._progress.record_waiting(change.ranks, change.places)
            elif isinstance(change, NotSubmitted):
                self._progress.record_absence(change.number)
            elif change is not None:
                self._job.end_lines(change)
                answer = self._values.pop(change)
                self._progress.record_answer(change, answer, time.monotonic())
            self._changed.notify_all()

    # --- calls ---

    def _pack_cell(self, source: str, name: str | None = None, **more: Any) -> PackedCall:
        """Pack the run of a text; `more` are keywords of `pack_cell`."""
        self._cells += name is None
        name = name or f"<cell {self._cells}>"
        return pack_cell(textwrap.dedent(source), name, initializes=self._initializes, **more)

    def _call(self, call: PackedCall, ranks: Ranks) -> list[Any]:
        """Make a call, and return what it returns, in order of rank.

        Raises: see `run`.

        """
        with self._calling:
            if self._job.done and not self._is_closed:
                raise self._make_end_error(began_later=True)
            self._wait_until_ready()
            chosen = select_ranks(ranks, self.processes)
            progress = CallProgress(chosen, time.monotonic(), self._progress.number + 1)
            self._progress = progress
            try:
                some = None if len(chosen) == self.processes else chosen
                submit(self._job, call, progress.number, some)
                self._finish(progress)
            except KeyboardInterrupt as interrupt:  # perhaps before the ranks have got the call
                self._settle(progress, interrupt)
                raise
            return [unpickle_value(rank, progress.answers[rank], call.name) for rank in chosen]

    def _finish(self, progress: CallProgress) -> None:
        """Wait until all ranks have answered, or will never.

        Raises:
            CallFailed: ranks have raised an exception.
            JobFailed: a rank has ended.
            LaunchError: the session is over.

        """
        self._wait(progress)
        errors, running = progress.list_errors(), progress.running
        if not errors and not running:
            return
        told = "; ".join(filter(None, (describe_errors(errors), progress.describe_unfinished())))
        if running:
            self._start_again()
            told += _RESTARTED
        raise CallFailed(told, errors, running)

    def _settle(self, progress: CallProgress, interrupt: KeyboardInterrupt) -> None:
        """Interrupt the ranks that make a call, and start new ones if they do not react."""
        if self._progress is not progress or not progress.running:
            return
        with contextlib.suppress(KeyboardInterrupt, JobFailed, LaunchError):
            self.interrupt()
            self._wait(progress)
        if progress.running and not self._job.done:
            interrupt.add_note(f"{progress.describe_unfinished()}{_RESTARTED}")
            self._start_again()

    def _wait(self, progress: CallProgress) -> None:
        """Wait until all ranks have answered, or nothing more is to be expected.

        Raises:
            JobFailed: a rank has ended.
            LaunchError: the session is over.

        """
        with self._changed:
            while progress.running:
                if self._job.done:
                    raise self._make_end_error()
                now = time.monotonic()
                due = progress.pop_due(now)
                if due is Due.GIVE_UP:
                    return
                if due is Due.ASK:
                    self._job.send(AskWaiting())
                self._changed.wait(progress.compute_wait_s(now))

    def _make_end_error(self, *, began_later: bool = False) -> LaunchError:
        """Return the error for a call of ranks that have ended, during the call or before it."""
        try:
            result = self._job.wait()
        except LaunchError as error:
            return error
        over = f"the session is over: {result.message}; {_RESTART}"
        if result.ok:
            return LaunchError(over)
        if began_later:
            return JobFailed(result, over)
        failed = JobFailed(result)
        failed.add_note(_RESTART)
        return failed


def _notify(session: weakref.ref[Session], change: int | LauncherAnswer | None) -> None:
    """Report a change to a session, unless it is garbage; called in the job's thread."""
    if (alive := session()) is not None:
        alive.on_change(change)


def select_ranks(ranks: Ranks, count: int) -> Sequence[int]:
    """Return the numbers of ranks out of `count`, in ascending order.

    Raises:
        LaunchError: there is no such rank, or the text is no set of ranks.

    """
    if ranks is None:
        return range(count)
    try:
        chosen = parse_ranges(ranks) if isinstance(ranks, str) else ranks
    except ValueError as error:
        raise LaunchError(f"ranks: {error}") from None
    numbers = sorted({chosen} if isinstance(chosen, int) else set(chosen))
    if not numbers:
        raise LaunchError(f"ranks: {ranks!r} names no rank")
    if not 0 <= numbers[0] <= numbers[-1] < count:
        raise LaunchError(f"ranks: {ranks!r} is not among {format_ranks(range(count))}")
    return numbers


def session(*, initialize: bool = True, **keywords: Unpack[Keywords]) -> Session:
    """Start ranks of a JAX job that stay, and make calls; use it in a `with` block.

    Args:
        initialize: False to leave out jax.distributed.initialize(), which else has returned in all
            ranks before the first call.
        keywords: see `launch`; the default of `processes` is 4, and `echo=False` hides output.

    Raises:
        LaunchError: the ranks could not be started.

    """
    return Session(keywords, initialize=initialize)


add_keywords(session, processes=PROCESSES, echo=True)
