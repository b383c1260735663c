"""Text of the status line: the ranks that the job waits for, and with --status its progress."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mcjax_launch.journal.rank_run import BUSY, RankRun, Stage
from mcjax_launch.journal.state import RunState
from mcjax_launch.journal.words import describe_rank_end, format_duration
from mcjax_launch.launcher.startup import Startup
from mcjax_launch.ranks import format_all, format_count, format_ranges, format_ranks
from mcjax_launch.wording import format_names

if TYPE_CHECKING:
    from mcjax_launch.console.bottom import StatusLine

# --- --status=table: a row for each rank ---

#: Most ranks that have rows.
MOST_ROWS = 64
# Seconds without a program, after which ranks wait for those that have begun one less: among equal
# ranks some rank is behind in any report.
_WAITED_S = 3.0


def format_rank_rows(state: RunState, now: float, most: int) -> list[str]:
    """Return a row per rank; if room is short, only ranks unlike most, and a row for the rest.

    Args:
        state: state of the attempt.
        now: time, in time.monotonic's seconds.
        most: maximum number of rows.

    """
    awaited = _find_awaited_ranks(state, now)
    doing = {
        rank: _describe_activity(run, awaited.get(rank, "")) for rank, run in state.ranks.items()
    }
    wide = max(map(len, doing.values()), default=0)
    width = len(str(len(doing) - 1))
    most = max(2, min(most, MOST_ROWS))
    shown = list(doing)
    rest: list[str] = []
    if len(shown) > most:
        words = list(doing.values())
        common = max(set(words), key=lambda word: (words.count(word), word))
        shown = [rank for rank in shown if doing[rank] != common][: most - 1]
        left = len(doing) - len(shown)
        alike = words.count(common)
        words_of_most = f"{alike} {common}, {left - alike} elsewhere" if left > alike else common
        rest = [f"{'the other' if shown else 'all'} {format_count(left, 'rank')}: {words_of_most}"]
    cells = [_list_cells(state.ranks[rank], now) for rank in shown]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    rows = []
    for rank, row in zip(shown, cells, strict=True):
        padded = (cell.ljust(size) for cell, size in zip(row, widths, strict=True) if size)
        rows.append("  ".join([f"[{rank:>{width}}] {doing[rank]:<{wide}}", *padded]).rstrip())
    return rows + rest


def _describe_activity(run: RankRun, awaits: str) -> str:
    stage = run.stage
    if stage is Stage.ENDED:
        return describe_rank_end(run)
    if run.compilations.under_way:
        awaited = run.compilations.awaits
        return f"waiting for rank {awaited} to compile" if awaited >= 0 else "compiling"
    if awaits:
        return f"waiting for {awaits}"
    if stage is Stage.JOINING:
        return "joining"
    if stage is Stage.LEAVING:
        return "finished"
    used = run.compilations.latest is not None or run.process.first_output_at is not None
    if stage in (Stage.ABSENT, Stage.IMPORTING) and not used:
        return "importing"
    return "running"


def _find_awaited_ranks(state: RunState, now: float) -> Mapping[int, str]:
    """Return, for each waiting rank, the names of the ranks that it waits for, if known."""
    found: dict[int, str] = {}
    for gap in state.gaps:
        if now > gap.since + _WAITED_S:
            found.update(dict.fromkeys(gap.begun, format_ranks(gap.behind)))
    for stage, late in (
        (Stage.JOINING, (Stage.ABSENT, Stage.IMPORTING, Stage.ALONE)),
        (Stage.LEAVING, (Stage.INSIDE,)),
    ):
        waiting = [rank for rank, run in state.ranks.items() if run.stage is stage]
        awaited = [rank for rank, run in state.ranks.items() if run.stage in late]
        if waiting and awaited:
            name = "rank" if len(awaited) == 1 else "ranks"
            found.update(dict.fromkeys(waiting, f"{name} {abbreviate_ranks(awaited)}"))
    return found


def _list_cells(run: RankRun, now: float) -> list[str]:
    """Return a rank's cores, memory, GPUs and programs, and the age of its last output line."""
    if run.status is not None:
        return [""] * 5
    many = compute_used_cores(run)
    kib = run.usage.samples[-1].rss_kib if run.usage.samples else None
    gpus = ""
    if run.usage.gpus.latest:
        from mcjax_launch.journal.gpu_use import describe_gpus

        gpus = describe_gpus(run.usage.gpus.latest)
    at = run.process.last_output_at
    return [
        f"{'' if many is None else f'{many:.1f} cores':>10}",
        f"{'' if kib is None else format_memory(kib):>8}",
        gpus,
        describe_programs([run], now),
        f"last line {format_duration(max(1, int(now - at)))} ago" if at is not None else "",
    ]


# --- the status line ---

# Shortest time between two updates, if there are many events (seconds).
_EVENTS_S = 0.2
# Longest time between two updates with --status (seconds).
_TICK_S = 1.0
_MOST_HOSTS = 4
# Rows of the terminal that a table leaves to the output, and to this line.
_LEFT_FREE = 6
_LONGEST_RANKS = 24


