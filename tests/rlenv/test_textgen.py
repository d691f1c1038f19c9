"""What TextGen-v0 promises, single and batched; that both are the same is `laws/test_environment.py`."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env as gymnasium_check_env
from gymnasium.wrappers import RecordEpisodeStatistics
from stable_baselines3.common.env_checker import check_env as sb3_check_env

import rlenv  # noqa: F401 (registers TextGen-v0)
from rlenv.picture import BAD, BOX, GENERATED, GOOD, MOST_LINES, NEITHER, PROMPT, STOP
from rlenv.task import TextGenTask
from rlenv.textgen import TextGenEnv
from rlenv.tokenizer import character_tokenizer
from rlenv.vector_env import TextGenVectorEnv
from rlenv.verifiers import Problem, Verdict, Verifier

EOS, FOUR, SIX = 1, 6, 8  # after <pad> and <eos>, the digits in order
TOKENIZER = character_tokenizer("0123456789+=")
SUM = {"verifier": "arith", "problems": [{"prompt": "12+34=", "answer": "46"}], "test_fraction": 0.0}


class Silent(Verifier):
    alphabet = "abc"

    def verify(self, problem, completion):
        return Verdict(0.0)


def summing(num_envs, **task):
    return TextGenVectorEnv(num_envs, **{**SUM, **task})


def ids(text):
    return [EOS if letter == "$" else 2 + "0123456789+=".index(letter) for letter in text]


def say(env, text):
    """Start an episode and take its tokens, "$" for the end; return what the last step returned."""
    env.reset()
    for token in ids(text):
        told = env.step(token)
    return told


@pytest.mark.parametrize("mode", ["ansi", "human", "rgb_array"])
def test_it_passes_the_checkers_in_every_render_mode(mode, capsys):
    gymnasium_check_env(gym.make("TextGen-v0", verifier="arith", render_mode=mode).unwrapped)
    sb3_check_env(gym.make("TextGen-v0", verifier="arith"))


def test_the_right_answer_pays_at_its_end_only():
    env = TextGenEnv(**SUM)
    seen, _ = env.reset(seed=0)
    before = seen["tokens"].copy()
    assert [env.step(token)[1:] for token in (FOUR, SIX)] == [(0.0, False, False, {})] * 2
    assert (seen["tokens"] == before).all(), "an observation is not the environment's own"
    parts = {"verdict": {}, "verifier_failed": False, "verdict_status": "ok", "verdict_reason": ""}
    assert env.step(EOS)[1:] == (1.0, True, False, {"is_success": True, "completion": "46", **parts})


def test_gymnasiums_record_of_episodes_has_the_key_it_wants():
    env = RecordEpisodeStatistics(gym.make("TextGen-v0", **SUM))
    assert say(env, "46$")[4]["episode"].items() >= {"r": 1.0, "l": 3}.items()
    assert say(env, "4$")[4]["episode"].items() >= {"r": 0.0, "l": 2}.items()


def test_stepping_is_refused_before_the_first_reset_and_from_the_end_until_the_next():
    env = TextGenEnv(**SUM)
    for each, action in ((env, 4), (summing(2), [4, 4])):
        with pytest.raises(RuntimeError, match=r"call reset\(\) before step"):
            each.step(action)
    say(env, "46$")
    with pytest.raises(RuntimeError, match="the episode is over"):
        env.step(4)


# Batched.


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.uint16, np.uint64])
def test_actions_are_whole_numbers_of_any_size(dtype):
    env = summing(2)
    env.reset(seed=0)
    observation, _, terminated, _, _ = env.step(np.array([EOS, 2], dtype))
    assert terminated.tolist() == [True, False] and 2 in observation["tokens"][1].tolist()


def test_everything_returned_is_a_tensor_on_the_device_that_behaves_like_an_array():
    env = summing(2)
    env.reset(seed=0)
    observation, reward, terminated, truncated, _ = env.step(torch.tensor([EOS, 2]))
    given = {**observation, "reward": reward, "terminated": terminated, "truncated": truncated}
    assert {name: (each.dtype, tuple(each.shape)) for name, each in given.items()} == {
        "tokens": (torch.int64, (2, env.task.encoding.max_length)), "length": (torch.int64, (2,)),
        "reward": (torch.float32, (2,)), "terminated": (torch.bool, (2,)), "truncated": (torch.bool, (2,)),
    }  # fmt: skip
    assert {each.device for each in given.values()} == {env.device}
    assert np.array_equal(1 - terminated, [0, 1])
    assert torch.equal(1 - reward, torch.ones(2)) and not isinstance(1 - reward, np.ndarray)
    reward[1] = np.float32(0.5)
    reward[np.array([True, False])] = np.array([0.25], dtype=np.float32)
    assert reward.tolist() == [0.25, 0.5]


# The task: lengths, alphabet, spaces, and whose prompts are posed.


class Sampling(Silent):
    def sample(self, rng):
        return Problem("a")


class Boxed(Silent):
    def demonstration(self, problem):
        return f"[{problem.answer}]"


SPLIT = [
    {"prompt": "ab", "answer": "c", "split": "train"},
    {"prompt": "dabc", "answer": "e" * 80, "split": "validation"},
]


@pytest.mark.parametrize(
    ("settings", "prompt", "new"),
    [
        ({"verifier": "arith", "verifier_kwargs": {"digits": 3}}, 9, 5),
        ({"verifier": Sampling()}, 1024, 64),
        ({"problems": ["a", "abcab"]}, 5, 64),
        ({"problems": [Problem("a", "b" * 70)], "verifier": Boxed()}, 1, 73),
        ({"problems": SPLIT, "split": "train"}, 4, 81),
        ({"problems": [{"prompt": "12345+1=", "answer": "12346"}], "verifier": "arith"}, 8, 6),
    ],
)
def test_the_verifier_or_the_listed_problems_say_how_long_prompts_and_completions_are(settings, prompt, new):
    made = TextGenTask(**{"verifier": Silent(), "test_fraction": 0.0, **settings}).encoding
    assert (made.max_prompt_tokens, made.max_new_tokens, made.max_length) == (prompt, new, prompt + new)


def test_characters_of_listed_problems_and_demonstrations_join_the_alphabet_in_a_fixed_order():
    listed = [{"prompt": "zßa", "answer": "é🙂"}, {"prompt": "字", "answer": "\x00"}]
    for order in (listed, listed[::-1]):
        tokenizer = TextGenTask(Boxed(), problems=order, test_fraction=0.0).encoding.tokenizer
        tokens = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
        assert tokens == ["<pad>", "<eos>", *"abc", *sorted("zßé🙂字\x00[]")]


# What is shown: texts and pictures.


def test_a_text_shows_prompt_completion_and_reward_at_any_time_or_once_as_the_episode_ends(capsys):
    env = gym.make("TextGen-v0", render_mode="ansi", **SUM)
    env.reset(seed=0)
    shown = [env.render()] + [env.step(token) and env.render() for token in ids("46$")]
    assert shown == ["12+34=│", "12+34=│4", "12+34=│46", "12+34=│46  reward 1"]
    env.reset()
    assert env.render() == "12+34=│"
    env = gym.make("TextGen-v0", render_mode="human", **SUM)
    say(env, "46$")
    say(env, "7$")
    assert capsys.readouterr().out == "12+34=│46  reward 1\n12+34=│7  reward 0\n"
    assert env.render() is None


def frames_of(text, **task):
    env = gym.make("TextGen-v0", render_mode="rgb_array", **{**SUM, "max_new_tokens": 4, **task})
    env.reset(seed=0)
    return [env.render()] + [env.step(token) and env.render() for token in ids(text)]


def colored(frame, color):
    """Return how many pixels have a color."""
    rgb = [int(color[start : start + 2], 16) for start in (1, 3, 5)]
    return int((frame == rgb).all(axis=-1).sum())


def test_every_picture_has_one_size_and_shows_what_was_written_and_what_came_of_it():
    frames = frames_of("46$")
    assert {(frame.shape, frame.dtype) for frame in frames} == {(frames[0].shape, np.dtype("uint8"))}
    assert frames[0].shape[0] % 2 == frames[0].shape[1] % 2 == 0
    prompts, generated = ([colored(frame, color) for frame in frames] for color in (PROMPT, GENERATED))
    assert min(prompts) == max(prompts) > 6 * BOX * BOX / 2
    assert generated[0] == 0 < generated[1] < generated[2] == generated[3]
    for color in (STOP, GOOD):
        assert [colored(frame, color) > 0 for frame in frames] == [False, False, False, True]
    long = frames_of("4$", problems=["1+" * 600 + "1="], max_prompt_tokens=2000)
    assert long[0].shape[0] < (MOST_LINES + 3) * BOX + 100
    assert colored(long[-1], GENERATED) > 0 and colored(long[-1], STOP) > 0, "its end"
    failed = frames_of("6$", verifier=lambda completions: 1 / 0, flag_errors=True, tokenizer=TOKENIZER)[-1]
    assert colored(failed, NEITHER) > 0 == colored(failed, BAD), "no verdict"
    batched = summing(2, render_mode="rgb_array", max_new_tokens=4)
    batched.reset(seed=0)
    for actions in zip(ids("46$"), ids("66$"), strict=True):
        batched.step(actions)
    right, wrong = batched.render()
    assert np.array_equal(right, frames[-1]) and colored(wrong, BAD) > 0 == colored(wrong, GOOD)
