"""A manifest: what the user changes in it by `--engine-option PATH=VALUE`, and its YAML; pure."""

import json
import re
from collections.abc import Sequence
from typing import Any

from mcjax_launch.errors import LaunchError

# A part of a path: .name, or [name], or ['name'] for one with dots in it.
_PART = r"""\.?(?:([^][.='"]+)|\[(?:'([^']*)'|"([^"]*)"|([^]['"=]+))\])"""
# Their values are text, whatever they look like.
_TEXT_BELOW = frozenset({"labels", "annotations", "nodeSelector", "matchLabels"})


def change(places: dict[str, dict[str, Any]], option: str) -> None:
    """Do what an `--engine-option` asks for, as a JSON merge patch would.

    Args:
        places: parts of the manifest, by the name with which a path begins.
        option: PATH=VALUE. A value that is not JSON is text; null removes what is there.

    Raises:
        LaunchError: the path cannot be read, or leads nowhere.

    """
    path, text = _path(option)
    value = _value(path, text)
    try:
        option.encode()
        if path[0] not in places:
            raise ValueError(f"begin PATH with {', '.join([*places][:-1])} or {[*places][-1]}")
        if len(path) == 1 and not isinstance(value, dict):
            raise ValueError(f"{path[0]} is an object, so write {path[0]}.NAME=VALUE")
        _put(places, path, value)
    except UnicodeEncodeError:
        raise LaunchError(f"--engine-option {option}: not UTF-8") from None
    except ValueError as error:
        raise LaunchError(f"--engine-option {option}: {error}") from None


def _path(option: str) -> tuple[list[str], str]:
    """The names of a path, and the text of the value."""
    names, at = [], 0
    while part := re.compile(_PART).match(option, at):
        names.append(next(text for text in part.groups() if text is not None))
        at = part.end()
    if not names or option[at : at + 1] != "=":
        raise LaunchError(
            f"--engine-option {option}: write PATH=VALUE, as in pod.nodeSelector.disk=ssd or "
            "metadata.labels['example.com/team']=blue"
        )
    return names, option[at + 1 :]


def _value(path: Sequence[str], text: str) -> Any:
    try:
        value = json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        return text
    is_text = len(path) > 1 and path[-2] in _TEXT_BELOW
    is_text = is_text or (len(path) > 2 and path[-3] == "env" and path[-1] == "value")
    return text if is_text and not (value is None or isinstance(value, str)) else value


def _put(at: Any, path: Sequence[str], value: Any) -> None:
    """Merge a value into what is there; objects and lists on the way are made."""
    name, *rest = path
    if isinstance(at, list):
        key: Any = _index(at, name)
        if key == len(at):
            at.append({} if name.isdecimal() else {"name": name})
    elif isinstance(at, dict):
        key = name
        if rest and name not in at:
            at[name] = [] if rest[0].isdecimal() else {}
    else:
        raise ValueError(f"{json.dumps(at)} has no {name}")
    if rest:
        _put(at[key], rest, value)
    elif value is None:
        if isinstance(at, list) or key in at:
            del at[key]
    else:
        was = at[key] if isinstance(at, list) else at.get(key)
        at[key] = _merged(was, value)


def _index(items: list[Any], name: str) -> int:
    """Where an item of this number or name is, or would be."""
    if not name.isdecimal():
        names = [item.get("name") if isinstance(item, dict) else None for item in items]
        return names.index(name) if name in names else len(items)
    if int(name) > len(items):
        raise ValueError(f"there is no item {name}: the list has {len(items)}")
    return int(name)


def _merged(was: Any, new: Any) -> Any:
    """`new`, or where both are objects the one that was there, changed."""
    if not isinstance(new, dict):
        return new
    merged = was if isinstance(was, dict) else {}
    for name, value in new.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merged(merged.get(name), value)
    return merged


def to_yaml(value: Any, indent: int = 0) -> str:
    """Dicts, lists and scalars as YAML in block style; scalars as JSON, which YAML includes."""
    pad = " " * indent
    if isinstance(value, dict):
        return "".join(
            f"{pad}{_scalar(key)}:{_below(child, indent + 2)}" for key, child in value.items()
        )
    text = ""
    for child in value:
        if isinstance(child, (dict, list)) and child:
            text += f"{pad}- {to_yaml(child, indent + 2).lstrip()}"
        else:
            text += f"{pad}- {_scalar(child)}\n"
    return text


def _below(value: Any, indent: int) -> str:
    if isinstance(value, (dict, list)) and value:
        return "\n" + to_yaml(value, indent)
    return f" {_scalar(value)}\n"


def _scalar(value: Any) -> str:
    plain = isinstance(value, str) and re.fullmatch(r"[A-Za-z/][\w./-]*", value)
    if plain and value.lower() not in ("true", "false", "yes", "no", "on", "off", "null", "y", "n"):
        return str(value)
    return json.dumps(value)
