import pickle

import gymnasium as gym
import numpy as np
import pytest
import torch
from drawn import drawn
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from hypothesis import given
from hypothesis import strategies as st
from textgen_reference import OddVerifier, SlotReference, layout, plain, slot_info, slot_observation

from rlenv.envs.textgen import TextGenEnv
from rlenv.envs.vector import TextGenVectorEnv
from verifiers import Verdict, Verifier

EOS = 1
MODES = list(AutoresetMode)
DISABLED, NEXT_STEP, SAME_STEP = AutoresetMode.DISABLED, AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP
SUM = {"verifier": "arith", "problems": [{"prompt": "12+34=", "answer": "46"}], "test_fraction": 0.0}
FOUR, SIX = 6, 8  # after <pad> and <eos>, the digits in order


def odd(num_envs, mode=DISABLED, **task):
    return TextGenVectorEnv(num_envs, autoreset_mode=mode, verifier=OddVerifier(), **task)


def summing(num_envs, mode=DISABLED, **task):
    return TextGenVectorEnv(num_envs, autoreset_mode=mode, **SUM, **task)


def assert_equal_observations(observation, expected):
    assert [slot_observation(observation, row) for row in range(len(expected))] == plain(expected)


def assert_equal_infos(info, expected):
    assert [slot_info(info, row) for row in range(len(expected))] == plain(expected)


def assert_equal_steps(result, expected):
    observation, *flags, info = result
    expected_observations, *expected_flags, expected_infos = expected
    assert_equal_observations(observation, expected_observations)
    assert [plain(flag) for flag in flags] == expected_flags
    assert_equal_infos(info, expected_infos)


@pytest.mark.parametrize("mode", MODES)
@drawn(6)
@given(
    seed=st.integers(0, 2**31),
    num_envs=st.integers(1, 5),
    group_size=st.integers(1, 3),
    max_new_tokens=st.integers(1, 4),
    choices=st.randoms(use_true_random=False),
)
def test_it_equals_that_many_single_environments(mode, seed, num_envs, group_size, max_new_tokens, choices):
    task = {"group_size": group_size, "max_new_tokens": max_new_tokens}
    env = odd(num_envs, mode, **task)
    reference = SlotReference(num_envs, mode, seed, verifier=OddVerifier(), **task)
    observation, info = env.reset(seed=seed)
    expected_observations, expected_infos = reference.reset(range(num_envs))
    assert_equal_observations(observation, expected_observations)
    assert_equal_infos(info, expected_infos)
    for _ in range(15):
        actions = [choices.randrange(5) for _ in range(num_envs)]
        assert_equal_steps(env.step(torch.tensor(actions)), reference.step(actions))
        restarted = [row for row in range(num_envs) if choices.random() < 0.3]
        if restarted and mode is DISABLED:
            mask = np.isin(np.arange(num_envs), restarted)
            observation, info = env.reset(options={"reset_mask": mask})
            expected_observations, expected_infos = reference.reset(restarted)
            assert_equal_observations(observation, expected_observations)
            assert_equal_infos(info, expected_infos)


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


@pytest.mark.parametrize("mode", MODES)
def test_it_is_made_by_make_vec(mode):
    env = gym.make_vec("TextGen-v0", num_envs=3, verifier="arith", autoreset_mode=mode.value)
    assert isinstance(env, VectorEnv)
    assert env.num_envs == 3
    assert env.metadata["autoreset_mode"] is mode
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains({key: value.numpy() for key, value in observation.items()})
    assert env.single_action_space == gym.make("TextGen-v0", verifier="arith").action_space
    assert env.single_observation_space == gym.make("TextGen-v0", verifier="arith").observation_space


def test_it_is_made_by_module_and_name_and_disabled_is_the_default():
    env = gym.make_vec("rlenv:TextGen-v0", num_envs=2, verifier="arith", device="cpu", group_size=2)
    assert env.metadata["autoreset_mode"] is DISABLED
    assert env.metadata["group_size"] == 2


