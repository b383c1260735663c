"""Options of the last release that no longer exist, and what replaces each."""

from __future__ import annotations

from collections.abc import Mapping

# By the name of the option, as its variable and its keyword have it; or, for a value, `NAME=VALUE`.
_REPLACED_BY = {
    **dict.fromkeys(
        [f"via={client}" for client in ("blaunch", "flux", "pbs_tmrsh", "pbsdsh", "qrsh")],
        "hosts are reached by ssh, the default; where that is not allowed, start a launcher on "
        "each with --num-hosts",
    ),
    "black_box": "use --report FILE: the record has the stacks and the kernel's log",
    **dict.fromkeys(
        [f"emit={kind}" for kind in ("pbs", "lsf", "sge", "flux")],
        "write the script yourself, with mcjax-launch in it: in PBS, LSF and Grid Engine it takes "
        "the hosts from the job's file",
    ),
    "debugpy": "mcjax-launch -m debugpy --listen 'localhost:567{process_id}' --wait-for-client "
    "train.py",
    "nice": "--wrap 'nice -n 10'",
    "interactive": "in IPython, %load_ext mcjax_launch, %mcjax -n 4 -d 2, and begin cells with "
    "%%mcjax",
    "setup_again": "--setup runs at each start",
    "restart_on": "--max-restarts restarts after any failure, unless the job failed twice alike",
    "min_hosts": "remove the lost host from --hosts and start the job again",
    "on_rank_failure=restart": "use --max-restarts N, which restarts the whole job, or continue",
    "rehearse": "start the job in the background, sleep, and kill -TERM it, or one of its ranks",
}


def find_replacement(name: str) -> str:
    """Return advice on a removed option, to follow its name; "" if no such option was removed.

    Args:
        name: name on the command line or in the API, or `NAME=VALUE` for a removed value.

    """
    words = _REPLACED_BY.get(name.lstrip("-").replace("-", "_"))
    return f"was removed: {words}" if words else ""


def find_removed_variables(environ: Mapping[str, str]) -> list[str]:
    """Return a line on each variable that is set for an option that no longer exists."""
    variables = {f"MCJAX_{name.upper()}": name for name in _REPLACED_BY}
    return [
        f"{variable}: --{name.replace('_', '-')} {find_replacement(name)}"
        for variable, name in variables.items()
        if environ.get(variable)
    ]
