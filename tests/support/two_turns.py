"""A dialogue of two turns that is small enough to enumerate, played in TextGen-v0 by a language model.

2 prompts, 3 tokens, turns of at most 2 tokens that end with the end token, with a stop string or at their limit: 5
turns, of which 2 are answered, so 13 dialogues of 1 to 4 actions. Replies and the rewards of both turns depend on the
prompt and on all that was said. A rollout of the agent is one group of K episodes.

`every_dialogue` plays each by hand in the single environment, and knows of each action what was read before it. What
agents are compared with comes from there alone: `Dialogues` has plain forward passes over what was read. `library` has
the same dialogues as the collector stores them, played in the batched environment.

P prompts, D dialogues of a prompt, T steps, K episodes a group.
"""

from dataclasses import dataclass, replace
from functools import cache

import gymnasium as gym
import torch
from dialogues import number_of
from identity_checks import collect, double
from tiny_models import tiny_policy

import rlenv  # noqa: F401
from agents import Policy
from verifiers import Dialogue, Problem, Reply, Verdict, Verifier

PROMPTS = ["b", "bb"]
ANSWERED = {"b": ("", "<pad><pad>"), "bb": ("b", "<pad><pad>")}  # which turns are not the last
WRITTEN = ("<pad>", "", "b")  # of each token, so that every turn is another one
SHAPE = {"max_new_tokens": 2, "stop_strings": "b", "test_fraction": 0.0, "problems": PROMPTS}
P, D, T = 2, 13, 4


class TwoTurns(Verifier):
    """Answers some turns, with a reply and a reward that depend on the turn, and judges the second one."""

    alphabet = "b"
    prompt_length, answer_length, reply_length, max_turns = 2, 2, 3, 2
    reward_range = (0.0, 3.0)
    wants = ("token_ids",)

    def sample(self, rng):
        return Problem(rng.choice(PROMPTS))

    def dialogue(self, problem):
        return Other(problem.text)


