"""Formulas as people and chat models type them, in Unicode, plain text or LaTeX, rewritten as LaTeX."""

from __future__ import annotations

import re
import unicodedata

_SIGNS = {
    "−": "-", "–": "-", "—": "-", "×": r"\times ", "⋅": r"\cdot ", "·": r"\cdot ", "∙": r"\cdot ", "•": r"\cdot ",
    "∗": "*", "÷": r"\div ", "≤": r"\le ", "⩽": r"\le ", "≥": r"\ge ", "⩾": r"\ge ", "≠": r"\ne ", "≈": r"\approx ",
    "≅": r"\cong ", "±": r"\pm ", "∓": r"\mp ", "∞": r"\infty ", "°": r"^\circ ", "∪": r"\cup ", "∩": r"\cap ",
    "∈": r"\in ", "∅": r"\emptyset ", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "∠": r"\angle ",
    "′": "'", "’": "'", "⟨": r"\langle ", "⟩": r"\rangle ", "→": r"\to ", "⟶": r"\to ", "∫": r"\int ", "∑": r"\sum ",
    "⇒": r"\Rightarrow ", "⟹": r"\Rightarrow ", "∂": r"\partial ", "⁄": "/", "∣": "|", "\N{NO-BREAK SPACE}": " ",
    "\N{THIN SPACE}": " ", "\N{NARROW NO-BREAK SPACE}": " ", "…": r"\ldots ",
}  # fmt: skip
_GREEK = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "ζ": "zeta", "η": "eta", "θ": "theta",
    "κ": "kappa", "λ": "lambda", "μ": "mu", "ν": "nu", "ξ": "xi", "π": "pi", "ρ": "rho", "σ": "sigma", "τ": "tau",
    "φ": "phi", "ϕ": "phi", "χ": "chi", "ψ": "psi", "ω": "omega", "Γ": "Gamma", "Δ": "Delta", "Θ": "Theta",
    "Λ": "Lambda", "Ξ": "Xi", "Π": "Pi", "Σ": "Sigma", "Φ": "Phi", "Ψ": "Psi", "Ω": "Omega",
}  # fmt: skip
_TABLE = str.maketrans(_SIGNS | {letter: f"\\{name} " for letter, name in _GREEK.items()})
_ABOVE, _BELOW = "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱᵃᵇᶜᵈᵉᵏᵐᵒᵖᵗᵘᵛʷˣʸᶻ", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑₒₓₙₖₘᵢⱼ"
_RAISED = re.compile(rf"(?<=[A-Za-z0-9α-ωΑ-Ω)\]}}'|])(?:([{_ABOVE}]+)|([{_BELOW}]+))")
_FRACTION = re.compile(r"[¼½¾⅐⅑⅒⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞]")
FUNCTIONS = frozenset({
    "sqrt", "sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "log", "ln",
    "exp", "lim", "max", "min", "gcd", "lcm", "det", "mod", "pm", "mp", "le", "ge",
})  # fmt: skip
_NAMES = {*FUNCTIONS, *_GREEK.values(), "infty", "cup", "cap", "times", "cdot"}
_NAMED = {name: name for name in _NAMES} | {
    "inf": "infty", "infinity": "infty", "oo": "infty", "union": "cup", "acos": "arccos", "asin": "arcsin",
    "atan": "arctan",
}  # fmt: skip
_WORD = re.compile(rf"(?<![\\A-Za-z{{])({'|'.join(sorted(_NAMED, key=len, reverse=True))})(?![A-Za-z])")
_ATTACHED = re.compile(r"(?<![\\A-Za-z])(sqrt|ln|log|pi)(?=[0-9_(])|(?<=[0-9)])(pi|sqrt)(?![A-Za-z])")
_ROOTS = {"√": "", "∛": "[3]", "∜": "[4]"}
_ROOT = re.compile(r"([√∛∜])\s*|\\?\bsqrt\s*(?=\()|(?<![\\A-Za-z])sqrt\s*(?=[0-9A-Za-z])")
_OPERAND = re.compile(r"[0-9]+(?:\.[0-9]+)?|[A-Za-zπθ]")
_POWER = re.compile(r"\^\s*(?:([-+]?[0-9]+(?:\.[0-9]+)?)|(-?[A-Za-z]))(?![.0-9]*[0-9])")
_SLASH = re.compile(r"(?<![\w.)}/^'!])([0-9]+)\s?/\s?([0-9]+)(?![0-9./!)^]*[0-9/^!])(?=\s?[A-Za-z(\\*])")
_LOGARITHM = r"\\(?:ln|log)\s*(?:_\{?[0-9]+\}?)?\s*\(?[0-9.]+\)?"
_LOGARITHMS = re.compile(rf"({_LOGARITHM})\s*/\s*({_LOGARITHM})")
_TIMES_TEN = re.compile(r"(?<=[0-9])\s*[xX]\s*(?=10\s*\^)")
_SPACES = re.compile(r"(?<!\\)\\(?:[,;:! ]|q?quad\b|left\b|right\b|displaystyle\b|big[lr]?\b|Big[lr]?\b|limits\b)|~")
_STYLES = re.compile(r"\\(?:mathbf|boldsymbol|mathit|mathsf|mathtt|bm)\s*\{([^{}]*)\}")
_SETS = re.compile(r"\{\s*[A-Za-z]\s*(?:\\in\s*\\mathbb\{R\}\s*)?(?:\\?[|:]|\\mid)(.+)\}", re.DOTALL)
_ALIGNED = re.compile(r"&|\\\\\s*$")
_SET = re.compile(r"(^\s*|[=∈]\s*|\\in\s+)\{([^{}\\|:]+)\}")
_SAME = {
    "\\dfrac": "\\frac", "\\tfrac": "\\frac", "\\leqslant": "\\le ", "\\geqslant": "\\ge ", "\\lvert": "|",
    "\\rvert": "|", "<=": "\\le ", ">=": "\\ge ", "!=": "\\ne ", "**": "^",
}  # fmt: skip
_PAREN_POWER = re.compile(r"\^\s*\(")


