"""Episodes, their ends and their rewards go astray between environment and update."""

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from museum import MADE_UP, OURS, Test, planted

from agents import A2C, Collector, Rollout
from agents.algorithms import _actor_critic
from agents.rollouts.record import Record
from agents.trainer import surface
from rlenv.envs.task import TextGenTask
from rlenv.envs.textgen import TextGenEnv
from rlenv.envs.vector import TextGenVectorEnv

FLAGS = "rlenv/envs/test_vector.py::test_end_and_cut_set_the_flags_of_the_specification"


def change_flags(patch, change):
    """Replace what a step says of terminated and truncated episodes."""
    step = TextGenVectorEnv.step

    def changed(self, actions):
        obs, rewards, terminated, truncated, infos = step(self, actions)
        return obs, rewards, *change(self, terminated, truncated), infos

    patch.setattr(TextGenVectorEnv, "step", changed)


@planted(31, "huggingface/trl#3248", Test(FLAGS))
def test_nobody_says_that_the_budget_ran_out(patch):
    """A completion that ran out of budget is not flagged, so it cannot be told from a wrong answer."""
    change_flags(patch, lambda self, terminated, truncated: (terminated, torch.zeros_like(truncated)))


@planted(None, MADE_UP, Test(FLAGS))
def test_the_last_token_of_the_budget_is_a_cut(patch):
    """A completion whose end token is the last one allowed is flagged as cut off."""

    def by_length(self, terminated, truncated):
        return terminated, truncated | (terminated & torch.from_numpy(self._taken >= self.task.max_new_tokens))

    change_flags(patch, by_length)


@planted(
    33,
    "DLR-RM/stable-baselines3#105, RoboVerseOrg/RoboVerse#814",
    Test("agents/learner/test_learner.py::test_the_same_world_is_worth_less_where_it_ends", cls=A2C),
)
def test_ends_are_one_step_off(patch):
    """The generalized advantage takes the end of an episode one step too early."""

    def off_by_one(rewards, values, mask, gamma, gae_lambda, final_values=None):
        rewards, values = rewards.where(mask, 0), values.where(mask, 0)
        goes_on = torch.nn.functional.pad(mask, (0, 2))[:, 2:]
        following = torch.nn.functional.pad(values, (0, 1))[:, 1:] * goes_on
        advantages, last = torch.zeros_like(values), torch.zeros_like(values[:, 0])
        for t in reversed(range(values.shape[1])):
            last = rewards[:, t] + gamma * following[:, t] - values[:, t] + gamma * gae_lambda * last * goes_on[:, t]
            advantages[:, t] = last
        return advantages

    patch.setattr(_actor_critic, "generalized_advantage", off_by_one)


@planted(
    34,
    "DLR-RM/stable-baselines3#1864, vwxyzjn/cleanrl#198, Toni-SM/skrl#449, openai/spinningup#233",
    Test(
        "agents/learner/test_learner.py::test_a_critic_that_knows_the_endless_world_learns_nothing_from_a_time_limit",
        cls=A2C,
        gae_lambda=1.0,
    ),
)
def test_a_time_limit_is_an_end(patch):
    """The state in which a time limit cut an episode off is worth nothing."""
    patch.setattr(Rollout, "after_truncation", lambda self, obs_from_actions: None)


@planted(
    None,
    MADE_UP,
    Test(
        "agents/rollouts/test_collector.py::test_the_verdict_on_text_that_ran_out_of_budget_is_final",
        mode=AutoresetMode.DISABLED,
    ),
)
def test_a_final_verdict_is_a_time_limit(patch):
    """Text that ran out of budget was judged, and a critic adds what might have followed."""
    change_flags(patch, lambda self, terminated, truncated: (terminated & ~truncated, truncated))


@planted(
    36,
    "Farama-Foundation/Gymnasium#1112",
    Test("agents/test_identities.py::test_a_second_rollout_starts_with_fresh_episodes", mode=AutoresetMode.NEXT_STEP),
)
def test_a_pending_restart_outlives_a_reset(patch):
    """After a reset, slots whose episode had just ended restart once more in the first step, which does not count."""
    reset = SyncVectorEnv.reset

    def pending(self, **kwargs):
        ended = self._autoreset_envs.copy()
        out = reset(self, **kwargs)
        self._autoreset_envs[:] = ended
        return out

    patch.setattr(SyncVectorEnv, "reset", pending)


@planted(
    36,
    "Farama-Foundation/Gymnasium#1132, Farama-Foundation/Gymnasium#1680",
    Test(
        "agents/rollouts/test_collector.py::test_final_observations_are_in_the_rows_of_their_episodes",
        mode=AutoresetMode.NEXT_STEP,
        episodes=12,
        slots=4,
    ),
)
def test_final_observations_are_not_copied(patch):
    """The final observation is the environment's own buffer, which the next episode overwrites."""
    copied = Record._rows

    def aliased(self, obs, rows):
        return torch.as_tensor(obs)[rows[0] : rows[0] + 1] if len(rows) == 1 else copied(self, obs, rows)

    patch.setattr(Record, "_rows", aliased)


@planted(
    36,
    "thu-ml/tianshou#1281",
    Test("rlenv/envs/test_vector.py::test_writing_into_what_was_returned_changes_nothing", mode=AutoresetMode.DISABLED),
)
def test_observations_are_the_environments_own(patch):
    """The environment returns its own tensors, and a wrapper that writes into them changes the episode."""
    patch.setattr(TextGenVectorEnv, "_observation", lambda self: {"tokens": self._tokens, "length": self._lengths})


