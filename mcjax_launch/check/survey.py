"""Asks all hosts at once what they have; who does not answer holds up nobody else."""

import signal
import time
from collections.abc import Callable, Mapping, Sequence

from mcjax_launch.check.found import OWN_VARIABLES, Clock, HostFound, Network
from mcjax_launch.check.names import some
from mcjax_launch.errors import LaunchError
from mcjax_launch.job.gpus import GpuShares, share_out
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.job.plan import ranks_of_hosts
from mcjax_launch.launcher import peers
from mcjax_launch.launcher.agent_orders import what_to_prepare
from mcjax_launch.launcher.coordinator import candidates
from mcjax_launch.launcher.front import Front
from mcjax_launch.protocol import messages
from mcjax_launch.protocol.address import split_address
from mcjax_launch.protocol.codec import Message
from mcjax_launch.protocol.frames import Content, Data
from mcjax_launch.protocol.loop import READ
from mcjax_launch.protocol.messages import DevicesCounted, Peer, PeersTried, Surveyed
from mcjax_launch.protocol.signals import ENDING
from mcjax_launch.transport.client import Transport
from mcjax_launch.transport.connection import AgentConnection
from mcjax_launch.transport.pool import AgentPool, Failure

# Of so many answers the quickest tells a host's clock best.
_LOOKS = 5
# An agent says nothing while it waits for Python or a name server; nor for nvidia-smi, which has
# 30 s to list MIG devices, those of the ranks and those of any program there.
_QUESTION_S, _SURVEY_S = 40.0, 90.0
_COUNT_S = 60.0
_END_S = 10.0
_WINDOW = 1 << 16
# The name of what is tried as the coordinator: no host has it.
_COORDINATOR = ""


class Interrupted(Exception):
    """The user has ended the check.

    Args:
        signum: the signal.
        said: the user has been told.

    """

    def __init__(self, signum: int, *, said: bool = False) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum
        self.said = said


