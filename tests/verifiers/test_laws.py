"""Laws of the built-in verifiers: any text has a verdict in its range, the same one again, and no warning.

Lint finds nothing, and thoughts and the place of an answer are read alike.
"""

import itertools
import math
import warnings
from functools import cache

import pytest
from diagonal import slow
from drawn import drawn
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from rlenv.verifiers import Problem, isolate, make_verifier
from rlenv.verifiers.answer import PLACES
from rlenv.verifiers.lint import attacks, report
from rlenv.verifiers.plugins import registry

# Judge by others' rewards; each has a file of its own.
OTHERS = {"environment", "gem", "gym", "openenv", "program", "reward_model", "textarena", "weighted"}
APART = {"code", "code-feedback", "math", "reasoning_gym", "regex"}  # slow or isolated
OURS = {name: cls for name, cls in registry._REGISTRY.items() if cls.__module__.startswith("rlenv.verifiers.")}
PURE = sorted(OURS.keys() - APART - OTHERS)
FRAGMENTS = [
    *"0123456789+-*/=()[]{}<>:,.%$\"'`\\ \t\n\r",
    *("<think>", "</think>", "<answer>", "</answer>", "The answer is ", "Answer: ", "(A)", "B.", "C) ", " or "),
    *('{"', '": ', "null", "true", "NaN", "1e999", "-0", "```json\n", "\n```", "\\u", "\ud800", "\\boxed{", "\\frac"),
    *["1/0", "1e-400", "٤", "４", "½", "一", "−", "́", "̀̕", "ﷺ", "ß"],
    *"\x00\x1c\u200b",
]


def completions(verifier, problem):
    """Text of every kind: from all of Unicode, and near to what the verifier reads."""
    near = [*FRAGMENTS, problem.prompt, problem.answer, verifier.demonstration(problem)]
    near += [*verifier.probes(problem).right, *map(str, problem.metadata.get("choices", ()))]
    fragments = st.sampled_from(near)
    repeated = st.builds(lambda text, times: (text * times)[:100_000], fragments, st.sampled_from([2, 40, 5_000]))
    return st.one_of(
        st.text(st.characters(exclude_categories=())),
        st.lists(fragments, max_size=12).map("".join),
        st.lists(st.one_of(fragments, repeated), max_size=5).map("".join),
    )


@pytest.mark.hypothesis
@pytest.mark.parametrize("name", PURE)
def test_any_text_has_a_verdict(name):
    verifier = make_verifier(name)
    low, high = verifier.reward_range

    @drawn(20, database=None, suppress_health_check=list(HealthCheck))
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
    "ifeval": ({}, {"partial": True, "loose": True}),
    "json_schema": ({},),
    "length": ({}, {"maximum": 60, "minimum": 10, "unit": "words"}),
    "math": ({},),
    "numeric": ({}, {"place": "boxed"}, {"place": "last"}),
    "reasoning_gym:leg_counting": ({},),
    "regex": ({},),
    "weighted": ({"parts": {"countdown": 1, "length": {"weight": 0.1, "maximum": 12}}},),
}
QUICK = "arith", "exact", "format", "guess", "length"
LINTED = [
    pytest.param(name, settings, marks=[] if name in QUICK else [pytest.mark.slow])
    for name, several in SETTINGS.items()
    for settings in several
]


@pytest.mark.parametrize(("name", "settings"), LINTED)
def test_lint_finds_nothing(name, settings, monkeypatch):
    """With all kinds of attacks on a few problems; `make test-slow` looks at the dear verifiers, too."""
    monkeypatch.setattr(attacks, "ATTACKED", 2)
    monkeypatch.setattr(report, "SAMPLED", 6)
    found = report.lint(make_verifier(name, **settings))
    allowed = {"speed", "declared"} if "unit" in settings else {"speed"}
    assert {finding.rule for finding in found.findings} <= allowed, found.findings
    assert found.honest > found.false_rejects == 0


SUM = Problem("9+9=", "18")
BOOK = {"type": "object", "properties": {"year": {"type": "integer"}}, "required": ["year"]}
CASES = {  # settings, a problem with its right answer, a wrong one
    "exact": ({}, SUM, "17"),
    "numeric": ({}, SUM, "17"),
    "math": ({}, SUM, "17"),
    "choice": ({}, Problem("Which?", "B", {"choices": ["a", "b"]}), "A"),
    "json_schema": ({"schema": BOOK}, Problem("Year?", '{"year": 1815}'), '{"year": "no"}'),
    "reasoning_gym:gcd": ({}, None, "0"),
    "countdown": ({}, Problem("3 5 7=26:", "3*7+5", {"numbers": [3, 5, 7], "target": 26}), "3*7"),
}


@cache
def case_of(name, **more):
    settings, problem, wrong = CASES[name]
    verifier = make_verifier(name, **settings, **more)
    return verifier, problem or verifier.examples()[0], wrong


