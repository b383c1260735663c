"""How a host's cores are shared out."""

import pytest

from mcjax_launch.agent.cores import split_cores


@pytest.mark.parametrize(
    ("physical", "ranks", "shares"),
    [
        ([[0], [1], [2], [3]], 2, [[0, 1], [2, 3]]),
        ([[0, 4], [1, 5], [2, 6], [3, 7]], 2, [[0, 1, 4, 5], [2, 3, 6, 7]]),
        ([[0, 4], [1, 5], [2, 6], [3, 7]], 4, [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ([[0, 2], [1, 3]], 4, [[0], [2], [1], [3]]),
        ([[0], [1], [2]], 2, [[0], [1, 2]]),
        ([[0], [1]], 4, [[0], [0], [1], [1]]),
    ],
)
def test_split_cores(physical: list[list[int]], ranks: int, shares: list[list[int]]) -> None:
    assert split_cores(physical, ranks) == shares
