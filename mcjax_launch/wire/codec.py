"""Message classes, and their conversion to and from JSON, without any input or output.

A decoder checks every field against its annotation, so a decoded message always has the annotated
types.
"""

from __future__ import annotations

import sys

# Only the C parts of `json`: its Python parts compile regular expressions, which would take longer
# at an agent's start than all messages.
from _json import encode_basestring_ascii as _quoted
from _json import make_scanner

from .value import Value

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, ClassVar, TypeVar

    M = TypeVar("M", bound="Message")
    P = TypeVar("P", bound="Nested")
    Convert = Callable[[Any], Any]


_MOST_INT = 1 << 63


class _Settings:
    strict = True
    object_hook = object_pairs_hook = None
    parse_float, parse_int, parse_constant = float, int, float
    memo: dict[str, str] = {}  # noqa: RUF012, the scanner's own


_scan = make_scanner(_Settings())  # type: ignore[arg-type]
# The package's name in this process: streamed code has a name of its own.
_PACKAGE = __name__.partition(".")[0]


class Malformed(ValueError):
    """Error: received data is not a valid message."""


class Nested(Value):
    """Group of fields inside a message, or stored as JSON by itself; base class of messages."""

    _converters: ClassVar[tuple[Convert, ...] | None] = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._converters = None

    def check(self) -> None:
        """Check the field values together after decoding; subclasses override it, by default empty.

        Raises:
            Malformed: a value is impossible, or the values contradict each other.

        """


class Message(Nested):
    """Message between two processes; its JSON includes the name of its class.

    The name of a feature's message includes the feature, as in `setup.SetUp`. Its class is
    loaded from the feature's `messages` module when the first such message arrives.

    Attributes:
        feature: name of the feature that defines the message; "" if none does.

    """

    feature: ClassVar[str] = ""
    _name: ClassVar[str] = ""
    _named: ClassVar[dict[str, type[Message]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        _, _, below = cls.__module__.partition(".features.")
        cls.feature = below.partition(".")[0]
        cls._name = f"{cls.feature}.{cls.__name__}" if cls.feature else cls.__name__
        other = cls._named.get(cls._name, cls)
        if other.__module__ != cls.__module__:  # the same module: an interrupted import is repeated
            raise TypeError(f"two messages are called {cls._name}")
        cls._named[cls._name] = cls

    @classmethod
    def of(cls: type[M], text: str) -> M:
        """Decode JSON into a message of this class or of a subclass.

        Raises:
            Malformed: the JSON names no such message, or its values do not fit the fields.

        """
        return cls._of(from_json(text))

    @classmethod
    def _of(cls: type[M], pair: object) -> M:
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise Malformed("expected a name and values")
        known = cls._named.get(pair[0]) or cls._load_class(pair[0])
        if known is None:
            raise Malformed(f"unknown message {pair[0]!r}")
        if not issubclass(known, cls):
            raise Malformed(f"{pair[0]} in place of a {cls.__name__}")
        try:
            return from_values(known, pair[1])
        except Malformed as error:
            raise Malformed(f"{pair[0]}: {error}") from None

    @classmethod
    def _load_class(cls, name: str) -> type[Message] | None:
        """Import the messages of the feature in `name`; return that message's class or None."""
        feature, dot, _ = name.partition(".")
        if not dot or not feature.isidentifier():
            return None
        try:
            __import__(f"{_PACKAGE}.features.{feature}.messages")
        except ImportError:
            return None
        return cls._named.get(name)


# --- values out ---


def to_json(value: object) -> str:
    """Encode a value as JSON: a message as `["Name", [values]]`, another Nested as `[values]`.

    Raises:
        TypeError: the value has no JSON form.

    """
    if isinstance(value, str):
        return str(_quoted(value))
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return float.__repr__(value)
    if isinstance(value, Message):
        return f"[{_quoted(value._name)},{to_json(value._list_values())}]"
    if isinstance(value, Nested):
        value = value._list_values()
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(to_json, value))}]"
    if isinstance(value, dict):
        pairs = (f"{_quoted(str(key))}:{to_json(item)}" for key, item in value.items())
        return f"{{{','.join(pairs)}}}"
    raise TypeError(f"no JSON for {type(value).__name__}")


# --- values in ---


def from_json(text: str) -> object:
    """Decode a JSON text that has no white space around it.

    Raises:
        Malformed: the text is not JSON.

    """
    try:
        value, end = _scan(text, 0)
    # SystemError: the scanner would raise an error of json.decoder, which is not imported.
    except (StopIteration, ValueError, RecursionError, SystemError):
        raise Malformed("no JSON") from None
    if end != len(text):
        raise Malformed("no JSON")
    return value


def from_values(cls: type[P], values: object) -> P:
    """Build an object of `cls` from the list of its decoded field values.

    Raises:
        Malformed: the values do not fit the fields of `cls`.

    """
    converters = cls._converters
    if converters is None:
        annotations, module = cls.__annotations__, sys.modules[cls.__module__]
        converters = tuple(_make_converter(annotations[name], vars(module)) for name in cls._fields)
        cls._converters = converters
    if not isinstance(values, list) or len(values) != len(converters):
        raise Malformed(f"expected {len(converters)} values of {cls.__name__}")
    pairs = zip(converters, values)
    message = cls(*(convert(value) for convert, value in pairs))
    message.check()
    return message


def _make_converter(annotation: str, known: dict[str, Any]) -> Convert:
    """Return a function that checks a decoded value against an annotation and converts it."""
    if annotation.endswith(" | None"):
        some = _make_converter(annotation[: -len(" | None")], known)
        return lambda value: None if value is None else some(value)
    if annotation.startswith("tuple["):
        each = _make_converter(annotation[len("tuple[") : -len(", ...]")], known)
        return lambda value: tuple(each(item) for item in _check_type(list, value))
    if annotation.startswith("dict[str, "):  # JSON has no other keys
        child = _make_converter(annotation[len("dict[str, ") : -1], known)
        return lambda value: {key: child(item) for key, item in _check_type(dict, value).items()}
    if annotation in _SCALARS:
        scalar: Convert = _SCALARS[annotation]
        return scalar
    cls: type[Nested] = known[annotation]
    if issubclass(cls, Message):
        return cls._of
    return lambda value: from_values(cls, value)


def _check_type(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise Malformed(f"expected {kind.__name__}, not {type(value).__name__}")
    return value


def _check_integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise Malformed(f"expected a whole number, not {type(value).__name__}")
    if not -_MOST_INT <= value < _MOST_INT:  # beyond it arithmetic has surprises
        raise Malformed("expected a number of 64 bits")
    return value


def _convert_to_float(value: Any) -> float:
    number = value if isinstance(value, float) else float(_check_integer(value))
    if number - number != 0:
        raise Malformed("expected a finite number")
    return number


_SCALARS: dict[str, Convert] = {
    "str": lambda value: _check_type(str, value),
    "bool": lambda value: _check_type(bool, value),
    "int": _check_integer,
    "float": _convert_to_float,
}
