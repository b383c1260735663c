"""Files of the repository that a script writes: put in place, or compared with what is there."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def put(files: Mapping[Path, str], args: Sequence[str], command: str) -> int:
    """Write these files; with --check, only name those that are stale.

    Args:
        files: their content, by their paths.
        args: of the command.
        command: that writes the files.

    Returns:
        the exit status of the command.

    """
    if args not in ([], ["--check"]):
        print(f"usage: {command} [--check]", file=sys.stderr)
        return 2
    stale = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        if args:
            print(f"{path.relative_to(ROOT)}: stale; run {command}", file=sys.stderr)
        else:
            path.write_text(files[path])
    return int(bool(args and stale))
