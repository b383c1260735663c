"""The way into a rank's Python: `site` imports this before the program's first line.

It puts the hook in place, then steps aside: the folder leaves sys.path and a sitecustomize of
the user's own, which this one shadows, still runs.
"""

import os
import sys


def _put_hook_in_place():
    try:
        from mcjax_rank_hook import install

        install()
    except Exception as error:  # the program comes first: it runs without us
        sys.stderr.write(f"mcjax-launch: the hook failed: {error!r}; please report this\n")


def _step_aside():
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]
    mine = sys.modules.pop(__name__)
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if error.name != __name__:
            raise
    finally:
        sys.modules.setdefault(__name__, mine)


_put_hook_in_place()
_step_aside()
