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


def assemble(sources, hook):
    """Run the agent from its sources; `hook` are the files of the ranks' hook."""
    sys.meta_path.insert(0, Streamed(sources))
    from mcjax_launch.agent.main import main

    main(hook)
