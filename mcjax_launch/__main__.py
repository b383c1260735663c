"""`python -m mcjax_launch`, and the installed command."""

import os
import sys
from typing import NoReturn


def run() -> NoReturn:
    """Run the command line and leave at once: there is nothing for Python to tidy up."""
    if os.name != "posix":
        sys.exit("mcjax-launch: needs Linux (or macOS, with less certainty); on Windows use WSL")
    from mcjax_launch.cli.command import main

    os._exit(main())


if __name__ == "__main__":
    run()