def test_one_environments_mode_is_not_anothers():
    one, other = odd(1, SAME_STEP, group_size=2), odd(1, NEXT_STEP)
    assert [env.metadata["autoreset_mode"] for env in (one, other)] == [SAME_STEP, NEXT_STEP]
    assert TextGenVectorEnv.metadata["autoreset_mode"] is DISABLED


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


def test_infos_follow_gymnasiums_masks():
    env = summing(3)
    _, info = env.reset(seed=0)
    assert info["group"].tolist() == [0, 1, 2]
    assert info["_group"].tolist() == info["_prompt"].tolist() == [True, True, True]
    env.step([FOUR, FOUR, FOUR])
    info = env.step([SIX, EOS, SIX])[4]
    assert info["_completion"].tolist() == info["_is_success"].tolist() == [False, True, False]
    info = env.step([EOS, EOS, 2])[4]
    assert info["is_success"].tolist() == [True, False, False]
    assert info["completion"].tolist() == ["46", None, None]
    for key in ("is_success", "completion", "verdict", "verifier_failed"):
        assert info[f"_{key}"].tolist() == [True, False, False]
    dtypes = [info[key].dtype for key in ("is_success", "verifier_failed", "completion")]
    assert dtypes == [np.bool_, np.bool_, object]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("native", [True, False])
def test_gymnasiums_record_of_episodes_has_the_key_it_wants(native, mode):
    env = summing(2, mode) if native else SyncVectorEnv([lambda: TextGenEnv(**SUM)] * 2, autoreset_mode=mode)
    env = RecordEpisodeStatistics(env)
    env.reset(seed=0)
    for actions in ([FOUR, FOUR], [SIX, SIX]):
        assert "episode" not in env.step(np.array(actions))[4]
    info = env.step(np.array([EOS, SIX]))[4]
    assert plain(info["_episode"]) == [True, False]
    assert (plain(info["episode"]["r"]), plain(info["episode"]["l"])) == ([1.0, 0.0], [3, 0])


def test_a_pickled_environment_goes_on_where_it_was():
    env = TextGenVectorEnv(3, verifier="arith", group_size=2)
    env.reset(seed=3)
    env.step([EOS, FOUR, FOUR])
    again = pickle.loads(pickle.dumps(env))
    for step in ([2, SIX, EOS], [2, EOS, 2]):
        assert plain(env.step(step)) == plain(again.step(step))
    assert plain(env.reset()) == plain(again.reset())


@pytest.mark.parametrize("mode", MODES)
def test_a_running_environment_has_no_info(mode):
    env = summing(2, mode)
    env.reset(seed=0)
    assert env.step([FOUR, FOUR])[4] == {}
    assert env.step([SIX, SIX])[4] == {}


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


def test_episodes_that_end_together_have_the_levels_that_they_have_alone():
    def nothing(prompts, completions):
        return [0.0] * len(prompts)

    problems = [{"prompt": "a", "level": 2}, {"prompt": "b"}]
    task = {"verifier": nothing, "problems": problems, "test_fraction": 0.0}
    single, batched = TextGenEnv(**task), TextGenVectorEnv(4, **task)
    single.reset(seed=0)
    batched.reset(seed=0)
    info = batched.step([EOS] * 4)[4]
    levels = []
    for slot in range(4):
        levels.append(single.step(EOS)[4].get("level"))
        assert (info["level"][slot] if info["_level"][slot] else None) == levels[-1]
        single.reset()
    assert {2, None} == set(levels)


def test_verdicts_that_were_not_reached_are_flagged_slot_by_slot():
    def reward(prompts, completions):
        return [None if completion == "b" else float("nan") if completion == "c" else 1.0 for completion in completions]

    env = TextGenVectorEnv(3, verifier=reward, problems=["a"], test_fraction=0.0, max_prompt_tokens=3)
    env.reset(seed=0)
    env.step(env.task.encode(["abc"])[0])
    _, rewards, terminated, _, info = env.step([EOS] * 3)
    assert rewards.tolist() == [1.0, 0.0, 0.0]
    assert terminated.all()
    assert info["verifier_failed"].tolist() == [False, False, True]
    assert info["verdict_status"].tolist() == ["ok", "not_applicable", "error"]
    assert info["is_success"].tolist() == [True, False, False]


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


