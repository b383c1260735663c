"""The command line: click to a Job, a hosts list and a Style; nothing else knows click."""

import contextlib
import functools
import os
import re
import signal
import sys
from collections.abc import Sequence
from typing import Any

import click
from click.core import ParameterSource

from mcjax_launch import __version__
from mcjax_launch.cli.request import find_hosts, make_job, make_style
from mcjax_launch.errors import LaunchError
from mcjax_launch.job import placeholders
from mcjax_launch.job.describe import describe
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.job.plan import Facts, make_plan, used_hosts
from mcjax_launch.launcher.run import run as run_job
from mcjax_launch.protocol import exit_status
from mcjax_launch.protocol.address import LOOPBACK, join_address, split_address
from mcjax_launch.schedulers import slurm

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


class Duration(click.ParamType):  # type: ignore[type-arg]
    """Seconds, as `90`, `90s`, `5m` or `2h`."""

    name = "duration"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h|)", str(value).strip())
        if found is None:
            self.fail(f"{value!r} is no duration: write 90, 90s, 5m or 2h", param, ctx)
        return float(found[1]) * _UNITS[found[2]]


class Ranks(click.ParamType):  # type: ignore[type-arg]
    """A set of ranks, as `0` or `0,4-7`."""

    name = "ranks"

    def convert(self, value: Any, param: Any, ctx: Any) -> frozenset[int]:
        if isinstance(value, frozenset):
            return value
        ranks: set[int] = set()
        for part in str(value).split(","):
            found = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
            if found is None or int(found[2] or found[1]) < int(found[1]):
                self.fail(f"{value!r} is no list of ranks: write 0 or 0,4-7", param, ctx)
            ranks.update(range(int(found[1]), int(found[2] or found[1]) + 1))
        return frozenset(ranks)


_POSITIVE = click.IntRange(min=1)
_POSITIVE.name = "number"  # click would say: "'four' is not a valid integer range"
_DURATION = Duration()


@click.command(
    context_settings={
        "auto_envvar_prefix": "MCJAX",
        "allow_interspersed_args": False,
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
    },
    options_metavar="[OPTIONS] [--]",
    epilog="Every option can also be set as MCJAX_<OPTION>, e.g. MCJAX_LOG_DIR.",
)
@click.argument("program", nargs=-1, type=click.UNPROCESSED, metavar="PROGRAM [ARGS]...")
@click.option(
    "-n", "-np", "--num-processes", type=_POSITIVE, metavar="N", help="Ranks in the whole job."
)
@click.option("-m", "--module", is_flag=True, help="PROGRAM is the name of a Python module.")
@click.option("--python", metavar="PATH", help="Python of the ranks (default: the launcher's).")
@click.option("-C", "--chdir", metavar="DIR", help="Working directory of the ranks.")
@click.option(
    "-x", "--env", multiple=True, metavar="NAME[=VALUE]", help="Set or hand on a variable."
)
@click.option("-d", "--cpu-devices", type=_POSITIVE, metavar="K", help="CPU devices in each rank.")
@click.option("--gpus-per-process", type=_POSITIVE, metavar="K", help="Each rank's own K GPUs.")
@click.option(
    "--cpu-transfers", is_flag=True, help="Let jax.device_put go between processes on CPU."
)
@click.option("--bind-cores", is_flag=True, help="Give each rank its own share of the cores.")
@click.option("--coordinator", metavar="HOST[:PORT]", help="Override the coordinator's address.")
@click.option("--no-hook", is_flag=True, help="Set variables only; leave the ranks' Python alone.")
@click.option("--hosts", metavar="FILE|LIST|-", help="Hosts file, a,b,c, or standard input.")
@click.option(
    "--procs-per-host", type=_POSITIVE, metavar="K", help="Ranks on hosts that do not say theirs."
)
@click.option(
    "--via", metavar="COMMAND", help="How to reach a host: ssh, srun, or 'ssh -F cfg {host}'."
)
@click.option("--sync", multiple=True, metavar="PATH", help="Copy this to each host and run there.")
@click.option("--num-hosts", type=_POSITIVE, metavar="N", help="N launchers, one on each host.")
@click.option(
    "--host-rank",
    type=click.IntRange(min=0),
    envvar=["MCJAX_HOST_RANK", "JOB_COMPLETION_INDEX"],
    metavar="I",
    help="Which of them this is.",
)
@click.option(
    "--max-restarts",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Start the job again after a failure, N times at most.",
)
@click.option(
    "--min-hosts", type=_POSITIVE, metavar="N", help="Restart without lost hosts, with N at least."
)
@click.option(
    "--emit",
    type=click.Choice(["slurm", "jobset", "job"]),
    help="Print what runs this job there; start nothing.",
)
@click.option("--image", metavar="IMAGE", help="Container image (--emit jobset or job).")
@click.option("--name", metavar="NAME", help="Name of the emitted job (default: after PROGRAM).")
@click.option("--namespace", metavar="NAME", help="Namespace of the emitted job.")
@click.option("--engine-option", multiple=True, metavar="TEXT", help="One more #SBATCH line.")
@click.option("--log-dir", metavar="DIR", help="Each rank's whole output in DIR/<rank>.out, .err.")
@click.option("--report", metavar="FILE", help="The run's record: FILE is a .json or .html.")
@click.option("--show", type=Ranks(), metavar="RANKS", help="Show only these ranks: 0 or 0,4-7.")
@click.option("--collapse", is_flag=True, help="Show equal lines of several ranks once: [0-7].")
@click.option("--timestamps", is_flag=True, help="Put the time of day before each line.")
@click.option("--no-prefix", is_flag=True, help="Do not mark lines with their rank.")
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors and the report.")
@click.option("-v", "--verbose", is_flag=True, help="Say what is done; show all lines.")
@click.option("--timeout", type=_DURATION, metavar="D", help="End the job after D (exit 124).")
@click.option(
    "--start-timeout", type=_DURATION, metavar="D", help="D for all to join in initialize()."
)
@click.option(
    "--stall-timeout", type=_DURATION, metavar="D", help="End a job in which nothing moves for D."
)
@click.option(
    "--verify-spmd", is_flag=True, help="End the job where the ranks' programs differ (exit 1)."
)
@click.option("--grace", type=_DURATION, metavar="D", help="Between asking to end and killing.")
@click.option("--dry-run", is_flag=True, help="Print what would run; start nothing.")
@click.version_option(__version__, message="mcjax-launch %(version)s")
@click.pass_context
def command(context: click.Context, /, **options: Any) -> int:
    """Run PROGRAM as the processes of one multi-controller JAX job.

    PROGRAM is a Python file (*.py), a module (with -m) or any other command. In its arguments
    {process_id}, {num_processes}, {local_process_id}, {coordinator}, {coordinator_host},
    {coordinator_port}, {host} and {job_id} are filled in for each rank.

    Durations are 90, 90s, 5m or 2h.
    """
    if options["emit"]:
        from mcjax_launch.schedulers.emit import emit

        click.echo(emit(options, functools.partial(given_words, context, options)), nl=False)
        return 0
    hosts = find_hosts(options)
    in_slurm = options["hosts"] is None and slurm.inside(os.environ)
    job = make_job(options, hosts)
    used = tuple(used_hosts(job.processes_here, hosts))
    style = make_style(options, job)
    if options["report"] is not None:
        from mcjax_launch.report import write

        write.check(options["report"])
    texts = [*job.program, *(value for _, value in job.env), options["log_dir"] or ""]
    texts = [] if options["quiet"] else texts
    for word, near in placeholders.misspelt(texts):
        hint = f"{{{word}}} stays as it is; did you mean {{{near}}}?"
        click.echo(f"mcjax-launch: {hint}", err=True)
    if options["dry_run"]:
        click.echo(_dry_run(job, used), nl=False)
        return 0
    run = functools.partial(
        run_job,
        job,
        used,
        options["via"] or ("srun" if in_slurm else "ssh"),
        style,
        log_dir=options["log_dir"],
    )
    if options["report"] is None:
        return run()
    words = given_words(context, options, frozenset())
    return write.reported(
        options["report"], job, words, run, say=_complain, verbose=options["verbose"]
    )


