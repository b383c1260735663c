"""The first of our code that runs on another host: makes modules of the streamed sources.

Its own source is sent before them, so it stands alone.
"""

import sys
from importlib.machinery import ModuleSpec


class Streamed:
    """Finds and loads modules whose sources came over the wire, under their real names."""

    def __init__(self, sources):
        self.sources = sources

    def find_spec(self, name, path=None, target=None):
        if name not in self.sources:
            return None
        package = any(other.startswith(name + ".") for other in self.sources)
        return ModuleSpec(name, self, origin="<mcjax-launch>/" + name, is_package=package)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        name = module.__name__
        code = compile(self.sources[name], module.__spec__.origin, "exec", dont_inherit=True)
        exec(code, module.__dict__)


def module_name(path):
    """The dotted name of a file of our package."""
    stem = path[: -len(".py")].replace("/", ".")
    return "mcjax_launch." + (stem[: -len(".__init__")] if stem.endswith("__init__") else stem)


def assemble(files):
    """Run the agent from the texts of its files, by their paths below our package."""
    sources = {module_name(path): text for path, text in files.items()}
    sys.meta_path.insert(0, Streamed({"mcjax_launch": "", **sources}))
    from mcjax_launch.agent.main import main

    main(files)
