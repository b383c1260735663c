"""Entry into a rank's Python: `site` imports this before the program's first line.

It installs the hook and removes its folder from sys.path; then the user's own
sitecustomize, which this module shadows, still runs.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# A package name that no program imports: a rank may use the installed package itself.
_PRIVATE_NAME = "_mcjax_launch"
_OLDEST_PYTHON = (3, 9)
# This process has another task (wire/hook_environ.py): it runs no program, even after an error.
_IS_FOR_ELSE = "MCJAX_HOOK_INSTEAD" in os.environ


def _put_hook_in_place() -> "Any":
    """Install the hook; return the task to run in place of the program, None if none."""
    if sys.version_info < _OLDEST_PYTHON:  # a helper of the program, without JAX
        return None
    try:
        ours = type(sys)(_PRIVATE_NAME)
        ours.__path__ = _make_import_path(__file__.rpartition("/hook/")[0])
        sys.modules[_PRIVATE_NAME] = ours
        from _mcjax_launch.hook.install import install

        return install(_report_failure)
    except Exception as error:  # the program must run, even without the hook
        _report_failure(error)
        return None


def _make_import_path(folder: str) -> "list[str]":
    """Return the `__path__` of a package whose code has file names such as "<...>".

    Coverage, `trace` and debuggers skip such code, as they skip Python's own frozen modules.
    """
    import _frozen_importlib_external as importing
    import _imp

    rename: Any = _imp._fix_co_filename  # type: ignore[attr-defined]

    class Loader(importing.SourceFileLoader):
        def get_code(self, name: str) -> "Any":
            code = super().get_code(name)
            rename(code, f"<{self.path}>".replace("/./", "/"))
            return code

    rename(Loader.get_code.__code__, f"<{__file__}>")
    root = f"{folder}/."  # unlike the path of the installed package, if that is imported too
    paths = ["", "/hook", "/machine", "/wire", "/features"]
    for feature in os.listdir(f"{root}/features"):
        paths += (f"/features/{feature}", f"/features/{feature}/hook")
    for path in paths:
        finder = importing.FileFinder(root + path, (Loader, [".py"]))
        sys.path_importer_cache[root + path] = finder
    return [root]


def _report_failure(error: Exception) -> None:
    sys.stderr.write(f"mcjax-launch: the hook failed: {error!r}; please report this\n")


def _run_users_sitecustomize() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]
    mine = sys.modules.pop(__name__)
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if getattr(error, "name", None) != __name__:
            raise
    finally:
        sys.modules.setdefault(__name__, mine)


_instead = _put_hook_in_place()
if _instead is not None:
    _instead.run(_run_users_sitecustomize)
elif _IS_FOR_ELSE:
    os._exit(1)
else:
    _run_users_sitecustomize()
