"""Every message survives its way through JSON, and nothing else becomes one."""

import json
import sys
from importlib import import_module
from pathlib import Path

import pytest

from mcjax_launch import features
from mcjax_launch.wire import hook_messages, messages
from mcjax_launch.wire.codec import (
    Malformed,
    Message,
    Nested,
    from_json,
    from_values,
    to_json,
)
from mcjax_launch.wire.hook_messages import Failed, Hello, Joining, Program, Raised


def classes_of(module: object) -> list[type[Nested]]:
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Nested)
        and value.__module__ == vars(module)["__name__"]
        and value is not messages.ToLauncher
    ]


PARTS = [
    import_module(f"mcjax_launch.features.{path.parent.name}.messages")
    for path in Path(features.__file__).parent.glob("*/messages.py")
]
MODULES = (messages, hook_messages, *PARTS)
EVERY = [cls for module in MODULES for cls in classes_of(module)]
SCALARS = {"str": 'é"\\\n\ud800', "int": 7, "float": 2.5, "bool": True}


def example(cls: type[Nested]) -> Nested:
    """A message in which nothing is empty."""
    return cls(*(value(cls.__annotations__[name], cls) for name in cls._fields))


def value(annotation: str, cls: type[Nested]) -> object:
    annotation = annotation.removesuffix(" | None")
    if annotation.startswith("tuple["):
        return (value(annotation.removeprefix("tuple[").removesuffix(", ...]"), cls),) * 2
    if annotation.startswith("dict["):
        return {"key": value(annotation.removesuffix("]").partition(", ")[2], cls)}
    if annotation in SCALARS:
        return SCALARS[annotation]
    inner = vars(sys.modules[cls.__module__])[annotation]
    return example(Failed if inner is hook_messages.HookMessage else inner)


def values_of(message: Nested) -> list[object]:
    """What JSON has of its fields."""
    values: list[object] = json.loads(to_json(message))
    return values[1] if isinstance(message, Message) else values  # type: ignore[return-value]


def decoded(cls: type[Nested], text: str) -> Nested:
    return from_values(cls, from_json(text))


@pytest.mark.parametrize(
    "cls", EVERY, ids=lambda cls: f"{cls.__module__.rpartition('.')[2]}.{cls.__name__}"
)
def test_messages_survive_a_round_trip(cls: type[Nested]) -> None:
    message = example(cls)
    if issubclass(cls, Message):
        assert Message.of(to_json(message)) == cls.of(to_json(message)) == message
    assert from_values(cls, values_of(message)) == message


def test_message_names_are_unique() -> None:
    with pytest.raises(TypeError, match="two messages are called Exited"):
        type("Exited", (Message,), {"__module__": __name__})


@pytest.mark.parametrize("cls", [cls for cls in EVERY if cls._fields], ids=lambda cls: cls.__name__)
def test_every_field_is_checked(cls: type[Nested]) -> None:
    """No field takes an object with an empty name, which none of them is."""
    values = values_of(example(cls))
    for number, name in enumerate(cls._fields):
        wrong = [*values[:number], {"": [{}]}, *values[number + 1 :]]
        with pytest.raises(Malformed):
            from_values(cls, wrong)
            pytest.fail(f"{cls.__name__}.{name} takes anything")


@pytest.mark.parametrize("cls", EVERY, ids=lambda cls: cls.__name__)
def test_the_number_of_fields_is_checked(cls: type[Nested]) -> None:
    values = values_of(example(cls))
    others: tuple[object, ...] = ([*values, 0], values[:-1], {}, None, "x")
    for wrong in others:
        if wrong != values:
            with pytest.raises(Malformed):
                from_values(cls, wrong)


DEEP = "[" * 100_000
NO_JSON = [
    *("", " ", "\n", "[", "]", "[1] ", " [1]", "[1]x", "[1,]", '"a', "'a'", "nil", "1e"),
    *("1" * 5000, DEEP, '{"a"', '["Hello"'),
]


