"""Prints as JSON jax's flags, and for the variable of each a value that it does not have."""

import json

import jax


def other(flag_type: object, default: object, options: dict[str, object]) -> str:
    """A text that a flag takes, for a value that it does not have."""
    if flag_type is bool:
        return str(not default)
    if flag_type in (int, float):
        return str((default or 0) + 1)  # type: ignore[operator]
    if flag_type == "enum":
        return next(text for text in options["enum_values"] if text != default)  # type: ignore
    if flag_type == "enum_class":
        texts = [text for one in options["enum_class"] for text in (one.name, one.value)]  # type: ignore
        return next(
            text for text in texts if taken(options["enum_class"], text) not in (default, None)
        )
    return "cpu"


def taken(enum_class: object, text: object) -> object:
    try:
        return enum_class(text) if isinstance(text, str) else None  # type: ignore
    except ValueError:
        return None


settings = {}
for name, (flag_type, _, options) in jax.config.meta.items():
    try:
        settings[name.upper()] = other(flag_type, jax.config.values[name], options)
    except StopIteration:  # there is no such text
        pass
values = {name: repr(value) for name, value in jax.config.values.items()}
print(json.dumps({"settings": settings, "values": values}))
