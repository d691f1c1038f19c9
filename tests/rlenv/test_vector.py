import pickle

import numpy as np
import pytest
import torch
from chat_families import gemma
from drawn import drawn
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given
from hypothesis import strategies as st
from textgen_reference import OddVerifier, SlotReference, assert_same, layout, plain, slot_info, slot_observation

from rlenv.autoreset import make_vector_env
from rlenv.textgen import TextGenEnv
from rlenv.vector_env import TextGenVectorEnv
from verifiers import Problem, Verdict, Verifier

EOS = 1
MODES = list(AutoresetMode)
DISABLED, NEXT_STEP, SAME_STEP = AutoresetMode.DISABLED, AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP
SUM = {"verifier": "arith", "problems": [{"prompt": "12+34=", "answer": "46"}], "test_fraction": 0.0}
FOUR, SIX = 6, 8  # after <pad> and <eos>, the digits in order


def odd(num_envs, mode=DISABLED, **task):
    return make_vector_env(mode, num_envs=num_envs, verifier=OddVerifier(), **task)


def summing(num_envs, mode=DISABLED, **task):
    return make_vector_env(mode, num_envs=num_envs, **SUM, **task)


CONVERSATIONS = [[{"role": "user", "content": text}] for text in ("b", "aa", "bab c")]
CONVERSATIONS += [[*CONVERSATIONS[0], {"role": "assistant", "content": "<eos>"}, {"role": "user", "content": "a"}]]
CHATS = {
    "problems": [*CONVERSATIONS, "b", "plain"],
    "tokenizer": gemma(),
    "stop_tokens": ["no"],
    "system_prompt": "Be <bos> brief.",
    "test_fraction": 0.0,
}


class OfTexts(OddVerifier):
    def verify(self, problem, completion):
        return super().verify(Problem(problem.text), completion)


@pytest.mark.parametrize("task", [{}, CHATS], ids=["letters", "conversations"])
@pytest.mark.parametrize("mode", MODES)
@drawn(6)
@given(
    seed=st.integers(0, 2**31),
    num_envs=st.integers(1, 5),
    group_size=st.integers(1, 3),
    max_new_tokens=st.integers(1, 4),
    choices=st.randoms(use_true_random=False),
)
def test_it_equals_that_many_single_environments(mode, task, seed, num_envs, group_size, max_new_tokens, choices):
    """Also with several stop tokens, and with actions of finished slots, which are ignored whatever they are."""
    task = {"verifier": OfTexts(), "group_size": group_size, "max_new_tokens": max_new_tokens, **task}
    env = make_vector_env(mode, num_envs=num_envs, **task)
    reference = SlotReference(num_envs, mode, seed, **task)
    common = range(5)
    if "tokenizer" in task:
        common = [
            *env.unwrapped.task.stop_token_ids,
            *task["tokenizer"].convert_tokens_to_ids(["a", "b", "▁", "<0xC3>"]),
        ]

    assert_same(env.reset(seed=seed), reference.reset(range(num_envs)))
    for _ in range(15):
        actions = [
            choices.choice([-5, 10_000]) if over and choices.random() < 0.5 else choices.choice(common)
            for over in reference.done
        ]
        assert_same(env.step(torch.tensor(actions)), reference.step(actions))
        restarted = [row for row in range(num_envs) if choices.random() < 0.3]
        if restarted and mode is DISABLED:
            mask = np.isin(np.arange(num_envs), restarted)
            assert_same(env.reset(options={"reset_mask": mask}), reference.reset(restarted))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(5))
def test_one_slot_equals_gymnasiums_own_vector_environment_to_the_layout_of_the_infos(mode, seed):
    env = odd(1, mode, max_new_tokens=3)
    theirs = SyncVectorEnv([lambda: TextGenEnv(verifier=OddVerifier(), max_new_tokens=3)], autoreset_mode=mode)
    rng = np.random.default_rng(seed)
    ours, expected = env.reset(seed=seed), theirs.reset(seed=seed)
    assert plain(ours) == plain(expected)
    for _ in range(40):
        action = rng.integers(5, size=1)
        ours, expected = env.step(action), theirs.step(action)
        assert plain(ours) == plain(expected)
        assert layout(ours[4]) == layout(expected[4])
        if mode is DISABLED and ours[2].any():
            options = {"reset_mask": np.array([True])}
            assert plain(env.reset(options=options)) == plain(theirs.reset(options=options))


