"""The whole check: a survey, then a job that adds up numbers of all devices."""

import inspect
import math
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from mcjax_launch import features
from mcjax_launch.diagnosis.attempt import Attempt
from mcjax_launch.diagnosis.root_cause import JobStopped
from mcjax_launch.errors import LaunchError
from mcjax_launch.features.check import probe
from mcjax_launch.features.check.judgement import (
    HostFound,
    Judgement,
    SurveyResult,
    judge,
    judge_devices,
    judge_gpus,
    judge_internals,
    judge_mtls,
    judge_sum,
    list_topics,
    merge_findings,
)
from mcjax_launch.features.check.messages import (
    Probe,
    Probed,
    ReadClock,
    Survey,
    Surveyed,
    Time,
)
from mcjax_launch.features.check.probe_output import (
    DevicesCounted,
    PythonFacts,
    count_devices_by_host,
    parse_devices,
    parse_output,
    parse_python,
)
from mcjax_launch.job.devices import GpuShares, share_out
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.job.plan import group_ranks_by_host
from mcjax_launch.kernel.launcher import restarts
from mcjax_launch.kernel.launcher.agent_orders import make_prepare_order
from mcjax_launch.kernel.launcher.front import Front, make_front
from mcjax_launch.kernel.launcher.peers import Reach, get_collectives_kind
from mcjax_launch.kernel.transport.connection import AgentConnection
from mcjax_launch.kernel.transport.pool import AgentPool, Failure
from mcjax_launch.kernel.transport.remote_commands import Transport
from mcjax_launch.kernel.wire import exit_status, messages
from mcjax_launch.kernel.wire.codec import Message
from mcjax_launch.kernel.wire.frames import Data, Raw
from mcjax_launch.kernel.wire.loop import READ
from mcjax_launch.kernel.wire.signals import ENDING, get_signal_name
from mcjax_launch.ranks import format_count

#: Variables of the check's programs: leave the GPUs' memory to jobs that may be running there.
OWN_VARIABLES = (("XLA_PYTHON_CLIENT_PREALLOCATE", "false"),)
# Seconds for which an agent may be silent while it waits for Python, a name server or nvidia-smi:
# it lists MIG devices twice, for the ranks and for any program, with 30 s each.
_PATIENCE_S = 90.0
# Time limits of the probe, by its argument.
_PROBE_S = {"versions": 8.0, "devices": 40.0}
_END_S = 10.0
_WINDOW = 1 << 16
# Default limits: ranks that do not find each other would wait for five minutes.
_START_S, _WHOLE_S = 60.0, 120.0

Answer = TypeVar("Answer", bound=Message)


def run(job: Job, hosts: Sequence[Host], say: Callable[[str], object]) -> list[Judgement]:
    """Survey the hosts, run the sum if possible, and return all findings.

    Args:
        job: job that a run without --check would start; its program does not matter.
        hosts: hosts of the job.
        say: called with progress messages.

    Raises:
        LaunchError: the user has ended the check, or the client that reaches the hosts is missing.

    """
    transport = Transport(job, features.list_for_hosts(make_check_job(job)))
    transport.start_local(hosts)
    transport.allow_many_files()
    front = make_front()
    survey = HostSurvey(job, hosts, transport, front)
    say(f"asking {format_count(len(hosts), 'host')} ...")
    try:
        found = survey.ask_hosts()
        wrong = list_topics(list(judge(found)), "error")
        if wrong:
            say("counting devices ...")
            devices = survey.count_devices()
            found = found.copy_with(lost=survey.lost)
    finally:
        survey.end()
    total = [Judgement("sum", f"not run: see {', '.join(wrong)}", verdict="note")]
    if not wrong:
        say(f"adding up the devices of {format_count(job.num_processes, 'rank')} ...")
        total, devices = run_sum_job(job, hosts, transport, front)
    unknown = DevicesCounted((), "")
    there = [host.copy_with(devices=devices.get(host.name, unknown)) for host in found.hosts]
    of_gpus = () if job.uses_cpu else judge_gpus(there)
    with_jax = [host for host in there if not host.python.error]
    of_tls = judge_mtls(job, with_jax, alone=len(hosts) == 1)
    return merge_findings([*judge(found), *of_tls, *judge_devices(there), *of_gpus, *total])


# --- the job ---


def make_check_job(job: Job) -> Job:
    """Return a copy of the job that runs the probe as its program."""
    program = os.path.abspath(probe.__file__)
    return job.copy_with(
        program=(os.path.basename(program),),
        chdir_given=False,
        env=(*OWN_VARIABLES, *job.env),
        sync=(program,),
        show=frozenset(),
        quiet=not job.verbose,
        log_dir=None,
        timeout=job.timeout or _WHOLE_S,
        start_timeout=(job.start_timeout or _START_S) if job.hook else None,
        record=True,  # which keeps what ranks print
    )


