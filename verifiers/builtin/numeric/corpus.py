"""Examples of `numeric`: problems, and right and wrong ways to answer them."""

from __future__ import annotations

from fractions import Fraction

from ...reading.extraction import BOXED, STATED
from ...reading.numbers.asked import asked_units, asks_for_percent
from ...reading.numbers.quantities import Quantity
from ...reading.numbers.units import units_in


def written(number: Fraction) -> str:
    """Return a number as a whole number or a decimal if it is one, else as a fraction."""
    places = next((n for n in range(13) if 10**n % number.denominator == 0), None)
    if places is None:
        return str(number)
    digits = str(abs(number) * 10**places).zfill(places + 1)
    return ("-" if number < 0 else "") + (f"{digits[:-places]}.{digits[-places:]}" if places else digits)


def spellings(reference: Quantity, prompt: str, rule: str) -> list[str]:
    """Return a number in sentences, with working above, and in other notations."""
    number, text = reference.value, written(reference.value)
    notations = [text, f"x={number.numerator}/{number.denominator}"]
    notations += [f"\\frac{{{number.numerator}}}{{{number.denominator}}}"]
    points = number if asks_for_percent(prompt) and not reference.percent else 100 * number
    share = asks_for_percent(prompt) or abs(number) <= 1 or number.denominator > 1
    notations += [
        f"{written(points)}{sign}" for sign in ("%", " %", "\\%", " percent") if share and not reference.units
    ]
    if number < 0:
        notations += [f"minus {written(-number)}", f"It is negative {written(-number)}.", f"−{written(-number)}"]
    elif number:
        other = reference.units or asked_units(prompt) or units_in(prompt) or asks_for_percent(prompt)
        notations += [f"+{text}"] if other else [f"+{text}", f"So it comes to ${text}."]
    if "/" not in text:
        notations += [f"{text}e0", f"{text} × 10^0", f"${text} \\times 10^{{0}}$"]
    if number.denominator == 1:
        grouped = f"{number.numerator:,}"
        notations += [f"{number}.0", f"{number}.00"]
        notations += [grouped.replace(",", comma) for comma in (",", "{,}", "\\,", "\N{NARROW NO-BREAK SPACE}")]
    if number.denominator == 1 and 0 < number < 10**8:
        notations += [f"{number + 3} - 3 = {number}", f"The total is {number} * 2 / 2 = {number} coins."]
    for unit in reference.units[:1]:
        notations += [f"{text} {word}" for word in _OTHER_WORDS.get(unit.name, ())]
    forms = [*_FRAMES, *(_CHAT if rule == STATED else ())]
    if rule == BOXED:
        forms, notations = [form for form in forms if "boxed" in form], [f"\\boxed{{{each}}}" for each in notations]
    return [*(form.format(text) for form in forms), *notations]


def counterexamples(reference: Quantity, prompt: str) -> dict[str, list[str]]:
    """Return a number denied, doubted, bounded, made another number of, and in another unit."""
    number, text = reference.value, written(reference.value)
    families = {family: [form.format(text) for form in forms] for family, forms in _WRONG.items()}
    size = written(abs(number))
    families["sign-in-words"] = [form.format(size) for form in _OTHER_SIGN[number > 0]]
    if number.denominator == 1 and 0 < number < 1000:
        families["decimal-comma"] = [f"0,{text:0>3}", f"{text},0"]
    if asks_for_percent(prompt):
        families["hundredfold-percent"] = [f"{written(100 * number * (100 if reference.percent else 1))}%"]
    others = [word for unit in reference.units for word in _WRONG_UNITS.get(unit.dimension, ())]
    if others:
        families["another-unit"] = [form.format(text, word) for word in others for form in ("{} {}", "It is {} {}.")]
    return families