class Other(Dialogue):
    def __init__(self, prompt):
        self.said = [prompt]

    def reply(self, turn):
        turn = "".join(WRITTEN[token] for token in turn.token_ids)
        self.said.append(turn)
        chance = number_of(self.said)
        if len(self.said) == 2 and turn in ANSWERED[self.said[0]]:
            return Reply("b" * (chance // 8 % 4), (1 + chance // 4 % 4) / 4)
        return Reply(reward=chance // 4 % 3 / 8, verdict=Verdict(chance // 16 % 5 / 4))


def make_envs(slots=4, group_size=1, **settings):
    return gym.make_vec("TextGen-v0", slots, verifier=TwoTurns(), group_size=group_size, **SHAPE | settings)


@dataclass(frozen=True)
class Said:
    """One dialogue, as it was played by hand.

    Attributes:
        prompt: its number.
        actions: [T_i].
        read: the tokens before each action [T_i, ...].
        rewards: of each action [T_i].
        first: how many actions the first turn has.
        turns: how many.
    """

    prompt: int
    actions: tuple[int, ...]
    read: tuple[tuple[int, ...], ...]
    rewards: tuple[float, ...]
    first: int
    turns: int


@cache
def every_dialogue():
    """Play every sequence of actions in the single environment, depth first."""
    out = []
    for prompt, text in enumerate(PROMPTS):
        shape = {**SHAPE, "problems": [text], "max_prompt_tokens": 2}
        env = gym.make("TextGen-v0", verifier=TwoTurns(), disable_env_checker=True, **shape).unwrapped
        unfinished = [()]
        while unfinished:
            actions = unfinished.pop()
            for last in range(int(env.action_space.n)):
                said = _play(env, prompt, (*actions, last))
                if said is None:
                    unfinished.append((*actions, last))
                else:
                    out.append(said)
    return sorted(out, key=lambda said: (said.prompt, said.actions))


def _play(env, prompt, actions):
    """Return the dialogue with these actions; None if it goes on after them."""
    obs, _ = env.reset(seed=0)
    read, rewards, over, info, first = [], [], False, {}, len(actions)
    for taken, action in enumerate(actions, 1):
        read.append(tuple(obs["tokens"][: obs["length"]].tolist()))
        obs, reward, over, _, info = env.step(action)
        rewards.append(reward)
        first = taken if "appended" in info else first
    return Said(prompt, actions, tuple(read), tuple(rewards), first, info["turns"]) if over else None


class Reciting(Policy):
    """Plays all dialogues of each prompt, in turn."""

    obs_from_actions = True

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.started = [0] * P
        self.left = {}

    def act(self, obs, state, episode_start, deterministic=False, generator=None, playing=None):
        for slot in episode_start.nonzero()[:, 0].tolist():
            prompt = int(obs["length"][slot]) - 1
            said = every_dialogue()[prompt * D + self.started[prompt] % D]
            self.started[prompt] += 1
            self.left[slot] = list(said.actions)
        actions = [self.left[slot].pop(0) if self.left.get(slot) else 0 for slot in range(len(episode_start))]
        return torch.tensor(actions), torch.zeros(len(actions)), state


def library(policy):
    """Return all dialogues in one rollout, in the order of `every_dialogue`, as sampled by the policy.

    They are collected from the batched environment, 5 slots at a time.
    """
    rollout = collect(Reciting(), make_envs(5, group_size=D), P * D)
    keys = [(said.prompt, *said.actions) for said in every_dialogue()]
    found = [
        (int(length) - 1, *actions[mask].tolist())
        for length, actions, mask in zip(
            rollout.observations["length"],
            rollout.actions,
            rollout.mask,
            strict=True,
        )
    ]
    assert sorted(found) == sorted(keys)
    rollout = double(rollout.select(torch.tensor([found.index(key) for key in keys])))
    with torch.no_grad():
        return replace(rollout, log_probs=policy.evaluate(rollout)["log_probs"])


def make_agent(cls, group_size=1, name="gpt2", **settings):
    """Return a real agent with a language model whose next tokens depend on everything before."""
    envs = make_envs(4, group_size)
    policy = tiny_policy(name, envs, 0.7, critic="head" if cls.uses_critic or _values(settings) else None)
    if policy.critic is not None:
        with torch.no_grad():
            for parameter in policy.critic.head.parameters():
                parameter.normal_(0, 1, generator=torch.Generator().manual_seed(1))
    agent = cls(policy, envs, device="cpu", episodes_per_update=P * D * group_size, **settings)
    if agent.anchor.coef:
        agent.anchor.freeze_reference(tiny_policy(name, envs, 0.7, seed=1))
    return agent


def _values(settings):
    return settings.get("baseline") == "value"


class Dialogues:
    """What a policy makes of all dialogues, read action by action; 0 where they have ended.

    Args:
        policy: its model is read context by context.

    Attributes:
        laws: log π of all tokens before each action, differentiable in the model's weights [P·D, T, V].
        log_probs: of the actions [P·D, T].
        values: of the critic before each action [P·D, T]; empty without.
    """

    def __init__(self, policy):
        self.policy, said = policy, every_dialogue()
        contexts = {read: i for i, read in enumerate(dict.fromkeys(read for each in said for read in each.read))}
        rows = [[contexts[read] for read in each.read] + [0] * (T - len(each.read)) for each in said]
        actions = [[*each.actions] + [0] * (T - len(each.actions)) for each in said]
        mask = torch.arange(T) < torch.tensor([[len(each.actions)] for each in said])
        self.laws = torch.stack([self._law(read) for read in contexts])[torch.tensor(rows)]
        self.log_probs = self.laws.gather(2, torch.tensor(actions)[..., None])[..., 0].where(mask, 0)
        self.values = torch.tensor([])
        if policy.critic is not None:
            self.values = torch.stack([self._value(read) for read in contexts])[torch.tensor(rows)].where(mask, 0)

    def _law(self, read):
        logits = self.policy.model.eval()(torch.tensor([read])).logits[0, -1]
        return torch.log_softmax(logits / self.policy.temperature, -1)

    @torch.no_grad()
    def _value(self, read):
        hidden = self.policy.model.base_model(torch.tensor([read])).last_hidden_state[0, -1]
        return self.policy.critic.head(hidden).double().squeeze()
