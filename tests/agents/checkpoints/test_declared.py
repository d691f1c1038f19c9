"""What others may have written is compared with what was declared, to the last nested value."""

from typing import Annotated, Any, TypedDict

import pytest

from agents.checkpoints.declared import Count, misfit


class Inner(TypedDict, total=False):
    share: float


class Outer(TypedDict):
    count: Count
    name: str | None
    inner: Inner
    sizes: dict[str, Count]
    names: list[str]
    level: Annotated[int, range(3)]
    anything: Any


GOOD = {
    "count": 3, "name": None, "inner": {"share": 1}, "sizes": {"a": 0}, "names": [], "level": 2, "anything": object(),
    "beside": 7,
}  # fmt: skip


@pytest.mark.parametrize(
    "change", [{}, {"name": "x"}, {"inner": {}}, {"inner": {"share": 0.5, "more": []}}, {"count": 2**53}]
)
def test_what_was_declared_fits(change):
    assert misfit(GOOD | change, Outer) == ""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("count", -1), ("count", True), ("count", 1.0), ("count", 2**53 + 1), ("count", 10**400), ("name", 3),
        ("inner", None), ("inner", {"share": float("nan")}), ("inner", {"share": float("inf")}),
        ("inner", {"share": True}), ("inner", {"share": "1"}), ("sizes", {"a": -1}), ("sizes", {1: 1}), ("sizes", []),
        ("names", ["a", 1]), ("names", "ab"), ("level", 3),
    ],
)  # fmt: skip
def test_anything_else_is_named(name, value):
    assert misfit(GOOD | {name: value}, Outer) == f"{name} is {value!r:.80}"


@pytest.mark.parametrize("name", ["count", "name", "inner", "anything"])
def test_what_is_missing_is_named(name):
    assert misfit({key: value for key, value in GOOD.items() if key != name}, Outer) == f"{name} is missing"
