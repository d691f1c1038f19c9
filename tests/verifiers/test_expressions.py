import pytest

from verifiers.builtin.countdown import LONGEST, ExpressionError, evaluate


@pytest.mark.parametrize(
    ("text", "value", "numbers"),
    [
        ("3*7+5", 26, [3, 7, 5]),
        ("(5+3)*7", 56, [5, 3, 7]),
        ("9-5-1", 3, [9, 5, 1]),
        ("9-(5-1)", 5, [9, 5, 1]),
        ("8/(4/2)", 4, [8, 4, 2]),
        ("7/2*2", 7, [7, 2, 2]),
        ("(2-9)/7", -1, [2, 9, 7]),
        ("((((4))))", 4, [4]),
        ("999999999*999999999", 999999998000000001, [999999999, 999999999]),
    ],
)
def test_the_value_and_the_numbers_of_an_expression(text, value, numbers):
    assert evaluate(text) == (value, numbers)


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "()", "(", ")", "+", "3+", "+3", "-3", "3--2", "3 4", "3(4)", "(3", "3)", "3**2", "3//2", "3^2", "3.0",
        "03", "1_000", "1e3", "0x3", "3=3", "3+a", "٣", "４", "²", "3×4", "3\n", "\t3", "7/0", "0/0",
        "1234567890", "9" * 5_000, "1+" * LONGEST + "1", "(" * 100_000,
        "__import__('os')", "3;4", "3,4", "3\x00",
    ],
)  # fmt: skip
def test_anything_else_is_refused(text):
    with pytest.raises(ExpressionError):
        evaluate(text)
