"""A plan in words, for --dry-run; pure."""

import shlex
from collections.abc import Mapping

from mcjax_launch.job.plan import Plan
from mcjax_launch.protocol import rank_environ


def describe(plan: Plan, environ: Mapping[str, str]) -> str:
    """The plan for a person: each rank's host, command and variables, in a shell's words.

    Args:
        environ: what ranks on this machine inherit; what others inherit is not known here.

    """
    noun = "host" if len(plan.hosts) == 1 else "hosts"
    lines = [f"# job {plan.job_id}: {len(plan.ranks)} ranks on {len(plan.hosts)} {noun}"]
    scrubbed = rank_environ.misleading(environ) if plan.hook else []
    for rank in plan.ranks:
        inherited = (
            {n: v for n, v in environ.items() if n not in scrubbed} if rank.host.is_local else {}
        )
        found = rank_environ.changes(
            inherited,
            common=plan.env,
            defaults=plan.defaults,
            own=rank.env,
            coordinator_host=rank.values["coordinator_host"],
        )
        removed = [word for name in scrubbed if rank.host.is_local for word in ("-u", name)]
        words = [f"{name}={shlex.quote(value)}" for name, value in sorted(found.items())]
        lines.append(f"# rank {rank.process_id} on {rank.host.login}")
        prefix = " ".join(["env", *removed, *words])
        lines.append(f"cd {shlex.quote(rank.cwd)} && {prefix} {shlex.join(rank.argv)}")
    return "\n".join(lines) + "\n"
