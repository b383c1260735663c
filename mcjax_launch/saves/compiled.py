"""Removal of the compiled files (*.pyc) of saved modules."""

import contextlib
import glob
import os


def remove_compiled(path: str) -> None:
    """Remove the compiled files of a source file, from which Python would make them again.

    Python compares the source's time in whole seconds and its length. So if a module is saved twice
    within a second, with equal lengths, its first version would be run.
    """
    folder, name = os.path.split(path)
    pattern = os.path.join(glob.escape(folder), "__pycache__", f"{glob.escape(name[:-3])}.*.pyc")
    for compiled in glob.glob(pattern):
        with contextlib.suppress(OSError):
            os.unlink(compiled)
