"""Wording that is not allowed in docstrings, names and comments."""

import pytest
import vocabulary

FAULTS = {
    '"""What it does."""': "docstring begins with 'What'",
    'def f():\n    """Whether it holds."""': "docstring begins with 'Whether'",
    'class A:\n    """Those of a rank."""': "docstring begins with 'Those'",
    "x = [one for one in y]": "variable `one`: name it after the thing",
    "def f(one): pass": "variable `one`: name it after the thing",
    "for one in y: pass": "variable `one`: name it after the thing",
    "# for whoever comes": "'whoever' has been replaced",
    "# A fork server": "'fork server' has been replaced",
}
ALLOWED = ['"""Whatever."""', '"""Allow it."""', "# of their own", "x = f(a.one)", 'x = {"one": 1}']


@pytest.mark.parametrize("source", FAULTS)
def test_a_fault_is_found(source: str) -> None:
    found = {fault for _, fault in vocabulary.faults(source, in_package=True)}
    assert found == {FAULTS[source]}


@pytest.mark.parametrize("source", ALLOWED)
def test_other_wording_is_allowed(source: str) -> None:
    assert list(vocabulary.faults(source, in_package=True)) == []


def test_no_file_has_a_fault() -> None:
    assert list(vocabulary.all_faults()) == []
