"""Commands that start an agent and carry its stdin and stdout, and functions to run them."""

import os
import signal
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.machine import system
from mcjax_launch.machine.known_schedulers import CLIENTS, find_scheduler
from mcjax_launch.transport import early
from mcjax_launch.transport.pipes import NewPipes, Pipes
from mcjax_launch.wire.exit_status import HOST_LOST
from mcjax_launch.wire.timers import scale_time

#: Seconds from the start of a transport to the agent's greeting.
GREETING_S = scale_time(14.0)
#: The same for a template's client, which may do more: gcloud starts slowly, adds a key to the
#: host's keys and may use a tunnel.
TEMPLATE_GREETING_S = 60.0
#: The same on this machine, which needs no network but may be busy.
LOCAL_GREETING_S = 60.0

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_LOCAL = """
import sys
sys.path[:0] = [{root!r}]
from mcjax_launch.agent.main import main
main({hook!r}, given={given})
"""
_SSH_OPTIONS = {
    "RemoteCommand": "none",  # a command in the user's configuration would replace the agent's
    "ClearAllForwardings": "yes",
    "BatchMode": "yes",  # a question would hang the job
    "ConnectTimeout": "10",
    "ServerAliveInterval": "5",  # without it, the client never notices that its host was cut off
    "ServerAliveCountMax": "2",
}
# Clients that run their arguments as words, unlike ssh, which joins them for a shell.
_TAKES_WORDS = frozenset(
    {"apptainer", "chroot", "crictl", "docker", "env", "ip", "kubectl", "lxc", "nerdctl"}
    | {"nsenter", "oc", "podman", "singularity", "sudo", "systemd-run", "unshare", *CLIENTS}
)
# Programs with a command `ssh` of their own, which takes other options.
_HAS_AN_SSH = frozenset({"az", "gcloud", "tsh", "vagrant"})
# Clients whose `exec` passes on standard input only with -i.
_NEEDS_I = frozenset({"crictl", "docker", "kubectl", "nerdctl", "oc", "podman"})
# Clients that do not delay an agent's start much.
_QUICK = ("ssh", "srun")
# Characters that some login shells do not keep inside the quotes used here.
_UNQUOTABLE = frozenset("'\"\\$`!\n")


def make_local_argv(given: int = -1) -> list[str]:
    """Return the command that runs the agent on this machine, from the installed files.

    Args:
        given: inherited descriptor that rank 0 gets as its standard input; -1 for none.

    """
    code = _LOCAL.format(root=os.path.dirname(_PACKAGE), hook=early.HOOK, given=given)
    # -I -S: a quick start, and the user's environment does not affect the agent's own Python.
    return [sys.executable, "-I", "-S", "-c", code]


def make_script(
    python: str,
    or_python3: bool,
    features: frozenset[str],
    *,
    keeps: bool = False,
) -> str:
    """Return a POSIX shell command that runs the agent on a host from the payload on stdin.

    Args:
        python: path or name of an interpreter on the host.
        or_python3: use python3 if there is no `python`.
        features: names of the features in the payload.
        keeps: True if the host may keep the payload, and is sent it only if it asks.

    Raises:
        LaunchError: `python` has characters that cannot be quoted for every shell.

    """
    from mcjax_launch.transport import bootstrap

    if bad := _UNQUOTABLE & set(python):
        raise LaunchError(f"python={python}: {min(bad)!r} is not allowed in this path")
    if python.startswith("~/"):
        python = f"$HOME{python[1:]}"
    other = 'test -x "$p" || p=python3; ' if or_python3 else ""
    loader = bootstrap.make_loader(features, keeps=keeps)
    return f'p="{python}"; {other}exec "$p" -I -S {loader}'


def make_ssh_argv(host: Host, script: str) -> list[str]:
    """Return the ssh command line that runs `script` on a host, with the user's configuration.

    The command passes through the host's login shell. All of sh, fish and tcsh agree on what single
    quotes mean, as long as no single quote, backslash or `!` is inside.
    """
    return ["ssh", "-T", "-x", *_list_ssh_options(host), "--", host.login, f"exec sh -c '{script}'"]