def run_sum_job(
    job: Job, hosts: Sequence[Host], transport: Transport, front: Front
) -> tuple[list[Judgement], dict[str, DevicesCounted]]:
    """Run the probe as a job; return the findings, and the devices of each host by its name.

    Args:
        job: job that a run without --check would start.
        hosts: hosts of the job.
        transport: starter of the agents.
        front: front of this process.

    Raises:
        LaunchError: the user has ended the check.

    """
    attempts: list[Attempt] = []
    hosts = [host.copy_with(chdir=None) for host in hosts]
    why_not = ""
    try:
        outcome = restarts.run(
            *(make_check_job(job), hosts, transport),
            ended=attempts.append,
            front=front,
        )
        why_not = outcome.message if outcome.status else ""
    except LaunchError as error:
        why_not = str(error)
    ending = attempts[-1].summary.ending if attempts else None
    if isinstance(ending, JobStopped) and ending.status in map(
        exit_status.compute_signal_status, ENDING
    ):
        raise LaunchError("the check was not finished", ending.status)
    ranks = [run for attempt in attempts for run in attempt.state.ranks.values()]
    told = [(run.host, parse_output(run.stdout)) for run in ranks]
    total = [*judge_internals(told), *judge_sum([printed for _, printed in told], why_not)]
    return total, count_devices_by_host(told)


# --- the survey: a host that does not answer does not stop the other hosts ---