def test_the_first_reset_of_an_unseeded_environment_draws_a_seed():
    one, other = (TextGenVectorEnv(10, verifier="arith") for _ in range(2))
    assert one.reset()[1]["prompt"].tolist() != other.reset()[1]["prompt"].tolist()


def test_resetting_without_a_seed_continues_the_stream_and_with_one_restarts_it():
    env, whole = odd(2), odd(6).reset(seed=5)[1]
    infos = [env.reset(seed=5)[1], env.reset()[1], env.reset()[1], env.reset(seed=5)[1]]
    prompts = [prompt for info in infos for prompt in info["prompt"]]
    assert prompts == [*whole["prompt"], *whole["prompt"][:2]]
    assert [group for info in infos for group in info["group"]] == [0, 1, 2, 3, 4, 5, 0, 1]


@pytest.mark.parametrize("group_size", [1, 2, 3, 5])
def test_restarting_every_slot_begins_a_new_group_and_keeps_to_the_stream(group_size):
    env = odd(4, group_size=group_size)
    stream = odd(12).reset(seed=5)[1]["prompt"]
    first, second = env.reset(seed=5)[1], env.reset()[1]
    begins = first["group"][-1] + 1
    assert second["group"].tolist() == [begins + slot // group_size for slot in range(4)]
    for info in (first, second):
        assert info["prompt"].tolist() == [stream[group] for group in info["group"]]


def test_restarting_some_slots_completes_the_group_that_was_begun():
    env = odd(2, group_size=3)
    env.reset(seed=5)
    info = env.reset(options={"reset_mask": [True, True]})[1]
    assert info["group"].tolist() == [0, 1]


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


def test_a_partial_reset_restarts_those_slots_only():
    env = summing(3)
    env.reset(seed=0)
    before = env.step([FOUR, EOS, FOUR])[0]
    after, info = env.reset(options={"reset_mask": torch.tensor([False, True, False])})
    assert after["length"].tolist() == [7, 6, 7]
    for row in (0, 2):
        assert slot_observation(after, row) == slot_observation(before, row)
    assert info["_group"].tolist() == [False, True, False]
    assert info["group"].tolist() == [0, 3, 0]
    env.step([SIX, FOUR, SIX])
    assert env.step([EOS, SIX, EOS])[1].tolist() == [1.0, 0.0, 1.0]
    assert env.step([2, EOS, 2])[1].tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("mask", [[True, False], (True, False), np.array([True, False]), torch.tensor([True, False])])
def test_a_mask_is_any_sequence_of_booleans(mask):
    env = summing(2)
    env.reset(seed=0)
    env.step([FOUR, FOUR])
    assert env.reset(options={"reset_mask": mask})[0]["length"].tolist() == [6, 7]


def test_without_a_mask_every_slot_restarts():
    env = summing(2)
    env.reset(seed=0)
    for options in (None, {}, {"reset_mask": None}):
        env.step([FOUR, FOUR])
        assert env.reset(options=options)[0]["length"].tolist() == [6, 6]


def test_stepping_a_finished_slot_is_no_step_and_pays_nothing():
    env = summing(2)
    env.reset(seed=0)
    env.step([FOUR, FOUR])
    env.step([SIX, SIX])
    before, reward, *_ = env.step([EOS, SIX])
    assert reward.tolist() == [1.0, 0.0]
    for action in (FOUR, EOS, -5, 10_000):
        after, reward, terminated, truncated, info = env.step([action, EOS if action == EOS else 2])
        assert slot_observation(after, 0) == slot_observation(before, 0)
        assert (reward[0], terminated[0], truncated[0]) == (0.0, False, False)
        assert slot_info(info, 0) == {}
        env.reset(options={"reset_mask": [False, True]})


def test_same_step_returns_the_next_episode_and_keeps_the_last_observation_apart():
    env = summing(2, SAME_STEP)
    env.reset(seed=0)
    env.step([FOUR, FOUR])
    before = env.step([SIX, SIX])[0]
    observation, reward, terminated, truncated, info = env.step([EOS, SIX])
    assert (reward.tolist(), terminated.tolist(), truncated.tolist()) == ([1.0, 0.0], [True, False], [False, False])
    assert observation["length"].tolist() == [6, 9]
    assert info["_final_obs"].tolist() == info["_final_info"].tolist() == info["_group"].tolist() == [True, False]
    assert info["final_obs"][1] is None
    assert info["final_obs"][0]["length"] == 9
    assert info["final_obs"][0]["tokens"][:9].tolist() == [*before["tokens"][0, :8].tolist(), EOS]
    assert info["final_info"]["_completion"].tolist() == [True, False]
    assert info["group"].tolist() == [2, 0]
    assert "completion" not in info


def test_next_step_restarts_at_a_dead_step_whose_action_is_ignored():
    env = summing(2, NEXT_STEP)
    env.reset(seed=0)
    observation, _, terminated, _, info = env.step([EOS, FOUR])
    assert (terminated.tolist(), observation["length"].tolist()) == ([True, False], [7, 7])
    assert info["_completion"].tolist() == [True, False]
    observation, reward, terminated, truncated, info = env.step([10_000, SIX])
    assert (reward.tolist(), terminated.tolist(), truncated.tolist()) == ([0.0, 0.0], [False, False], [False, False])
    assert observation["length"].tolist() == [6, 8]
    assert info["_group"].tolist() == [True, False]
    assert info["group"].tolist() == [2, 0]
    observation, reward, *_ = env.step([FOUR, EOS])
    assert (observation["length"].tolist(), reward.tolist()) == ([7, 9], [0.0, 1.0])


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
    for _ in range(20):
        actions = rng.integers(5, size=3)
        given = torch.tensor(actions)
        result, expected = scribbled.step(given), untouched.step(actions)
        assert plain(result) == plain(expected)
        _scribble(result)
        given.fill_(4)
        if mode is DISABLED and expected[2][1]:
            options = {"reset_mask": [False, True, False]}
            result, expected = scribbled.reset(options=options), untouched.reset(options=options)
            assert plain(result) == plain(expected)
            _scribble(result)


@pytest.mark.parametrize("mode", MODES)
def test_what_was_returned_stays_as_it_was_while_the_environment_goes_on(mode):
    env = odd(3, mode, max_new_tokens=2)
    results = [env.reset(seed=1)]
    kept = [plain(results[0])]
    rng = np.random.default_rng(0)
    for _ in range(20):
        results.append(env.step(rng.integers(5, size=3)))
        kept.append(plain(results[-1]))
        if mode is DISABLED and results[-1][2].any():
            results.append(env.reset(options={"reset_mask": results[-1][2]}))
            kept.append(plain(results[-1]))
    assert [plain(result) for result in results] == kept


def test_render_shows_every_slot():
    env = summing(2, render_mode="ansi")
    env.reset(seed=0)
    env.step([FOUR, EOS])
    assert env.render() == ("12+34=│4", "12+34=│")


def test_without_a_render_mode_nothing_is_rendered():
    env = summing(2)
    env.reset(seed=0)
    assert env.render() is None


@pytest.mark.parametrize(
    "mask", [True, [True], [True, False], [[True, False, True]], [1, 0, 1], [False, False, False], torch.ones(4).bool()]
)
def test_a_mask_of_another_shape_or_that_selects_nothing_is_refused(mask):
    env = summing(3)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="reset_mask must be 3 booleans, at least one of them true, got"):
        env.reset(options={"reset_mask": mask})