_OTHER_WORDS = {"$": ("dollars", "USD"), "g": ("grams", "g"), "km": ("kilometers", "km")}
_WRONG_UNITS = {"$": ("cents", "euros"), "mass": ("kg", "liters"), "length": ("miles", "hours")}
_FRAMES = [
    "The answer is {}.", "**{}**", "$\\boxed{{{}}}$", "\\({}\\)", "\\[{}\\]", "$${}$$", "First 3, then 4.\n\n{}\n",
    "{}\N{NO-BREAK SPACE}", "Answer:\N{NO-BREAK SPACE}{}", "#### {}", "Answer: **{}**", "**Answer:** {}", "`{}`",
    "({})", "= {}", "x = {}", "{} = x", "{},", "{} apples", "{}\\text{{ apples}}",
    "{} in total", "No, {}.", "I get {}, all in all.",
    "Therefore, there are {} of them!", "$\\mathbf{{{}}}$", "So the final answer is $\\boxed{{{}}}$.", "it is about {}",
    "Not 17: that was wrong.\nIt is {}.", "It does not matter why. The result is {}.", "-> {}",
]  # fmt: skip
_CHAT = [
    "{}\n\nLet me know if you have any other questions!", "The answer is {}, because I counted.", "It equals {}.",
    "The answer is:\n\n\\[\n{}\n\\]\n\nI hope this helps!", "### Final Answer\n\n**{}**", "{} is the answer.",
    "First 3 * 4 = 12. In the end, that makes {}.", "The answer is 17.5. Wait, that is wrong. It is {}.",
    "<think>The answer is 17.5.</think>{}", "The final answer is therefore: {}",
]  # fmt: skip
_WRONG = {
    "denial": [
        "not {}", "It isn't {}.", "It isn’t {}", "no answer: {}", "{} is wrong", "{} is not the answer", "never {}",
        "anything other than {}", "neither {} nor this", "not $\\boxed{{{}}}$", "The answer cannot be\xa0{}",
        "The answer is {}. No, that is wrong.",
    ],
    "question": ["{}?", "Is it {}?", "$\\boxed{{{}}}$?"],
    "bound": ["at least {}", "more than {}", "It is less than {}.", "nearly {}", "> {}", "≤ {}", "up to {}"],
    "number-words": ["{} or seventeen", "seventeen or {}", "{} and a half", "half of {}", "twice {}", "one hundred {}"],
    "magnitude": ["{} thousand", "{} million.", "{} dozen", "{}k", "{} M", "{}\\text{{ billion}}", "{} hundredths"],
    "operator": [
        "!={}", "x != {}", "$x \\ne {}$", "≠ {}", "{} + x", "{} - x", "x * {}", "\\sqrt{{{}}}", "x^{{{}}}",
        "{} squared", "{} x", "{}^x", "sqrt {}", "±{}", "|{}| + 1", "{}_8", "f({})", "√{}", "{}\\pi", "{} factorial",
    ],
    "factorial": ["{}!", "({})!", "$\\boxed{{{}!}}$", "The answer is {}! = x."],
    "false-equation": ["1 + {0} = {0}", "7 = {}", "{0} = 2 * {0} = {0}"],
    "two-answers": [
        "The answer is {0}. The answer is 17.5.", "\\boxed{{17.5}} or \\boxed{{{0}}}", "It is {0}. Or maybe 17.5.",
        "Option 1: {0}\nOption 2: 17.5", "{0} and 17.5", "between {0} and 17.5",
    ],
}  # fmt: skip
_OTHER_SIGN = (["{}", "+{}"], ["minus {}", "It is negative {}.", "-{}", "−{}", "- {}", "-${}", "-\\boxed{{{}}}"])
EXAMPLES = [
    ("A pen costs 3 coins. What do 6 pens cost?", "18"),
    ("It is 4 degrees and gets 9 degrees colder. How cold is it then?", "-5"),
    ("What is 7 divided by 2, as a decimal?", "3.5"),
    ("What is 1 divided by 3, as a fraction?", "1/3"),
    ("A train has 12 cars with 84 seats each. How many seats are there?", "1008"),
    ("What is 10 to the power of 6?", "1000000"),
    ("What is 5 minus 5?", "0"),
    ("Half of 0.25 is what?", "0.125"),
    ("A box holds 24 eggs, 5 are broken. How many are whole?", "24 - 5 is what is left.\n#### 19"),
    ("What is 30 percent of 50, times 0.1?", "1.5"),
    ("What percent of 50 is 20?", "40"),
    ("How much is 20 of 50, as a share?", "40%"),
    ("How many grams are 2.5 kilograms?", "2,500 g"),
    ("What is 22 divided by 7?", "3 1/7"),
    ("A bill of $40 is split by 5. What does each pay?", "$8"),
    ("How far is it from -3 to -10 on the number line, going down?", "-7"),
]
