"""Episodes as pictures: one size per environment, every token and the reward in them."""

import gymnasium as gym
import numpy as np
import torch

import rlenv  # noqa: F401 (registers TextGen-v0)
from rlenv.envs.picture import BAD, BOX, GENERATED, GOOD, MOST_LINES, NEITHER, PROMPT, STOP, token_text
from rlenv.text.tokenizer import character_tokenizer

SUM = {
    "verifier": "arith",
    "problems": [{"prompt": "12+34=", "answer": "46"}],
    "test_fraction": 0.0,
    "max_new_tokens": 4,
}
FOUR, SIX, EOS = "4", "6", None


def colored(frame, color):
    """Return how many pixels have a color."""
    rgb = [int(color[start : start + 2], 16) for start in (1, 3, 5)]
    return int((frame == rgb).all(axis=-1).sum())


def ids(env, *tokens):
    task = env.unwrapped.task
    return [task.eos_token_id if token is EOS else task.tokenizer.convert_tokens_to_ids(token) for token in tokens]


def frames_of(env, *tokens):
    env.reset(seed=0)
    frames = [env.render()]
    for action in ids(env, *tokens):
        env.step(action)
        frames.append(env.render())
    return frames


def test_every_frame_has_one_size_and_shows_what_was_written():
    env = gym.make("TextGen-v0", render_mode="rgb_array", **SUM)
    assert env.metadata["render_fps"] == 4
    frames = frames_of(env, FOUR, SIX, EOS)
    assert {(frame.shape, frame.dtype) for frame in frames} == {(frames[0].shape, np.dtype("uint8"))}
    assert frames[0].shape[0] % 2 == frames[0].shape[1] % 2 == 0
    prompts = [colored(frame, PROMPT) for frame in frames]
    assert min(prompts) == max(prompts) > 6 * BOX * BOX / 2
    generated = [colored(frame, GENERATED) for frame in frames]
    assert generated[0] == 0 < generated[1] < generated[2] == generated[3]
    assert [colored(frame, STOP) > 0 for frame in frames] == [False, False, False, True]
    assert [colored(frame, GOOD) > 0 for frame in frames] == [False, False, False, True]


def test_a_missing_verdict_has_another_color():
    def fail(prompts, completions):
        raise RuntimeError

    env = gym.make("TextGen-v0", render_mode="rgb_array", **SUM | {"verifier": fail, "flag_errors": True})
    frame = frames_of(env, SIX, EOS)[-1]
    assert colored(frame, NEITHER) > 0 == colored(frame, BAD)


def test_single_and_batched_draw_the_same():
    single = gym.make("TextGen-v0", render_mode="rgb_array", **SUM)
    batched = gym.make_vec("TextGen-v0", num_envs=2, render_mode="rgb_array", **SUM)
    batched.reset(seed=0)
    frames = frames_of(single, FOUR, SIX, EOS)
    seen = [batched.render()]
    for right, wrong in zip(ids(single, FOUR, SIX, EOS), ids(single, SIX, SIX, EOS), strict=True):
        batched.step(torch.tensor([right, wrong]))
        seen.append(batched.render())
    for frame, both in zip(frames, seen, strict=True):
        assert np.array_equal(frame, both[0])
    assert colored(seen[-1][1], BAD) > 0 == colored(seen[-1][1], GOOD)
    batched.reset(options={"reset_mask": torch.tensor([False, True])})
    assert colored(batched.render()[1], BAD) == 0  # the outcome is that of the episode that runs


def test_a_long_episode_shows_its_end():
    prompt = "1+" * 600 + "1="
    env = gym.make("TextGen-v0", render_mode="rgb_array", **SUM | {"problems": [prompt], "max_prompt_tokens": 2000})
    frames = frames_of(env, FOUR, EOS)
    assert frames[0].shape[0] < (MOST_LINES + 3) * BOX + 100
    assert colored(frames[-1], GENERATED) > 0 and colored(frames[-1], STOP) > 0


def test_every_token_is_one_visible_line():
    tokenizer = character_tokenizer("a \n\t")
    shown = [token_text(tokenizer, tokenizer.convert_tokens_to_ids(each)) for each in "a \n\t"]
    assert shown == ["a", "·", "\\n", "\\t"]
    assert token_text(tokenizer, tokenizer.eos_token_id) == tokenizer.eos_token
