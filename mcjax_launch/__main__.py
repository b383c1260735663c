"""`python -m mcjax_launch`, and the installed command."""

import os
from typing import NoReturn

from mcjax_launch.cli import main


def run() -> NoReturn:
    """Run the command line and leave at once: there is nothing for Python to tidy up."""
    os._exit(main())


if __name__ == "__main__":
    run()
