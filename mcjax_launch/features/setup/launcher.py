"""Part of the launcher that has all hosts run a command before anything else is prepared there."""

import re
import shlex
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from mcjax_launch.errors import LaunchError
from mcjax_launch.features.setup.messages import WAITS, SetUp, SetupEnded
from mcjax_launch.launcher.part import JobLauncher, LauncherPart
from mcjax_launch.ranks import format_count
from mcjax_launch.transport.connection import AgentConnection
from mcjax_launch.wire.exit_status import NOT_FOUND, TIMED_OUT, compute_exit_status
from mcjax_launch.wire.frames import Raw
from mcjax_launch.wire.messages import Prepare, ToLauncher
from mcjax_launch.wire.signals import get_signal_name
from mcjax_launch.wire.timers import scale_time
from mcjax_launch.wording import (
    cut_end,
    format_names,
    format_one_line,
    format_rough_duration,
)

#: Seconds: with --watch a command that takes as long runs only once.
ONCE_S = 1.0
# Seconds until a line says which hosts are not done; then twice as long each time.
_STILL_S = scale_time(10.0)
# Seconds after the first failure in which further failures are reported together with it.
_GATHER_S = scale_time(0.5)
_MOST_LINES, _MOST_KINDS = 20, 3
_LONGEST_COMMAND, _LONGEST_QUOTE = 60, 160
_NOT_IN_PATH = "; name the command by its path, as a login's PATH is not read"
# What a shell puts before its own errors: the number is of a line in the script around the command.
_SHELLS_OWN = re.compile(r"^--setup: (?:line )?\d+: ")


