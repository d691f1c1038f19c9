"""What the answers of each task look like in a text, and how the reference answers spell them."""

from __future__ import annotations

import re
from collections.abc import Callable

NUMERIC = frozenset(
    """aiw basic_arithmetic binary_alternation chain_sum circuit_logic coin_flip count_bits count_primes
    decimal_arithmetic decimal_chain_sum gcd gsm_symbolic largest_island lcm leg_counting letter_counting maze
    number_format number_sequence power_function products rectangle_count rotten_oranges self_reference
    simple_equations simple_geometry""".split()  # noqa: SIM905
)
SOMETIMES_NUMERIC = frozenset({"advanced_geometry", "calendar_arithmetic"})
EXPRESSIONS_OF = {"puzzle24": 24, "countdown": None}  # the target; None: the problem says it
JSON = frozenset(
    {"boxnet", "codeio", "game_of_life", "graph_color", "group_anagrams", "jugs", "palindrome_partitioning"}
)

VERBAL = frozenset(  # whose answers may have a verb, an arrow or an equals sign in them
    {"cryptarithm", "knights_knaves", "polynomial_equations", "quantum_lock", "shortest_path", "word_ladder"}
    | {"word_sequence_reversal", "word_sorting"}
)
LISTS = frozenset({"word_ladder", "word_sequence_reversal", "word_sorting"})

_N = r"-?[0-9]+(?:\.[0-9]+)?"
_ITEM = r"(?:[0-9]{1,4}[.):][ \t]+|[-*•][ \t]+)?"
_GRIDS = (
    "arc_1d", "arc_agi", "rearc", "binary_matrix", "kakurasu", "manipulate_matrix", "mini_sudoku", "pool_matrix",
    "rotate_matrix", "sudoku", "survo",
)  # fmt: skip
DOCUMENTS = {  # one line of it
    **dict.fromkeys(_GRIDS, re.compile(rf"(?P<line>{_N}(?:[ \t]+{_N})*)")),
    "modulo_grid": re.compile("(?P<line>[✅❌❔]+)"),
    "n_queens": re.compile(r"(?P<line>[Q_](?: [Q_])+)"),
    "tower_of_hanoi": re.compile(rf"{_ITEM}(?P<line>Move disk [0-9]+ from Peg [0-9]+ to Peg [0-9]+)[.,;]?"),
}