def test_everything_returned_is_a_tensor_on_the_device():
    env = odd(2)
    observation, _ = env.reset(seed=0)
    observation, reward, terminated, truncated, _ = env.step(torch.tensor([EOS, 2]))
    assert (observation["tokens"].dtype, observation["tokens"].shape) == (torch.int64, (2, env.task.max_length))
    assert (observation["length"].dtype, observation["length"].shape) == (torch.int64, (2,))
    assert (reward.dtype, reward.shape) == (torch.float32, (2,))
    for flag in (terminated, truncated):
        assert (flag.dtype, flag.shape) == (torch.bool, (2,))
    assert {tensor.device for tensor in (*observation.values(), reward, terminated, truncated)} == {env.device}


def test_end_and_cut_set_the_flags_of_the_specification():
    env = summing(3, max_new_tokens=2)
    env.reset(seed=0)
    env.step([FOUR, FOUR, FOUR])
    _, reward, terminated, truncated, _ = env.step([SIX, EOS, FOUR])
    assert reward.tolist() == [1.0, 0.0, 0.0]
    assert terminated.tolist() == [True, True, True]
    assert truncated.tolist() == [True, False, True]


def test_a_pickled_environment_goes_on_where_it_was():
    env = TextGenVectorEnv(3, verifier="arith", group_size=2)
    env.reset(seed=3)
    env.step([EOS, FOUR, FOUR])
    again = pickle.loads(pickle.dumps(env))
    for step in ([2, SIX, EOS], [2, EOS, 2]):
        assert plain(env.step(step)) == plain(again.step(step))
    assert plain(env.reset()) == plain(again.reset())


def test_rewards_of_numpys_types_keep_the_flags_boolean():
    class Numpy(Verifier):
        def verify(self, problem, completion):
            return Verdict(np.float64(1.0), {"part": np.float32(0.5)})

    env = TextGenVectorEnv(2, verifier=Numpy(), problems=["a"], test_fraction=0.0)
    env.reset(seed=0)
    _, reward, *_, info = env.step([EOS, EOS])
    assert reward.tolist() == [1.0, 1.0]
    assert info["verdict"]["part"].tolist() == [0.5, 0.5]
    assert info["is_success"].dtype == np.bool_


def test_rows_that_end_together_are_judged_in_one_batch():
    sizes = []

    def reward(prompts, completions):
        sizes.append(len(completions))
        return [0.0] * len(completions)

    env = TextGenVectorEnv(4, verifier=reward, problems=["a"], test_fraction=0.0)
    env.reset(seed=0)
    for actions in ([5, 5, 5, 5], [EOS, 5, EOS, EOS], [5, EOS, 5, 5]):
        env.step(actions)
    assert sizes == [3, 1]