def _list_ssh_options(host: Host, template: str = "") -> list[str]:
    """Return the launcher's options for ssh, without those that the template of --via sets."""
    wanted = {name: value for name, value in _SSH_OPTIONS.items() if name not in template}
    options = [word for name, value in wanted.items() for word in ("-o", f"{name}={value}")]
    return [*options, *(["-p", str(host.port)] if host.port else [])]


def make_template_argv(template: str, host: Host, script: str) -> list[str]:
    """Return the command line of the user's own client, from the template given with --via.

    `{host}` is the host, `{command}` one string for a shell on the host. Without `{command}` the
    command is appended: as words after a final `--` and for programs known to run words as they
    are, else as one string, as ssh needs it.

    Raises:
        LaunchError: the template cannot be parsed.

    """
    import shlex  # only templates need it

    words = _split_template(template)
    programs = [os.path.basename(word) for word in words]
    is_openssh = not _HAS_AN_SSH.intersection(programs)
    line = f"exec sh -c '{script}'"
    argv = []
    for word in words:
        alone = word == "{command}" or word.endswith("={command}")
        word = word.replace("{command}", line if alone else shlex.quote(line))
        argv.append(word.replace("{host}", host.login))
        if is_openssh and os.path.basename(word) == "ssh":
            argv += _list_ssh_options(host, template)
        elif scheduler := CLIENTS.get(os.path.basename(word)):
            argv += scheduler.client_options
    if "{command}" in template:
        return argv
    known = [name for name in programs if name == "ssh" or name in _TAKES_WORDS]
    takes_words = known[-1:] != ["ssh"] and (words[-1] == "--" or known)
    return [*argv, "sh", "-c", script] if takes_words else [*argv, line]


def _split_template(template: str) -> list[str]:
    """Split a template into words, and check it.

    Raises:
        LaunchError: it cannot be parsed, names several hosts, or passes on no standard input.

    """
    import shlex

    try:
        words = shlex.split(template)
    except ValueError as error:
        raise LaunchError(f"--via {template}: {error}") from None
    if not words or "{host}" not in template:
        raise LaunchError(f"--via {template}: write {{host}} where the host's name goes")
    if "--worker=all" in words:
        raise LaunchError(
            f"--via {template}: each of gcloud's workers is a host of its own here: "
            "--hosts 0,1,2,3 and --worker={host}"
        )
    _check_exec_option(template, words)
    return words


def _check_exec_option(template: str, words: Sequence[str]) -> None:
    """Reject a container's `exec` without -i: the agent's code on stdin would not arrive.

    Raises:
        LaunchError: the option is missing.

    """
    programs = [os.path.basename(word) for word in words]
    at = next((index for index, name in enumerate(programs) if name in _NEEDS_I), len(words))
    own = words[at : words.index("--") if "--" in words else None]
    long = ("--stdin", "--stdin=true", "--interactive", "--interactive=true")
    told = any(word in long or (word[:1] == "-" != word[1:2] and "i" in word) for word in own)
    if "exec" in own and not told:
        raise LaunchError(
            f"--via {template}: {programs[at]} exec does not pass on standard input; add -i"
        )


def make_remote_argv(host: Host, job: Job, features: frozenset[str]) -> list[str]:
    """Return the command line that starts an agent with these features on another host."""
    or_python3 = not (host.python or job.python_given)
    via = job.via
    keeps = not job.no_host_cache
    text = make_script(host.python or job.python, or_python3, features, keeps=keeps)
    if via not in CLIENTS:
        return make_ssh_argv(host, text) if via == "ssh" else make_template_argv(via, host, text)
    from mcjax_launch.job.slurm import make_srun_argv

    return make_srun_argv(host, text)