class Progress:
    """Timer that keeps the status line up to date; the loop calls it at each turn.

    Args:
        line: status line to update.
        startup: startup of the job, with the hosts that are not ready.
        state: state of the attempt.

    """

    def __init__(self, line: "StatusLine", startup: Startup, state: RunState) -> None:
        self._line = line
        self._startup = startup
        self._state = state
        self._seen: object = None
        self._made_at = 0.0
        self.deadline: float | None = 0.0  # at once

    def expire(self, now: float) -> None:
        """Update the status line if the attempt's state has changed or the deadline has passed."""
        activity = self._state.activity
        seen = (self._startup.ready, len(self._state.ranks), activity.active_at)
        if seen != self._seen:
            self._seen = seen
            soon = self._made_at + _EVENTS_S
            self.deadline = soon if self.deadline is None else min(soon, self.deadline)
        if self.deadline is not None and now >= self.deadline:
            self._made_at = now
            self.deadline = now + _TICK_S if self._line.is_live else None
            self._line.say("\n".join([self._format_text(now), *self._format_table(now)]), now)

    def _format_table(self, now: float) -> list[str]:
        if not self._line.table_rows or not self._state.ranks:
            return []
        return format_rank_rows(self._state, now, self._line.table_rows() - _LEFT_FREE)

    def _format_text(self, now: float) -> str:
        waiting = "" if self._state.ending else describe_delay(self._startup, self._state)
        if not self._line.is_live:
            return waiting
        parts = [format_duration(max(1, int(now - self._state.began_at))), waiting]
        if self._state.ranks:
            parts += [format_job_use(self._state, now)]
        return " | ".join(filter(None, parts))


def describe_delay(startup: Startup, state: RunState) -> str:
    """Return words for what delays the job's beginning; "" if nothing is known."""
    if not state.ranks:
        return _describe_hosts(startup.hosts, startup.missing)
    runs = state.ranks.values()
    started = sum(run.process.pid is not None for run in runs)
    if started < len(runs):
        return f"{started}/{format_count(len(runs), 'rank')} started"
    missing = [run.process_id for run in runs if run.membership.call is None]
    joined = len(runs) - len(missing)
    if state.num_processes == 1 or not joined:
        return ""  # it may not be a JAX job
    if missing:
        return f"{joined}/{len(runs)} joined, waiting for {abbreviate_ranks(missing)}"
    if any(run.stage is Stage.JOINING for run in runs):
        return f"{joined}/{len(runs)} joined, in initialize()"
    return ""


def _describe_hosts(hosts: int, missing: Sequence[str]) -> str:
    if not missing:
        return f"{format_count(hosts, 'host')} ready, preparing the ranks"
    names = format_names(missing, _MOST_HOSTS)
    return f"{hosts - len(missing)}/{format_count(hosts, 'host')} ready, waiting for {names}"


def format_job_use(state: RunState, now: float) -> str:
    """Return words for running ranks, what they use of the hosts, and the last line's age."""
    runs = list(state.ranks.values())
    running = state.running
    parts = []
    if state.ending:
        parts.append(f"ending, {format_count(len(running), 'rank')} left")
    elif len(running) < len(runs):
        parts.append(f"{len(running)}/{len(runs)} ranks run")
    used_by = {
        run.process_id: many for run in running if (many := compute_used_cores(run)) is not None
    }
    if used_by:
        busy = [
            rank
            for rank, many in used_by.items()
            if many > BUSY or state.ranks[rank].usage.gpus.is_busy
        ]
        used = f", {sum(used_by.values()):.1f} cores" if busy else ""
        parts.append(_format_busy_ranks(busy, len(runs)) + used)
        last = [run.usage.samples[-1] for run in running if run.usage.samples]
        parts.append(format_memory(sum(sample.rss_kib for sample in last)))
    if any(run.usage.gpus.latest for run in running):
        parts.append(_describe_job_gpus(running))
    if programs := describe_programs(running, now):
        parts.append(programs)
    printed_at = state.activity.printed_at
    if printed_at is not None:
        parts.append(f"last line {format_duration(max(1, int(now - printed_at)))} ago")
    return " | ".join(parts)


def _describe_job_gpus(runs: Sequence[RankRun]) -> str:
    """Describe the GPUs that these ranks use, each GPU once, as all processes use it."""
    from mcjax_launch.journal.gpu_use import describe_gpus

    once = {(run.host, gpu.number): gpu for run in runs for gpu, _ in run.usage.gpus.latest}
    return describe_gpus([(gpu, None) for gpu in once.values()])


def _format_busy_ranks(busy: Sequence[int], ranks: int) -> str:
    if not busy:
        return "idle"
    if len(busy) == ranks:
        return f"{format_all(ranks)} busy" if ranks > 1 else "busy"
    return f"rank{'s' if len(busy) > 1 else ''} {abbreviate_ranks(busy)} busy"


def describe_programs(runs: Sequence[RankRun], now: float) -> str:
    """Describe the programs over several processes that ranks have begun; "" if there are none.

    They are those of the rank that has begun most.
    """
    counts = [run.programs for run in runs if run.programs.total]
    if not counts:
        return ""
    most = max(counts, key=lambda count: count.total)
    rate = most.compute_rate(now)
    words = format_count(most.total, "program") if most.total < 1000 else f"{most.total:,} programs"
    if rate is None:
        return words
    return f"{words}, {rate:.1f}/s" if 0.05 <= rate < 9.95 else f"{words}, {rate:,.0f}/s"


def compute_used_cores(run: RankRun) -> float | None:
    """Return the average number of cores a rank used between its last two samples, or None."""
    if len(run.usage.samples) < 2:
        return None
    before, last = run.usage.samples[-2:]
    return max(0.0, last.cpu_s - before.cpu_s) / max(last.at - before.at, 1e-3)


def format_memory(kib: int) -> str:
    """Return a size in KiB as text with unit MiB or GiB."""
    return f"{kib / (1 << 20):.1f} GiB" if kib >= 1 << 20 else f"{kib >> 10} MiB"


def abbreviate_ranks(ranks: Sequence[int]) -> str:
    """Return ranks as text such as "0-3,7"; shortened if it is long."""
    text = format_ranges(ranks)
    if len(text) <= _LONGEST_RANKS:
        return text
    cut = text[:_LONGEST_RANKS].rpartition(",")[0]
    return f"{cut}, ... ({len(ranks)} ranks)"
