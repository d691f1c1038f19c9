"""Examples of `exact`: questions whose answers have only one spelling."""

from __future__ import annotations

EXAMPLES = [
    ("What is the capital of Peru?", "Lima"),
    ("What is 12 + 30?", "42"),
    ("What is 7 minus 12?", "-5"),
    ("Round pi to two decimals.", "3.14"),
    ("Write a quarter in percent.", "25%"),
    ("Write one thousand two hundred with a comma.", "1,200"),
    ("Which Danish word means island?", "ø"),
    ("What is the French word for summer?", "été"),
    ("Write hello in Japanese hiragana.", "こんにちは"),
    ("Quote the first words of Hamlet's soliloquy.", "To be, or not to be"),
    ("Convert to snake_case: readNextLine", "read_next_line"),
    ("Write a JSON object whose only key a is 1.", '{"a": 1}'),
    ("Write the letters a to c, one in each line.", "a\nb\nc"),
    ("Write minus two thirds in LaTeX.", "-\\frac{2}{3}"),
]
