"""The shares of right answers refused and of wrong ones paid, on answers in the form that chat models write."""

import pytest
from answers import answers, assert_rates, misjudged

from verifiers.isolation.sandbox import run as sandbox

SAMPLED = {"code": 29, "reasoning_gym": 22}  # one of so many in the fast suite: the others run a process or make a task
needs_sandbox = pytest.mark.skipif(bool(sandbox.unavailable()), reason="see test_sandbox.py")


@pytest.mark.parametrize("name", ["countdown", "json_schema", "regex"])
def test_answers_of_chat_models_are_judged_as_an_examiner_does(name):
    assert_rates(name)


@pytest.mark.parametrize("name", ["choice", "math", "numeric"])
def test_mistakes_on_sampled_answers_are_mended_or_known(name):
    """All disagreements with the reader of docs/verifiers-answers.md; those that are left are marked as open."""
    cases = [case for case in answers("sampled") if case["verifier"] == name]
    refused, paid = misjudged(name, cases)
    known = [case for case in cases if case.get("open")]
    assert {completion for *_, completion in refused} == {case["completion"] for case in known if case["right"]}
    assert {completion for *_, completion in paid} == {case["completion"] for case in known if not case["right"]}
    assert len(cases) > len(known)


@pytest.mark.parametrize("name", [pytest.param("code", marks=needs_sandbox), "reasoning_gym"])
def test_a_sample_of_the_answers_is_judged_as_an_examiner_does(name):
    cases = answers(name)[:: SAMPLED[name]]
    assert {case["right"] for case in cases} == {True, False}
    refused, paid = misjudged(name, cases)
    assert len(refused) <= 0.1 * sum(case["right"] for case in cases), refused
    assert paid == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param("code", marks=needs_sandbox), "reasoning_gym"])
def test_all_answers_are_judged_as_an_examiner_does(name):
    assert_rates(name)
