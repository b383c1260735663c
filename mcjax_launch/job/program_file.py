"""The file of PROGRAM on this machine, and syntax errors of Python files."""

import ast
import os
import subprocess
from collections.abc import Sequence

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

# Reads a list of paths; writes `line: type: message` of the first error of each file with one. Both
# are literals of Python: a save is waited for, and importing json would take as long as all else.
_CHECK = """\
import sys, warnings
warnings.simplefilter("ignore")
errors = {}
for path in eval(sys.stdin.read()):
    try:
        compile(open(path, "rb").read(), path, "exec", dont_inherit=True)
    except OSError:
        pass
    except (SyntaxError, ValueError) as error:  # the latter of a zero byte, before Python 3.12
        line, why = getattr(error, "lineno", 1) or 1, getattr(error, "msg", error)
        errors[path] = f"{line}: {type(error).__name__}: {why}"
print(ascii(errors))
"""
_MOST_S = 10.0


def find_syntax_errors(paths: Sequence[str], python: str) -> dict[str, str]:
    """Return `line: type: message` of each file's syntax error, by the path of the file.

    Args:
        paths: paths of the files, which one process checks.
        python: interpreter that will run the files. If it does not exist on this machine, or cannot
            read a file, the ranks will report the error.

    """
    words = [python, "-I", "-S", "-X", "utf8", "-c", _CHECK]
    if not paths:
        return {}
    asked = ascii([*paths]).encode()
    try:
        done = subprocess.run(words, input=asked, capture_output=True, timeout=_MOST_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(ast.literal_eval(done.stdout.decode() or "{}"))