@pytest.mark.parametrize("text", NO_JSON, ids=lambda text: repr(text[:8]))
def test_invalid_json_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        from_json(text)


WRONG = {
    "an object": '{"Left": []}',
    "three parts": '["Left", [], []]',
    "no name": '[7, []]',
    "a list as the name": '[[], []]',
    "an unknown name": '["Rm", []]',
    "a family's name": '["HookMessage", [1]]',
    "a message of another family": '["Refused", ["x", 1]]',
    "a text for a number": '["Hello", ["1", "0", false]]',
    "true for a number": '["Hello", [true, "0", false]]',
    "half a number": '["Hello", [1.5, "0", false]]',
    "not a number": '["Hello", [NaN, "0", false]]',
    "a number for true": '["Failed", [1, 1, false, "", "", "", null, null, null, "", null]]',
    "a text for a list": '["Program", ["n", "f", "12", [], ""]]',
    "texts for numbers": '["Program", ["n", "f", ["1"], [], ""]]',
    "a list in a list": '["Program", ["n", "f", [[1]], [], ""]]',
    "too few values inside": '["Failed", [1, true, false, "", "", "", null, null, null, "", ["x"]]]',
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_invalid_hook_messages_are_refused(name: str) -> None:
    with pytest.raises(Malformed):
        hook_messages.HookMessage.of(WRONG[name])


@pytest.mark.parametrize(
    "number", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400", "true", '"1"', "null"]
)
def test_seconds_are_finite_numbers(number: str) -> None:
    with pytest.raises(Malformed):
        decoded(messages.Stop, f"[15,{number}]")


def test_seconds_may_be_whole() -> None:
    assert decoded(messages.Stop, "[15,5,60,false]") == messages.Stop(15, 5.0, 60.0)


def test_hook_message_survives_inside_an_agent_message() -> None:
    said = messages.FromHook(3, Joining("h:1", None, 3, "train.py:8"), sent=(15,))
    assert messages.ToLauncher.of(to_json(said)) == said
    with pytest.raises(Malformed):
        decoded(messages.FromHook, '[3,["Refused",["x",1]],true,[],false,false]')


@pytest.mark.parametrize(
    ("cls", "text"),
    [
        (messages.Exited, '[1,256,[],"",0,0,false]'),  # which a shell would take for 0
        (messages.Exited, '[1,-65,[],"",0,0,false]'),
        (messages.Refused, '["no",0]'),
        (messages.Refused, '["no",256]'),
        (messages.Credit, "[-1]"),
        (Failed, '[0,true,false,"","","",null,null,null,"",null]'),
        (Failed, '[512,true,false,"","","",null,null,null,"",null]'),
    ],
)
def test_nonsensical_values_are_refused(cls: type[Nested], text: str) -> None:
    with pytest.raises(Malformed):
        decoded(cls, text)


def test_omitted_fields_have_defaults() -> None:
    assert Failed(1, True).handled is None
    assert Failed(1, True, handled=Raised("E", "e")).handled == Raised("E", "e")
    for wrong in (
        lambda: Failed(1),  # type: ignore[call-arg]
        lambda: Hello(1, "0", 3),  # type: ignore[call-arg]
        lambda: Hello(1, "0", pid=3),  # type: ignore[misc]
        lambda: Hello(1, "0", x=3),  # type: ignore[call-arg]
    ):
        with pytest.raises(TypeError):
            wrong()


def test_a_message_is_a_value() -> None:
    program = Program("p", 7, (0, 1), "train.py:1")
    same = Program("p", 7, (0, 1), "train.py:1")
    assert program == same and hash(program) == hash(same)
    assert program != Program("q", 7, None, "")
    with pytest.raises(AttributeError):
        program.name = "q"  # type: ignore[misc]
    match program:
        case Program(name, processes=processes):
            assert (name, processes) == ("p", (0, 1))
        case _:
            pytest.fail("no match")


def test_other_objects_have_no_json() -> None:
    with pytest.raises(TypeError):
        to_json(object())
