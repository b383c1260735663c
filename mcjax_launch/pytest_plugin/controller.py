"""Plugin in the user's pytest: sends marked tests to their group, and reports the results."""

import importlib
import signal
import time
import warnings
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pytest
from _pytest.runner import CallInfo

from mcjax_launch.api.result import Result
from mcjax_launch.jax_messages.line_classifier import without_noise
from mcjax_launch.jax_messages.lost_peer import says_ended_by_jax
from mcjax_launch.options.kinds import parse_duration
from mcjax_launch.pytest_plugin import marks
from mcjax_launch.pytest_plugin.compiled import CompiledPrograms
from mcjax_launch.pytest_plugin.groups import RankGroup, RankGroups, StartFailed
from mcjax_launch.pytest_plugin.merge import EarlyEnd, merge_reports
from mcjax_launch.pytest_plugin.progress import Early, RanksProgress, TimeLimit
from mcjax_launch.ranks import format_ranks

# --- tests that were ended before all ranks were through ---

_MOST_CRASHING_S = 3.0
_ABORTED = 128 + signal.SIGABRT
_MOST_LINES = 100
_USERS = "  > "
_IDLE = " pluggy/"  # as our own calls are hidden
# The calls below a test or a fixture, in faulthandler's dump.
_BELOW = ("/_pytest/", "/pluggy/", "/mcjax_launch/pytest_plugin/")


def end_early(
    group: RankGroup, progress: RanksProgress, early: Early, read_rest: Callable[[], object]
) -> EarlyEnd:
    """End the group's job, and return the account of a test that is ended early.

    Args:
        group: the group whose ranks run the test.
        progress: progress of the test.
        early: reason to end the test.
        read_rest: reads and records the remaining messages of the ranks.

    """
    output = {rank: group.read_output(rank) for rank in progress.reports}
    if early is Early.CRASHED:
        return _end_after_crash(group, progress, output, read_rest)
    running, hints = progress.running, early is Early.TIMED_OUT
    was = "were" if len(running) > 1 else "was"
    if hints and progress.limit is not None:
        limit = progress.limit
        what = f"{was} still running after {round(limit.seconds, 1):g} s ({limit.source})"
    else:
        what = f"{was} still running {progress.grace_s:.1f} s later, and {was} ended"
    return EarlyEnd(
        "Timeout",
        f"{format_ranks(running)} {what}",
        frozenset(running),
        what,
        by_itself=False,
        seconds=progress.seconds,
        sections=[
            ("stacks, innermost call first", select_stacks(group.request_stacks(), hints=hints))
        ],
        output={rank: output[rank] for rank in running},
    )


def _end_after_crash(
    group: RankGroup,
    progress: RanksProgress,
    output: dict[int, tuple[str, ...]],
    read_rest: Callable[[], object],
) -> EarlyEnd:
    """Return an account of a test that a crashed rank has ended; end the group's job."""
    seconds, running, gone = progress.seconds, progress.running, tuple(progress.gone)
    group.send(None)  # ranks that have finished the test can save their coverage
    result = group.wait_for_result(_MOST_CRASHING_S)
    read_rest()  # the first rank to end may have sent messages that are still unread
    unfinished = progress.reports.keys() - progress.done
    printed = {rank: group.read_output(rank) for rank in output}
    rank, why = find_rank_to_blame(result, gone, unfinished, printed)
    ranks = {ended.rank: ended for ended in result.ranks}
    said = select_last_lines(f"{ranks[rank].stdout}\n{ranks[rank].stderr}")
    told = {*running, rank}
    return EarlyEnd(
        "Crashed",
        f"rank {rank} crashed: {why}",
        frozenset([rank]),
        "crashed",
        by_itself=True,
        seconds=seconds,
        sections=[(f"last output of rank {rank}", said)],
        output={number: text for number, text in output.items() if number in told},
    )