@planted(
    37,
    "Motphys/UniLab#236",
    Test(
        "agents/rollouts/test_collector.py::test_the_observation_after_the_reset_is_never_taken_for_the_final_one",
        mode=AutoresetMode.SAME_STEP,
    ),
)
def test_the_next_episode_is_bootstrapped_from(patch):
    """An episode that was cut off is credited with the value of the next episode's first observation."""
    final = Collector._final_observations

    def of_the_reset(self, obs, infos, slots):
        mode, self.mode = self.mode, AutoresetMode.NEXT_STEP
        seen = final(self, obs, infos, slots)
        self.mode = mode
        return seen

    patch.setattr(Collector, "_final_observations", of_the_reset)


# Bugs of this project.


@planted(
    None,
    OURS,
    Test(
        "agents/trainer/test_agent.py::test_groups_that_do_not_span_slots_are_refused_with_what_to_use_instead",
        slots=2,
        mode=AutoresetMode.NEXT_STEP,
    ),
)
def test_groups_of_slots_that_share_none(patch):
    """Slots that each pose their own groups of four are accepted, and most groups of a rollout have one episode."""
    patch.setattr(surface, "check_groups", lambda env, *args: env.metadata["group_size"])


@planted(
    None, OURS, Test("agents/test_identities.py::test_groups_of_single_environments_side_by_side_are_not_mixed_up")
)
def test_equal_group_numbers_of_two_slots(patch):
    """Slots that number their groups by themselves are compared with each other."""
    init = Record.__init__

    def spanning(self, num_episodes, num_slots, device, groups_span_slots, *others):
        init(self, num_episodes, num_slots, device, True, *others)

    patch.setattr(Record, "__init__", spanning)


@planted(
    None,
    OURS,
    Test(
        "agents/test_identities.py::test_every_group_of_every_rollout_is_complete",
        mode=AutoresetMode.NEXT_STEP,
        slots=3,
    ),
)
def test_a_group_begins_in_the_rollout_before(patch):
    """The first group of a rollout lacks the episodes that were started and left out at the end of the last one."""
    reset = TextGenVectorEnv.reset

    def going_on(self, *, seed=None, options=None):
        return reset(self, seed=seed, options=options or {"reset_mask": np.ones(self.num_envs, dtype=bool)})

    patch.setattr(TextGenVectorEnv, "reset", going_on)


@planted(None, OURS, Test("agents/trainer/test_steps.py::test_an_agent_counts_the_steps_taken_and_those_trained_on"))
def test_steps_of_surplus_episodes_are_free(patch):
    """Steps of episodes that are played and not trained on are left out of num_timesteps."""
    add = Record.add
    patch.setattr(Record, "add", lambda self, *args: add(self, *args) and int((self.episode >= 0).sum()))


@planted(
    None,
    OURS,
    Test(
        "agents/trainer/test_agent.py::test_an_episode_whose_reward_is_no_number_is_left_out_and_counted",
        name="batch mean",
        reward=float("nan"),
    ),
)
def test_one_reward_that_is_no_number(patch):
    """One reward of NaN makes every update of the rollout NaN."""
    count = Record._without_bad_rewards

    def kept(self, rewards):
        status = self.status.copy()
        count(self, rewards)
        self.status = status
        return rewards

    patch.setattr(Record, "_without_bad_rewards", kept)


@planted(
    None,
    OURS,
    Test(
        "agents/trainer/test_verdicts.py::test_an_episode_cut_off_before_it_was_judged_is_refused_and_not_worth_0",
        cut="gymnasium",
        mode=AutoresetMode.NEXT_STEP,
    ),
)
def test_an_episode_without_a_verdict_is_worth_nothing(patch):
    """A wrapper's time limit ends episodes before they are judged, and they are trained with a reward of 0."""
    add = Record._add_outcomes

    def all_judged(self, numbers, rows, info):
        add(self, numbers, rows, {name: value for name, value in info.items() if "verdict" not in name})

    patch.setattr(Collector, "_check_judged", lambda self, dones, info: None)
    patch.setattr(Record, "_add_outcomes", all_judged)


@planted(None, OURS, Test("rlenv/envs/test_textgen.py::test_gymnasiums_record_of_episodes_has_the_key_it_wants"))
def test_a_key_of_gymnasium(patch):
    """The infos use the key "episode", which belongs to Gymnasium's RecordEpisodeStatistics."""
    finish = TextGenEnv._finish

    def with_episode(self, prompt, generated):
        reward, info = finish(self, prompt, generated)
        return reward, {**info, "episode": {"r": reward, "l": len(generated)}}

    patch.setattr(TextGenEnv, "_finish", with_episode)


@planted(None, OURS, Test("scripts/training/test_train.py::test_reinforcement_begins_after_the_demonstrated_problems"))
def test_problems_of_the_warm_start_are_posed_again(patch):
    """Reinforcement begins with problems whose answers the warm start has shown."""
    init = TextGenTask.__init__

    def from_the_first(self, *args, **kwargs):
        init(self, *args, **{**kwargs, "first_problem": 0})

    patch.setattr(TextGenTask, "__init__", from_the_first)