def given_words(
    context: click.Context, options: dict[str, Any], left_out: frozenset[str]
) -> list[str]:
    """The options that the user gave, but for those left out, and the program, as words again."""
    found: list[str] = []
    for parameter in context.command.params:
        key = str(parameter.name)
        source = context.get_parameter_source(key)
        if key in left_out or source in (None, ParameterSource.DEFAULT) or key == "program":
            continue
        assert isinstance(parameter, click.Option)
        option, value = max(parameter.opts, key=len), options[key]
        if parameter.is_flag:
            found += [option] if value else []
            continue
        for one in value if parameter.multiple else [value]:
            found += [option, _as_word(one)]
    return [*found, "--", *options["program"]]


def _as_word(value: Any) -> str:
    if isinstance(value, frozenset):
        return ",".join(map(str, sorted(value)))
    return f"{value:f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def _dry_run(job: Job, hosts: Sequence[Host]) -> str:
    address, port = split_address(job.coordinator) if job.coordinator else ("", 0)
    first = hosts[0]
    plan = make_plan(
        job,
        hosts,
        {
            host: Facts(gpus=1 << 30, python=host.python or "", cwd=host.chdir or "")
            for host in hosts
        },
        job_id="00000000",
        coordinator=join_address(
            address or (LOOPBACK if len(hosts) == 1 else first.name), port or "PORT"
        ),
    )
    return describe(plan, os.environ)


# --- the one error handler ---


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status."""
    for fd in range(3):  # a descriptor that is closed would be given to something else
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    try:
        return _run(argv)
    finally:
        with contextlib.suppress(OSError, AttributeError):  # gone, or never there
            sys.stdout.flush()


def _run(argv: Sequence[str] | None) -> int:
    try:
        # Anything that click returns is ours but for --help and --version, which return 0.
        return int(command.main(argv, prog_name="mcjax-launch", standalone_mode=False) or 0)
    except LaunchError as error:
        _complain(str(error))
        return error.status
    except click.ClickException as error:
        _complain(" ".join(error.format_message().split()))
        return exit_status.USAGE
    except (click.Abort, KeyboardInterrupt):
        return 128 + signal.SIGINT
    except (BrokenPipeError, SystemExit):  # click leaves so when nobody reads --help
        return exit_status.READER_GONE
    except Exception as error:
        import tempfile
        import traceback

        with tempfile.NamedTemporaryFile("w", prefix="mcjax-", suffix=".txt", delete=False) as log:
            traceback.print_exc(file=log)
        _complain(f"a fault of its own: {error!r}; please report {log.name}")
        return exit_status.INTERNAL_ERROR


def _complain(message: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"mcjax-launch: {message}\n".encode("utf-8", "replace"))
