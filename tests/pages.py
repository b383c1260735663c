"""Collect every shell command that README.md and the pages of docs/ show, and their files."""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

# With what a line of a block, or code in a line of text, is a command for a shell.
_PROGRAMS = """
    bsub cd docker eval export git jq kubectl loginctl mcjax-launch mkfifo pip pytest python python3
    qconf qsub sbatch source ssh uvx zcat
""".split()
_COMMAND = re.compile(
    rf"(?:\w+=\S+ )*(?:(?:{'|'.join(_PROGRAMS)}|uv tool|mpirun .* mcjax-launch) .*"
    r"|scripts/[\w-]+(?: .*)?)$|--via '",
    re.DOTALL,
)
_BLOCK = re.compile(r"(?:^ {4}.*\n)(?:(?:^ {4}.*|)\n)*", re.MULTILINE)
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"^\$ cat > (\S+) <<'END'\n(.*?)^END\n", re.MULTILINE | re.DOTALL)
_CONTINUED = "\\\n"
_SPAN = re.compile(r"`([^`]+)`")
_STEP = re.compile(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
# A step of a workflow.
_RUN = re.compile(r"^( *)- run: (?:>-\n)?(.*\n(?:\1 .*\n)*)", re.MULTILINE)
# An instruction of a Dockerfile, which may go on in the next line.
_INSTRUCTION = re.compile(r"^(RUN|ENTRYPOINT|CMD) ((?:.*\\\n)*.*)\n", re.MULTILINE)


@dataclass(frozen=True)
class Step:
    """A command, or a script of several, with what the page says that it prints.

    Attributes:
        command: for a shell.
        shown: the lines below it; "" if there are none, or the page shows no output.

    """

    command: str
    shown: str = ""


@dataclass(frozen=True)
class Session:
    """Steps that a reader takes one after the other, in one folder."""

    page: Path
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return f"{self.page.name}: {self.steps[0].command.splitlines()[0]}"


def files(page: Path) -> dict[str, str]:
    """The files that it has the reader make, by name."""
    return {name: text for block in _blocks(page) for name, text in _FILE.findall(block)}


def fences(page: Path, language: str) -> list[str]:
    """Its blocks of code in a language."""
    return [text for name, text in _FENCE.findall(page.read_text()) if name == language]


def sessions(page: Path) -> list[Session]:
    """Everything on it that a reader can type, in order of its kinds: blocks, workflows, text."""
    blocks = [_steps_of_block(block) for block in _blocks(page)]
    runs = [run for text in fences(page, "yaml") for _, run in _RUN.findall(text)]
    workflows = [[Step(" ".join(run.split()))] for run in runs]
    workflows += [[Step(command)] for text in fences(page, "dockerfile") for command in _of(text)]
    known = {step.command for steps in blocks for step in steps}
    codes = [code for code in _code_in_text(page) if is_command(code) and code not in known]
    found = (tuple(steps) for steps in [*blocks, *workflows, *([Step(code)] for code in codes)])
    return [Session(page, steps) for steps in dict.fromkeys(found) if steps]


def unread(page: Path) -> list[str]:
    """Return what looks like a command there, but belongs to no step, file or output."""
    read = [step for session in sessions(page) for step in session.steps]
    texts = [text for step in read for text in (step.command, step.shown)]
    places = [*_blocks(page), *_code_in_text(page), *(text for text in fences(page, "yaml"))]
    lines = [line for place in places for line in _FILE.sub("", place).splitlines()]
    found = [line for line in lines if is_command(line) or re.search(r"mcjax-launch +-", line)]
    return [line for line in found if not any(line.strip("$- ") in text for text in texts)]


def is_command(line: str) -> bool:
    """Return whether it is a command, and not only a program that a sentence is about."""
    return bool(_COMMAND.match(line)) and not re.fullmatch(r"python3?( -\w)*", line)


def _blocks(page: Path) -> list[str]:
    return [dedent(block) for block in _BLOCK.findall(page.read_text())]


def _steps_of_block(block: str) -> list[Step]:
    """Those after prompts, each with its output; of a block without prompts the whole, a script."""
    block = _FILE.sub("", block)
    if "$ " in {line[:2] for line in block.splitlines()}:
        return [Step(command, shown) for command, shown in _STEP.findall(block)]
    return [Step(block.strip())] if _COMMAND.match(block.strip()) else []


def _of(dockerfile: str) -> Iterator[str]:
    """What builds the image, each as it stands there, and what a container of it runs."""
    started: list[str] = []
    for kind, text in _INSTRUCTION.findall(dockerfile):
        if kind == "RUN":
            yield f"RUN {' '.join(text.replace(_CONTINUED, ' ').split())}"
        else:
            started += json.loads(text)
    yield shlex.join(started)


def _code_in_text(page: Path) -> Iterator[str]:
    text = _BLOCK.sub("", _FENCE.sub("", page.read_text()))
    for code in _SPAN.findall(text):
        yield " ".join(code.replace("\\|", "|").split())