def latex(formula: str) -> str:
    """Return a formula as LaTeX; what cannot be rewritten stays as it is, so it may not be ASCII."""
    if "\\begin" not in formula:
        formula = _ALIGNED.sub("", formula)
    text = _roots(raised(formula))
    if not text.isascii():
        text = _FRACTION.sub(_fraction, text).translate(_TABLE)
    text = _STYLES.sub(r"\1", _SPACES.sub(" ", text)).replace(r"\dfrac", r"\frac").replace(r"\tfrac", r"\frac")
    text = (
        text.replace(r"\leqslant", r"\le ")
        .replace(r"\geqslant", r"\ge ")
        .replace(r"\lvert", "|")
        .replace(r"\rvert", "|")
    )
    text = _ATTACHED.sub(lambda found: f"\\{found[1] or found[2]} ", text)
    text = _WORD.sub(lambda found: f"\\{_NAMED[found[1]]} ", _bracketed(_PAREN_POWER, "^{", text))
    text = re.sub(r"\\(log|ln|lg)\s*([0-9]+)(?=\()", r"\\\1_{\2}", text)
    text = _TIMES_TEN.sub(r"\\times ", text.replace("<=", r"\le ").replace(">=", r"\ge ").replace("!=", r"\ne "))
    text = _POWER.sub(
        lambda found: "^" if found[0] == "**" else f"^{{{found[1] or found[2]}}}", text.replace("**", "^")
    )
    text = _LOGARITHMS.sub(r"\\frac{\1}{\2}", text)
    text = _SLASH.sub(r"\\frac{\1}{\2}", text)
    text = re.sub(r"(\\pi)\s*\(", r"\1\\cdot (", text)  # not a function of what is in the brackets
    text = re.sub(r"\)\s*\((?![^()]*,)", r")\\cdot (", text)
    text = _SET.sub(r"\1\\{\2\\}", text)
    defined = _SETS.fullmatch(text.strip().replace("\\{", "{").replace("\\}", "}"))
    return (defined[1] if defined else text).strip()


def raised(text: str) -> str:
    """Return a text with ^{2} for a raised 2, and _{2} for a lowered one."""
    return _RAISED.sub(_raised, text)


def _raised(found: re.Match[str]) -> str:
    plain = unicodedata.normalize("NFKC", found[0]).replace("\N{MINUS SIGN}", "-")
    return f"^{{{plain}}}" if found[1] else f"_{{{plain}}}"


def _fraction(found: re.Match[str]) -> str:
    over, _, under = unicodedata.normalize("NFKC", found[0]).partition("\N{FRACTION SLASH}")
    return f"\\frac{{{over}}}{{{under}}}"


def _roots(text: str) -> str:
    """Return a text with \\sqrt{...} for each root sign or word before a bracket, a number or a letter."""
    made, position = [], 0
    for found in _ROOT.finditer(text):
        if found.start() < position:
            continue
        end = found.end()
        inner, after = _operand(text, end)
        if after == end:
            continue
        made.append(f"{text[position : found.start()]}\\sqrt{_ROOTS.get(found[1] or '', '')}{{{_roots(inner)}}}")
        position = after
    return "".join(made) + text[position:]


def _operand(text: str, start: int) -> tuple[str, int]:
    """Return what a root is of, without its brackets, and where it ends."""
    if text[start : start + 1] in ("(", "{"):
        end = closing(text, start)
        return (text[start + 1 : end - 1], end) if end else ("", start)
    found = _OPERAND.match(text, start)
    return (found[0], found.end()) if found else ("", start)


def _bracketed(opening: re.Pattern[str], made: str, text: str) -> str:
    """Return a text with curly brackets for the round ones that open with a pattern, such as e^(2x)."""
    pieces, position = [], 0
    for found in opening.finditer(text):
        end = closing(text, found.end() - 1) if found.start() >= position else 0
        if end:
            pieces.append(f"{text[position : found.start()]}{made}{text[found.end() : end - 1]}}}")
            position = end
    return "".join(pieces) + text[position:]


def closing(text: str, start: int) -> int:
    """Return the place after the bracket that closes the one at a place; 0 if it is never closed."""
    opened, closed = text[start], {"(": ")", "{": "}", "[": "]"}[text[start]]
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] == opened) - (text[place] == closed)
        if not depth:
            return place + 1
    return 0
