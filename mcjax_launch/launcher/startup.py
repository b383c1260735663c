"""Startup of a job, from agents' greetings to a plan: questions, answers, coordinator's address."""

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from mcjax_launch.errors import HostsFailed, LaunchError
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.job.plan import Plan, group_ranks_by_host, make_plan
from mcjax_launch.job.program_copies import describe_differing_copies
from mcjax_launch.launcher.agent_orders import make_prepare_order
from mcjax_launch.launcher.peers import (
    choose_coordinator_address,
    get_own_address,
    list_candidates,
    list_taken_ports,
)
from mcjax_launch.options import features as declared
from mcjax_launch.transport.connection import AgentConnection
from mcjax_launch.transport.pool import AgentPool, Failure
from mcjax_launch.wire import messages
from mcjax_launch.wire.address import LOOPBACK, join_address, split_address
from mcjax_launch.wire.exit_status import HOST_LOST, INTERNAL_ERROR
from mcjax_launch.wire.messages import HostFacts

if TYPE_CHECKING:
    from mcjax_launch.console.console import Console
    from mcjax_launch.transport.staging import StagedContent

FirstStep = Callable[[AgentConnection, messages.Prepare], messages.ToAgent]

# Seconds after the first failure in which further failures are reported together with it.
_GATHER_S = 0.5
# Seconds for which an agent may be silent while it waits for nvidia-smi or a name server.
_PREPARE_S = 20.0
# Hosts that try the coordinator's address at once; seconds between further hosts, and for all.
_TRY_AT_ONCE = 64
_EACH_TRIES_S = 0.001
_ALL_TRY_S = 2.0


def call(function: Callable[[], object]) -> None:
    """Call a function at once."""
    function()


class StartupListener(Protocol):
    """Receiver of a startup's outcome."""

    def on_hosts_ready(self, plan: Plan) -> None:
        """Start the ranks of the plan: every host is ready."""

    def on_start_failure(self, error: LaunchError) -> None:
        """Handle that a host cannot run its ranks."""


