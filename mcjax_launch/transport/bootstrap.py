"""The agent's code as bytes for hosts without mcjax-launch, and the loader that runs it."""

import _frozen_importlib_external as importing
import marshal
import os
import struct
import sys
import zlib
from collections.abc import Iterable, Iterator
from functools import cache

from mcjax_launch.wire import checksum

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Folders that each host gets: the agent, its ranks' hook, and the code that both import.
_FOLDERS = ("agent", "hook", "machine", "wire")
# Parts of a feature that each host gets, each a file or a folder.
_PARTS = ("messages", "program", "agent", "hook")
OLDEST_PYTHON = (3, 9)
_LOADING_S = 60
# Level 6 takes twice as long and saves 8 %.
_LEVEL = 3
# Digits of a payload's length, before it.
_DIGITS = 9
# Version of marshal that every Python reads.
_OF_ALL = 2
# Header of a file of bytecode: magic number, flags, time and size of the source.
_HEADER = struct.Struct("<4sIII")
#: The folder in which hosts keep contents, below the user's cache folder.
KEPT = "mcjax-launch/kept"
#: What the loader says before True if the host has the payload, before False if it needs it.
SAYS = "mcjax-launch-payload:"
#: The loader's exit status on an interpreter older than OLDEST_PYTHON.
TOO_OLD = 93


@cache
def build_code(features: frozenset[str]) -> bytes:
    """Return what the loader runs: the importer, and the package's sources and bytecode.

    Args:
        features: names of the features whose files to include.

    """
    files = read_streamed_files(features)
    codes = {path: code for path in files if (code := _read_bytecode(path))}
    version = importing.MAGIC_NUMBER, sys.implementation.cache_tag
    return marshal.dumps([files["agent/assemble.py"], files, version, codes], _OF_ALL)


@cache
def build_payload(features: frozenset[str]) -> bytes:
    """Return the agent's code for a host that has none: its length, then the compressed archive."""
    payload = zlib.compress(build_code(features), _LEVEL)
    return f"{len(payload):0{_DIGITS}}".encode() + payload


def _read_bytecode(path: str) -> bytes:
    """Return a file's code as this Python has kept it; b"" if that is missing or old.

    A host with the same Python need not compile the file, which takes longer than all else there.
    """
    path = os.path.join(_PACKAGE, path)
    try:
        with open(importing.cache_from_source(path), "rb") as file:
            data = file.read()
        source = os.stat(path)
    except (OSError, NotImplementedError):
        return b""
    known = (
        importing.MAGIC_NUMBER,
        0,
        int(source.st_mtime) & 0xFFFFFFFF,
        source.st_size & 0xFFFFFFFF,
    )
    return data[_HEADER.size :] if data[: _HEADER.size] == _HEADER.pack(*known) else b""


def read_streamed_files(features: Iterable[str]) -> dict[str, str]:
    """Return the text of each file to send to a host, by its path below the package."""
    files = {}
    for path in sorted(_iterate_paths(features)):
        with open(os.path.join(_PACKAGE, path), encoding="utf-8") as file:
            files[path] = file.read()
    return files


def _iterate_paths(features: Iterable[str]) -> Iterator[str]:
    yield "features/__init__.py"
    folders = list(_FOLDERS)
    for name in features:
        for part in ("__init__", *_PARTS):
            if os.path.exists(os.path.join(_PACKAGE, "features", name, f"{part}.py")):
                yield f"features/{name}/{part}.py"
        folders += [f"features/{name}/{part}" for part in _PARTS]
    for folder in folders:
        for below, _, names in os.walk(os.path.join(_PACKAGE, folder)):
            for name in names:
                if name.endswith(".py"):
                    yield os.path.relpath(os.path.join(below, name), _PACKAGE)


def make_loader(features: frozenset[str], *, keeps: bool) -> str:
    """Return the arguments of Python, in shell syntax, that run the payload.

    They contain no single quotes, backslashes or exclamation marks, and no dollar that is not meant
    for sh, so they pass unchanged through any login shell.

    Args:
        features: names of the features in the payload.
        keeps: True if the host may keep the code. The loader then says whether the host has it
            (`SAYS`), and reads the payload from stdin only if not.

    """
    old = f"sys.version_info<{OLDEST_PYTHON}and(sys.stderr.write(sys.version),sys.exit({TOO_OLD}))"
    begin = f"import marshal,os,signal,sys,zlib;{old};".replace(", ", ",")
    # The alarm: if the launcher dies while it sends the payload, stdin may not end.
    lines = f"signal.alarm({_LOADING_S})\n{_LOADER}".replace("DIGITS", str(_DIGITS))
    kept = ""
    if keeps:
        code = build_code(features)
        lines = lines.replace("SIZE", str(len(code)))
        folder = f"${{XDG_CACHE_HOME:-$HOME/.cache}}/{KEPT}"
        kept = f' "{folder}/{checksum.compute(code)}" {SAYS}'
    lines = lines.strip().replace("\n", "@")
    return f'-c "{begin}exec(sys.argv[1].replace(chr(64),chr(10)))" "{lines}"{kept}'


# Line ends are sent as `@`. What the host keeps is run only if it has the checksum. No more than
# the payload may be read from stdin: the agent reads what follows.
_LOADER = """
def get(count):
 got=bytes()
 while len(got)<count:
  part=os.read(0,count-len(got))
  if not part: break
  got+=part
 return got
code=unkept=bytes()
keeps=len(sys.argv)>2
has=False
if keeps:
 try:
  from _blake2 import blake2b
  kept=os.open(sys.argv[2],os.O_NONBLOCK)
  while len(code)<=SIZE:
   part=os.read(kept,SIZE+1-len(code))
   if not part: break
   code+=part
  os.close(kept)
  has=blake2b(code,digest_size=20).hexdigest()==os.path.basename(sys.argv[2])
 except(ImportError,OSError):
  pass
 os.write(1,(sys.argv[3]+str(has)+chr(10)).encode())
if not has:
 code=zlib.decompress(get(int(get(DIGITS))))
 if keeps: unkept=code
parts=marshal.loads(code)
exec(parts.pop(0))
assemble(*parts,unkept)
"""
