import pytest
from answers import assert_rates

from verifiers import Choice, Problem

PERU = Problem("The capital of Peru?", "B", {"choices": ["Quito", "Lima", "La Paz"]})


NAMED = [
    "B", "b", " B\n", "(B)", "[B]", "B.", "B)", "B:", "**B**", "`B`", "Lima", "lima.", "B) Lima",
    "(B) Lima", "B. Lima", "B: LIMA", "b lima", "The answer is B", "the answer is: B.",
    "The answer is (B).", "Answer: B", "Answer:B", "Answer is B", "The correct answer is B) Lima.",
    "So the final answer is **B**.", "My choice: Lima", "The correct option is B!",
    "Quito is in Ecuador.\nAnswer: B", "A) no\nC) no\n\nThe answer is B.",
    "La  Paz is not.\n\nAnswer: B\n", "\\boxed{B}", "$\\boxed{\\text{B}}$.", "The capital is $\\boxed{B}$",
    "\\(B\\)", "\\[B\\]", "$B$", "\\text{B}", "It is B", "It's Lima.", "Option B", "option (B)",
    "Choice B is right.",
    "B is correct", "(B) is the best answer.", "Hence, B is the answer", "I'd go with B", "Answer\uff1aB", "So B.",
    "The answer is\u00a0B", "Final: B", "#### B", "B,", "B;", "B, Lima", "(B) - Lima", "Lima (B)",
    "B because Lima is a capital",
    "The capital is Lima, so the answer is B.", "Lima. The answer is B.", "Answer: B\n\nYes. The answer is Lima.",
    "A. Quito\nB. Lima\nC. La Paz\n\nAnswer: B", "Option A is wrong.\nIt is B.", "I see. " * 5_000 + "\nAnswer: B",
]  # fmt: skip


def test_the_right_choice_may_be_named_in_many_ways():
    assert [text for text in NAMED if Choice().verify(PERU, text).reward != 1.0] == []


NOT_REWARDED = [
    "", "A", "C", "D", "Quito", "A or B", "B or C", "A or B or C", "A, B, C", "A B C", "ABC", "BB",
    "B B", "not B", "The answer is not B", "The answer is A or B", "The answer is B or C.", "B) Quito",
    "A) Lima", "Lima Quito", "Quito or Lima", "Lim", "imal", "Lima, Peru", "B?",
    "Answer: A\nAnswer: B", "Answer: B\nAnswer: A", "A\nB", "B\nB",
    "The answer is A.\nNo, the answer is B.", "A) Quito\nB) Lima",
    "A) Quito\nB) Lima\nC) La Paz\nAnswer:", "The capital of Peru?", "В", "Ｂ", "B\x00", "\u200bB",
    "Final: A\nSo the answer is B", "Answer\uff1aA\nAnswer: B", "A\nAnswer: B", "(A)\n\nFinal answer: B",
    "It is A.\nIt is B.", "Option A\nAnswer: B", "I pick A, so the answer is B", "I think A. The answer is B",
    "Quito.\nAnswer: B", "A) Quito\nAnswer: B", "A is correct.\nAnswer: B", "\\boxed{A}\n\\boxed{B}",
    "\\boxed{A}\\boxed{B}", "\\boxed{A, B}", "A or \\boxed{B}", "\\boxed{B} or A", "\\boxed{B} Quito",
    "not \\boxed{B}", "It cannot be $\\boxed{B}$", "It is not B", "Option B is wrong", "B is not correct",
    "Is it B?",
    "The answer is B. It is A.", "The answer is B.\nA", "Answer: D\nAnswer: B", "Hm.\nB,",
    "B is correct because\nA is correct",
    "".join(f"No {i}.\n" for i in range(3_000)) + "Answer: B", "Answer: \uff22", "\\boxed{\uff22}", "Lima (A)",
    "B<eos>", "B" * 100_000, "Answer: " * 10_000 + "B", "A\n" * 50_000 + "B",
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("So A and C are not guaranteed.\n\n**B**", 1.0),
        ("So A and B are not guaranteed.\n\n**B**", 0.0),
        ("So A and B are not guaranteed.\n\n**C**", 0.0),
        ("So A and C are guaranteed.\n\n**B**", 0.0),
    ],
)
def test_the_choice_that_an_elimination_leaves_is_given(text, reward):
    assert Choice().verify(PERU, text).reward == reward


def test_anything_else_is_not_rewarded():
    assert [text for text in NOT_REWARDED if Choice().verify(PERU, text).reward != 0.0] == []


@pytest.mark.parametrize("answer", ["B", "b", "(B)", "Lima", "B) Lima"])
def test_the_reference_may_be_a_label_or_a_text(answer):
    problem = Problem("p", answer, PERU.metadata)
    assert Choice().verify(problem, "B").reward == 1.0
    assert Choice().verify(problem, "Lima").reward == 1.0
    assert Choice().verify(problem, "A").reward == 0.0


