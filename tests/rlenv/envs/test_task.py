import numpy as np
import pytest
from gymnasium import spaces

from rlenv.envs.task import TextGenTask
from rlenv.problems.lengths import MOST_TOKENS
from rlenv.text.tokenizer import character_tokenizer
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
    class Sampling(Silent):
        def sample(self, rng):
            return Problem("a")

    task = TextGenTask(Sampling(), test_fraction=0.0)
    assert (task.max_prompt_tokens, task.max_new_tokens) == (128, 64)


def test_listed_problems_say_how_long_they_are():
    task = silent(["a", "abcab"])
    assert (task.max_prompt_tokens, task.max_new_tokens) == (5, 64)
    long = silent([Problem("a", "b" * 70)])
    assert (long.max_prompt_tokens, long.max_new_tokens) == (1, 71)
    assert len(long.demonstration(long.stream[0])) == 71


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
    assert task.tokenizer.decode(task.demonstration(task.stream[0])) == "[1]<eos>"


def test_a_given_tokenizer_is_not_extended():
    with pytest.raises(ValueError, match=r"prompt 'ax' has characters outside the tokenizer's alphabet: \['x'\]"):
        silent(["ax"], tokenizer=character_tokenizer("abc"))


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
    verdicts = task.judge([prompt.problem for prompt in prompts], texts)
    assert texts == ["46", "46", ""]
    assert [verdict.reward for verdict in verdicts] == [1.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"group_size": 0}, "group_size must be a whole number of at least 1, got 0"),
        ({"group_size": 2.0}, "group_size must be a whole number of at least 1, got 2.0"),
        ({"group_size": True}, "group_size must be a whole number of at least 1, got True"),
        ({"max_prompt_tokens": 0}, "max_prompt_tokens must be a whole number of at least 1 and at most 1048576, got 0"),
        ({"max_new_tokens": 0}, "max_new_tokens must be a whole number of at least 1 and at most 1048576, got 0"),
        ({"max_new_tokens": "8"}, "max_new_tokens must be a whole number of at least 1 and at most 1048576, got '8'"),
        ({"max_prompt_tokens": 2}, r"prompt 'abc' has 3 tokens; allowed: 1 to 2 \(max_prompt_tokens\)"),
        ({"problems": ["a", ""]}, r"prompt '' has 0 tokens; allowed: 1 to 1 \(max_prompt_tokens\)"),
        ({"problems": ["a\ud83d"]}, r"problem 'a\\ud83d': this is not Unicode text"),
        ({"problems": []}, "problems is an empty list"),
        ({"problems": None}, r"Silent does not make problems: pass problems \(--problems\)"),
        ({"problems": ["a" * 999], "max_prompt_tokens": 2}, r"prompt 'a{59}\.\.\. has 999 tokens; allowed: 1 to 2"),
        ({"columns": {"prompt": "q"}}, "columns and template are for problems from a file"),
        ({"template": "{q}"}, "columns and template are for problems from a file"),
        ({"long_prompts": "cut"}, "unknown long_prompts 'cut'; allowed: error, skip"),
        ({"curriculum": 0}, "curriculum must be a success rate above 0 and at most 1, got 0"),
        ({"curriculum": 0.8}, r"a curriculum needs problems of at least two levels; there are: \[1\]"),
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


def test_long_prompts_are_skipped_where_that_is_wanted_and_counted():
    listed = ["a", "bb", "ccc", "cccc"]
    with pytest.warns(UserWarning, match=r"^2 of 4 prompts have more than 2 tokens \(max_prompt_tokens\)") as said:
        task = silent(listed, max_prompt_tokens=2, long_prompts="skip")
    assert len(said) == 1
    assert task.skipped_prompts == 2
    assert {prompt.problem.prompt for prompt in task.prompts(range(8))} == {"a", "bb"}


def test_nothing_is_skipped_where_everything_fits():
    task = silent(["a", "bb"], long_prompts="skip")
    assert (task.skipped_prompts, task.max_prompt_tokens) == (0, 2)


def test_it_is_an_error_when_every_prompt_is_skipped():
    with pytest.raises(ValueError, match=r"all 2 prompts have more than 1 tokens \(max_prompt_tokens\)"):
        silent(["aa", "bbb"], max_prompt_tokens=1, long_prompts="skip")