@pytest.mark.parametrize("group_size", [1, 2, 3, 5])
def test_restarting_every_slot_begins_a_new_group_and_keeps_to_the_stream(group_size):
    env = odd(4, group_size=group_size)
    stream = odd(12).reset(seed=5)[1]["prompt"]
    first, second = env.reset(seed=5)[1], env.reset()[1]
    begins = first["group"][-1] + 1
    assert second["group"].tolist() == [begins + slot // group_size for slot in range(4)]
    for info in (first, second):
        assert info["prompt"].tolist() == [stream[group] for group in info["group"]]


@pytest.mark.parametrize("group_size", [1, 2])
def test_a_seed_for_some_slots_gives_them_groups_that_no_running_slot_has(group_size):
    env = odd(5, group_size=group_size)
    running = env.reset(seed=5)[1]["group"].tolist()
    for seed in (6, 7):
        info = env.reset(seed=seed, options={"reset_mask": [True, True, False, False, False]})[1]
        assert info["prompt"].tolist()[:2] == odd(2, group_size=group_size).reset(seed=seed)[1]["prompt"].tolist()
        started = info["group"].tolist()[:2]
        assert min(started) > max(running) and len(set(started)) == 2 // group_size
        running += started
    info = env.reset(options={"reset_mask": [False, False, True, True, False]})[1]
    assert set(info["group"].tolist()[2:4]).isdisjoint(running)
    assert env.reset(seed=5)[1]["group"].tolist() == [slot // group_size for slot in range(5)]


MASKS = [[True, False], (True, False), np.array([True, False]), torch.tensor([True, False])]


@pytest.mark.parametrize(("mask", "lengths"), [*((mask, [6, 7]) for mask in MASKS), (None, [6, 6])])
def test_a_mask_is_any_sequence_of_booleans_and_without_one_every_slot_restarts(mask, lengths):
    env = summing(2)
    env.reset(seed=0)
    env.step([FOUR, FOUR])
    assert env.reset(options={"reset_mask": mask})[0]["length"].tolist() == lengths


def _scribble(result):
    *tensors, info = result
    observation, *rest = tensors
    final = [obs for obs in info.get("final_obs", []) if obs is not None]
    for tensor in (*observation.values(), *rest, *(value for obs in final for value in obs.values())):
        tensor.fill_(1)


@pytest.mark.parametrize("mode", MODES)
def test_writing_into_what_was_returned_changes_nothing(mode):
    scribbled, untouched = odd(3, mode, max_new_tokens=2), odd(3, mode, max_new_tokens=2)
    _scribble(scribbled.reset(seed=1))
    untouched.reset(seed=1)
    rng = np.random.default_rng(0)
    returned = []
    for _ in range(20):
        actions = rng.integers(5, size=3)
        given = torch.tensor(actions)
        result, expected = scribbled.step(given), untouched.step(actions)
        assert plain(result) == plain(expected)
        returned.append((expected, plain(expected)))
        _scribble(result)
        given.fill_(4)
        if mode is DISABLED and expected[2][1]:
            options = {"reset_mask": [False, True, False]}
            result, expected = scribbled.reset(options=options), untouched.reset(options=options)
            assert plain(result) == plain(expected)
            _scribble(result)
    assert all(plain(result) == kept for result, kept in returned)


def test_a_slot_that_the_first_reset_leaves_out_is_finished():
    env = summing(2)
    assert env.reset(seed=0, options={"reset_mask": [True, False]})[0]["length"].tolist() == [6, 0]
    observation, rewards, terminated, _, info = env.step([2, 2])
    assert observation["length"].tolist() == [7, 0] and not terminated[1] and rewards[1] == 0
    assert "completion" not in info or not info["_completion"][1]
    assert env.reset(seed=0)[0]["length"].tolist() == [6, 6]


def test_flags_and_rewards_on_the_cpu_behave_like_arrays():
    env = summing(2)
    env.reset(seed=0)
    _, rewards, terminated, _, _ = env.step(torch.tensor([FOUR, SIX]))
    assert np.array_equal(1 - terminated, [1, 1])
    assert torch.equal(1 - rewards, torch.ones(2)) and not isinstance(1 - rewards, np.ndarray)
    rewards[1] = np.float32(0.5)
    rewards[np.array([True, False])] = np.array([0.25], dtype=np.float32)
    assert rewards.tolist() == [0.25, 0.5]


def test_a_step_before_the_first_reset_is_refused():
    with pytest.raises(RuntimeError, match="call reset"):
        summing(2).step([2, 2])


@drawn(6)
@given(seed=st.integers(0, 2**31), choices=st.randoms(use_true_random=False))
def test_slots_that_do_not_act_are_left_as_they_are(seed, choices):
    """The others are stepped as if these were not there; an action that is not taken may be any number."""
    env, alone = odd(4, max_new_tokens=3), [odd(4, max_new_tokens=3) for _ in range(4)]
    for each in (env, *alone):
        observation, _ = each.reset(seed=seed)
    seen = [slot_observation(observation, slot) for slot in range(4)]
    for _ in range(20):
        acting = [choices.random() < 0.5 for _ in range(4)]
        actions = [choices.randrange(5) if acts else 10_000 for acts in acting]
        observation, *flags, infos = env.step(actions, acting=acting)
        for slot, other in enumerate(alone):
            expected, told = (0.0, False, False), {}
            if acting[slot]:
                theirs, *rest, others = other.step([actions[slot]] * 4)
                expected, told = tuple(flag[slot].item() for flag in rest), slot_info(others, slot)
                seen[slot] = slot_observation(theirs, slot)
            assert slot_observation(observation, slot) == seen[slot]
            assert tuple(flag[slot].item() for flag in flags) == expected and slot_info(infos, slot) == told