FACTORS = re.compile(r"([0-9]{1,18})(\^ ?\{?[0-9]{1,2}\}?|[²³⁴⁵⁶⁷⁸⁹])?")
_POWER = r"[0-9]{1,18}(?:\^ ?\{?[0-9]{1,2}\}?|[²³⁴⁵⁶⁷⁸⁹])"
_FRACTION = r"(?<![\w./])[0-9]+ ?/ ?[0-9]+(?![\w/]|\.[0-9])"
_TRUTH = r"(?i)\b(true|false)\b"
_LIST = r"\[[^\[\]\n]*\]"
_WAYS = "(?:up|down|left|right)"
_WORD = r"[^\s,:\"*]*[^\s,:\"*.!]"
_WORD_LIST = rf"(?<![^\s:\"*(]){_WORD}(?:, ?{_WORD})+"
_I = r"(?:[0-9]+(?:\.[0-9]+)? ?)?[ij]"
_COMPLEX = (
    rf"(?<![\w.)])(?<!\w\()\(?({_N} ?[-+] ?{_I}|-?{_I})\b\)?|(?<=\bor )({_N})(?=\W*$)|(?<![\w.])({_N})(?= or\b|, )"
)
_YES = re.compile(
    r"^(?:\W|\b(?:so|therefore|thus|hence|well|ok|answer)\b)*(yes|no)\b"
    r"(?=[\W_]*$|[\W_]*[,.;:!—–(-]|,? (?:it|this|that|because|since|the))",
    re.IGNORECASE,
)
_YES_OR_NO = re.compile(r"\b(yes|no)\b(?=[\"'*_)]*(?:[.,;:!]|\s*$))", re.IGNORECASE)
_DAY = re.compile(r"\b(Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday)\b", re.IGNORECASE)
_TIMES = {
    "days": re.compile(r"\b(?:[0-9]+ days|1 day)\b(?:(?:,| and)? [0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?)?"),
    "time": re.compile(r"(?<![\w:])[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?(?![\w:])"),
}
_PATTERNS = {
    "ab": r"(?<![#\w])(?:#[AB]|[AB]#)(?: +(?:#[AB]|[AB]#))*(?![#\w])",
    "acre": r"(?i)\b(on|off|undetermined)\b(?=\W*$| or\b)",
    "advanced_geometry": rf"\( ?{_N} ?, ?{_N} ?\)",
    "base_conversion": r"(?<![\w.-])([0-9]+[0-9a-z]*|[a-z]+[0-9][0-9a-z]*)"
    r"(?:_\{?[0-9]{1,2}\}?|[₀-₉]{1,2})?(?!\w|\.[0-9])",
    "bitwise_arithmetic": r"(?<!\w)-?0x[0-9a-fA-F]+\b",
    "complex_arithmetic": rf"{_COMPLEX}|^\W*({_N})\W*$",
    "course_schedule": _TRUTH,
    "cryptarithm": r"\b[A-Z] ?= ?[0-9](?:, ?(?:and )?[A-Z] ?= ?[0-9])+",
    "dice": _FRACTION,
    "family_relationships": r"(?i)\b((?:grand)?(?:mother|father)(?:-in-law)?|(?:sister|brother|daughter|son)-in-law|"
    r"sister|brother|daughter|son|wife|husband|aunt|uncle|niece|nephew)\b(?!-)",
    "fraction_simplification": _FRACTION,
    "game_of_life_halting": _TRUTH,
    "isomorphic_strings": _TRUTH,
    "knight_swap": _LIST,
    "knights_knaves": r"\b[A-Z][a-z]+ is an? [a-z]+(?:(?:, and |,? and |, |\. ?)[A-Z][a-z]+ is an? [a-z]+)*",
    "list_functions": _LIST,
    "mahjong_puzzle": r"(?i)\b(Peng|Chi|Pass)\b",
    "number_filtering": _LIST,
    "number_sorting": _LIST,
    "path_star": r"(?<!\w)[0-9]+(?: [0-9]+)+(?!\w)",
    "polynomial_equations": rf"(?<![\w.])(?:[a-z]\w* ?= ?)?({_N}(?:(?:,|,? and|,? or) (?:[a-z]\w* ?= ?)?{_N})*)"
    r"(?![\w*]|\.[0-9])",
    "prime_factorization": rf"(?<![\w.×])((?:{_POWER}|[0-9]{{1,18}})(?: *[×x] *(?:{_POWER}|[0-9]{{1,18}}))+|{_POWER}|"
    r"[0-9]+(?= is (?:already |itself )?(?:a )?prime))(?!\w|\.[0-9])",
    "quantum_lock": r"(?<![\w→])[A-C](?: ?→ ?[A-C])+(?![\w→])|^\W*([A-C])\W*$",
    "ransom_note": _TRUTH,
    "rubiks_cube": r"(?<![\w'])[UDLRFB]'?(?: +[UDLRFB]'?)+(?![\w'])",
    "rush_hour": r"(?<!\w)[A-Z][+-][0-9](?:,? +[A-Z][+-][0-9])*(?!\w)",
    "shortest_path": rf"(?i)\b({_WAYS}(?:(?:,|,? then|,? and| →)? {_WAYS})*|infeasible)\b",
    "sokoban": r"\b[LRUD]{2,}\b",
    "spiral_matrix": r"(?<![\w.])-?[0-9]+(?:,? -?[0-9]+)+(?!\w|\.[0-9])",
    "string_insertion": r"\b[A-E]{3,}\b",
    "string_splitting": r"(?<![\w.])[0-9]+(?:,? [0-9]+){5}(?!\w|\.[0-9])",
    "string_synthesis": r"(?<![\w.])[0-9]+(?:,? [0-9]+){8}(?!\w|\.[0-9])",
    "tsumego": r"(?i)\b[A-T][0-9]{1,2}\b",
    "word_ladder": r"\b[A-Z]{2,}(?:(?:, ?| → ?)[A-Z]{2,})+\b",
    "word_sequence_reversal": _WORD_LIST,
    "word_sorting": _WORD_LIST,
}
_COMPILED = {task: re.compile(pattern) for task, pattern in _PATTERNS.items()}


