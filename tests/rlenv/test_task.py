import numpy as np
import pytest
from gymnasium import spaces

from rlenv.task import TextGenTask
from rlenv.tokenizer import character_tokenizer
from verifiers import Arith, Problem, Verdict, Verifier

EOS = 1


class Silent(Verifier):
    alphabet = "abc"

    def verify(self, problem, completion):
        return Verdict(0.0)


def silent(problems=("a",), **task):
    return TextGenTask(Silent(), problems=list(problems), test_fraction=0.0, **task)


def test_the_verifier_says_how_long_prompts_and_completions_are():
    task = TextGenTask("arith", {"digits": 3})
    assert task.max_prompt_tokens >= len("123+456=")
    assert task.max_new_tokens == len("1998") + 1
    assert task.max_length == task.max_prompt_tokens + task.max_new_tokens


def test_lengths_the_verifier_does_not_know_have_defaults():
    task = silent()
    assert (task.max_prompt_tokens, task.max_new_tokens) == (128, 64)


def test_given_lengths_win():
    task = TextGenTask("arith", max_prompt_tokens=9, max_new_tokens=2)
    assert (task.max_prompt_tokens, task.max_new_tokens, task.max_length) == (9, 2, 11)


def test_a_prompt_may_be_exactly_as_long_as_allowed():
    assert len(silent(["abc"], max_prompt_tokens=3).prompts([0])[0].tokens) == 3


def test_the_spaces_are_those_of_the_specification():
    task = TextGenTask("arith", {"digits": 1})
    assert task.vocab_size == len("0123456789+=") + 2
    assert task.action_space == spaces.Discrete(14)
    assert task.observation_space == spaces.Dict(
        tokens=spaces.Box(0, 13, (task.max_length,), np.int64), length=spaces.Discrete(task.max_length + 1)
    )


def test_every_sampled_prompt_and_answer_fits():
    for digits in (1, 2, 5):
        task = TextGenTask("arith", {"digits": digits, "operators": "+-*"})
        for prompt in task.prompts(range(50)):
            assert len(prompt.tokens) == len(prompt.problem.prompt)
            assert len(task.demonstration(prompt.problem)) == len(prompt.problem.answer) + 1


@pytest.mark.parametrize("episodes", [[0, 1, 2, 3, 4, 5, 6], [6, 0], [4, 5, 4]])
def test_prompts_are_those_of_the_episodes_in_the_order_asked_for(episodes):
    task = TextGenTask("arith", group_size=3)
    prompts = task.prompts(episodes)
    assert [prompt.group for prompt in prompts] == [episode // 3 for episode in episodes]
    assert [prompt.problem for prompt in prompts] == [task.stream[episode // 3] for episode in episodes]


def test_reseeding_depends_on_the_generator_alone():
    one, other = TextGenTask("arith"), TextGenTask("arith")
    one.reseed(np.random.default_rng(5))
    before = one.prompts(range(5))
    assert before != other.prompts(range(5))
    other.reseed(np.random.default_rng(5))
    assert other.prompts(range(5)) == before


def test_the_end_token_is_no_part_of_what_is_judged_and_a_cut_text_is_judged_whole():
    task = TextGenTask("arith", problems=[{"prompt": "12+34=", "answer": "46"}], test_fraction=0.0)
    prompts = task.prompts([0, 0, 0])
    four, six = task.encode(["46"])[0]
    texts = task.texts([[four, six, EOS], [four, six], [EOS]])
    verdicts = task.judge(prompts, texts)
    assert texts == ["46", "46", ""]
    assert [verdict.reward for verdict in verdicts] == [1.0, 1.0, 0.0]


def test_only_the_last_end_token_is_left_out():
    task = TextGenTask("arith")
    assert task.texts([[EOS, EOS]]) == ["<eos>"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"group_size": 0}, "group_size must be a whole number of at least 1, got 0"),
        ({"group_size": 2.0}, "group_size must be a whole number of at least 1, got 2.0"),
        ({"group_size": True}, "group_size must be a whole number of at least 1, got True"),
        ({"max_prompt_tokens": 0}, "max_prompt_tokens must be a whole number of at least 1, got 0"),
        ({"max_new_tokens": 0}, "max_new_tokens must be a whole number of at least 1, got 0"),
        ({"max_new_tokens": "8"}, "max_new_tokens must be a whole number of at least 1, got '8'"),
        ({"max_prompt_tokens": 2}, r"prompt 'abc' has 3 tokens; allowed: 1 to 2 \(max_prompt_tokens\)"),
        ({"problems": [""]}, r"prompt '' has 0 tokens; allowed: 1 to 128 \(max_prompt_tokens\)"),
        ({"problems": ["axbz"]}, r"prompt 'axbz' has characters outside the tokenizer's alphabet: \['x', 'z'\]"),
        ({"problems": []}, "none of the 0 problems is in the train split"),
        ({"split": "valid"}, "unknown split 'valid'; allowed: train, test"),
        ({"test_fraction": 2}, "test_fraction must be from 0 to 1, got 2"),
        ({"verifier": "arit"}, r"unknown verifier 'arit'; did you mean arith\?"),
        ({"verifier": "arith", "verifier_kwargs": {"digits": 0}}, "digits must be a whole number from 1 to 9, got 0"),
    ],
)
def test_a_bad_argument_is_one_clear_line(arguments, message):
    with pytest.raises(ValueError, match=message) as error:
        TextGenTask(**{"verifier": Silent(), "problems": ["abc"], "test_fraction": 0.0, **arguments})
    assert len(str(error.value).splitlines()) == 1


def test_a_prompt_that_does_not_fit_later_is_named_then():
    class Growing(Silent):
        asked = 0

        def sample(self, rng):
            self.asked += 1
            return Problem("a" * self.asked)

    task = TextGenTask(Growing(), test_fraction=0.0, max_prompt_tokens=2)
    with pytest.raises(ValueError, match="prompt 'aaa' has 3 tokens"):
        task.prompts(range(3))


def test_numpy_whole_numbers_are_whole_numbers():
    assert silent(group_size=np.int64(2), max_new_tokens=np.int32(3)).max_new_tokens == 3


def test_a_demonstration_is_the_answer_and_the_end_token():
    task = TextGenTask(Arith())
    assert task.demonstration(Problem("12+34=", "46")) == [*task.encode(["46"])[0], EOS]


def test_a_demonstration_that_is_missing_or_too_long_is_refused():
    task = TextGenTask("arith", max_new_tokens=2)
    assert len(task.demonstration(Problem("1+1=", "2"))) == 2
    with pytest.raises(ValueError, match=r"demonstration '46' has 3 tokens; allowed: 2 \(max_new_tokens\)"):
        task.demonstration(Problem("12+34=", "46"))
    with pytest.raises(ValueError, match=r"Arith has no demonstration for '12\+34='"):
        task.demonstration(Problem("12+34="))


@pytest.mark.parametrize("tokenizer", [None, character_tokenizer(Arith().alphabet)])
def test_a_demonstration_the_tokenizer_cannot_spell_is_refused(tokenizer):
    task = TextGenTask("arith", tokenizer=tokenizer)
    with pytest.raises(ValueError, match="demonstration 'x6'"):
        task.demonstration(Problem("12+34=", "x6"))
