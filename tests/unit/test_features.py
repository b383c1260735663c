"""What features declare by a name that nothing would call, or that another feature has."""

import ast
import re
from pathlib import Path

import pytest

from mcjax_launch.options import features

PACKAGE = Path(features.__file__).parents[1]
SOURCES = {path: path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
DESCRIBED = set(re.findall(r"(?m)^- `(\w+)|`([A-Z]+)`", features.__doc__ or ""))
NAMES = {name for found in DESCRIBED for name in found if name}


def asked(pattern: str) -> set[str]:
    """The names that modules of the package pass to a function of `options/features.py`."""
    return {name for text in SOURCES.values() for name in re.findall(pattern, text)}


def test_each_name_that_features_may_declare_is_described() -> None:
    assert asked(r'\b(?:call|collect|list_all)\(\s*"(\w+)"') == NAMES


@pytest.mark.parametrize("feature", sorted(features.load_all()))
def test_options_have_no_name_that_nobody_asks_for(feature: str) -> None:
    """A misspelled function would never be called."""
    folder = PACKAGE / "features" / feature
    defined = [
        node.name
        for node in ast.parse(SOURCES[folder / "options.py"]).body
        if isinstance(node, ast.FunctionDef)
    ]
    text = "".join(text for path, text in SOURCES.items() if folder in path.parents)
    unused = [name for name in defined if len(re.findall(rf"\b{name}\b", text)) < 2]
    assert set(unused) <= NAMES, "rename these, or describe them in options/features.py"


@pytest.mark.parametrize("module", sorted(asked(r'\b(?:declared\.load|_load_module)\("(\w+)')))
def test_module_that_is_asked_for_is_of_one_feature(module: str) -> None:
    found = [*PACKAGE.glob(f"features/*/{module}.py"), *PACKAGE.glob(f"features/*/{module}/")]
    assert len(found) == 1, f"`load` would return the first: {found}"
