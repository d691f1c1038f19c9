"""Examples of `math`: problems, and right and wrong ways to answer them."""

from __future__ import annotations

EXAMPLES = [
    ("What is 18 + 28?", "46", "46.0", "x=46"),
    ("What is 3 divided by 4?", "\\frac{3}{4}", "0.75", "3/4"),
    ("Factor x^2 - 1.", "(x-1)(x+1)", "(1+x)(x-1)", "(x+1)(x-1)"),
    ("What is the length of the diagonal of a square of side 3?", "3\\sqrt{2}", "\\sqrt{18}"),
    ("Solve x^2 = 4.", "\\{-2,2\\}", "\\{2,-2\\}"),
    ("At which point do y=x+1 and y=3-x meet?", "(1,2)"),
    ("What is the derivative of x^3?", "3x^2", "3*x^2"),
    ("For which x is x^2 < 1?", "(-1,1)"),
    ("What is the area of a circle of radius 2?", "4\\pi", "\\pi*4"),
    ("What is 2 to the power of 20?", "1048576"),
    ("What is 5 minus 12?", "-7", "-7.0"),
    ("What is sin(pi/3)?", "\\frac{\\sqrt{3}}{2}", "\\sqrt{3}/2"),
    ("What is 10 to the power of 7?", "10000000", "10^7", "1e7", "1\\times 10^{7}", "10{,}000{,}000", "10,000,000"),
    (
        "What is a third, as a decimal or a fraction?",
        "\\frac{1}{3}",
        "0.333333",
        "1/3",
        "\\frac13",
        "2/6",
        "0.33333333",
    ),
    ("What is 3.5 halved?", "1.75", "7/4", "1\\frac{3}{4}", "1 3/4", "\\frac{7}{4}", "1.750"),
    ("Which share is 3 of 8?", "37.5\\%", "0.375", "\\frac{3}{8}", "37.5%"),
    ("How long is the way from 0 to (3,4)?", "5", "\\frac{10}{2}", "5.00", "x=5", "d = 5"),
    ("Expand (x+2)^2.", "x^2+4x+4", "4+4x+x^2", "x^2+4+4x", "(x+2)^2=x^2+4x+4", "f(x)=x^2+4x+4"),
    ("What is the integral of 2x?", "x^2+C", "C+x^2"),
    (
        "How is the golden ratio written?",
        "\\frac{1+\\sqrt{5}}{2}",
        "(1+\\sqrt5)/2",
        "1.618034",
        "\\phi=\\frac{1+\\sqrt{5}}{2}",
    ),
    ("Which x make x^2 > 4?", "(-\\infty,-2)\\cup(2,\\infty)", "(2,\\infty)\\cup(-\\infty,-2)"),
    ("What is log of 8 to the base 2, times pi?", "3\\pi", "\\pi\\cdot3", "9.424778", "3\\pi\\approx 9.42"),
    ("What is (1+i)^2?", "2i"),
    ("Add the vectors (1,2) and (2,1).", "(3,3)", "\\left(3,3\\right)", "( 3, 3 )", "(3.0,\\frac{6}{2})"),
]
# {} is the reference answer.
RIGHT = [
    "\\boxed{{{}}}", "The answer is ${}$.", "Answer: ${}$", "First 3.\n\n${}$", "$${}$$", "\\({}\\)", "\\[{}\\]",
    "${}$", "**${}$**",
    "Therefore, the result is $\\boxed{{{}}}$.", "It follows that $ {} $", "Not 7.\nThe answer is $\\boxed{{{}}}$",
    "No, it is ${}$!",
    "We do not need more. The answer is ${}$", "${0}={0}$",
]  # fmt: skip
RIGHT_NUMBERS = [
    "{}", "x={}", "{} apples", "${}\\text{{ cm}}$", "{}\\ \\mathrm{{kg}}", "= {}.", "#### {}", "No, {}",
    "\\boxed{{{}}} coins", "{} cm",
]  # fmt: skip
WRONG = {
    "denial": [
        "no answer: {}", "The answer is not ${}$", "not $\\boxed{{{}}}$", "It cannot be ${}$.", "${}$ is wrong",
        "${}$?",
        "anything but \\({}\\)", "There is no result: {}",
    ],
    "changed": [
        "half of ${}$", "minus $1+{}$", "twice $\\boxed{{{}}}$", "$\\boxed{{{}}}$ or seventeen", "at least ${}$",
        "-1-${}$",
        "$x\\ne {}$", "$17<{}$",
    ],
    "false-equation": ["$17={}$", "${}=17$", "$17\\approx {}$", "$x=17={}$", "${0}={0}+1$", "$={}=$", "${}=$"],
    "two-answers": ["${}$ and $17$", "$17$, ${}$", "\\boxed{{17}}\\boxed{{{}}}", "${}$ or $x$"],
}  # fmt: skip
WRONG_NUMBERS = [
    "{}!", "!={}", "{} thousand", "\\sqrt{{{}}}+1", "{}\\text{{ million}}", "1+{0}={0}", "{} + x", "{}k", "{}\\%",
    "{}\\pi", "{}\\ne x",
]  # fmt: skip
