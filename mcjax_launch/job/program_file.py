"""The file of PROGRAM on this machine, and syntax errors of Python files."""

import os
import subprocess
from collections.abc import Iterable, Sequence

from mcjax_launch.job.job import Job
from mcjax_launch.machine.python_program import NoSource, find_source


def find_program(job: Job) -> str | None:
    """Return the file of PROGRAM; None if it is not on this machine."""
    if job.module:
        words: Sequence[str] = (job.python, "-m", *job.program)
    elif job.is_python:
        words = (job.python, *job.program)
    elif os.path.basename(job.program[0]).startswith("python"):
        words = job.program
    else:
        return _find_script(job)
    try:
        path, _ = find_source(words, job.chdir, {**os.environ, **dict(job.env)})
    except NoSource:
        return None
    path = os.path.abspath(path)
    return path if os.path.isfile(path) else None


def _find_script(job: Job) -> str | None:
    """Return a command's first argument that is a file, as in `bash run.sh`, else its own file.

    None if there is neither.
    """
    name, *arguments = job.program
    for word in (*arguments, *([name] if os.sep in name else [])):
        path = os.path.abspath(os.path.join(job.chdir, word))
        if os.path.isfile(path):
            return path
    return None


# --- syntax ---

# Reads paths that end with a zero byte; prints, in the same way, the path of each file with an
# error and `line: type: message` of its first error.
_CHECK = """\
import sys, warnings
warnings.simplefilter("ignore")
for path in sys.stdin.buffer.read().split(b"\\0")[:-1]:
    try:
        compile(open(path, "rb").read(), path, "exec", dont_inherit=True)
        continue
    except OSError:
        continue
    except SyntaxError as error:
        why = f"{error.lineno or 1}: {type(error).__name__}: {error.msg}"
    except ValueError as error:  # before Python 3.12, of a zero byte
        why = f"1: SyntaxError: {error}"
    sys.stdout.buffer.write(path + b"\\0" + why.encode("utf-8", "replace") + b"\\0")
"""
_MOST_S = 10.0


def find_syntax_errors(paths: Iterable[str], python: str) -> dict[str, str]:
    """Return `line: type: message` of each file's syntax error, by the path of the file.

    Args:
        paths: paths of the files, which one process checks.
        python: interpreter that will run the files. If it does not exist on this machine, or cannot
            read a file, the ranks will report the error.

    """
    words = [python, "-I", "-S", "-X", "utf8", "-c", _CHECK]
    asked = b"".join(os.fsencode(path) + b"\0" for path in paths)
    if not asked:
        return {}
    try:
        done = subprocess.run(words, input=asked, capture_output=True, timeout=_MOST_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    said = done.stdout.split(b"\0")[:-1]
    texts = (why.decode("utf-8", "replace") for why in said[1::2])
    return dict(zip(map(os.fsdecode, said[::2]), texts, strict=False))
