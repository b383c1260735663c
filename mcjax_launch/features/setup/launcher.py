"""Part of the launcher that has all hosts run a command before anything else is prepared there."""

import os
import re
import shlex
import time
from collections import deque
from collections.abc import Sequence

from mcjax_launch.errors import LaunchError
from mcjax_launch.features.setup.messages import SetUp, SetupEnded
from mcjax_launch.features.setup.options import SetupOptions
from mcjax_launch.job.hosts import Host
from mcjax_launch.launcher.part import JobLauncher, LauncherPart
from mcjax_launch.transport.connection import AgentConnection
from mcjax_launch.wire.exit_status import NOT_FOUND, TIMED_OUT, compute_exit_status, get_signal_name
from mcjax_launch.wire.frames import Raw
from mcjax_launch.wire.messages import Prepare, ToLauncher
from mcjax_launch.wire.timers import scale_time
from mcjax_launch.wording import cut_end, format_names, format_one_line, format_rough_duration

#: Seconds: with --watch a command that takes as long runs only once.
ONCE_S = 1.0
# Seconds until a line says which hosts are not done.
_STILL_S = scale_time(10.0)
_MOST_LINES = 20
_LONGEST_COMMAND, _LONGEST_QUOTE = 60, 160
_NOT_IN_PATH = "; name the command by its path, as a login's PATH is not read"
# What a shell puts before its own errors: the number is of a line in the script around the command.
_SHELLS_OWN = re.compile(r"^--setup: (?:line )?\d+: ")