def test_a_slot_that_the_first_reset_leaves_out_is_finished():
    env = summing(2)
    assert env.reset(seed=0, options={"reset_mask": [True, False]})[0]["length"].tolist() == [6, 0]
    observation, rewards, terminated, _, info = env.step([2, 2])
    assert observation["length"].tolist() == [7, 0] and not terminated[1] and rewards[1] == 0
    assert "completion" not in info or not info["_completion"][1]
    assert env.reset(seed=0)[0]["length"].tolist() == [6, 6]


@pytest.mark.parametrize("actions", [[2], [2, 2, 2], 2, [[2, 2]], [[2], [2]], [2.0, 2.0], np.array([2.5, 3.5])])
def test_a_batch_of_actions_of_another_shape_or_kind_is_refused(actions):
    env = summing(2)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="actions must be 2 token ids, got torch"):
        env.step(actions)


@pytest.mark.parametrize("action", [-1, 14, 99])
def test_an_action_outside_the_vocabulary_is_named_with_the_range_and_nothing_moves(action):
    env = summing(2)
    env.reset(seed=0)
    with pytest.raises(ValueError, match=f"action {action} is outside the vocabulary; allowed: 0 to 13"):
        env.step([FOUR, action])
    assert env.step([FOUR, FOUR])[0]["length"].tolist() == [7, 7]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_envs": 0}, "num_envs must be a whole number of at least 1, got 0"),
        ({"num_envs": -1}, "num_envs must be a whole number of at least 1, got -1"),
        ({"num_envs": 1.5}, "num_envs must be a whole number of at least 1, got 1.5"),
        ({"num_envs": True}, "num_envs must be a whole number of at least 1, got True"),
        ({"autoreset_mode": "Never"}, "unknown autoreset_mode 'Never'; allowed: NextStep, SameStep, Disabled"),
        ({"autoreset_mode": None}, "unknown autoreset_mode None; allowed"),
        ({"device": "abacus"}, "device 'abacus' cannot be used: "),
        ({"render_mode": "human"}, r"unknown render_mode 'human'; allowed: \['ansi', 'rgb_array'\]"),
        ({"split": "dev"}, "unknown split 'dev'; allowed: train, test"),
        ({"group_size": 0}, "group_size must be a whole number of at least 1, got 0"),
        ({"max_prompt_tokens": 3}, r"prompt '12\+34=' has 6 tokens; allowed: 1 to 3 \(max_prompt_tokens\)"),
        ({"problems": [""]}, r"prompt '' has 0 tokens; allowed: 1 to 1 \(max_prompt_tokens\)"),
    ],
)
def test_a_bad_argument_is_one_clear_line(arguments, message):
    with pytest.raises(ValueError, match=message) as error:
        TextGenVectorEnv(**{**SUM, **arguments})
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="a machine without CUDA is asked for it")
def test_a_device_this_machine_lacks_is_named():
    with pytest.raises(ValueError, match="device 'cuda' cannot be used: "):
        summing(1, device="cuda")


@pytest.mark.parametrize("mode", MODES)
def test_stepping_before_the_first_reset_is_refused(mode):
    env = gym.make_vec("TextGen-v0", num_envs=2, verifier="arith", autoreset_mode=mode)
    with pytest.raises(RuntimeError, match="call reset"):
        env.step(torch.tensor([2, 2]))


def test_a_listed_prompt_that_does_not_fit_is_known_before_the_first_episode():
    with pytest.raises(ValueError, match="max_prompt_tokens"):
        gym.make_vec("TextGen-v0", verifier="arith", problems=["1+2=", "11+2="], test_fraction=0.0, max_prompt_tokens=4)


def test_flags_and_rewards_on_the_cpu_behave_like_arrays():
    env = summing(2)
    env.reset(seed=0)
    _, rewards, terminated, _, _ = env.step(torch.tensor([FOUR, SIX]))
    assert np.array_equal(1 - terminated, [1, 1])
    assert torch.equal(1 - rewards, torch.ones(2)) and not isinstance(1 - rewards, np.ndarray)
    rewards[1] = np.float32(0.5)
    rewards[np.array([True, False])] = np.array([0.25], dtype=np.float32)
    assert rewards.tolist() == [0.25, 0.5]