def test_labels_may_be_anything_and_go_before_texts():
    crossed = Problem("p", "1", {"choices": {"1": "2", "2": "1", "x": "both"}})
    assert Choice().verify(crossed, "1").reward == 1.0
    assert Choice().verify(crossed, "2").reward == 0.0
    assert Choice().verify(crossed, "1) 2").reward == 1.0


def test_a_text_that_two_choices_share_names_neither():
    problem = Problem("p", "A", {"choices": ["red", "Red", "blue"]})
    assert Choice().verify(problem, "red").reward == 0.0
    assert Choice().verify(problem, "A").reward == 1.0


def test_without_choices_the_labels_are_those_of_the_verifier():
    assert Choice().verify(Problem("p", "D"), "(d)").reward == 1.0
    assert Choice("123").verify(Problem("p", "3"), "Answer: 3").reward == 1.0
    assert Choice("123").verify(Problem("p", "3"), "C").reward == 0.0


@pytest.mark.parametrize("problem", [Problem("p", ""), Problem("p", "E"), Problem("p", "Rome", PERU.metadata)])
def test_an_answer_that_is_no_choice_is_an_error(problem):
    verdict = Choice().verify(problem, problem.answer)
    assert (verdict.reward, verdict.status) == (0.0, "error")
    assert "none of the choices A, B, C" in verdict.reason


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        (r"$$\boxed{\text{B) } \$100}$$", 1.0),
        (r"\boxed{\textbf{(B)}\ \$100}", 1.0),
        (r"The answer is **$\text{B) }$ \$100**.", 1.0),
        (r"\boxed{\$100}", 1.0),
        (r"\boxed{\text{B) } \$50}", 0.0),
        (r"\boxed{50\%}", 0.0),
        (r"\boxed{\text{C) } 50\%}", 0.0),
    ],
)
def test_signs_that_latex_escapes_are_the_same(text, reward):
    problem = Problem("How much?", "B", {"choices": ["$50", "$100", "$150", "50%"]})
    assert Choice().verify(problem, text).reward == reward
    share = Problem("How much?", "D", problem.metadata)
    assert Choice().verify(share, r"\boxed{\text{D) } 50\%}").reward == 1.0


def test_only_the_section_is_judged_where_there_is_one():
    assert Choice(inside="answer").verify(PERU, "A or C? <answer>B</answer>").reward == 1.0
    assert Choice(inside="answer").verify(PERU, "<answer>A or B</answer>").reward == 0.0
    assert Choice(inside="answer").verify(PERU, "B").reward == 0.0


@pytest.mark.parametrize("inside", [None, "answer"])
def test_demonstrations_and_paraphrases_of_the_examples_are_right(inside):
    verifier = Choice(inside=inside)
    problems = verifier.examples()
    assert len(problems) >= 8
    for problem in problems:
        completions = [verifier.demonstration(problem), *verifier.paraphrases(problem)]
        assert len(completions) >= 12
        for completion in completions:
            assert verifier.verify(problem, completion).reward == 1.0, completion


@pytest.mark.parametrize(
    ("question", "choices", "answer", "right", "wrong"),
    [
        ("Which is faster?", ["car", "bicycle"], "A", "The answer is A.", "The answer is a classic example."),
        ("Is a whale a mammal or a fish?", ["mammal", "fish"], "A", "It is actually a mammal.", "It is a mystery."),
        ("Which country is in Africa?", ["Egypt", "Brazil"], "A", "A) Egypt (Cairo)", "A) England (London)"),
        (
            "Which country is in Africa?",
            ["Egypt", "Brazil"],
            "A",
            "A) is correct.",
            "Zimbabwe is the correct answer. A",
        ),
        (
            "Is fire hot or cold?",
            ["hot", "cold"],
            "A",
            "Anybody who has touched it knows that fire feels very hot indeed.",
            "Spraying in the sunshine is unlike the hot desert that burned.",
        ),
    ],
)
def test_words_of_a_small_model_are_told_from_the_choice(question, choices, answer, right, wrong):
    problem = Problem(question, answer, {"choices": choices})
    assert [Choice().verify(problem, text).reward for text in (right, wrong)] == [1.0, 0.0]


def test_answers_of_chat_models_are_judged_as_a_careful_examiner_would():
    assert_rates("choice", refused=0.0, paid=0.0, least=200)


def test_thoughts_are_not_read():
    assert Choice().verify(PERU, "<think>A? The answer is C.</think>\nThe answer is B.").reward == 1.0
    assert Choice().verify(PERU, "<think>The answer is B.").reward == 0.0