class HostProgress:
    """Progress of the command on a host.

    Args:
        link: connection to the host's agent.
        asked: request to prepare the host, for afterwards.

    Attributes:
        ended: its end; None before.
        lines: last lines of its output that are not blank.

    """

    def __init__(self, link: AgentConnection, asked: Prepare) -> None:
        self.link = link
        self.asked = asked
        self.ended: SetupEnded | None = None
        self.lines: deque[str] = deque(maxlen=_MOST_LINES)
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """Record output; return its whole lines that are not blank."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        # Of a row that was drawn several times the last state counts.
        rows = [line.rstrip(b"\r").rpartition(b"\r")[2] for line in whole]
        texts = [format_one_line(row.decode("utf-8", "surrogateescape")) for row in rows]
        lines = [_SHELLS_OWN.sub("", text) for text in texts if text.strip()]
        self.lines += lines
        return lines

    @property
    def last_line(self) -> str:
        """Last line that is not blank, to be quoted; "" if there is none."""
        return cut_end(self.lines[-1].strip(), _LONGEST_QUOTE) if self.lines else ""


class SetupOfHosts(LauncherPart):
    """Part that has all hosts run the command, and then has them prepared."""

    def __init__(self, launcher: JobLauncher) -> None:
        super().__init__(launcher)
        self._job = launcher.job
        self._own = SetupOptions.of(launcher.job)
        self._hosts: dict[Host, HostProgress] = {}
        self._is_over = False
        self._began_at = 0.0
        self._due: dict[str, float] = {}  # times of the limits and of the line (""), by option

    def begin(self, link: AgentConnection, asked: Prepare) -> SetUp:
        """Return the first order to a host, in place of the request to prepare it."""
        if not self._hosts:
            self._begin_time()
        self._hosts[link.host] = HostProgress(link, asked)
        return SetUp(
            command=self._own.setup or "",
            env=asked.env,
            chdir=asked.chdir,
            chdir_given=asked.chdir_given,
            done=(self._own.setup_done or {}).get(link.host.name),
        )

    def on_message(self, link: AgentConnection, message: ToLauncher | Raw, now: float) -> None:
        """Handle an answer, or output, of a host."""
        host = self._hosts[link.host]
        if isinstance(message, Raw):
            self._show(link, host.feed(message.payload))
        elif isinstance(message, SetupEnded) and not self._is_over:
            self._show(link, host.feed(b"\n"))
            host.ended = message
            if message.status:
                self._report_failure(host, message)
            else:
                self._on_success(link, message)

    def on_stop(self, now: float) -> None:
        """Order nothing more, because the job ends."""
        self._is_over = True

    def _show(self, link: AgentConnection, lines: Sequence[str]) -> None:
        if self._job.verbose:
            self.launcher.console.show_host_lines(link.host.name, lines)

    def _on_success(self, link: AgentConnection, ended: SetupEnded) -> None:
        changed = f", and changes {format_names(sorted(ended.after))}" if ended.after else ""
        how = f"took {ended.seconds:.1f} s" if ended.seconds else "ran at the first start"
        self.launcher.console.show_detail(f"{link.host.name}: --setup {how}{changed}")
        ends = {host.name: each.ended for host, each in self._hosts.items() if each.ended}
        if len(ends) < self.launcher.startup.hosts:
            return
        self._is_over = True
        self._report_to_watcher(ends)
        for each in self._hosts.values():
            assert each.ended is not None
            self.launcher.startup.prepare(each.link, self._adapt(each, each.ended))

    def _adapt(self, host: HostProgress, ended: SetupEnded) -> Prepare:
        """Return the request to prepare a host, as it is after the command."""
        asked = host.asked
        is_given = bool(host.link.host.python) or self._job.python_given
        pythons = tuple(
            os.path.join(ended.folder, name) if os.sep in name and name[0] != "~" else name
            for name in asked.pythons
        )
        if pythons and ended.python and not is_given:
            pythons = (ended.python,)
        env = {name: value for name, value in asked.env.items() if name not in ended.after}
        return asked.copy_with(pythons=pythons, env=env)

    def _report_to_watcher(self, ends: dict[str, SetupEnded]) -> None:
        """Pass the variables of a slow command to the next runs of --watch."""
        watcher = self.launcher.front.watcher
        seconds = max(end.seconds for end in ends.values())
        if watcher is None or seconds < ONCE_S or self._job.sync:
            return
        watcher.report(setup={name: end.after for name, end in ends.items()})
        self.launcher.console.note(
            f"--setup took {seconds:.1f} s: the next runs of --watch use what it has set; "
            "start mcjax-launch again to run it again"
        )

    # --- time ---

    def _begin_time(self) -> None:
        self._began_at = time.monotonic()
        job = self._job
        limits = {"": _STILL_S, "--timeout": job.timeout, "--start-timeout": job.start_timeout}
        self._due = {name: self._began_at + s for name, s in limits.items() if s is not None}

    @property
    def deadline(self) -> float | None:  # type: ignore[override]
        """Time of the next line or limit; None if there is none."""
        return None if self._is_over else min(self._due.values(), default=None)

    def expire(self, now: float) -> None:
        """Say which hosts are not done; end the job at a limit."""
        if (due := self.deadline) is None or now < due:
            return
        limit = min(self._due, key=self._due.__getitem__)
        del self._due[limit]
        done = {host.name for host, each in self._hosts.items() if each.ended}
        names = [name for name in self.launcher.startup.missing if name not in done]
        lines = {host.name: each.last_line for host, each in self._hosts.items() if not each.ended}
        last = next((f" ({name}: {line})" for name, line in lines.items() if line), "")
        seconds = format_rough_duration(now - self._began_at)
        message = f"--setup is not done after {seconds} on {format_names(names)}{last}"
        if limit:
            self._fail(f"{limit}: {message}: no rank was started", TIMED_OUT)
        else:
            self.launcher.console.note(message)

    # --- failures ---

    def _report_failure(self, host: HostProgress, ended: SetupEnded) -> None:
        """Print the last lines of a host that has failed, and end the job."""
        name = host.link.host.name
        several = self.launcher.startup.hosts > 1 or not host.link.host.is_local
        if len(host.lines) > 1 and not self._job.verbose:  # a single line is quoted below
            on = f" on {name}" if several else ""
            self.launcher.console.say(f"--setup failed{on}; its last lines, -v shows all:")
            self.launcher.console.show_host_lines(name, list(host.lines))
        status = compute_exit_status(ended.status)
        killed = f"killed by {get_signal_name(-ended.status)}" if ended.status < 0 else ""
        quoted = f" ({host.last_line})" if host.last_line else ""
        what = f"{killed or f'exit status {status}'} after {ended.seconds:.1f} s{quoted}"
        command = cut_end(shlex.quote(self._own.setup or ""), _LONGEST_COMMAND)
        where = f"host {name}: " if several else ""
        advice = _NOT_IN_PATH if status == NOT_FOUND else ""
        self._fail(f"{where}--setup {command}: {what}: no rank was started{advice}", status)

    def _fail(self, message: str, status: int) -> None:
        self._is_over = True
        error = LaunchError(message, status)
        self.launcher.perform(self.launcher.policy.on_start_failure(error))


PART = SetupOfHosts