class HostSurvey:
    """Survey of all hosts, over a connection to each.

    Args:
        job: job that a run without --check would start.
        hosts: hosts of the job.
        transport: starter of the agents.
        front: front of this process.

    """

    def __init__(self, job: Job, hosts: Sequence[Host], transport: Transport, front: Front) -> None:
        self._job = job
        self._hosts = hosts
        self._ranks = group_ranks_by_host(job, hosts)
        self._loop = front.loop
        self._signals = front.signals
        self._loop.watch(self._signals.fd, READ, lambda ready: self._read_signals())
        self._pool = AgentPool(
            hosts,
            transport,
            self._loop,
            _WINDOW,
            self._on_message,
            self._on_agent_loss,
            self._on_unreachable_host,
        )
        self._links: dict[Host, AgentConnection] = {}
        self._failures: dict[Host, str] = {}
        self._unanswered: dict[Host, float] = {}  # when each such host was asked
        self._answers: dict[Host, Message] = {}  # to the latest question
        # Of each clock: the possible error, and the seconds it is ahead.
        self._clocks: dict[Host, tuple[float, float]] = {}
        self._surveyed: dict[Host, Surveyed] = {}
        self._pythons: dict[Host, PythonFacts] = {}

    # --- the questions ---

    def ask_hosts(self) -> SurveyResult:
        """Reach all hosts, find out what they have, and let them connect to each other.

        Raises:
            LaunchError: the user has ended the check, or the client that reaches the hosts is
                missing.

        """
        began = time.monotonic()
        self._pool.begin()
        self._wait(lambda: self._pool.is_settled)
        seconds = time.monotonic() - began
        self._ask(Time, dict.fromkeys(self._links, ReadClock()))
        questions = {host: self._make_question(host) for host in self._hosts}
        self._surveyed = self._ask(Surveyed, questions)
        wanted = {host: questions[host].wanted.pythons for host in self._surveyed}
        probed = self._probe("versions", wanted, dict(self._job.env))
        self._pythons = {host: parse_python(answer) for host, answer in probed.items()}
        facts = {host: surveyed.facts for host, surveyed in self._surveyed.items()}
        reach = Reach(list(facts), facts)
        several = len({known.machine for known in facts.values()}) > 1
        ways = self._try_ways(reach, list(facts)) if several else 0
        return SurveyResult(
            hosts=tuple(
                self._collect_facts(host, reach.choose_address(host) if several else "")
                for host in self._pythons
            ),
            lost=self.lost,
            seconds=seconds,
            ways=ways,
            gaps=tuple(reach.list_gaps()),
            uses=get_collectives_kind(self._job),
        )

    @property
    def lost(self) -> dict[str, str]:
        """Reasons for which hosts did not answer, or no longer do, by their names."""
        return {host.name: self._failures[host] for host in self._hosts if host in self._failures}

    def count_devices(self) -> dict[str, DevicesCounted]:
        """Have JAX count the devices on each host that has it, if there is no sum to do so.

        Raises:
            LaunchError: the user has ended the check.

        """
        many, variables = self._job.cpu_devices, dict(OWN_VARIABLES)
        if many is not None:
            variables |= {"JAX_NUM_CPU_DEVICES": str(many), "JAX_PLATFORMS": "cpu"}
        variables |= dict(self._job.env)
        with_jax = {
            host: (python.path,) for host, python in self._pythons.items() if not python.error
        }
        answers = self._probe("devices", with_jax, variables)
        return {host.name: parse_devices(answer) for host, answer in answers.items()}

    def _probe(
        self, word: str, pythons: Mapping[Host, tuple[str, ...]], env: dict[str, str]
    ) -> dict[Host, Probed]:
        """Run the probe in a Python on each of these hosts; return the answers."""
        program, most_s = inspect.getsource(probe), _PROBE_S[word]
        cwds = {host: there.facts.cwd for host, there in self._surveyed.items()}
        questions = {
            host: Probe(program, word, those, cwds[host], env, most_s)
            for host, those in pythons.items()
        }
        return self._ask(Probed, questions)

    def end(self) -> None:
        """Stop the agents, and wait a while for their ends."""
        self._pool.stop(0)
        self._pool.send_all(messages.Stop(int(signal.SIGKILL), 0))
        self._wait(lambda: self._pool.over)  # or srun would end them before they have cleaned up
        self._pool.hang_up(_END_S)

    def _make_question(self, host: Host) -> Survey:
        first, several = host == self._hosts[0], len(self._hosts) > 1
        wanted = make_prepare_order(self._job, host, self._ranks[host], first=first, several=True)
        anywhere = messages.Bind("", 0)  # for test connections from the other hosts
        wanted = wanted.copy_with(
            program=None,
            transfer_ports=0,
            tpu_ports=0,
            bind_cores="off",
            coordinator=wanted.coordinator or anywhere,
            listen=several,
            describe=several,
        )
        return Survey(wanted)

    def _collect_facts(self, host: Host, address: str) -> HostFound:
        """Return the facts about a host; `address`: its address for other hosts."""
        surveyed = self._surveyed[host]
        error_s, ahead_s = self._clocks[host]
        try:
            share = share_out(self._job, len(self._ranks[host]), surveyed.facts.gpus)
        except LaunchError:  # the sum fails with the same error and reports it
            share = GpuShares()
        return HostFound(
            name=host.name,
            ranks=len(self._ranks[host]),
            surveyed=surveyed,
            python=self._pythons[host],
            ahead_s=math.copysign(max(0.0, abs(ahead_s) - error_s), ahead_s),
            share=share,
            interface=next((each for each in surveyed.interfaces if each.address == address), None),
        )

    # --- the network ---

    def _try_ways(self, reach: Reach, hosts: Sequence[Host]) -> int:
        """Have the hosts connect to each other if collectives will; return the number of tries.

        TPUs have a network of their own. The job itself, when it starts, looks for an address of
        the coordinator that all hosts reach.
        """
        uses = get_collectives_kind(self._job)
        only_tpus = all(
            "libtpu" in python.packages and not self._surveyed[host].gpus
            for host, python in self._pythons.items()
        )
        if not uses or (uses == "any" and only_tpus):
            return 0
        questions = {host: messages.TryPeers(reach.select_peers(host)) for host in hosts}
        for host, tried in self._ask(messages.PeersTried, questions).items():
            reach.record_answer(host, tried)
        return sum(len(question.peers) for question in questions.values())

    # --- answers ---

    def _ask(self, kind: type[Answer], questions: Mapping[Host, Message]) -> dict[Host, Answer]:
        """Send questions to connected hosts, all at once; return the answers of class `kind`."""
        self._answers = {}
        for host, question in questions.items():
            if host in self._links and host not in self._failures:
                self._links[host].be_patient(_PATIENCE_S)
                self._unanswered[host] = time.time()
                self._links[host].send(question)
        self._wait(lambda: not self._unanswered)
        answers = {host: self._answers.get(host) for host in questions}
        return {host: answer for host, answer in answers.items() if isinstance(answer, kind)}

    def _on_message(self, link: AgentConnection, message: Message | Data | Raw) -> None:
        host = link.host
        asked_at = self._unanswered.pop(host, 0.0)
        link.be_patient(0)
        match message:
            case messages.Greeting(version) if version != messages.VERSION:
                self._failures[host] = "its agent has another version: run the check again"
            case messages.Greeting():
                self._links[host] = link
            case messages.InternalError(error):
                self._failures[host] = f"internal error in the agent: {error}"
            case messages.Ending(reason):
                self._failures[host] = f"its agent was stopped by {reason}"
            case Time(there_s):  # read in the middle between question and answer, as far as known
                now = time.time()
                self._clocks[host] = (now - asked_at) / 2, there_s - (asked_at + now) / 2
            case Message():
                self._answers[host] = message

    def _on_unreachable_host(self, failure: Failure) -> None:
        self._failures[failure.host] = failure.reason

    def _on_agent_loss(self, link: AgentConnection, why: str) -> None:
        self._unanswered.pop(link.host, None)
        self._failures.setdefault(link.host, why)

    # --- time ---

    def _wait(self, over: Callable[[], bool]) -> None:
        while not over():
            self._loop.run_once((self._pool,))

    def _read_signals(self) -> None:
        for signum in self._signals.read():
            if signum == signal.SIGCHLD:
                self._pool.reap()
            elif signum in ENDING:
                status = exit_status.compute_signal_status(signum)
                raise LaunchError(f"stopped by {get_signal_name(signum)}", status)
