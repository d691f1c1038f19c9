"""What a rollout keeps of episodes in which the environment answers: its tokens, and where the actions stand."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from chat_families import FAMILIES
from diagonal import slow
from dialogues import number_of
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from identity_checks import EXACT, assert_close
from tiny_models import norm_in_double, text_envs, tiny_model, tiny_policy

import rlenv  # noqa: F401
from agents import Collector, LanguageModelPolicy
from agents.language.reading import _sequences
from verifiers import Dialogue, Problem, Reply, Verdict, Verifier

CPU = torch.device("cpu")
modes = pytest.mark.parametrize("mode", list(AutoresetMode))


def episode_of(rollout, row):
    prompt = rollout.observations["tokens"][row, :PROMPT].tolist()
    return sum(token * LETTERS**place for place, token in enumerate(prompt))


@modes
def test_actions_are_found_in_the_final_tokens_and_keep_their_rewards(mode):
    envs, said = talking_envs(5, mode)
    policy = tiny_policy("gpt2", envs, 0.8)
    rollout = Collector(envs, CPU).collect(policy, 40, torch.Generator().manual_seed(0))
    assert sum(len(columns) < len(tokens) - PROMPT for tokens, columns, _ in said.values()) >= 8, "many had replies"
    assert [episode_of(rollout, row) for row in range(len(rollout))] == list(range(40))
    for row in range(len(rollout)):
        tokens, columns, rewards = said[row]
        steps = len(columns)
        assert rollout.mask[row].sum() == steps
        assert rollout.positions[row, :steps].tolist() == columns
        assert rollout.actions[row, :steps].tolist() == [tokens[column] for column in columns]
        assert rollout.rewards[row, :steps].tolist() == rewards
        assert rollout.observations["length"][row] == PROMPT
        answered = len(tokens) > PROMPT + steps
        known = tokens if answered else tokens[:PROMPT] + [0] * steps  # `positions` says so
        assert rollout.observations["tokens"][row, : len(tokens)].tolist() == known


def test_an_environment_that_does_not_say_what_it_appends_is_read_right_while_acting(monkeypatch):
    envs, _ = talking_envs(5, AutoresetMode.NEXT_STEP)
    policy, seen = tiny_policy("gpt2", envs), []
    act = policy.act
    monkeypatch.setattr(policy, "act", lambda *args, **more: seen.append(more["appended"]) or act(*args, **more))
    envs.metadata = {**envs.metadata, "traits": {}}
    silent = Collector(envs, CPU)
    told = Collector(talking_envs(5, AutoresetMode.NEXT_STEP)[0], CPU)
    ours, theirs = (each.collect(policy, 20, torch.Generator().manual_seed(0)) for each in (silent, told))
    assert_close(ours.log_probs[ours.mask], theirs.log_probs[theirs.mask], EXACT, "compared and told")
    assert seen[0] is None and any(isinstance(each, torch.Tensor) for each in seen)


def test_a_rollout_without_replies_has_no_positions():
    envs = text_envs(4)
    policy = tiny_policy("gpt2", envs)
    assert Collector(envs, CPU).collect(policy, 8, torch.Generator().manual_seed(0)).positions is None


LETTERS, LENGTH, PROMPT = 4, 60, 3
BELL = 1  # the action that may be answered


class TalkingEnv(gym.Env):
    """The prompt is the number of the episode; every reply, reward and end is a hash of what was said before.

    Args:
        said: gets each episode that has ended: its tokens, the columns of the actions and their rewards.
        started: [number of episodes so far], of all slots together.
    """

    metadata = {"traits": {"replies_in_infos": True}}

    def __init__(self, said, started):
        self.said, self.started = said, started
        self.action_space = spaces.Discrete(LETTERS)
        self.observation_space = spaces.Dict(
            tokens=spaces.Box(0, LETTERS - 1, (LENGTH,), np.int64), length=spaces.Discrete(LENGTH + 1)
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode = self.started[0]
        self.started[0] += 1
        self.tokens = [self.episode // LETTERS**place % LETTERS for place in range(PROMPT)]
        self.columns = []
        self.rewards = []
        return self._observation(), {}

    def step(self, action):
        self.columns.append(len(self.tokens))
        self.tokens.append(int(action))
        chance = number_of(self.tokens)
        self.rewards.append(chance % 64 / 64)
        done = chance % 7 == 0 or len(self.columns) == 12
        if done:
            self.said[self.episode] = self.tokens, self.columns, self.rewards
            return self._observation(), self.rewards[-1], True, False, {}
        info = {}
        if action == BELL and chance % 3:
            reply = [chance // 5**place % LETTERS for place in range(1 + chance % 3)]
            self.tokens += reply
            info["appended"] = len(reply)
        return self._observation(), self.rewards[-1], False, False, info

    def _observation(self):
        tokens = np.zeros(LENGTH, dtype=np.int64)
        tokens[: len(self.tokens)] = self.tokens
        return {"tokens": tokens, "length": np.int64(len(self.tokens))}


def talking_envs(slots, mode):
    """Return a vector environment, and what will have been said in its episodes."""
    said = {}
    started = [0]
    return SyncVectorEnv([lambda: TalkingEnv(said, started)] * slots, autoreset_mode=mode), said


# Twenty turns with the templates of real families: the tokens that are trained are those that were sampled.


TURNS, EPISODES, SLOTS = 20, 3, 2
OFTEN = ["chatml", "llama3", "llama2", "mistral", "gemma", "phi3"]
WORDS = ["yes", "no, <|im_end|> again", " 12+34= ?\n", "▁user [INST] é", "</s>"]


class Talkative(Verifier):
    """Twenty turns, whose replies depend on the turn."""

    def sample(self, rng):
        return Problem([{"role": "user", "content": f"What is {rng.randint(1, 9)}+34= ?"}])

    def dialogue(self, problem):
        class Talk(Dialogue):
            turns = 0

            def reply(self, turn):
                self.turns += 1
                verdict = Verdict(1.0) if self.turns == TURNS else None
                return Reply(WORDS[number_of(turn, self.turns) % 5], verdict=verdict)

        return Talk()


@pytest.mark.parametrize("name", [name if name in OFTEN else slow(name) for name in FAMILIES])
def test_the_tokens_of_twenty_turns_are_trained_as_they_were_sampled(name):
    tokenizer = FAMILIES[name]()
    limits = {"max_prompt_tokens": 80, "max_new_tokens": 6, "max_turns": TURNS, "max_reply_tokens": 80}
    envs = gym.make_vec("TextGen-v0", SLOTS, verifier=Talkative(), tokenizer=tokenizer, test_fraction=0.0, **limits)
    model = tiny_model("llama", len(tokenizer), context=envs.task.max_length)
    with torch.no_grad():  # an end token every few steps
        model.lm_head.weight.mul_(0.2)
    norm_in_double(model)
    spaces = envs.single_observation_space, envs.single_action_space
    policy = LanguageModelPolicy(*spaces, model, dtype="float64")
    sampled, turns = {}, {}
    step, reset = envs.step, envs.reset

    def listen(actions):
        before = envs._lengths.tolist()
        out = step(actions)
        for slot, (action, column) in enumerate(zip(actions.tolist(), before, strict=True)):
            if envs_playing[slot]:
                sampled[episode_of[slot]].append((column, action))
        for slot in out[2].nonzero()[:, 0].tolist():
            envs_playing[slot] = False
            turns[episode_of[slot]] = out[4]["turns"][slot]
        return out

    envs_playing, episode_of = [False] * SLOTS, [None] * SLOTS

    def restart(**kwargs):
        mask = (kwargs.get("options") or {}).get("reset_mask", [True] * SLOTS)
        for slot in [slot for slot in range(SLOTS) if mask[slot]]:
            envs_playing[slot], episode_of[slot] = True, len(sampled)
            sampled[len(sampled)] = []
        return reset(**kwargs)

    envs.step, envs.reset = listen, restart
    rollout = Collector(envs, torch.device("cpu")).collect(policy, EPISODES, torch.Generator().manual_seed(0))
    ids, *_, steps, columns, actions = _sequences(rollout)
    assert list(turns.values()) == [TURNS] * EPISODES
    for row in range(EPISODES):
        mine = steps[:, 0] == row
        trained = list(zip((columns[mine] + 1).tolist(), actions[mine].tolist(), strict=True))
        assert trained == sampled[row], "every sampled token, in its column, and nothing else"
        inside = [(column, token) for column, token in trained if column < ids.shape[1]]
        assert [int(ids[row, column]) for column, _ in inside] == [token for _, token in inside]
        assert trained[-1][0] - trained[0][0] >= len(trained) + TURNS - 1, "replies stand in between"
    log_probs = policy.evaluate(rollout)["log_probs"]
    assert (log_probs - rollout.log_probs)[rollout.mask].abs().max() < 1e-12
