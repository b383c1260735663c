"""`python -m mcjax_launch`, and the installed command."""

import os
import sys
from typing import NoReturn


def run() -> NoReturn:
    """Run the command line and exit at once: Python has nothing to clean up."""
    if os.name != "posix":
        sys.exit("mcjax-launch: needs Linux (or macOS, with fewer guarantees); on Windows, use WSL")
    from mcjax_launch.cli.command import main

    os._exit(main())


if __name__ == "__main__":
    run()
