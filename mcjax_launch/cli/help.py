"""`--help`: the options in their groups, and examples at the end; `-h`: on one screen."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from mcjax_launch.cli.options import with_values

EXAMPLES = (
    (
        "Four ranks on this machine, each with two CPU devices:",
        "mcjax-launch -n 4 -d 2 train.py --steps 100",
    ),
    (
        "Eight ranks on each of the hosts in a file, with their output in logs/:",
        "mcjax-launch --hosts hosts.txt --procs-per-host 8 --log-dir logs train.py",
    ),
    (
        "A batch script for four Slurm nodes with one rank per node:",
        "mcjax-launch --emit slurm --num-hosts 4 --timeout 2h -m package.train",
    ),
)

#: What -h shows.
SHORT = """\
Usage: mcjax-launch [OPTIONS] PROGRAM [ARGS]...

Run PROGRAM (a *.py file, a module with -m, or any command) as one JAX job.

  mcjax-launch -n 4 -d 2 train.py           # 4 ranks here, 2 CPU devices each
  mcjax-launch -n 8 train.py                # 8 ranks here, on 8 GPUs one each
  mcjax-launch --hosts a,b train.py         # a rank on each host, over ssh
  mcjax-launch train.py                     # in an allocation: on its hosts
  mcjax-launch -n 4 --pdb train.py          # a debugger where a rank fails
  mcjax-launch --hosts a,b --check          # would a job work on these hosts?
  mcjax-launch --emit slurm --num-hosts 2 train.py > job.sh

--log-dir DIR keeps each rank's output, --timeout D ends the job after D,
--status shows how it comes along, --report run.html writes it down.
--help lists all options."""

# Columns for an option's names; the text of a longer one begins on a line of its own.
_NAMES = 30
#: Where a context keeps the words of its command line.
WORDS = "mcjax_launch.words"


class GroupedCommand(click.Command):
    """A command whose help shows the options in groups.

    Args:
        groups: the options under their headings.

    """

    def __init__(
        self, *args: Any, groups: Mapping[str, Sequence[click.Option]], **settings: Any
    ) -> None:
        super().__init__(*args, **settings)
        self._groups = groups

    def make_parser(self, ctx: click.Context) -> Any:
        """As click makes it, but it finds `-n` at once.

        It would look for a long option of that name first and, as there is none, for the names
        that are like it: that takes a start longer than all else there is to parse.
        """
        parser = super().make_parser(ctx)
        short, long = (vars(parser).get(name) for name in ("_short_opt", "_long_opt"))
        if short and long:
            long.update(short)
        return parser

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does; the words themselves are kept in the context."""
        ctx.meta[WORDS] = tuple(args)
        return super().parse_args(ctx, with_values(args, self.params))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        records = {
            title: [record for option in options if (record := option.get_help_record(ctx))]
            for title, options in self._groups.items()
        }
        for title, rows in records.items():
            with formatter.section(title):
                # One width for all, so that the columns of the groups are in line.
                formatter.write_dl([(names.ljust(_NAMES), text) for names, text in rows], _NAMES)

    def format_epilog(
        self,
        ctx: click.Context,  # noqa: ARG002  click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        with formatter.section("Examples"):
            for number, (purpose, command) in enumerate(EXAMPLES):
                if number:
                    formatter.write_paragraph()
                formatter.write(f"  # {purpose}\n  {command}\n")  # never wrapped: to be copied
