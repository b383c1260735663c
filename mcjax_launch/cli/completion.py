"""Completion in bash, zsh and fish: click's scripts and protocol, with what may stand where.

The shell runs the launcher with a variable set, and nothing but this is done.
"""

import os
from collections.abc import Iterator, Sequence

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
)

from mcjax_launch.cli.optional_values import may_be_left_out, with_values
from mcjax_launch.protocol.schedulers import CLIENTS

Item = CompletionItem[str]

# What an option's value is completed with, by the option's name: files, folders,
_FILES = frozenset({"python", "report", "sync"})
_FOLDERS = frozenset({"chdir", "log_dir", "profile"})
# sets of ranks, with other words,
_RANKS = {"pdb": ("all", "none"), "show": (), "stdin": ("all", "none")}
# or words that are not the only ones.
_WORDS = {"coordinator": ("ssh",), "preload": ("jax",), "via": ("ssh", *CLIENTS)}
_MOST_RANKS = 64
_HOSTS_OF_SSH = ("~/.ssh/known_hosts", "~/.ssh/config")
_MOST_READ = 1 << 20


def complete(command: click.Command, name: str, variable: str) -> int:
    """Answer a shell; the exit status.

    Args:
        command: of which a line is completed.
        name: as the user types it.
        variable: that says what is asked for: `bash_source`, `bash_complete` and so on.

    """
    shell, _, asked = os.environ[variable].partition("_")
    kind = {"bash": _Bash, "fish": _Fish, "zsh": _Zsh}.get(shell)
    if kind is None or asked not in ("source", "complete"):
        return 1
    answering = kind(command, {}, name, variable)
    click.echo(answering.source() if asked == "source" else answering.complete())
    return 0


def completions(command: click.Command, words: Sequence[str], word: str) -> list[Item]:
    """What may stand for a word.

    Args:
        command: of which a line is completed.
        words: of the command line, before that one.
        word: the beginning of it, as the user has typed it.

    Returns:
        Whole words; or a single item of the type "file" or "dir", for the shell's own completion.

    """
    whole = with_values(words, command.params)
    context = command.make_context("", list(whole), resilient_parsing=True)
    option = _options(command).get(words[-1]) if words else None
    if context.params["program"]:
        return [Item(word, type="file")]
    if "--" in words:
        return _program(context, word)
    if option is None or option.is_flag:
        return _words(command, context, word)
    values = _values(option, context, word)
    if may_be_left_out(option):
        return values or _words(command, context, word)
    return values


def _words(command: click.Command, context: click.Context, word: str) -> list[Item]:
    """Options, the value of one that is written as `--option=value`, or PROGRAM."""
    if not word.startswith("-"):
        return _program(context, word)
    name, equals, value = word.partition("=")
    option = _options(command).get(name)
    if not equals:
        return command.shell_complete(context, word)
    if option is None or option.is_flag:
        return []
    found = _values(option, context, value)
    return [Item(f"{name}={item.value}", type=item.type, help=item.help) for item in found]


def _options(command: click.Command) -> dict[str, click.Option]:
    options = [param for param in command.params if isinstance(param, click.Option)]
    return {name: option for option in options for name in option.opts}


def _program(context: click.Context, word: str) -> list[Item]:
    if not context.params["module"]:
        return [Item(word, type="file")]
    return [Item(name) for name in _modules(word)]


def _modules(word: str) -> Iterator[str]:
    """The modules below the current folder whose dotted names begin so, one level at a time."""
    package, _, name = word.rpartition(".")
    before = f"{package}." if package else ""
    for entry in _entries(package.replace(".", "/") or "."):
        stem = entry.name.removesuffix(".py")
        is_module = entry.name.endswith(".py") or os.path.isfile(f"{entry.path}/__init__.py")
        if is_module and stem.startswith(name) and stem.isidentifier() and stem != "__init__":
            yield before + stem


def _values(option: click.Option, context: click.Context, value: str) -> list[Item]:
    """What may stand for the value of an option."""
    name = str(option.name)
    if name in _FILES or name in _FOLDERS:
        return [Item(value, type="file" if name in _FILES else "dir")]
    if name == "hosts":
        return _hosts(value)
    if isinstance(option.type, click.Choice):
        offered = list(option.type.choices)
    elif name == "env":
        offered = sorted(os.environ)
    elif name in _RANKS:
        offered = _ranks(_RANKS[name], context.params["num_processes"] or 0, value)
    else:
        offered = list(_WORDS.get(name, ()))
    return [Item(text) for text in offered if text.startswith(value)]


