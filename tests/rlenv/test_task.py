import numpy as np
import pytest
from gymnasium import spaces
from textgen_reference import demonstration

from rlenv.task import TextGenTask
from verifiers import Problem, Verdict, Verifier


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
    class Sampling(Silent):
        def sample(self, rng):
            return Problem("a")

    task = TextGenTask(Sampling(), test_fraction=0.0)
    assert (task.max_prompt_tokens, task.max_new_tokens) == (1024, 64)


def test_listed_problems_say_how_long_they_are():
    task = silent(["a", "abcab"])
    assert (task.max_prompt_tokens, task.max_new_tokens) == (5, 64)
    long = silent([Problem("a", "b" * 70)])
    assert (long.max_prompt_tokens, long.max_new_tokens) == (1, 71)
    assert len(demonstration(long, long.stream[0])) == 71


def test_both_splits_have_the_same_spaces():
    listed = [
        {"prompt": "ab", "answer": "c", "split": "train"},
        {"prompt": "dabc", "answer": "e" * 80, "split": "validation"},
    ]
    train, test = (TextGenTask(Silent(), problems=listed, split=split) for split in ("train", "test"))
    assert train.observation_space == test.observation_space
    assert train.tokenizer.get_vocab() == test.tokenizer.get_vocab()
    assert (train.max_prompt_tokens, train.max_new_tokens) == (4, 81)


def test_answers_longer_than_the_verifier_says_fit_where_they_are_listed():
    task = TextGenTask("arith", problems=[{"prompt": "12345+1=", "answer": "12346"}], test_fraction=0.0)
    assert (task.max_prompt_tokens, task.max_new_tokens) == (8, 6)


def test_characters_of_listed_problems_join_the_alphabet_in_a_fixed_order():
    listed = [{"prompt": "zßa", "answer": "é🙂"}, {"prompt": "字", "answer": "\x00"}]
    tokenizer = TextGenTask(Silent(), problems=listed, test_fraction=0.0).tokenizer
    tokens = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    assert tokens == ["<pad>", "<eos>", *"abc", *sorted("zßé🙂字\x00")]
    again = TextGenTask(Silent(), problems=listed[::-1], test_fraction=0.0).tokenizer
    assert again.get_vocab() == tokenizer.get_vocab()


def test_a_demonstrated_character_joins_the_alphabet():
    class Boxed(Silent):
        def demonstration(self, problem):
            return f"[{problem.answer}]"

    task = TextGenTask(Boxed(), problems=[{"prompt": "a", "answer": "1"}], test_fraction=0.0)
    assert task.tokenizer.decode(demonstration(task, task.stream[0])) == "[1]<eos>"


def test_the_spaces_are_those_of_the_specification():
    task = TextGenTask("arith", {"digits": 1})
    assert task.vocab_size == len("0123456789+=") + 2
    assert task.action_space == spaces.Discrete(14)
    assert task.observation_space == spaces.Dict(
        tokens=spaces.Box(0, 13, (task.max_length,), np.int64), length=spaces.Discrete(task.max_length + 1)
    )


@pytest.mark.parametrize("episodes", [[0, 1, 2, 3, 4, 5, 6], [6, 0], [4, 5, 4]])
def test_prompts_are_those_of_the_episodes_in_the_order_asked_for(episodes):
    task = TextGenTask("arith", group_size=3)
    prompts = task.prompts(episodes)
    assert [prompt.group for prompt in prompts] == [episode // 3 for episode in episodes]
    assert [prompt.problem for prompt in prompts] == [task.stream[episode // 3] for episode in episodes]


def test_long_sampled_prompts_are_skipped_too():
    class Uneven(Silent):
        def sample(self, rng):
            return Problem("a" * rng.randint(1, 4))

    with pytest.warns(UserWarning, match="sampled prompts of more than 2 tokens") as said:
        task = TextGenTask(Uneven(), test_fraction=0.0, max_prompt_tokens=2, long_prompts="skip")
        lengths = {len(prompt.tokens) for prompt in task.prompts(range(40))}
    assert lengths == {1, 2}
    assert len(said) == 1
    assert 10 < task.encoding.skipped_prompts < 80


def test_a_prompt_that_does_not_fit_later_is_named_then():
    class Growing(Silent):
        asked = 0

        def sample(self, rng):
            self.asked += 1
            return Problem("a" * self.asked)

    task = TextGenTask(Growing(), test_fraction=0.0, max_prompt_tokens=2, long_prompts="error")
    with pytest.raises(ValueError, match="prompt 'aaa' has 3 tokens"):
        task.prompts(range(3))
