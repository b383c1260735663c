"""Reasons for which the kernel does not execute a file, and what to type instead."""

from __future__ import annotations

import errno
import os

# Bytes that the kernel reads of a file to find out its format.
_HEAD = 256
_MOST_BYTES = 1 << 20
_ELF = b"\x7fELF"
_BOM = b"\xef\xbb\xbf"
# Machines by their number in an ELF header.
_MACHINES = {3: "i386", 40: "arm", 62: "x86_64", 183: "aarch64", 21: "ppc64", 22: "s390x"}
_MACHINES |= {8: "mips", 243: "riscv", 258: "loongarch"}
_ZIP = b"PK\x03\x04"


# --- the line that names an interpreter ---


def explain_bad_first_line(name: str, file: str, cwd: str, path: str) -> str:
    """Return the error in the `#!` line of a script, and its cure; "" if there is no error.

    Args:
        name: name of the script, as the user wrote it.
        file: path of the script.
        cwd: working directory of the script.
        path: value of PATH, in which `env` searches.

    """
    head = _read(file, _HEAD)
    if not head.startswith(b"#!"):
        return ""
    line = head[2:].partition(b"\n")[0]
    words = [word for word in os.fsdecode(line).replace("\t", " ").split(" ") if word]
    if not words:
        return f"its first line, #!, names no interpreter{_suggest_run(name, file)}"
    asked = _find_fragile_word(words)
    if asked.endswith("\r"):
        places = [cwd] if os.sep in asked else path.split(os.pathsep)
        there = any(os.path.exists(os.path.join(place, asked)) for place in places)
        return "" if there else _explain_windows_ends(asked, name, file)
    interpreter = os.path.join(cwd, words[0])
    if not os.path.exists(interpreter):
        return (
            f"its first line names {words[0]}, and there is no such file{_suggest_run(name, file)}"
        )
    if os.path.isdir(interpreter) or not os.access(interpreter, os.X_OK):
        return f"its first line names {words[0]}, which is not executable{_suggest_run(name, file)}"
    return ""


def _find_fragile_word(words: list[str]) -> str:
    """Return the word of a `#!` line that fails if the line ends with a carriage return.

    Args:
        words: words of the line after `#!`.

    """
    program = os.path.basename(words[0])
    if program == "env":
        named = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        return named[0] if named else words[0]
    # Perl and some other interpreters ignore a carriage return after their options.
    is_strict = program.endswith("sh") or program.startswith("python")
    return words[-1] if is_strict else words[0]


def _explain_windows_ends(asked: str, name: str, file: str) -> str:
    shown = asked.replace("\r", "\\r")
    cure = f"remove them with sed -i 's/\\r$//' {_quote_program(name, file)}"
    return f"has Windows line ends, so its first line asks for {shown}; {cure}"


def _suggest_run(name: str, file: str) -> str:
    """Return advice to run a script with Python if its text has imports, else with bash."""
    lines = _read(file, _MOST_BYTES).splitlines()
    is_python = any(line.startswith((b"import ", b"from ")) for line in lines)
    return f"; run it as {'python3' if is_python else 'bash'} {_quote_program(name, file)}"


def _quote_program(name: str, file: str) -> str:
    """Return a program's name (its path if PATH was searched), quoted for a shell."""
    from shlex import quote  # only errors need it

    return quote(name if os.sep in name else file)


# --- other formats ---


def explain_exec_refusal(name: str, file: str, code: int) -> str:
    """Return the reason for which the kernel has refused to execute a file, and the cure.

    Args:
        name: name of the file, as the user wrote it.
        file: path of the file.
        code: errno of the kernel.

    """
    head = _read(file, _HEAD)
    if code == errno.ENOENT and head.startswith(_ELF):
        return "needs a loader that this host lacks: it was built for another system"
    if code != errno.ENOEXEC:
        return os.strerror(code)
    if head.startswith(_ELF):
        return _explain_elf(head)
    if head.startswith(_ZIP):
        is_python = b"__main__.py" in _read(file, -1)
        how = f"; run it as python3 {_quote_program(name, file)}" if is_python else ""
        return f"is a zip archive{how}"
    if head.startswith(_BOM + b"#!"):
        cure = f"remove it with sed -i '1s/^\\xef\\xbb\\xbf//' {_quote_program(name, file)}"
        return f"has a byte-order mark before its #!; {cure}"
    if not head:
        return "is empty"
    if b"\0" in head:
        return "has a format that this host cannot run"
    return f"has no #! line{_suggest_run(name, file)}"


def _explain_elf(head: bytes) -> str:
    number = int.from_bytes(head[18:20], "big" if head[5:6] == b"\2" else "little")
    machine, here = _MACHINES.get(number, f"machine {number}"), os.uname().machine
    if machine == here or len(head) < 20:
        return "is damaged or cut short"
    return f"is built for {machine}, and this host is {here}"


def _read(file: str, most: int) -> bytes:
    """Return the first `most` bytes of a file, all if -1; b"" if it cannot be read."""
    try:
        with open(file, "rb") as opened:
            return opened.read(most)
    except OSError:
        return b""
