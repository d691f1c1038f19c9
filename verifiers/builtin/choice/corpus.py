"""Examples of `choice`: problems, and right and wrong ways to answer them."""

from __future__ import annotations

# {0} is the label of the right choice; below, {1} is its text, another label, or the text of another choice.
RIGHT = [
    " {}\n", "**{}**", "`{}`", "${}$", "{}!", "$\\boxed{{{}}}$", "\\boxed{{\\text{{{}}}}}.", "The answer is {}.",
    "Answer: {}",
    "the correct answer is: ({})", "Answer:\N{NO-BREAK SPACE}{}", "Answer\N{FULLWIDTH COLON}{}", "Option {}",
    "option ({}).",
    "It is {}", "It's {}.", "It must be {}.", "I choose {}.", "I would go with option {}",
    "So the final answer is **{}**.",
    "Final answer: {}", "Final: {}", "{} is correct.", "({}) is the right answer.", "The right choice is \\({}\\).",
    "#### {}", "**Answer:** {}", "Not the first one, I think.\n\nAnswer: {}",
    "Let me think. It floats, so the answer is {}.",
    "Answer: {0}\n\nI checked it.\n\nSo the answer is {0}.", "That leaves $\\boxed{{\\mathbf{{{}}}}}$",
    "Two of them are close.\nTherefore, the correct option is $\\boxed{{({})}}$.",
]  # fmt: skip
RIGHT_WITH_TEXT = [
    "{1}",
    "{1}.",
    "{0}) {1}",
    "({0}) {1}",
    "**{0}. {1}**",
    "Answer: {1}",
    "The answer is {0}: {1}.",
    "{1} ({0})",
]
WRONG = {
    "contradiction": [
        "Final: {1}\nSo the answer is {0}", "Answer\N{FULLWIDTH COLON}{1}\nAnswer: {0}",
        "I pick {1}.\nThe answer is {0}.",
        "{1}\nAnswer: {0}", "({1})\n\nFinal answer: {0}", "\\boxed{{{1}}}\n\\boxed{{{0}}}", "Option {1}\nOption {0}",
        "The answer is {1}. So the answer is {0}.", "It is {1}, so the answer is {0}", "{1} is correct.\nIt is {0}",
        "The answer is {0}.\n{1}", "The answer is {0}. It is {1}.", "The answer is {1} or {0}.\nThe answer is {0}.",
    ],
    "denial": [
        "It is not {0}.", "Option {0} is wrong", "{0} is incorrect.", "not $\\boxed{{{0}}}$", "The answer isn't {0}",
        "Anything but {0}", "No option {0}", "The answer is {0}. Not.", "The answer is not\n{0}",
    ],
    "question": ["{0}?", "Is it {0}?", "It is {0}?", "$\\boxed{{{0}}}$?", "Option {0} or what?"],
    "several": [
        "\\boxed{{{1}}}\\boxed{{{0}}}", "\\boxed{{{0}, {1}}}", "option {1} or option {0}", "{1} or \\boxed{{{0}}}",
        "Answer: {0}/{1}", "{0} is correct and {1} is correct", "It is {0}, {1}", "Answer: {0}{1}",
        "\\boxed{{{0}}} or {1}",
    ],
}  # fmt: skip
WRONG_WITH_TEXT = ["{0}) {1}", "Option {0}: {1}", "\\boxed{{{0}}} {1}", "{1} ({0})", "The answer is {0}, {1}."]
EXAMPLES = [
    ("What is the capital of Peru?", ["Quito", "Lima", "Bogota", "La Paz"], "B"),
    ("Which of these is a prime number?", ["21", "27", "29", "33"], "C"),
    ("Which planet is closest to the sun?", ["Mercury", "Venus", "Earth", "Mars"], "A"),
    ("Which gas do plants take in?", ["oxygen", "helium", "nitrogen", "carbon dioxide"], "D"),
    ("What is 7 times 8?", ["54", "56", "58", "63"], "B"),
    ("Which word is a verb?", ["table", "green", "quickly", "run"], "D"),
    ("Which of these floats on water?", ["cork", "iron", "lead", "granite"], "A"),
    ("How many sides does a hexagon have?", ["four", "five", "six", "eight"], "C"),
    ("Is 91 a prime number?", ["yes", "no"], "B"),
    ("Which fraction equals one half?", ["$\\frac{1}{3}$", "$\\frac{2}{4}$", "$\\frac{3}{5}$"], "B"),
    ("How far is it around a square of side 3?", ["9 cm", "12 cm", "6 cm", "12 cm²", "9 cm²"], "B"),
]
