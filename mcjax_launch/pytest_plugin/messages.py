"""What the controller and its ranks say to one another: pickled, over a socket that is private."""

from dataclasses import dataclass
from typing import Any

# --- to a rank, after a dictionary that says how to set itself up (see `worker.py`) ---


@dataclass(frozen=True)
class Run:
    """Run a test.

    Args:
        kept: how many of the nodes above the test the next one shares, from the session on: their
            fixtures stay.

    """

    nodeid: str
    kept: int


@dataclass(frozen=True)
class Finish:
    """No more tests: tear down what is left, and leave."""


# --- from a rank ---


@dataclass(frozen=True)
class Ready:
    """Collected, as far as that went well."""


@dataclass(frozen=True)
class Streams:
    """Two descriptors follow: what stdout and stderr are captured in."""


@dataclass(frozen=True)
class Report:
    """A phase of the test, as pytest serializes its reports."""

    data: dict[str, Any]


@dataclass(frozen=True)
class Warned:
    """A warning in a test."""

    category: tuple[str, str]  # module, name
    text: str
    filename: str
    lineno: int
    nodeid: str


@dataclass(frozen=True)
class Limit:
    """From now on the test may take this long: pytest-timeout's, for the function alone."""

    seconds: float | None


@dataclass(frozen=True)
class Missing:
    """The test was not collected in this rank.

    Args:
        errors: of the collection, as pytest shows them.

    """

    errors: tuple[str, ...]


@dataclass(frozen=True)
class Exit:
    """The test has called `pytest.exit`."""

    reason: str
    status: int | None


@dataclass(frozen=True)
class Done:
    """The test is over in this rank."""


FromRank = Ready | Streams | Report | Warned | Limit | Missing | Exit | Done
