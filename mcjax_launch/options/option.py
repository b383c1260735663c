"""The declaration of an option, from which its click option, keyword and checks are made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self, cast

from mcjax_launch.options.kinds import Kind, parse_texts
from mcjax_launch.wire.value import Value

#: Why the API lacks options that are for the user's terminal.
TERMINAL = "the terminal is the calling program's"
#: The file of a project, in the current folder, whose table [tool.mcjax-launch] sets options.
PROJECT_FILE = "pyproject.toml"


class Option(Value, kw_only=True):
    """An option's declaration.

    Args:
        name: name of the field; the long name and the variable are derived from it.
        type: annotated type of the value.
        group: heading in --help and in docs/reference.md.
        kind: kind of the values; None for a flag.
        default: value if the option is not given.
        help: text in --help.
        shown: default in words, if `default` is not clear to the user.
        metavar: placeholder for the value in --help.
        short: the option's other names, such as `-n`.
        repeats: True if the option may be given several times; the value is a tuple then.
        once: True to refuse two different values. Of other options the last value counts, so that
            an alias of the shell may set a default.
        separator: separator between values in the option's variable; None for blanks.
        variable: name of a further variable that sets the option; "" for none.
        in_environ: True if a variable `MCJAX_...` sets the option.
        in_project: True if a project's file may set the option, too; False for what
            belongs to one command line.
        keyword: name in the API; "" if it is `name`.
        only_command: reason why the API lacks the option, a sentence; "" if the API has it.
        excludes: options that cannot be combined with it, each as `--name` or `--name: why`. Two
            features that meet are refused here, unless joining them costs under 20 lines.
        excludes_if: beginning of the values that exclude them; "" for all values but the default.
        decides_what_runs: True if it decides which commands run, or where.
        is_common: True if --help shows it, and not only --help GROUP.
        needs: option without which it has no effect, such as `--max-restarts N`; "" for none.

    """

    name: str = ""
    type: str = "bool"
    group: str = ""
    kind: Kind | None = None
    default: Any = False
    help: str
    shown: str = ""
    metavar: str = ""
    short: tuple[str, ...] = ()
    repeats: bool = False
    once: bool = False
    separator: str | None = None
    variable: str = ""
    in_environ: bool = True
    in_project: bool = True
    keyword: str = ""
    only_command: str = ""
    excludes: tuple[str, ...] = ()
    excludes_if: str = ""
    decides_what_runs: bool = False
    is_common: bool = False
    needs: str = ""

    @property
    def long(self) -> str:
        """Long name, as in `--num-processes`."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def names(self) -> tuple[str, ...]:
        """The option's short and long names, as the user writes them."""
        return (*self.short, self.long)

    @property
    def accepts(self) -> str:
        """Type of its keyword in the API."""
        own = self.type.removesuffix(" | None")
        accepted = (self.kind and self.kind.accepts) or own
        return f"{accepted} | None" if self.default in (None, ()) else accepted

    def read(self, value: Any) -> Any:
        """Return the value of the option's keyword as the option has it.

        Raises:
            TypeError, ValueError: the value is not valid.

        """
        if self.kind is None:
            return bool(value)
        if self.kind.of_keyword is not None:
            return self.kind.of_keyword(value)
        if self.repeats:
            return tuple(map(self.kind.read, parse_texts(value)))
        return self.kind.read(value)


def declare_option(kind: Kind, *, default: Any = None, **more: Any) -> Any:
    """Declare an option with a value; `more` are further fields of `Option`."""
    shown = "" if default in (None, ()) else str(default)
    more = {"metavar": kind.metavar, "shown": shown, **more}
    return Option(kind=kind, default=default, **more)


def declare_flag(text: str, **more: Any) -> Any:
    """Declare a flag; `text` is its help."""
    return Option(help=text, **more)


class OptionGroup(Value):
    """Base class of option groups: each field is an option, declared by its default value.

    A subclass names the group's `title`; one of those with that title has its `example`: what it
    does, and its command line.
    """

    declared: ClassVar[dict[str, Option]] = {}
    examples: ClassVar[dict[str, tuple[str, str]]] = {}

    def __init_subclass__(
        cls, title: str = "", example: tuple[str, str] = ("", ""), **settings: Any
    ) -> None:
        super().__init_subclass__(**settings)
        bases = [
            base
            for base in cls.__bases__
            if issubclass(base, OptionGroup) and base is not OptionGroup
        ]
        inherited = [name for base in bases for name in base._fields]
        own = {
            name: made.copy_with(name=name, type=cls.__annotations__[name], group=title)
            for name in cls._fields
            if isinstance(made := cls.__dict__.get(name), Option)
        }
        cls._fields = tuple(dict.fromkeys([*inherited, *cls._fields]))
        above = [item for base in bases for item in base.declared.items()]
        cls.declared = {**dict(above), **own}
        examples = [item for base in bases for item in base.examples.items()]
        cls.examples = dict(examples) | ({title: example} if any(example) else {})
        for name, declared in own.items():
            setattr(cls, name, declared.default)

    @classmethod
    def of(cls, options: OptionGroup) -> Self:
        """Return the values of all options, for a type checker those of this group."""
        return cast("Self", options)


def without_values(arguments: Sequence[str]) -> list[str]:
    """Return a command line without the values of --env, which may be secrets."""
    options = list(arguments[: arguments.index("--")] if "--" in arguments else arguments)
    for at, argument in enumerate(options[:-1]):
        if argument == "--env":
            name, equals, _ = options[at + 1].partition("=")
            options[at + 1] = f"{name}=..." if equals else name
    return [*options, *arguments[len(options) :]]