class Startup:
    """Startup of a job: asks every agent, tries the coordinator's address, and makes the plan.

    Args:
        job: the job to run.
        hosts: hosts of the job; all of them get ranks.
        restart: number of earlier attempts.
        listener: receiver of the outcome.
        pool: the agents' connections.
        console: prints notes.
        after_release: calls a function once --watch has released the run.

    Attributes:
        job_id: eight hexadecimal digits.
        portable: the hosts whose agents work without Linux's own features.
        deadline: time at which to report the failures; None while there are none.
        first_step: returns the first message to an agent, which by default prepares its host; the
            feature that sends another one calls `prepare` afterwards.

    """

    def __init__(
        self,
        job: Job,
        hosts: Sequence[Host],
        restart: int,
        listener: StartupListener,
        pool: AgentPool,
        console: "Console",
        after_release: Callable[[Callable[[], object]], object] = call,
    ) -> None:
        self._restart = restart
        self.job_id = job.job_id or os.urandom(4).hex()
        self.deadline: float | None = None
        self.portable: list[Host] = []
        self.first_step: FirstStep = lambda link, asked: asked
        self._job = job
        self._hosts = hosts
        self._listener = listener
        self._pool = pool
        self._console = console
        self._ranks = group_ranks_by_host(job, hosts)
        self._staged: StagedContent | None = None
        self._after_release = after_release
        if job.sync:
            after_release(self._list_files)
        self._stopped = False
        self._asked: set[AgentConnection] = set()
        self._links: list[AgentConnection] = []  # to agents that have greeted
        self._answers: dict[Host, HostFacts] = {}
        self._tried: list[str] = []
        self._checked: dict[Host, messages.CoordinatorTried] = {}
        self._failures: list[Failure] = []

    @property
    def hosts(self) -> int:
        """Number of hosts."""
        return len(self._hosts)

    @property
    def ready(self) -> int:
        """Number of hosts that have answered."""
        return len(self._answers)

    @property
    def missing(self) -> list[str]:
        """Names of the hosts that have not answered."""
        return [host.name for host in self._hosts if host not in self._answers]

    @property
    def program_checksums(self) -> dict[str, str]:
        """Checksums of PROGRAM's source, by the names of the hosts that have reported one."""
        answers = ((host.name, self._answers.get(host)) for host in self._hosts)
        return {name: answer.source for name, answer in answers if answer and answer.source}

    @property
    def _several(self) -> bool:
        return len(self._hosts) > 1

    @property
    def _given(self) -> str | None:
        return split_address(self._job.coordinator)[0] if self._job.coordinator else None

    def stop(self) -> None:
        """Prepare no more hosts, because the job ends, and stop agents that connect from now on."""
        self._stopped = True

    # --- greet, prepare ---

    def on_loading(self, link: AgentConnection) -> None:
        """Ask an agent before it greets: the question is there when its imports are done."""
        if not self._stopped:
            self._asked.add(link)
            if self._job.sync or declared.find_first(self._job):  # the files are those of the save
                self._after_release(lambda: self._ask_first(link))
            else:
                self._ask_first(link)

    def on_greeting(self, link: AgentConnection, greeting: messages.Greeting) -> None:
        """Record an agent that has greeted; ask it, unless its loader has let that be done."""
        if greeting.version != messages.VERSION:
            versions = f"protocol version {greeting.version}, the launcher {messages.VERSION}"
            self._fail(link, f"its agent has {versions}: run mcjax-launch again", INTERNAL_ERROR)
            return
        self.portable += [link.host] if greeting.portable else []
        if self._stopped:
            link.send(messages.Stop(int(signal.SIGKILL), 0))
            return
        self._links.append(link)
        if link not in self._asked:
            self.on_loading(link)

    def on_lacks(self, link: AgentConnection, lacks: messages.Lacks) -> None:
        """Send an agent the contents that its host lacks, and ask it again."""
        if self._staged is not None and not self._stopped:
            self._ask(link, self._staged.iterate_lacking_frames(lacks.numbers))

    def _list_files(self) -> None:
        self._staged = _make_staged(self._job, self._console)

    def _ask_first(self, link: AgentConnection) -> None:
        if not self._stopped:
            self._ask(link, () if self._staged is None else self._staged.iterate_frames())

    def _ask(self, link: AgentConnection, files: Iterable[bytes]) -> None:
        """Ask an agent to prepare its host, after frames with files."""
        link.be_patient(_PREPARE_S)
        asked = make_prepare_order(
            self._job,
            link.host,
            self._ranks[link.host],
            first=link.host is self._hosts[0],
            several=self._several,
        )
        first = self.first_step(link, asked)
        if self._staged is not None:
            link.supply(_iterate_patiently(link, files), first)
        else:
            link.send(first)

    def prepare(self, link: AgentConnection, asked: messages.Prepare) -> None:
        """Ask an agent to prepare its host, after the first step."""
        link.be_patient(_PREPARE_S)
        link.send(asked)

    def on_host_facts(self, link: AgentConnection, facts: HostFacts) -> None:
        """Record an agent's answer; after the last answer, check addresses or make the plan."""
        link.be_patient(0)
        self._answers[link.host] = facts
        if self._stopped:
            return
        if self._failures and self._job.awaits_failures:
            self._report_after_last()
        if len(self._answers) == len(self._hosts) and not self._failures:
            if any(answer.tpu is not None for answer in self._answers.values()):
                self._order_by_tpus()
            self._try_step(self._check if self._several else self._complete_plan)

    def _order_by_tpus(self) -> None:
        """Order the hosts by TPU worker number; print a note if the slice is incomplete."""
        from mcjax_launch.job import devices  # as only TPUs need

        if self._job.num_hosts > 1:  # other launchers know the other hosts
            return
        hosts = devices.sort_by_worker(self._hosts, self._answers)
        if hosts != list(self._hosts) and self._may_go_in(hosts):
            self._hosts = hosts
            self._console.note(devices.format_slice_order_note(hosts))
        if note := devices.format_slice_part_note(self._answers[host].tpu for host in hosts):
            self._console.note(note)

    def _may_go_in(self, hosts: Sequence[Host]) -> bool:
        """Return whether the hosts' preparations also fit ranks in this order of hosts."""
        ranks = group_ranks_by_host(self._job, hosts)
        sizes = {host: len(own) for host, own in ranks.items()}
        prepared = sizes == {host: len(own) for host, own in self._ranks.items()}
        is_free = self._job.coordinator is None and not self._job.reads_input  # rank 0's place
        return prepared and is_free and self._answers[hosts[0]].port > 0

    def _try_step(self, step: Callable[[], None]) -> None:
        try:
            step()
        except LaunchError as error:
            self._listener.on_start_failure(error)

    def _check(self) -> None:
        self._tried = list_candidates(self._hosts, self._answers, self._given)
        port = self._answers[self._hosts[0]].port
        others = [link for link in self._links if link.host is not self._hosts[0]]
        for number, link in enumerate(others):
            delay_s = min(max(0, number - _TRY_AT_ONCE) * _EACH_TRIES_S, _ALL_TRY_S)
            link.send(messages.TryCoordinator(tuple(self._tried), port, delay_s))

    def on_coordinator_tried(self, link: AgentConnection, tried: messages.CoordinatorTried) -> None:
        """Record which coordinator addresses a host has reached; make the plan after the last."""
        self._checked[link.host] = tried
        if len(self._checked) == len(self._hosts) - 1 and not self._stopped:
            self._try_step(self._complete_plan)

    # --- plan ---

    def _complete_plan(self) -> None:
        if line := describe_differing_copies(self._job.program, self.program_checksums):
            self._console.say(line)
        self._listener.on_hosts_ready(self._make_plan(self._hosts, *self._choose_coordinator()))

    def _choose_coordinator(self) -> tuple[str, int, bool]:
        """Return the coordinator's address and port, and whether its host can bind the address."""
        first = self._hosts[0]
        port, bind = self._answers[first].port, True
        address = self._given or LOOPBACK
        if self._job.num_hosts > 1:  # other launchers know only this address
            assert self._job.coordinator is not None
            port, bind = split_address(self._job.coordinator)[1], False
            address = self._job.coordinator_name or address
        if self._several:
            taken = () if self._job.coordinator else list_taken_ports(self._answers[first])
            address = choose_coordinator_address(first, port, self._tried, self._checked, taken)
            bind = address == LOOPBACK or address in self._answers[first].addresses
        return address, port, bind

    def _make_plan(self, hosts: Sequence[Host], address: str, port: int, bind: bool) -> Plan:
        return make_plan(
            self._job,
            hosts,
            {host: self._complete_facts(host, address) for host in hosts},
            job_id=self.job_id,
            coordinator=join_address(address, port),
            bind=bind,
            restart=self._restart,
            own_name=os.uname().nodename if self._job.num_hosts > 1 else "",
        )

    def _complete_facts(self, host: Host, coordinator: str) -> HostFacts:
        """Return a host's facts, with the address by which other hosts reach it."""
        answer = self._answers[host]
        address = answer.address if self._job.num_hosts > 1 else ""
        if self._several:
            first = self._hosts[0]
            address = get_own_address(host, first, coordinator, self._checked)
        return answer.copy_with(address=address)

    # --- failures ---

    def on_refusal(self, link: AgentConnection, refused: messages.Refused) -> None:
        """Record the failure of a host whose agent says that it cannot run the job."""
        self._fail(link, refused.reason, refused.status)

    def _fail(self, link: AgentConnection, reason: str, status: int) -> None:
        if self._job.awaits_failures:
            self.record_failure(Failure(link.host, reason))
            return
        several = self._several or not link.host.is_local
        where = f"host {link.host.name}: " if several else ""
        self._listener.on_start_failure(LaunchError(f"{where}{reason}", status))

    def record_failure(self, failure: Failure) -> None:
        """Record a failed host; wait for further failures: a moment, or for all."""
        self._failures.append(failure)
        if self._job.awaits_failures:
            self._report_after_last()
        elif self.deadline is None:
            self.deadline = time.monotonic() + _GATHER_S

    def _report_after_last(self) -> None:
        """Report the failures once every host has answered or failed."""
        if len(self._failures) + len(self._answers) == len(self._hosts):
            self._report_failures()

    def expire(self, now: float) -> None:
        """Report the gathered failures if the deadline has passed or no more can arrive."""
        if self.deadline is not None and (self._pool.is_settled or now >= self.deadline):
            self.deadline = None
            self._report_failures()

    def _report_failures(self) -> None:
        first, *more = self._failures
        also = ""
        if more:
            names = ", ".join(failure.host.name for failure in more[:8])
            also = f"; {len(more)} more: {names}{', ...' if len(more) > 8 else ''}"
        message = f"host {first.host.name}: {first.reason}{also}"
        reasons = {failure.host.name: failure.reason for failure in self._failures}
        self._listener.on_start_failure(HostsFailed(message, HOST_LOST, reasons))


def _iterate_patiently(link: AgentConnection, files: Iterable[bytes]) -> Iterator[bytes]:
    """Yield frames for an agent; renew the limit of its silence after each."""
    for frame in files:
        link.be_patient(_PREPARE_S)
        yield frame
    link.be_patient(_PREPARE_S)  # also counted from the last frame


def _make_staged(job: Job, console: "Console") -> "StagedContent":
    from mcjax_launch.transport.staging import StagedContent  # only --sync needs it

    keeps = not job.no_host_cache
    return StagedContent(job.sync, os.getcwd(), keeps=keeps, note=console.note)