def make_client_environ(program: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return `environ` without the variables that a client would read as its options."""
    drops = CLIENTS[program].client_drops if program in CLIENTS else ()
    return {name: value for name, value in environ.items() if not name.startswith(drops)}


def start(
    argv: Sequence[str],
    files_limit: system.Limit | None = None,
    client: str = "",
) -> Pipes:
    """Start a transport: a local agent, or a client that starts an agent on another host.

    It runs in a new session, so that a terminal's interrupt reaches only the launcher, which passes
    it on.

    Args:
        argv: command line of the transport.
        files_limit: limit on its open files; None for this process's limit.
        client: name of the client, such as ssh; "" for a local agent.

    Raises:
        LaunchError: the program is missing or cannot be started.

    """
    try:
        pipes = NewPipes()
    except OSError as error:
        message = f"{error.strerror}: raise `ulimit -n`, or use fewer hosts"
        raise LaunchError(message, HOST_LOST) from None
    ours = system.limit_files(files_limit)  # posix_spawn has no limits, so it is inherited
    try:
        pid = os.posix_spawnp(
            argv[0],
            list(argv),
            make_client_environ(client or argv[0], os.environ),
            file_actions=[(os.POSIX_SPAWN_DUP2, fd, n) for n, fd in enumerate(pipes.theirs)],
            setsid=True,
            setsigmask=(),
            setsigdef=[signal.SIGPIPE, signal.SIGCHLD],
        )
    except OSError as error:
        pipes.close()
        why = system.format_limit_error(error, "is it installed?")
        raise LaunchError(f"{argv[0]}: {why}{_format_client_advice(argv[0])}", HOST_LOST) from None
    finally:
        system.limit_files(ours)
    return pipes.keep_own_ends(pid, client)


def _format_client_advice(client: str) -> str:
    """Return advice on how to do without a scheduler's missing client; "" outside a scheduler."""
    scheduler = find_scheduler(os.environ)
    if scheduler is None or CLIENTS.get(client) is not scheduler:
        return ""
    from mcjax_launch.job import allocation

    otherwise = allocation.advise_outside(scheduler, os.environ)
    return f" {otherwise}" if otherwise else ""


class Transport:
    """Starter of a job's agents.

    Args:
        job: the job, with the settings for clients, Pythons and start timeouts.
        features: names of the features that agents need.

    Attributes:
        hosts_keep_code: True if agents' code is sent only to hosts that ask for it.

    """

    def __init__(self, job: Job, features: Collection[str]) -> None:
        self._job = job
        self.features = frozenset(features)
        self.hosts_keep_code = not job.no_host_cache
        self._local: Pipes | None = None
        self._files_limit: system.Limit | None = None

    def allow_many_files(self) -> None:
        """Raise the launcher's limit on open files; processes that it starts keep the old limit."""
        self._files_limit = system.allow_many_files()

    def get_greeting_limit_s(self, host: Host) -> float:
        """Return the number of seconds within which the agent of a host must greet."""
        if host.is_local:
            return LOCAL_GREETING_S
        if self._job.via in _QUICK:
            return GREETING_S
        return max(TEMPLATE_GREETING_S, self._job.start_timeout or 0.0)

    def start_local(self, hosts: Iterable[Host]) -> None:
        """Start this machine's agent early, if this machine is among the hosts."""
        if any(host.is_local for host in hosts):
            self._local = self._start_here()

    def _start_here(self) -> Pipes:
        """Start this machine's agent; with --stdin it inherits standard input for rank 0."""
        if not self._job.reads_input or self._job.host_rank:
            return early.claim() or start(make_local_argv(), self._files_limit)
        given = os.dup(0)
        os.set_inheritable(given, True)
        try:
            return start(make_local_argv(given), self._files_limit)
        finally:
            os.close(given)

    def start(self, host: Host) -> Pipes:
        """Return the pipes of a host's agent: started early, or new.

        Raises:
            LaunchError: the program is missing or cannot be started.

        """
        if not host.is_local:
            argv = make_remote_argv(host, self._job, self.features)
            via = self._job.via
            client = via if via in CLIENTS else os.path.basename(argv[0])
            return start(argv, self._files_limit, client)
        started, self._local = self._local, None
        return started or self._start_here()