def _joined(glue: str, pattern: str) -> Callable[[str], str]:
    return lambda text: glue.join(re.findall(pattern, text))


SPELLED: dict[str, Callable[[str], str]] = {
    **dict.fromkeys(("acre", "bitwise_arithmetic", "color_cube_rotation", "family_relationships"), str.lower),
    **dict.fromkeys(("course_schedule", "isomorphic_strings", "ransom_note", "game_of_life_halting"), str.title),
    **dict.fromkeys(("calendar_arithmetic", "mahjong_puzzle", "syllogism"), str.title),
    **dict.fromkeys(("spiral_matrix", "string_splitting", "string_synthesis"), _joined(" ", "-?[0-9]+")),
    "cryptarithm": lambda text: _joined(",", "[A-Z] ?= ?[0-9]")(text).replace(" ", ""),
    "polynomial_equations": _joined(", ", rf"(?<![\w.]){_N}"),
    "rush_hour": lambda text: text.replace(",", ""),
    "shortest_path": lambda text: _joined(" ", f"{_WAYS}|infeasible")(text.lower()),
    "time_intervals": lambda text: re.sub(r"(days?),?(?: and)? (?=[0-9])", r"\1, ", text),
    "tsumego": str.upper,
    "word_ladder": _joined(",", "[A-Z]+"),
    "zebra_puzzles": str.lower,
}
SAYS_YES: dict[str, tuple[re.Pattern[str], str, str]] = {  # a sentence that says so, and its opposite
    "calendar_arithmetic": (re.compile(r"\b(?:is|was)(?:n't| not)? (?:indeed )?a leap year"), "Yes", "No"),
    "course_schedule": (re.compile(r"\b(?:finish|complete|take) all\b|\ball (?:the )?courses can\b"), "True", "False"),
    "game_of_life_halting": (re.compile(r"\bhalts?\b"), "True", "False"),
    "isomorphic_strings": (re.compile(r"\bisomorphic\b"), "True", "False"),
    "ransom_note": (re.compile(r"\b(?:be )?construct(?:ed)?\b"), "True", "False"),
    "syllogism": (re.compile(r"\bfollows?\b"), "Yes", "No"),
}


# A name that is stated, or stands beside another one, is an answer, too, if the prompt has nobody of that name.
_STATED_NAME = r"[A-Z][\w'-]*(?= (?:or|and) [A-Z])|(?:(?<= or )|(?<= and )|(?<= is ))[A-Z][\w'-]*|^[A-Z][\w'-]*(?=\W*$)"


def pattern_of(task: str, reference: str, prompt: str) -> re.Pattern[str] | None:
    """Return what an answer to this problem looks like; None for any words."""
    if task == "calendar_arithmetic":
        return _YES if reference in ("Yes", "No") else _DAY
    if task == "syllogism" or (task == "knight_swap" and reference == "No"):
        return _YES
    if task == "time_intervals":
        return _TIMES["days" if "day" in reference else "time"]
    if task in ("color_cube_rotation", "zebra_puzzles", "needle_haystack"):
        return _named(task, prompt)
    return _COMPILED.get(task)


def is_opposed(text: str, answer: str) -> bool:
    """Tell whether a text says yes where the answer is no, or the other way round."""
    said = {word.title() for word in _YES_OR_NO.findall(text)}
    return answer in ("Yes", "No") and bool(said - {answer})


def _named(task: str, prompt: str) -> re.Pattern[str]:
    """Return the pattern of what a prompt offers: its colours, or its names."""
    if task == "color_cube_rotation":
        offered = re.findall(r"- an? ([\w ]+?) (?:top|right|front|left|back|bottom) side", prompt)
    elif task == "zebra_puzzles":
        found = re.search(r"unique name: ([^\n]+)", prompt)
        offered = found[1].split(", ") if found else []
    else:
        offered = re.findall(r"(?:^|\. |\n)([A-Z][\w'-]*)", prompt)
    names = "|".join(map(re.escape, sorted(set(offered), key=len, reverse=True))) or "(?!)"
    if task != "needle_haystack":
        return re.compile(rf"(?<![\w-])({names})(?![\w-])", re.IGNORECASE)
    return re.compile(rf"(?<![\w-])({names}|{_STATED_NAME})(?![\w-])")