def find_rank_to_blame(
    result: Result,
    gone: Sequence[int],
    unfinished: Collection[int],
    output: Mapping[int, Iterable[str]],
) -> tuple[int, str]:
    """Return the rank to blame for a crash, and words for its end.

    Args:
        result: result of the job.
        gone: ranks whose processes ended first.
        unfinished: the ranks that did not finish the test.
        output: each rank's output in the test, which pytest captures before the launcher.

    """
    ranks = {ended.rank: ended for ended in result.ranks}
    cause = result.root_cause
    failed = [ended.rank for ended in result.ranks if ended.outcome == "failed"]
    if cause is not None and cause.rank is not None:
        failed.insert(0, cause.rank)
    # The launcher counts ranks that JAX aborted as failed, but not a rank that exited with 0.
    left = [rank for rank in (*gone, *sorted(unfinished)) if ranks[rank].exit_status == 0]
    own = [
        rank
        for rank in failed
        if not says_ended_by_jax("".join(output[rank]))
        and not (left and ranks[rank].exit_status == _ABORTED)
    ]
    some = left if left and (not own or own[0] not in gone) else own or failed or gone
    rank = some[0]
    if ranks[rank].exit_status == 0:
        return rank, "exit status 0, as by os._exit(0)"
    alike = cause.ranks if cause is not None and cause.rank == rank else ()
    same = f" ({format_ranks(alike)} did)" if len(alike) > 1 else ""
    return rank, ranks[rank].message + same


def select_last_lines(text: str) -> list[str]:
    """Return a rank's last lines, without pytest's calls below the test in faulthandler's dump."""
    kept = []
    below = False
    for line in without_noise(text.splitlines())[0]:
        is_call = line.startswith("  File ")
        below = is_call and (below or any(folder in line for folder in _BELOW))
        if not below and not line.startswith("Extension modules: "):
            kept.append(line)
    return "\n".join(kept[-_MOST_LINES:]).strip().splitlines()


def select_stacks(said: Sequence[str], *, hints: bool) -> list[str]:
    """Return the launcher's account of the ranks' stacks, without ranks that are idle.

    An idle rank waits for the next test.

    Args:
        said: lines of the launcher, of which the first is a title.
        hints: True to keep the lines that may explain a hang.

    """
    parts: list[list[str]] = []
    for line in said[1:]:
        if line.startswith("  ") and parts:
            parts[-1].append(line)
        elif not line.startswith("hint: ") or (hints and " -x " not in line):
            parts.append([line])
    return [line for part in parts for line in _shorten_stack(*part)]


def _shorten_stack(name: str, *calls: str) -> Iterator[str]:
    """Yield a stack down to the test's own calls, or one line about all ranks."""
    users = [at for at, call in enumerate(calls, 1) if call.startswith(_USERS)]
    if users or not (calls and _IDLE in calls[0]):
        yield name.removesuffix(":").partition(" (pid ")[0] + ":" if calls else name
        yield from calls[: max(users, default=None)]


# --- the controller ---
# For a marked test this replaces pytest's whole protocol, because its fixtures are set up in the
# ranks alone. Everything else, from collection to cache, is pytest's own and sees usual reports.


