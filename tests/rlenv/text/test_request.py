"""Prompts in words ask for the place of the answer, if they are told to."""

import pytest
from chat_families import chatml

from rlenv.envs.task import TextGenTask
from verifiers import Numeric, Problem

ASKED = "Put the answer in \\boxed{}."
WORDS = [{"prompt": "What is 40 + 3?\n", "answer": "43"}, {"prompt": "40 + 3 =", "answer": "43"}]


def task(problems=WORDS, verifier="numeric", **kwargs):
    return TextGenTask(verifier, problems=problems, test_fraction=0, **{"ask": True, **kwargs})


def shown(made):
    return {prompt.problem.prompt: prompt.text for prompt in made.prompts(range(2))}


def test_prompts_in_words_end_with_the_request_and_formulas_stay():
    assert shown(task()) == {"What is 40 + 3?\n": f"What is 40 + 3? {ASKED}\n", "40 + 3 =": "40 + 3 ="}
    assert shown(task(ask=False)) == {row["prompt"]: row["prompt"] for row in WORDS}


@pytest.mark.parametrize(("place", "sentence"), [("hash", "####"), ("tag", "<answer>"), ("stated", '"The answer is"')])
def test_the_request_is_for_the_place_of_the_verifier(place, sentence):
    texts = shown(task(verifier_kwargs={"place": place}))
    assert sentence in texts["What is 40 + 3?\n"]


def test_the_last_message_of_the_user_asks():
    asked = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 40 + 3?"}]
    made = task([{"prompt": asked, "answer": "43"}], tokenizer=chatml())
    (prompt,) = made.prompts([0])
    assert prompt.text.count(ASKED) == 1 and f"What is 40 + 3? {ASKED}" in prompt.text
    assert prompt.problem.prompt == asked


def test_lengths_have_room_for_the_request():
    long, short = task(), task(ask=False)
    assert long.max_prompt_tokens == short.max_prompt_tokens + len(ASKED) + 1
    sampled = TextGenTask("reasoning_gym:leg_counting", ask=True)
    assert all(
        len(ids) <= sampled.max_prompt_tokens
        for ids in sampled.encoding.encode([p.problem.prompt for p in sampled.prompts(range(20))])
    )


TEMPLATE = "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{% endfor %}[assistant]"


@pytest.mark.parametrize("order", [1, -1])
def test_a_prompt_in_words_fits_though_the_first_one_may_be_a_formula(order):
    prompts = ["40 + 3 =", "What is 40 + 3, if you please?"][::order]

    class Mixed(Numeric):
        prompt_length = 30

        def sample(self, rng):
            return Problem(rng.choice(prompts), "43")

    made = TextGenTask(Mixed(), chat=True, chat_template=TEMPLATE, ask=True)
    assert max(len(prompt.tokens) for prompt in made.prompts(range(20))) <= made.max_prompt_tokens


def test_words_are_those_of_the_last_message_and_nobody_is_asked_twice():
    formula = [{"role": "system", "content": "Answer in words."}, {"role": "user", "content": "40 + 3 ="}]
    made = task(
        [{"prompt": formula, "answer": "43"}, {"prompt": f"What is it? {ASKED}", "answer": "43"}], tokenizer=chatml()
    )
    assert sorted(prompt.text.count(ASKED) for prompt in made.prompts(range(2))) == [0, 1]


def test_a_request_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match="Exact has no place"):
        task(verifier="exact")
    with pytest.raises(ValueError, match=r"request .* outside the tokenizer's alphabet"):
        TextGenTask("countdown", ask=True)
