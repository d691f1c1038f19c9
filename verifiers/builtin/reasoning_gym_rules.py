"""Checks of an answer before a scorer of reasoning-gym sees it."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from .countdown import ExpressionError, evaluate

# These scorers evaluate the answer as Python, directly or through sympy: only harmless answers may reach them.
LITERALS = frozenset({"string_insertion", "spiral_matrix", "binary_matrix", "n_queens"})
EXPRESSIONS = frozenset(
    {"simple_integration", "intermediate_integration", "polynomial_multiplication", "puzzle24", "countdown"}
)

# These scorers give the full score for wrong answers too; an answer also has to pass these checks.
SAME = frozenset(  # any number close by, words that begin alike, lists with more in them
    {"advanced_geometry", "game_of_life", "list_functions", "number_filtering", "number_sorting", "pool_matrix"}
    | {"figlet_font", "game_of_life_halting", "letter_jumble", "spell_backward", "word_sequence_reversal"}
    | {"word_sorting"}
)
NUMBER = re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:e[-+]?[0-9]{1,3})?")  # a reference; any other number is wrong
TARGETS = {"puzzle24": 24, "countdown": None}  # any four numbers, with a fraction cut off; None: the problem says it
_NO_NUMBER = re.compile(r"[-+]?(?:nan|inf|infinity)", re.IGNORECASE)  # what comparisons go wrong with
_CLAIM = "[A-Za-z]+ is an? [a-z]+"
_CLOCK = r"[0-9]{1,4}:[0-5][0-9]"
FORMS = {
    task: re.compile(form)
    for task, form in {
        "bitwise_arithmetic": "-?0x[0-9a-f]+",
        "complex_arithmetic": r"[-+0-9.() ]+[ij]?\)?",
        "cryptarithm": "[A-Z] ?= ?[0-9](?:, ?[A-Z] ?= ?[0-9])*",
        "dice": "[0-9]+/[0-9]+",
        "fraction_simplification": r"\$?(?:\\d?frac\{[0-9]+\}\{[0-9]+\}|[0-9]+ ?/ ?[0-9]+)\$?",
        "kakurasu": r"[01\s]+",
        "knights_knaves": rf"{_CLAIM}(?:(?:, and |,? and |, |\. ){_CLAIM})*\.?",
        "polynomial_equations": r"-?[0-9]+(?:\.[0-9]+)?(?:, ?-?[0-9]+(?:\.[0-9]+)?)*",
        "power_function": "[-+0-9.,eE]{1,400}",
        "prime_factorization": "[0-9]+(?: ?× ?[0-9]+)*",
        "quantum_lock": r"[A-C](?: ?→ ?[A-C])*",
        "rubiks_cube": r"[A-Za-z]'?(?:\s+[A-Za-z]'?)*",
        "rush_hour": r"[A-Z][+-][0-9](?:\s+[A-Z][+-][0-9])*",
        "sokoban": "[LRUD]+",
        "survo": r"[0-9\s]+",
        "tower_of_hanoi": r"Move disk [0-9]+ from Peg [0-9]+ to Peg [0-9]+(?:\nMove disk [0-9]+ from Peg [0-9]+ to Peg "
        r"[0-9]+)*",
    }.items()
}
_DURATIONS = {  # of time_intervals, by its kind of question
    "date": "[0-9]{1,9}(?: days)?|1 day",
    "time": rf"{_CLOCK}(?::00)?",
    "time_seconds": rf"{_CLOCK}(?::[0-5][0-9])?",
    "time_ms": rf"{_CLOCK}(?::[0-5][0-9](?:\.[0-9]{{3}})?)?",
}
_DATETIME = rf"[0-9]{{1,9}} days, {_CLOCK}(?::[0-5][0-9])?"

_CALLS = frozenset(
    {"sin", "cos", "tan", "sec", "csc", "cot", "sinh", "cosh", "tanh", "exp", "log", "ln", "sqrt", "Abs"}
)
_PART = re.compile(r"(-?[0-9]{1,40}(?:\.[0-9]{1,40})?)(?![\w.])|\w+|\n|[^\w\s\"']")
_TOKEN = re.compile(r"\s+|[0-9]{1,12}(?:\.[0-9]{1,12})?(?![0-9A-Za-z.])|[A-Za-z]+|\*\*|[-+*/^()]")
_HUGE = re.compile(r"(?:\*\*|\^)[\s(+-]*[0-9]{4}|(?:\*\*|\^)[^-+*/]{0,40}(?:\*\*|\^)")  # x**9999, 9**9**9


def is_harmless(task: str, answer: str) -> bool:
    """Tell whether a task's scorer may read this answer, given what it does with it."""
    if task in EXPRESSIONS:
        return is_formula(answer)
    return task not in LITERALS or is_literal(answer)


def is_formula(text: str) -> bool:
    """Tell whether a text is made of numbers, single letters, known functions, operators and brackets, and is short."""
    if len(text) > 500 or _HUGE.search(text):
        return False
    position = 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None or (token[0].isalpha() and len(token[0]) > 1 and token[0] not in _CALLS):
            return False
        position = token.end()
    return True


def is_literal(text: str) -> bool:
    """Tell whether a text is a Python literal, and neither long nor deep."""
    if len(text) > 5_000 or max(map(text.count, "([{")) > 50:
        return False
    try:
        ast.literal_eval(text)
    except (MemoryError, RecursionError, SyntaxError, TypeError, ValueError):
        return False
    return True


def is_number(task: str, reference: str) -> bool:
    """Tell whether the right answer is one number only; "power_function" takes rounded ones."""
    return task != "power_function" and NUMBER.fullmatch(reference) is not None


def is_same(answer: str, reference: str) -> bool:
    """Tell whether two texts have the same numbers, words and signs in the same lines, whatever their quotes."""
    one, other = (
        [Fraction(part[1]) if part[1] else part[0] for part in _PART.finditer(text)] for text in (answer, reference)
    )
    return one == other


def is_strict(task: str, answer: str, reference: str, entry: Mapping[str, Any]) -> bool:
    """Tell whether an answer that is not the reference may have the full score."""
    foreign = set(answer) - set(entry["question"]) - set(reference)
    if not "".join(foreign).isascii() or _NO_NUMBER.fullmatch(answer):  # many scorers read digits of every script
        return False
    if task in SAME or is_number(task, reference):
        return is_same(answer, reference)
    if task == "time_intervals":
        return re.fullmatch(_DURATIONS.get(entry["metadata"]["task_type"], _DATETIME), answer) is not None
    if task in TARGETS:
        target = entry["metadata"]["target"] if TARGETS[task] is None else TARGETS[task]
        try:
            value, numbers = evaluate(answer)
        except ExpressionError:
            return False
        return value == target and sorted(numbers) == sorted(entry["metadata"]["numbers"])
    return task not in FORMS or FORMS[task].fullmatch(answer) is not None
