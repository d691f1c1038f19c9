import pickle

import gymnasium as gym
import numpy as np
import pytest
import torch
from drawn import drawn
from gymnasium.utils.env_checker import check_env as gymnasium_check_env
from gymnasium.wrappers import RecordEpisodeStatistics
from hypothesis import given
from hypothesis import strategies as st
from stable_baselines3.common.env_checker import check_env as sb3_check_env

import rlenv  # noqa: F401 (registers TextGen-v0)
from rlenv.picture import BAD, BOX, GENERATED, GOOD, MOST_LINES, NEITHER, PROMPT, STOP, token_text
from rlenv.textgen import TextGenEnv
from rlenv.tokenizer import character_tokenizer

PAD, EOS = 0, 1
SUM = {"verifier": "arith", "problems": [{"prompt": "12+34=", "answer": "46"}], "test_fraction": 0.0}


def tokens_of(env, text):
    return env.unwrapped.task.tokenizer(text, add_special_tokens=False)["input_ids"] if text else []


def say(env, text):
    """Start an episode, say the text and end it; return what the last step returned."""
    env.reset()
    for token in tokens_of(env, text):
        env.step(token)
    return env.step(EOS)


def prompts(env, count, seed=None):
    return [env.reset(seed=seed if episode == 0 else None)[1]["prompt"] for episode in range(count)]


def test_it_passes_the_checker_of_gymnasium_in_every_render_mode(capsys):
    gymnasium_check_env(gym.make("TextGen-v0", verifier="arith", render_mode="ansi").unwrapped)
    gymnasium_check_env(gym.make("TextGen-v0", verifier="arith", render_mode="human").unwrapped)
    gymnasium_check_env(gym.make("TextGen-v0", verifier="arith", render_mode="rgb_array").unwrapped)


def test_it_passes_the_checker_of_stable_baselines3():
    sb3_check_env(gym.make("TextGen-v0", verifier="arith"))