def test_long_sampled_prompts_are_skipped_too():
    class Uneven(Silent):
        def sample(self, rng):
            return Problem("a" * rng.randint(1, 4))

    with pytest.warns(UserWarning, match="sampled prompts of more than 2 tokens") as said:
        task = TextGenTask(Uneven(), test_fraction=0.0, max_prompt_tokens=2, long_prompts="skip")
        lengths = {len(prompt.tokens) for prompt in task.prompts(range(40))}
    assert lengths == {1, 2}
    assert len(said) == 1
    assert 10 < task.skipped_prompts < 80


def test_a_path_is_a_list_of_problems(tmp_path):
    path = tmp_path / "sums.jsonl"
    path.write_text('{"q": "1+1=", "a": 2, "split": "train"}\n{"q": "12+30=", "a": 42, "split": "test"}\n')
    task = TextGenTask("arith", problems=str(path), columns={"prompt": "q", "answer": "a"}, template="{q}?")
    assert [prompt.problem for prompt in task.prompts([0, 1])] == [
        Problem("1+1=?", "2", {"q": "1+1=", "a": 2, "split": "train"})
    ] * 2
    assert task.max_prompt_tokens == len("12+30=?")
    test = TextGenTask("arith", problems=path, columns={"prompt": "q", "answer": "a"}, split="test")
    assert test.stream.listed == [Problem("12+30=", "42", {"q": "12+30=", "a": 42, "split": "test"})]


def test_a_long_prompt_of_a_file_is_an_error_by_default(tmp_path):
    path = tmp_path / "sums.jsonl"
    path.write_text('{"prompt": "1+1="}\n{"prompt": "12+30="}\n')
    with pytest.raises(ValueError, match=r"prompt '12\+30=' has 6 tokens; allowed: 1 to 5 \(max_prompt_tokens\)"):
        TextGenTask("arith", problems=str(path), max_prompt_tokens=5, test_fraction=0.0)


def test_a_prompt_above_the_default_cap_is_an_error_that_names_its_row(tmp_path):
    path = tmp_path / "sums.jsonl"
    path.write_text(f'{{"prompt": "1+1="}}\n\n{{"prompt": "{"1" * 20_000}"}}\n')
    message = (
        rf"^'.*sums.jsonl', line 3: prompt '1{{59}}... has 20000 tokens; allowed by default: {MOST_TOKENS}; "
        r"pass a larger max_prompt_tokens \(--max-prompt-tokens\), "
        r"or long_prompts='skip' \(--long-prompts skip\) to leave it out$"
    )
    with pytest.raises(ValueError, match=message):
        TextGenTask("arith", problems=str(path))
    with pytest.raises(ValueError, match=rf"^problem 2: prompt 'a{{59}}... has {MOST_TOKENS + 1} tokens; allowed by"):
        silent(["b", "a" * (MOST_TOKENS + 1)])
    assert silent(["b", "a" * MOST_TOKENS]).max_prompt_tokens == MOST_TOKENS
    assert TextGenTask("arith", problems=str(path), max_prompt_tokens=20_000, test_fraction=0.0).max_length > 20_000


def test_prompts_above_the_default_cap_can_be_skipped():
    with pytest.warns(UserWarning, match=rf"^1 of 2 prompts have more than {MOST_TOKENS} tokens"):
        task = silent(["b", "a" * 20_000], long_prompts="skip")
    assert (task.skipped_prompts, task.max_prompt_tokens) == (1, MOST_TOKENS)


def test_a_demonstration_above_the_default_cap_is_an_error_that_names_its_row():
    listed = [{"prompt": "a", "answer": "b"}, {"prompt": "c", "answer": "d" * MOST_TOKENS}]
    message = (
        rf"^problem 2: demonstration 'd{{59}}... has {MOST_TOKENS + 1} tokens; allowed by default: {MOST_TOKENS}; "
        r"pass max_new_tokens \(--max-new-tokens\)$"
    )
    with pytest.raises(ValueError, match=message):
        silent(listed)
    assert silent(listed, max_new_tokens=8).max_new_tokens == 8
    assert silent(listed, max_new_tokens=5_000).max_new_tokens == 5_000
    listed[1]["answer"] = "d" * (MOST_TOKENS - 1)
    assert silent(listed).max_new_tokens == MOST_TOKENS
