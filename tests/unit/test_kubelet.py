"""The stand-in for a kubelet has Kubernetes' rules: cases of its own tests, and of its documentation."""

import pytest
from kubelet import environment, expanded

VARIABLES = {"A": "1", "REF": "$(A)", "EMPTY": ""}


@pytest.mark.parametrize(
    ("word", "becomes"),
    [
        ("$(A)-$(A)", "1-1"),
        ("$$(A)_$(A)", "$(A)_1"),
        ("f-$$A", "f-$A"),
        ("\\\\$(A)x", "\\\\1x"),
        ("$(A$(A))", "$(A$(A))"),
        ("%$(REF)%", "%$(A)%"),
        ("x$(EMPTY)y", "xy"),
        ("x$(A!", "x$(A!"),
        ("$?_$!", "$?_$!"),
        ("$A ${A} $A)", "$A ${A} $A)"),
        ("$(NONE)", "$(NONE)"),
        ("$$$$$$(A)", "$$$(A)"),
        ("$$$$$$$(A)", "$$$1"),
        ("$(A)____$(", "1____$("),
        ("$(A)z$", "1z$"),
        ("--$($($($(--", "--$($($($(--"),
        ("$(x$$y)", "$(x$$y)"),
        ("$$", "$"),
        ("\n", "\n"),
    ],
)
def test_references(word: str, becomes: str) -> None:
    assert expanded(word, VARIABLES) == becomes


def test_variables() -> None:
    """Each may refer to those before it, and to what the cluster sets; a field is taken as it is."""
    entries = [
        {"name": "FOO", "value": "$(HOST)-$(LATER)"},
        {"name": "LATER", "value": "$(FOO) $$"},
        {"name": "FIELD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "EMPTY"},
    ]
    found = environment(entries, {"HOST": "h"}, {"metadata.name": "$(FOO)"}.__getitem__)
    assert found == {
        "HOST": "h",
        "FOO": "h-$(LATER)",
        "LATER": "h-$(LATER) $",
        "FIELD": "$(FOO)",
        "EMPTY": "",
    }