def test_its_specification_survives_json():
    env = gym.make("TextGen-v0", verifier="arith", verifier_kwargs={"digits": 1}, group_size=2, split="test")
    again = gym.make(gym.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert prompts(env, 6, seed=4) == prompts(again, 6, seed=4)


@drawn(40)
@given(st.integers(0, 2**32), st.lists(st.integers(0, 13), min_size=1, max_size=4))
def test_observations_only_ever_grow_by_the_action(seed, actions):
    env = TextGenEnv(verifier="arith")
    before, _ = env.reset(seed=seed)
    for action in actions:
        after, _, done, _, _ = env.step(action)
        length = before["length"]
        assert after["length"] == length + 1
        assert after["tokens"][length] == action
        assert after["tokens"][:length].tolist() == before["tokens"][:length].tolist()
        assert set(after["tokens"][length + 1 :].tolist()) <= {PAD}
        assert env.observation_space.contains(after)
        before = after
        if done:
            break


def test_observations_given_out_do_not_change_and_are_not_the_environments_own():
    env = TextGenEnv(**SUM)
    first, _ = env.reset(seed=0)
    kept = first["tokens"].copy()
    env.step(4)
    assert (first["tokens"] == kept).all()
    first["tokens"][:] = 9
    assert env.step(5)[0]["tokens"][:6].tolist() == tokens_of(env, "12+34=")


def test_the_right_answer_pays_at_its_end_only():
    env = TextGenEnv(**SUM)
    env.reset(seed=0)
    four, six = tokens_of(env, "46")
    assert env.step(four)[1:] == (0.0, False, False, {})
    assert env.step(six)[1:] == (0.0, False, False, {})
    assert env.step(EOS)[1:] == (
        1.0,
        True,
        False,
        {
            "is_success": True,
            "completion": "46",
            "verdict": {},
            "verifier_failed": False,
            "verdict_status": "ok",
            "verdict_reason": "",
        },
    )


def test_gymnasiums_record_of_episodes_has_the_key_it_wants():
    env = RecordEpisodeStatistics(gym.make("TextGen-v0", **SUM))
    assert say(env, "46")[4]["episode"].items() >= {"r": 1.0, "l": 3}.items()
    assert say(env, "4")[4]["episode"].items() >= {"r": 0.0, "l": 2}.items()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_pickled_environment_goes_on_in_the_same_episode_and_stream(workers):
    env = gym.make("TextGen-v0", verifier="arith", verifier_workers=workers)
    env.reset(seed=3)
    again = pickle.loads(pickle.dumps(env))
    answer = [*tokens_of(env, env.unwrapped._prompt.problem.answer), EOS]
    for one in (env, again):
        assert [one.step(token)[1] for token in answer][-1] == 1.0
    assert prompts(env, 5) == prompts(again, 5)
    env.close()
    assert say(again, "")[4]["verdict_status"] == "ok", "the copy has workers of its own"
    again.close()


@pytest.mark.parametrize(("nothing", "failed"), [(None, False), (float("nan"), True)], ids=["not applicable", "nan"])
def test_a_verdict_that_was_not_reached_pays_nothing_and_is_a_failure_where_the_verifier_is_at_fault(nothing, failed):
    env = TextGenEnv(verifier=lambda prompts, completions: [nothing], problems=["a"], test_fraction=0.0)
    _, reward, terminated, _, info = say(env, "b")
    assert (reward, terminated) == (0.0, True)
    assert (info["verifier_failed"], info["is_success"]) == (failed, False)
    assert info["verdict_status"] == ("error" if failed else "not_applicable")


def test_stepping_is_refused_before_the_first_reset_and_from_the_end_until_the_next():
    env = TextGenEnv(**SUM)
    with pytest.raises(RuntimeError, match=r"call reset\(\) before step"):
        env.step(4)
    say(env, "46")
    with pytest.raises(RuntimeError, match="the episode is over"):
        env.step(4)
    env.reset()
    assert env.step(4)[1:] == (0.0, False, False, {})


def test_environments_that_nobody_seeded_differ_even_when_their_generator_was_looked_at():
    one, other = TextGenEnv(verifier="arith"), TextGenEnv(verifier="arith")
    assert one.np_random is not other.np_random
    assert prompts(one, 10) != prompts(other, 10)


def test_ansi_shows_prompt_completion_and_reward():
    env = gym.make("TextGen-v0", render_mode="ansi", **SUM)
    env.reset(seed=0)
    assert env.render() == "12+34=│"
    four, six = tokens_of(env, "46")
    env.step(four)
    assert env.render() == "12+34=│4"
    env.step(six)
    env.step(EOS)
    assert env.render() == "12+34=│46  reward 1"
    env.reset()
    assert env.render() == "12+34=│"


def test_human_prints_every_episode_once_as_it_ends(capsys):
    env = gym.make("TextGen-v0", render_mode="human", **SUM)
    say(env, "46")
    say(env, "7")
    assert capsys.readouterr().out == "12+34=│46  reward 1\n12+34=│7  reward 0\n"
    assert env.render() is None


# Pictures: one size per environment, every token and the reward in them.


ONE = {
    "verifier": "arith",
    "problems": [{"prompt": "12+34=", "answer": "46"}],
    "test_fraction": 0.0,
    "max_new_tokens": 4,
}
FOUR, SIX, END = "4", "6", None


def colored(frame, color):
    """Return how many pixels have a color."""
    rgb = [int(color[start : start + 2], 16) for start in (1, 3, 5)]
    return int((frame == rgb).all(axis=-1).sum())


def ids(env, *tokens):
    task = env.unwrapped.task
    return [task.eos_token_id if token is END else task.tokenizer.convert_tokens_to_ids(token) for token in tokens]


def frames_of(env, *tokens):
    env.reset(seed=0)
    frames = [env.render()]
    for action in ids(env, *tokens):
        env.step(action)
        frames.append(env.render())
    return frames


def test_every_frame_has_one_size_and_shows_what_was_written():
    env = gym.make("TextGen-v0", render_mode="rgb_array", **ONE)
    assert env.metadata["render_fps"] == 4
    frames = frames_of(env, FOUR, SIX, END)
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

    env = gym.make("TextGen-v0", render_mode="rgb_array", **ONE | {"verifier": fail, "flag_errors": True})
    frame = frames_of(env, SIX, END)[-1]
    assert colored(frame, NEITHER) > 0 == colored(frame, BAD)


def test_single_and_batched_draw_the_same():
    single = gym.make("TextGen-v0", render_mode="rgb_array", **ONE)
    batched = gym.make_vec("TextGen-v0", num_envs=2, render_mode="rgb_array", **ONE)
    batched.reset(seed=0)
    frames = frames_of(single, FOUR, SIX, END)
    seen = [batched.render()]
    for right, wrong in zip(ids(single, FOUR, SIX, END), ids(single, SIX, SIX, END), strict=True):
        batched.step(torch.tensor([right, wrong]))
        seen.append(batched.render())
    for frame, both in zip(frames, seen, strict=True):
        assert np.array_equal(frame, both[0])
    assert colored(seen[-1][1], BAD) > 0 == colored(seen[-1][1], GOOD)
    batched.reset(options={"reset_mask": torch.tensor([False, True])})
    assert colored(batched.render()[1], BAD) == 0  # the outcome is that of the episode that runs


def test_a_long_episode_shows_its_end():
    prompt = "1+" * 600 + "1="
    env = gym.make("TextGen-v0", render_mode="rgb_array", **ONE | {"problems": [prompt], "max_prompt_tokens": 2000})
    frames = frames_of(env, FOUR, END)
    assert frames[0].shape[0] < (MOST_LINES + 3) * BOX + 100
    assert colored(frames[-1], GENERATED) > 0 and colored(frames[-1], STOP) > 0


def test_every_token_is_one_visible_line():
    tokenizer = character_tokenizer("a \n\t")
    shown = [token_text(tokenizer, tokenizer.convert_tokens_to_ids(each)) for each in "a \n\t"]
    assert shown == ["a", "·", "\\n", "\\t"]
    assert token_text(tokenizer, tokenizer.eos_token_id) == tokenizer.eos_token