class HostProgress:
    """Progress of the command on a host.

    Args:
        asked: request to prepare the host, for afterwards.

    Attributes:
        ended: its end; None before.
        lines, printed: last lines of its output that are not blank, and the number of all lines.

    """

    def __init__(self, asked: Prepare) -> None:
        self.asked = asked
        self.ended: SetupEnded | None = None
        self.lines: deque[str] = deque(maxlen=_MOST_LINES)
        self.printed = 0
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """Record output; return its whole lines."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        return self._add(whole)

    def finish(self) -> list[str]:
        """Record the last line, which may have no newline; return it."""
        rest, self._rest = self._rest, b""
        return self._add([rest] if rest else [])

    def _add(self, lines: Iterable[bytes]) -> list[str]:
        # Of a row that was drawn several times the last state counts.
        shown = [line.rstrip(b"\r").rpartition(b"\r")[2] for line in lines]
        texts = [
            _SHELLS_OWN.sub("", format_one_line(line.decode("utf-8", "surrogateescape")))
            for line in shown
        ]
        if texts and WAITS in self.lines:  # the command's output begins
            self.lines.clear()
            self.printed = 0
        self.lines += [text for text in texts if text.strip()]
        self.printed += len(texts)
        return texts

    @property
    def last_line(self) -> str:
        """Last line that is not blank; "" if there is none."""
        return self.lines[-1].strip() if self.lines else ""

    @property
    def error(self) -> str:
        """Last line about an error; if there is none, the last line."""
        said = (line.strip() for line in reversed(self.lines) if "error" in line.lower())
        return next(said, self.last_line)


class SetupOfHosts(LauncherPart):
    """Part that asks all hosts, has them run the command, and then has them prepared."""

    def __init__(self, launcher: JobLauncher) -> None:
        super().__init__(launcher)
        self._job = launcher.job
        self._hosts: dict[AgentConnection, HostProgress] = {}
        self._is_over = False
        self._began_at = 0.0
        self._still_s = _STILL_S
        self._report_at: float | None = None

    def begin(self, link: AgentConnection, asked: Prepare) -> SetUp:
        """Return the first order to a host, in place of the request to prepare it."""
        if not self._hosts:
            self._began_at = time.monotonic()
        # Not of an earlier connection, which has been refused.
        others = {other: host for other, host in self._hosts.items() if other.host is not link.host}
        self._hosts = {**others, link: HostProgress(asked)}
        is_given = bool(link.host.python) or self._job.python_given
        return SetUp(
            command=self._job.setup or "",
            env=asked.env,
            chdir=asked.chdir,
            chdir_given=asked.chdir_given,
            chooses_python=not is_given,
            done=(self._job.setup_done or {}).get(link.host.name),
            keeps=not self._job.no_host_cache,
        )

    def on_message(self, link: AgentConnection, message: ToLauncher | Raw, now: float) -> None:
        """Handle an answer, or output, of a host."""
        host = self._hosts[link]
        if self._is_over and not isinstance(message, Raw):
            return
        match message:
            case Raw():
                self._show(link, host.feed(message.payload))
            case SetupEnded():
                self._on_end(link, host, message, now)

    def on_stop(self, now: float) -> None:
        """Order nothing more, because the job ends."""
        self._is_over = True

    # --- how it goes ---

    def _show(self, link: AgentConnection, lines: Sequence[str]) -> None:
        if self._job.verbose:
            self.launcher.console.show_host_lines(link.host.name, lines)

    def _on_end(
        self, link: AgentConnection, host: HostProgress, ended: SetupEnded, now: float
    ) -> None:
        self._show(link, host.finish())
        host.ended = ended
        if ended.status and self._report_at is None:
            self._report_at = now + _GATHER_S
        elif not ended.status:
            self._describe_end(link, ended)
        if len(self._ended) == self.launcher.startup.hosts:
            if self._report_at is not None:
                self._report()
                return
            self._is_over = True
            self._report_to_watcher()
            for other, each in self._hosts.items():
                self.launcher.startup.prepare(other, each.asked)

    def _report_to_watcher(self) -> None:
        """Pass the variables of a slow command to the next runs of --watch."""
        watcher = self.launcher.front.watcher
        ends = {link.host.name: end for link, host in self._hosts.items() if (end := host.ended)}
        seconds = max(end.seconds for end in ends.values())
        if watcher is None or seconds < ONCE_S or self._job.sync:
            return
        watcher.report(setup={name: end.after for name, end in ends.items()})
        self.launcher.console.note(
            f"--setup took {seconds:.1f} s: the next runs of --watch use what it has set; "
            "start mcjax-launch again to run it again"
        )

    @property
    def _ended(self) -> list[HostProgress]:
        return [host for host in self._hosts.values() if host.ended is not None]

    def _describe_end(self, link: AgentConnection, ended: SetupEnded) -> None:
        changed = f", and changes {format_names(sorted(ended.after))}" if ended.after else ""
        how = f"took {ended.seconds:.1f} s" if ended.seconds else "ran at the first start"
        self.launcher.console.show_detail(f"{link.host.name}: --setup {how}{changed}")

    # --- time ---

    @property
    def deadline(self) -> float | None:  # type: ignore[override]
        """Time of the next line, limit or report; None if there is none."""
        if self._is_over or not self._hosts:
            return None
        times = [self._began_at + self._still_s]
        times += [] if self._report_at is None else [self._report_at]
        times += [self._began_at + seconds for _, seconds in self._list_limits()]
        return min(times)

    def _list_limits(self) -> list[tuple[str, float]]:
        job = self._job
        limits = (("--timeout", job.timeout), ("--start-timeout", job.start_timeout))
        return [(name, seconds) for name, seconds in limits if seconds is not None]

    def expire(self, now: float) -> None:
        """Say which hosts are not done; report failures; end the job at a limit."""
        if (due := self.deadline) is None or now < due:
            return
        if self._report_at is not None and now >= self._report_at:
            self._report()
            return
        for name, seconds in self._list_limits():
            if now >= self._began_at + seconds:
                self._fail(f"{name}: {self._describe_running(now)}: no rank was started", TIMED_OUT)
                return
        if now >= self._began_at + self._still_s:
            self._still_s *= 2
            self.launcher.console.note(self._describe_running(now))

    def _select(
        self, has_it: Callable[[HostProgress], bool]
    ) -> dict[AgentConnection, HostProgress]:
        """Return the hosts for which a function returns True, in the order of the user's list."""
        number = self.launcher.startup.find_number
        links = sorted(self._hosts, key=lambda link: number(link.host))
        return {link: self._hosts[link] for link in links if has_it(self._hosts[link])}

    def _describe_running(self, now: float) -> str:
        running = self._select(lambda host: host.ended is None)
        names = format_names([link.host.name for link in running])
        missing = self.launcher.startup.hosts - len(self._hosts)
        more = f", {format_count(missing, 'host')} not reached yet" if missing else ""
        quoted = [
            (link.host.name, host.last_line) for link, host in running.items() if host.last_line
        ]
        last = f" ({quoted[0][0]}: {cut_end(quoted[0][1], _LONGEST_QUOTE)})" if quoted else ""
        seconds = format_rough_duration(now - self._began_at)
        return f"--setup still runs after {seconds} on {names}{last}{more}"

    # --- failures ---

    def _report(self) -> None:
        """Print the last lines of the hosts that have failed, and end the job."""
        failed = self._select(_has_failed)
        names = [link.host.name for link in failed]
        link, host = next(iter(failed.items()))
        assert host.ended is not None
        several = self.launcher.startup.hosts > 1 or not link.host.is_local
        what, status = _describe_status(host.ended), compute_exit_status(host.ended.status)
        # A single line of a single host is quoted below.
        has_more = several or any(host.printed > 1 for host in failed.values())
        if has_more and not self._job.verbose:
            on = f" on {format_names(names)}" if several else ""
            self._show_last_lines(failed, f"--setup failed{on}: {what}")
        quoted = f" ({cut_end(host.error, _LONGEST_QUOTE)})" if host.error else ""
        command = cut_end(shlex.quote(self._job.setup or ""), _LONGEST_COMMAND)
        where = f"host {names[0]}: " if several else ""
        also = f" (also: {format_names(names[1:])})" if names[1:] else ""
        advice = _NOT_IN_PATH if status == NOT_FOUND else ""
        failure = f"{where}--setup {command}: {what}{quoted}{also}"
        self._fail(f"{failure}: no rank was started{advice}", status)

    def _show_last_lines(
        self, failed: Mapping[AgentConnection, HostProgress], headline: str
    ) -> None:
        """Print the last lines of failed hosts, those that are alike once."""
        kinds: dict[tuple[str, ...], tuple[str, int]] = {}
        for link, host in failed.items():
            kinds.setdefault(tuple(host.lines), (link.host.name, host.printed))
        kinds.pop((), None)
        if not kinds:
            return
        is_cut = any(printed > _MOST_LINES for _, printed in kinds.values())
        of_what = "its last lines, -v shows all" if is_cut else "it printed"
        self.launcher.console.say(f"{headline}; {of_what}:")
        for lines, (name, _) in list(kinds.items())[:_MOST_KINDS]:
            self.launcher.console.show_host_lines(name, lines)

    def _fail(self, message: str, status: int) -> None:
        self._is_over = True
        error = LaunchError(message, status)
        self.launcher.perform(self.launcher.policy.on_start_failure(error))


def _has_failed(host: HostProgress) -> bool:
    return host.ended is not None and host.ended.status != 0


def _describe_status(ended: SetupEnded) -> str:
    seconds = f"after {ended.seconds:.1f} s"
    if ended.status < 0:
        return f"killed by {get_signal_name(-ended.status)} {seconds}"
    return f"exit status {ended.status} {seconds}"


PART = SetupOfHosts
