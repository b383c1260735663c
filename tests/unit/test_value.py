"""Classes that behave like dataclasses without costing what those cost."""

import pytest

from mcjax_launch.wire.value import Changing, Value, field


class Point(Value):
    x: int
    y: int = 2


class Line(Changing):
    name: str
    points: list[Point] = field(default_factory=list)
    closed: bool = False

    def close(self) -> None:
        self.closed = True


def test_value_can_be_copied_with_other_fields() -> None:
    assert Point(1).copy_with(x=3) == Point(3, 2)
    assert Point(1).copy_with() == Point(1)
    with pytest.raises(TypeError, match="no such field"):
        Point(1).copy_with(z=3)


def test_mutable_object_has_its_own_defaults() -> None:
    first, other = Line("one"), Line("one")
    first.points.append(Point(1))
    first.close()
    assert (first.points, first.closed) == ([Point(1)], True)
    assert (other.points, other.closed) == ([], False)
    assert first != other and repr(other) == "Line(name='one', points=[], closed=False)"
    assert Line("a", [Point(1)], closed=True).closed


@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {}), (("a", [], True, 1), {}), (("a",), {"colour": 1})]
)
def test_missing_or_unknown_fields_are_refused(args: tuple[object, ...], kwargs: object) -> None:
    with pytest.raises(TypeError, match="Line: not its fields"):
        Line(*args, **kwargs)  # type: ignore[arg-type]