THOUGHTS = [  # a completion, whether it is right by default, and with inside="/think"; None: it depends
    ("{right}", True, False),
    ("<think>\nfirst {wrong}, then {right}\n</think>\n\n{right}", True, True),
    ("<think>{wrong}</think>{right}", True, True),
    ("no <think> before\n</think> {right}", True, True),
    ("{wrong}</think>\n{right}", True, True),
    ("<think>{wrong} <think>{wrong}</think>\n{right}", True, True),
    ("{right}\n<think>Or {wrong}?", True, False),
    ("<think>{wrong}</think>{right}\n<think>{wrong}", True, None),
    ("<think>a</think>{wrong}</think>{right}", True, False),
    ("<think>{wrong}</think>{wrong}", False, False),
    ("<think>{right}</think>{wrong}", False, False),
    ("<think>{right}</think>", False, False),
    ("\n<think>{right}", False, False),
    ("{wrong}\n<think>{right}", False, False),
    ("<think>{wrong}</think> <think>{right}", False, None),
    ("</think>" * 9, False, False),
]
INSIDE = ["exact", "numeric", "math", "choice", "reasoning_gym:gcd"]


@pytest.mark.parametrize(
    ("name", "inside"), [*((name, None) for name in CASES if name != "exact"), *((name, "/think") for name in INSIDE)]
)
def test_every_verifier_reads_thoughts_alike(name, inside):
    verifier, problem, wrong = case_of(name, **({"inside": inside} if inside else {}))
    for text, by_default, after in THOUGHTS:
        right = after if inside else by_default
        said = text.replace("{right}", problem.answer).replace("{wrong}", wrong)
        assert right is None or (verifier.verify(problem, said).reward == 1.0) is right, text
    if inside and name != "reasoning_gym:gcd":
        assert verifier.demonstration(problem) == f"<think></think>{problem.answer}"
        assert verifier.verify(problem, verifier.demonstration(problem)).reward == 1.0


FORMS = {
    "boxed": "\\boxed{{{}}}\n1",
    "hash": "1\n#### {}\n2",
    "tag": "<answer>{}</answer>\n1",
    "stated": "It is {}.\n1",
}


@pytest.mark.parametrize("name", ["numeric", "math", "choice", "countdown", "reasoning_gym:gcd"])
def test_the_place_of_the_answer_is_chosen(name):
    for place in PLACES:
        verifier, problem, _ = case_of(name, place=place)
        paid = [verifier.verify(problem, form.format(problem.answer)).reward for form in FORMS.values()]
        assert paid == [float(place in (each, "any")) for each in FORMS], place
        alone = verifier.verify(problem, f"9 tens\n{problem.answer}").reward
        assert alone == float(place in ("any", "last")), place
        assert verifier.verify(problem, verifier.demonstration(problem)).reward == 1.0
        assert verifier.extract(problem, "I do not know.") is None


# Each of them makes `re`, `ast` or the compiler warn, in one of the Pythons that we support.
WARNS = [
    "[0--", "[[a]", "[^[a]", "[a&&b]", "[a||b]", "[a~~b]", "[+--a]", "(?(\u0661)a)", "(?P<a>b)(?P=\u0661)",
    "'\\q'", '"\\d"', "1is 1", "1if 2else 3", "0x1for x in y", "1 is 1", "(1)(2)", "[1][2, 3]", "assert (1, 2)",
]  # fmt: skip
SCHEMA = {"patternProperties": {"[[a]": {}}, "propertyNames": {"pattern": "[a||b]"}}
WARNED = [
    *((name, []) for name in (*(name for name in PURE if name != "json_schema"), "code", "math")),
    slow("reasoning_gym:string_insertion", []),  # whose scorer evaluates answers
    ("regex", [Problem("?", "", {"pattern": "[[a&&b]+"})]),
    ("json_schema", [Problem("?", "", {"schema": each}) for each in ({"type": "string", "pattern": "[[a]"}, SCHEMA)]),
]


@pytest.mark.parametrize(("name", "problems"), WARNED)
def test_no_verifier_warns_of_what_a_model_wrote(name, problems, monkeypatch):
    """Those who compile it run in worker processes, where a warning would be an error here."""
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    verifier = make_verifier(name, **({"size": 50} if name.startswith("reasoning_gym") else {}))
    judge = isolate(verifier, workers=1 if verifier.execution.isolated else None) or verifier
    problems = problems or verifier.examples()[:1]
    quoted = [f'"{line}"' for line in WARNS if '"' not in line and "\\" not in line]
    texts = [*WARNS, *quoted, f"[{', '.join(quoted)}]", *(f"${line}$" for line in WARNS)]
    if name == "code":
        texts = ["```python\n" + "\n".join(WARNS[-3:]) + "\n```"]
    for problem, text in itertools.product(problems, texts):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            assert judge.verify(problem, text).status == "ok"
        assert not seen, f"{text}: {seen[0].message}"
    judge.close()