class Controller:
    """Plugin that runs the marked tests of a session."""

    def __init__(self, config: pytest.Config, compiled: CompiledPrograms) -> None:
        self._config = config
        self._groups = RankGroups(config, self._list_files, compiled)
        self._after: dict[pytest.Item, pytest.Item] = {}
        self._of_shape: dict[marks.Shape, list[pytest.Item]] = {}
        self._of_pytest_timeout: dict[str, float] = {}
        self._warned: set[tuple[Any, ...]] = set()
        # A worker of pytest-xdist does not know what it will be given.
        self._is_worker = hasattr(config, "workerinput")

    # --- before the tests ---

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            marked = marks.find(item)
            if marked is not None and item.get_closest_marker("skip") is None:
                same = self._of_shape.setdefault(marked.shape, [])
                if same:
                    self._after[same[-1]] = item
                same.append(item)

    @pytest.hookimpl(wrapper=True, trylast=True)  # inside of pytest-cov's, which then combines
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        try:
            return (yield)
        finally:
            self._groups.close()

    def _list_files(self, shape: marks.Shape) -> Sequence[str]:
        return list(dict.fromkeys(str(item.path) for item in self._of_shape.get(shape, ())))

    # --- a test ---

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> object:
        marked = marks.find(item)
        if marked is None or item.get_closest_marker("skip") is not None:
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        following = nextitem if self._is_worker else self._after.get(item)
        for report in [*self._run_in_ranks(item, following, marked), *_tear_down(item, nextitem)]:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def _run_in_ranks(
        self, item: pytest.Item, following: pytest.Item | None, marked: marks.Marked
    ) -> list[pytest.TestReport]:
        limit = self._choose_limit(item, marked)
        try:
            group = self._groups.get_ready_group(marked.shape)
        except StartFailed as failure:
            what, *why = failure.args
            nothing = RanksProgress(range(marked.shape.processes), limit, 0)
            told = EarlyEnd("NotStarted", what, frozenset(), "", True, 0, [("why", why)], {})
            return merge_reports(item, nothing, told)
        progress = RanksProgress(range(marked.shape.processes), limit, time.monotonic())
        ended = None
        try:
            group.send((item.nodeid, item.location, _count_shared_nodes(item, following)))
            early = self._wait(group, progress)
            if early is not None:
                rest = partial(self._read_rest, group, progress)
                ended = end_early(group, progress, early, rest)
        except BaseException:  # Ctrl-C: the ranks may be anywhere
            self._groups.replace(group)
            raise
        if ended is not None:
            self._groups.replace(group)
        elif following is None and not self._is_worker:
            self._groups.retire(marked.shape)
        if progress.exit is not None:
            pytest.exit(*progress.exit)
        return merge_reports(item, progress, ended)

    def _wait(self, group: RankGroup, progress: RanksProgress) -> Early | None:
        """Wait until all ranks have finished the test, or there is a reason to end it early."""
        while not progress.complete:
            now = time.monotonic()
            early = progress.find_reason_to_end(now)
            if early is not None:
                return early
            deadline = progress.deadline
            for rank, message in group.receive(None if deadline is None else deadline - now):
                self._on_message(rank, message, progress)
        return None

    def _read_rest(self, group: RankGroup, progress: RanksProgress) -> None:
        while messages := group.receive(0):
            for rank, message in messages:
                self._on_message(rank, message, progress)

    def _on_message(
        self, rank: int, message: tuple[str, Any] | None, progress: RanksProgress
    ) -> None:
        match message:
            case None:
                progress.gone.append(rank)
            case "done", _:
                progress.done.add(rank)
            case "report", data:
                hook = self._config.hook
                report = hook.pytest_report_from_serializable(config=self._config, data=data)
                progress.record_report(rank, report, time.monotonic())
            case "limit", seconds:
                progress.set_limit(seconds, time.monotonic())
            case "warning", warning if warning not in self._warned:  # once for all ranks
                self._warned.add(warning)
                self._warn(*warning)
            case "exit", how:
                progress.exit = progress.exit or how
                progress.troubled.append(rank)

    def _warn(
        self, category: tuple[str, str], text: str, filename: str, lineno: int, nodeid: str
    ) -> None:
        """Report a rank's warning to pytest as one of this process."""
        module, name = category
        try:
            message = getattr(importlib.import_module(module), name)(text)
        except Exception:  # the class cannot be imported here, or takes other arguments
            message = UserWarning(f"{name}: {text}")
        shown = warnings.WarningMessage(message, type(message), filename, lineno)
        told = {"warning_message": shown, "when": "runtest", "nodeid": nodeid, "location": None}
        self._config.hook.pytest_warning_recorded.call_historic(kwargs=told)

    # --- limits ---

    def _choose_limit(self, item: pytest.Item, marked: marks.Marked) -> TimeLimit | None:
        own = _read_own_limit(self._config, marked)
        outer = self._of_pytest_timeout.get(item.nodeid)
        if outer is not None and (not own.seconds or outer < own.seconds):
            return TimeLimit(outer, "pytest-timeout")
        return own if own.seconds else None

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_timeout_set_timer(self, item: pytest.Item, settings: Any) -> object:
        """Record pytest-timeout's limit, and keep its timer from starting in this process."""
        if item.get_closest_marker(marks.NAME) is None:
            return None
        self._of_pytest_timeout[item.nodeid] = settings.timeout
        return True


def _read_own_limit(config: pytest.Config, marked: marks.Marked) -> TimeLimit:
    if marked.timeout_s is not None:
        return TimeLimit(marked.timeout_s, "timeout of the mark")
    try:
        return TimeLimit(parse_duration(config.getini("mcjax_timeout")), "mcjax_timeout")
    except ValueError as error:
        raise pytest.UsageError(f"mcjax_timeout: {error}") from None


def _count_shared_nodes(item: pytest.Item, following: pytest.Item | None) -> int:
    """Return the number of collection nodes above a test that the next test shares."""
    if following is None:
        return 0
    pairs = zip(item.listchain(), following.listchain(), strict=False)
    return sum(node is following_node for node, following_node in pairs)


def _tear_down(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[pytest.TestReport]:
    """Tear down fixtures of earlier tests that ran in this process; yield a report on a failure."""
    call = CallInfo.from_call(
        lambda: item.session._setupstate.teardown_exact(nextitem), when="teardown"
    )
    if call.excinfo is not None:
        yield item.ihook.pytest_runtest_makereport(item=item, call=call)
