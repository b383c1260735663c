"""The command line that was given, to be written out again; a value."""

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True)
class CommandLine:
    """The options that the user gave, on the command line or in the environment, and the program.

    Args:
        options: each with its name, such as `num_hosts`, and its words, such as
            `("--num-hosts", "2")`.
        program: PROGRAM and its arguments.

    """

    options: tuple[tuple[str, tuple[str, ...]], ...]
    program: tuple[str, ...]

    def words(self, without: Collection[str] = ()) -> list[str]:
        """All words after `mcjax-launch`.

        Args:
            without: names of options to leave out.

        """
        kept = [word for name, words in self.options if name not in without for word in words]
        return [*kept, "--", *self.program]