def _ranks(words: Sequence[str], ranks: int, value: str) -> list[str]:
    """A rank more in a set of ranks, or one of these words."""
    before, comma, _ = value.rpartition(",")
    numbers = [f"{before}{comma}{rank}" for rank in range(min(ranks, _MOST_RANKS))]
    return numbers if comma else [*words, *numbers]


def _hosts(value: str) -> list[Item]:
    """Hosts that ssh knows, of which there may be several, or a file."""
    before, comma, last = value.rpartition(",")
    hosts = [before + comma + host for host in known_hosts() if host.startswith(last)]
    if not hosts:
        return [Item(value, type="file")]
    # A shell shows words or files: where there are words, the files are among them.
    names = [entry.name for entry in _entries(".") if entry.is_file()]
    files = [name for name in names if name.startswith(value) and name[0] != "."]
    return [Item(word) for word in [*files, *hosts]]


def known_hosts() -> list[str]:
    """The names of hosts that ssh's files of the user have, in order; none that are hashed."""
    found: set[str] = set()
    for path, names in zip(_HOSTS_OF_SSH, (_in_known_hosts, _in_config), strict=True):
        try:
            with open(os.path.expanduser(path), encoding="utf-8", errors="replace") as file:
                lines = file.read(_MOST_READ).splitlines()
        except OSError:
            continue
        found.update(name for line in lines for name in names(line.split()))
    return sorted(name for name in found if name and not set(name) & set("*?!|,:[]"))


def _in_known_hosts(words: list[str]) -> list[str]:
    if words[:1] and words[0].startswith("@"):
        del words[0]
    names = words[0].split(",") if words and not words[0].startswith(("#", "|")) else []
    return [name.rpartition("]")[0].removeprefix("[") or name for name in names]


def _in_config(words: list[str]) -> list[str]:
    return words[1:] if words and words[0].lower() == "host" else []


def _entries(folder: str) -> list["os.DirEntry[str]"]:
    try:
        return sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return []


class _Ours(ShellComplete):
    """A shell whose words are those of the command line."""

    def get_completions(self, args: list[str], incomplete: str) -> list[Item]:
        found = completions(self.cli, args, incomplete)
        return [each for item in found for each in self._own(item)]

    def _own(self, item: Item) -> list[Item]:
        """The shell completes paths, but not behind `--option=`."""
        option, equals, path = item.value.partition("=")
        if item.type == "plain" or not (equals and option.startswith("-")):
            return [item]
        folder, name = os.path.split(path)
        entries = _entries(os.path.expanduser(folder) or ".")
        kept = [
            e for e in entries if e.name.startswith(name) and (e.is_dir() or item.type == "file")
        ]
        hidden = name.startswith(".")
        names = [f"{e.name}/" if e.is_dir() else e.name for e in kept if hidden or e.name[0] != "."]
        return [Item(f"{option}={os.path.join(folder, name)}") for name in names]


class _Zsh(_Ours, ZshComplete):
    pass


class _Fish(_Ours, FishComplete):
    """click's script has of an answer what stands before its second comma: no `0,1`."""

    source_template = FishComplete.source_template.replace('split ","', 'split --max 1 ","')


class _Bash(_Ours, BashComplete):
    """bash makes words of `=` and `:` as well, and completes what is behind the last of them."""

    def get_completions(self, args: list[str], incomplete: str) -> list[Item]:
        *words, word = _joined([*args, incomplete])
        behind = "" if set(incomplete) <= _BREAKS else incomplete
        before = len(word) - len(behind)
        found = completions(self.cli, words, word)
        return [Item(item.value[before:], type=item.type, help=item.help) for item in found]


_BREAKS = frozenset("=:")


def _joined(words: Sequence[str]) -> list[str]:
    """The words as the user has written them."""
    done: list[str] = []
    joins = False
    for word in words:
        is_break = bool(word) and set(word) <= _BREAKS
        if done and word and (joins or is_break):
            done[-1] += word
        else:
            done.append(word)
        joins = is_break
    return done