class Survey:
    """One connection to each host, questions, and answers.

    Args:
        job: what a plain run would start.
        hosts: where.
        transport: starts the agents.
        front: of this process.

    Attributes:
        seconds: how long each part took, by its name.

    """

    def __init__(self, job: Job, hosts: Sequence[Host], transport: Transport, front: Front) -> None:
        self.seconds: dict[str, float] = {}
        self._job = job
        self._hosts = hosts
        self._ranks = ranks_of_hosts(job, hosts)
        self._loop = front.loop
        self._signals = front.signals
        self._loop.watch(self._signals.fd, READ, lambda ready: self._read_signals())
        self._pool = AgentPool(
            hosts, transport, self._loop, _WINDOW, self._received, self._lost, self._unreachable
        )
        self._reached_at = 0.0  # when the last host had greeted, or failed to
        self._links: dict[Host, AgentConnection] = {}
        self._unanswered: dict[Host, float] = {}  # hosts that were asked something, and when
        self._failures: dict[Host, str] = {}
        self._clocks: dict[Host, list[Clock]] = {}
        self._surveyed: dict[Host, Surveyed] = {}
        self._tried: dict[Host, PeersTried] = {}
        self._devices: dict[Host, DevicesCounted] = {}
        self._facing: dict[Host, messages.NetworkInterface] = {}

    # --- the questions ---

    def look(self) -> Network:
        """Reach all hosts, find out what they have, and have them reach one another.

        Raises:
            Interrupted: the user has ended the check.
            LaunchError: the client that leads to the hosts is not there.

        """
        began = time.monotonic()
        self._pool.begin()
        self._wait(lambda: self._pool.settled and not self._unanswered)
        looked = time.monotonic()
        self.seconds["hosts"] = self._reached_at - began
        self.seconds["survey"] = looked - self._reached_at
        found = self._look_at_network()
        self.seconds["ports"] = time.monotonic() - looked
        return found

    def count_devices(self) -> None:
        """Have JAX on each host that has it count its devices, where there is no sum to do so.

        Raises:
            Interrupted: the user has ended the check.

        """
        began = time.monotonic()
        variables = dict(OWN_VARIABLES)
        if self._job.cpu_devices is not None:
            variables["JAX_NUM_CPU_DEVICES"] = str(self._job.cpu_devices)
            variables["JAX_PLATFORMS"] = "cpu"
        variables |= dict(self._job.env)
        for host, surveyed in self._surveyed.items():
            python = surveyed.python
            if self._is_there(host) and not python.error:
                cwd = surveyed.facts.cwd
                self._ask(host, messages.CountDevices(python.path, cwd, variables), _COUNT_S)
        self._wait(lambda: not self._unanswered)
        self.seconds["devices"] = time.monotonic() - began

    def end(self) -> None:
        """Dismiss the agents, and wait for them a while."""
        self._pool.stop(0)
        self._pool.send_all(messages.Stop(int(signal.SIGKILL), 0))
        deadline = time.monotonic() + _END_S
        while not self._pool.over and time.monotonic() < deadline:
            self._turn(deadline)
        self._pool.hang_up(_END_S)

    @property
    def hosts(self) -> tuple[HostFound, ...]:
        """What is known of each host."""
        return tuple(self._found(host) for host in self._hosts)

    def _found(self, host: Host) -> HostFound:
        counted = self._devices.get(host)
        looks = self._clocks.get(host)
        return HostFound(
            name=host.name,
            ranks=len(self._ranks[host]),
            unreachable=self._failures.get(host, ""),
            surveyed=self._surveyed.get(host),
            clock=min(looks, key=lambda clock: clock.error_s) if looks else None,
            devices=counted.devices if counted is not None else (),
            devices_error=counted.error if counted is not None else "",
            share=self._share(host),
            interface=self._facing.get(host),
        )

    def _share(self, host: Host) -> GpuShares:
        """What the ranks there would get of its GPUs."""
        if host not in self._surveyed:
            return GpuShares()
        try:
            return share_out(self._job, len(self._ranks[host]), self._surveyed[host].facts.gpus)
        except LaunchError:  # which keeps the sum from being run, and stands there
            return GpuShares()

    def _is_there(self, host: Host) -> bool:
        """Whether a host has answered, and can still be asked."""
        return host in self._surveyed and host not in self._failures

    # --- the network ---

    def _look_at_network(self) -> Network:
        """Who reaches the coordinator's host, and each other."""
        there = [host for host in self._hosts if self._is_there(host)]
        answers = {host: self._surveyed[host].facts for host in there}
        if len(there) < 2:
            return Network()
        first = self._hosts[0]
        port = answers[first].port if first in answers else 0
        tried, error = self._addresses(answers)
        several = len({answers[host].machine for host in there}) > 1
        reach = peers.Reach(there, answers)
        all_ways = several and self._needs_ports
        asked = 0
        for host in there:
            others = reach.peers(host) if all_ways else ()
            asked += len(others)
            leader = (Peer(_COORDINATOR, tuple(tried), port),) if tried and host != first else ()
            if others or leader:
                self._ask(host, messages.TryPeers((*leader, *others)), _QUESTION_S)
        self._wait(lambda: not self._unanswered)
        for host, answer in self._tried.items():
            reach.answered(host, answer)
        if several:
            self._facing = {host: one for host in there if (one := self._interface(host))}
        found = Network(port=port, pairs=asked, gaps=tuple(reach.gaps()) if all_ways else ())
        if error or not tried:
            return found.replaced(error=error)
        return self._with_coordinator(found, tried)

    def _interface(self, host: Host) -> messages.NetworkInterface | None:
        """The one at which others have reached a host; else that of its likeliest address."""
        names = (host.name, _COORDINATOR) if host == self._hosts[0] else (host.name,)
        reached = {
            address
            for tried in self._tried.values()
            for name in names
            for address in tried.reached.get(name, ())
        }
        known = self._surveyed[host].interfaces
        return next((one for one in known if one.address in reached), next(iter(known), None))

    @property
    def _needs_ports(self) -> bool:
        """Whether collectives connect the hosts over the network; TPUs have one of their own."""
        uses = peers.collectives(self._job)
        if uses == "any":
            found = self._surveyed.values()
            return not all("libtpu" in one.python.packages and not one.gpus for one in found)
        return bool(uses)

    def _addresses(self, answers: Mapping[Host, messages.HostFacts]) -> tuple[list[str], str]:
        """Where the coordinator might be reached; or why that cannot be known."""
        if self._hosts[0] not in answers:
            return [], ""
        if self._job.relay:
            return [], ""  # ranks reach it as the launcher reaches the hosts
        given = split_address(self._job.coordinator)[0] if self._job.coordinator else None
        try:
            return candidates([host for host in self._hosts if host in answers], answers, given), ""
        except LaunchError as error:
            return [], str(error)

    def _with_coordinator(self, found: Network, tried: Sequence[str]) -> Network:
        """The address that all reach; or who reaches none, and why."""
        reached = {
            host: answer.reached[_COORDINATOR]
            for host, answer in self._tried.items()
            if _COORDINATOR in answer.reached
        }
        common = [at for at in tried if all(at in one for one in reached.values())]
        if common:
            return found.replaced(coordinator=common[0])
        without = [host for host, addresses in reached.items() if not addresses]
        if not without:
            error = (
                f"no address of the coordinator's host, {self._hosts[0].name}, is reached by all: "
            )
            each = (f"{host.name} reaches {', '.join(at)}" for host, at in reached.items())
            return found.replaced(error=error + "; ".join(each))
        why = self._tried[without[0]].errors.get(_COORDINATOR, "")
        names, first = some(host.name for host in without), self._hosts[0].name
        cure = "open the port (--coordinator HOST:PORT chooses it), or try --coordinator ssh"
        return found.replaced(
            error=f"{names} cannot reach the coordinator on {first}, port {found.port}, at {why}; "
            + cure
        )

    # --- answers ---

    def _ask(self, host: Host, question: Message, patience_s: float) -> None:
        link = self._links[host]
        link.be_patient(patience_s)
        self._unanswered[host] = time.time()
        link.send(question)

    def _received(self, link: AgentConnection, message: Message | Data | Content) -> None:
        host = link.host
        asked_at = self._unanswered.pop(host, 0.0)
        link.be_patient(0)
        match message:
            case messages.Greeting(version) if version != messages.VERSION:
                self._failures[host] = "its agent is of another version: run it again"
            case messages.Greeting():
                self._links[host] = link
                self._reached_at = time.monotonic()
                self._ask(host, messages.TellTime(), _QUESTION_S)
            case messages.Time(now_s):
                self._told_time(host, now_s, asked_at, time.time())
            case Surveyed():
                self._surveyed[host] = message
            case PeersTried():
                self._tried[host] = message
            case DevicesCounted():
                self._devices[host] = message
            case messages.InternalError(error):
                self._failures[host] = f"internal error in the agent: {error}"
            case messages.Ending(reason):
                self._failures[host] = f"its agent was stopped by {reason}"

    def _told_time(self, host: Host, there_s: float, asked_at: float, now_s: float) -> None:
        """A host has told its time, which was so when half of the time for the answer was over."""
        looks = self._clocks.setdefault(host, [])
        looks.append(Clock(there_s - (asked_at + now_s) / 2, (now_s - asked_at) / 2))
        if len(looks) < _LOOKS:
            self._ask(host, messages.TellTime(), _QUESTION_S)
            return
        wanted = what_to_prepare(
            self._job, host, self._ranks[host], first=host == self._hosts[0], several=True
        )
        several = len(self._hosts) > 1
        anywhere = messages.Bind("", 0)  # for the others' attempts to connect
        wanted = wanted.replaced(
            program=None,
            transfer_ports=0,
            tpu_ports=0,
            bind_cores="off",
            coordinator=wanted.coordinator or anywhere,
            listen=several,
            describe=several,
        )
        self._ask(host, messages.Survey(wanted, dict(self._job.env)), _SURVEY_S)

    def _unreachable(self, failure: Failure) -> None:
        self._failures[failure.host] = failure.reason
        self._reached_at = time.monotonic()

    def _lost(self, link: AgentConnection, why: str) -> None:
        self._unanswered.pop(link.host, None)
        self._failures.setdefault(link.host, why)

    # --- time ---

    def _wait(self, over: Callable[[], bool]) -> None:
        while not over():
            self._turn(None)

    def _turn(self, deadline: float | None) -> None:
        if deadline is None:
            self._loop.run_once((self._pool,))
        else:
            at = self._pool.deadline
            self._loop.turn(deadline if at is None else min(at, deadline))
            self._pool.expire(time.monotonic())

    def _read_signals(self) -> None:
        for signum in self._signals.read():
            if signum == signal.SIGCHLD:
                self._pool.reap()
            elif signum in ENDING:
                raise Interrupted(signum)
