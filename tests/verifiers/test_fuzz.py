"""Laws of the built-in verifiers: any text has a verdict in its range, the same one again; lint finds nothing."""

import math

import pytest
from drawn import drawn
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import verifiers.plugins.registry as registry
from verifiers import make_verifier
from verifiers.lint.report import lint

OURS = "verifiers."
PURE = [
    "arith",
    "calculator-sums",
    "choice",
    "countdown",
    "exact",
    "format",
    "guess",
    "json_schema",
    "length",
    "numeric",
]

FRAGMENTS = [
    *"0123456789+-*/=()[]{}<>:,.%$\"'`\\ \t\n\r",
    *("<think>", "</think>", "<answer>", "</answer>", "The answer is ", "Answer: ", "(A)", "B.", "C) ", " or "),
    *('{"', '": ', "null", "true", "NaN", "1e999", "-0", "```json\n", "\n```", "\\u", "\ud800", "\\boxed{", "\\frac"),
    *(
        "1/0",
        "1e-400",
        "٤",
        "４",
        "½",
        "一",
        "\u2212",
        "\u0301",
        "\u0315\u0300",
        "\ufdfa",
        "\x00",
        "\x1c",
        "\u200b",
        "ß",
    ),
]


def completions(verifier, problem):
    """Text of every kind: from all of Unicode, and near to what the verifier reads."""
    near = [*FRAGMENTS, problem.prompt, problem.answer, verifier.demonstration(problem), *verifier.paraphrases(problem)]
    near += [str(choice) for choice in problem.metadata.get("choices", ())]
    fragments = st.sampled_from(near)
    repeated = st.builds(lambda text, times: (text * times)[:100_000], fragments, st.sampled_from([2, 40, 5_000]))
    return st.one_of(
        st.text(st.characters(exclude_categories=())),
        st.lists(fragments, max_size=12).map("".join),
        st.lists(st.one_of(fragments, repeated), max_size=5).map("".join),
    )


def test_every_pure_verifier_of_ours_is_here():
    registered = registry._REGISTRY.items()
    pure = {name for name, cls in registered if cls.__module__.startswith(OURS) and not (cls.isolated or cls.slow)}
    worlds = {"environment", "gem", "gym", "openenv", "textarena"}  # judge by others' rewards
    needed = pure - {"reward_model", "weighted"} - worlds  # json_schema is here for its endless schemas
    assert needed | {"json_schema"} == set(PURE)


@pytest.mark.hypothesis
@pytest.mark.parametrize("name", PURE)
def test_any_text_has_a_verdict(name):
    verifier = make_verifier(name)
    low, high = verifier.reward_range

    @drawn(30, database=None, suppress_health_check=list(HealthCheck))
    @given(st.one_of([st.tuples(st.just(each), completions(verifier, each)) for each in verifier.examples()]))
    def judge(pair):
        problem, completion = pair
        verdict = verifier.verify(problem, completion)
        assert verdict.status == "ok" and low <= verdict.reward <= high and math.isfinite(verdict.reward)
        assert verifier.verify(problem, completion) == verdict
        assert verifier.verify_batch([problem, problem], [completion, ""])[0] == verdict

    judge()


FORGIVING = {"ignore_case": True, "collapse_whitespace": True, "ignore_punctuation": True}
SETTINGS = {
    "arith": ({}, {"digits": 1, "operators": "+-*", "operands": 3}),
    "calculator-sums": ({},),
    "choice": ({},),
    "code": ({},),
    "countdown": ({},),
    "exact": ({"ignore_punctuation": True}, FORGIVING, {"unicode": "NFKC", "inside": "answer"}, {"unicode": "none"}),
    "format": ({},),
    "guess": ({}, {"largest": 9}),
    "json_schema": ({},),
    "length": ({}, {"maximum": 60, "minimum": 10, "unit": "words"}),
    "math": ({},),
    "numeric": ({}, {"place": "boxed"}, {"place": "last"}),
    "reasoning_gym:leg_counting": ({},),
    "regex": ({},),
    "weighted": ({"parts": {"countdown": 1, "length": {"weight": 0.1, "maximum": 12}}},),
}
DEAR = "code", "math", "numeric", "reasoning_gym:leg_counting"
LINTED = [
    pytest.param(name, settings, marks=[pytest.mark.slow] if name in DEAR else [])
    for name, several in SETTINGS.items()
    for settings in several
]


@pytest.mark.parametrize(("name", "settings"), LINTED)
def test_lint_finds_nothing(name, settings):
    try:
        verifier = make_verifier(name, **settings)
    except ValueError as error:
        pytest.skip(str(error))  # an optional library is not here
    report = lint(verifier)
    assert {finding.rule for finding in report.findings} <= ({"speed", "declared"} if "unit" in settings else {"speed"})
    assert report.honest > report.false_rejects == 0
