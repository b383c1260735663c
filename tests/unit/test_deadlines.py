"""The first of many deadlines, which move in both directions."""

from math import inf

from mcjax_launch.kernel.transport.pace import Deadlines


class Times(dict[str, float]):
    """Each item's deadline as it is now, and how often it has been asked for."""

    def __init__(self, **times: float) -> None:
        super().__init__(times)
        self.asked = 0
        self.deadlines = Deadlines(self.of)
        for item in times:
            self.deadlines.note(item)

    def of(self, item: str) -> float:
        self.asked += 1
        return self[item]

    def move(self, item: str, at: float, *, told: bool) -> None:
        self[item] = at
        if told:
            self.deadlines.note(item)


def test_earliest_deadline_is_found() -> None:
    assert Times().deadlines.first == inf
    assert Times(a=inf).deadlines.first == inf
    assert Times(a=3, b=1, c=2).deadlines.first == 1


def test_only_earlier_deadlines_must_be_announced() -> None:
    times = Times(a=1, b=2, c=9)
    times.move("a", 5, told=False)
    assert times.deadlines.first == 2
    times.move("b", inf, told=False)
    assert times.deadlines.first == 5
    times.move("c", 4, told=True)
    assert times.deadlines.first == 4
    times.move("c", 6, told=False)
    assert times.deadlines.first == 5
    times.move("b", 3, told=True)
    assert times.deadlines.first == 3


def test_due_deadlines_are_popped_once() -> None:
    times = Times(a=1, b=2, c=3)
    taken = []
    for item in times.deadlines.take(2):
        taken.append(item)
        times[item] = 10 + times[item]
    assert taken == ["a", "b"]
    assert list(times.deadlines.take(2)) == []
    assert times.deadlines.first == 3
    times["c"] = inf
    assert times.deadlines.first == 11


def test_settled_deadline_is_not_popped() -> None:
    times = Times(a=1, b=1, c=1)
    taken = []
    for item in times.deadlines.take(5):
        taken.append(item)
        times.update(a=inf, b=inf, c=7)
    assert taken == ["a"]
    assert times.deadlines.first == 7


def test_thousand_moving_deadlines_are_cheap() -> None:
    times = Times(**{f"n{number}": 100 + number for number in range(1000)})
    before = times.asked
    for at in range(200, 1200):  # each hears from another, and asks when to wake up
        times.move(f"n{at - 200}", 1000 + at, told=True)
        assert times.deadlines.first == at - 99 if at < 1199 else 1200
    assert times.asked - before < 5000
