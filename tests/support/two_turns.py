"""A dialogue of two turns that is small enough to enumerate, played in TextGen-v0 by a language model.

2 prompts, 3 tokens, turns of at most 2 tokens that end with the end token, with a stop string or at their limit: 5
turns, of which 2 are answered, so 13 dialogues of 1 to 4 actions. Replies and the rewards of both turns depend on the
prompt and on all that was said. A rollout of the agent is one group of K episodes.

`Walk` plays every dialogue by hand in the single environment, and knows of each action what was read before it. What
agents are compared with comes from there alone: probabilities and their gradients from plain forward passes, and the
coefficients of `∇ log π` from definitions in plain Python. `library` has the same dialogues as the collector stores
them, played in the batched environment.

P prompts, D dialogues of a prompt, T steps, K episodes a group.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import gymnasium as gym
import torch
from dialogues import number_of
from identity_checks import collect, double
from tabular import multisets
from tiny_models import tiny_policy

import rlenv  # noqa: F401
from agents import Agent, LanguageModelPolicy, Policy, Rollout
from verifiers import Dialogue, Problem, Reply, Verdict, Verifier

PROMPTS = ["b", "bb"]
ANSWERED = {"b": ("", "<pad><pad>"), "bb": ("b", "<pad><pad>")}  # which turns are not the last
WRITTEN = ("<pad>", "", "b")  # of each token, so that every turn is another one
SHAPE: dict[str, Any] = {"max_new_tokens": 2, "stop_strings": "b", "test_fraction": 0.0, "problems": PROMPTS}
P, D, T = 2, 13, 4


class TwoTurns(Verifier):
    """Answers some turns, with a reply and a reward that depend on the turn, and judges the second one."""

    alphabet = "b"
    prompt_length, answer_length, reply_length, max_turns = 2, 2, 3, 2
    reward_range = (0.0, 3.0)
    wants = ("token_ids",)

    def sample(self, rng: random.Random) -> Problem:
        return Problem(rng.choice(PROMPTS))

    def dialogue(self, problem: Problem) -> Dialogue:
        return Other(problem.text)


class Other(Dialogue):
    def __init__(self, prompt: str) -> None:
        self.said = [prompt]

    def reply(self, turn: str) -> Reply:
        turn = "".join(WRITTEN[token] for token in turn.token_ids)  # type: ignore[attr-defined]
        self.said.append(turn)
        chance = number_of(self.said)
        if len(self.said) == 2 and turn in ANSWERED[self.said[0]]:
            return Reply("b" * (chance // 8 % 4), (1 + chance // 4 % 4) / 4)
        return Reply(reward=chance // 4 % 3 / 8, verdict=Verdict(chance // 16 % 5 / 4))


def make_envs(slots: int = 4, group_size: int = 1, **settings: Any) -> Any:
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
def every_dialogue() -> list[Said]:
    """Play every sequence of actions in the single environment, depth first."""
    out = []
    for prompt, text in enumerate(PROMPTS):
        shape = {**SHAPE, "problems": [text], "max_prompt_tokens": 2}
        env: Any = gym.make("TextGen-v0", verifier=TwoTurns(), disable_env_checker=True, **shape).unwrapped
        unfinished: list[tuple[int, ...]] = [()]
        while unfinished:
            actions = unfinished.pop()
            for last in range(int(env.action_space.n)):
                said = _play(env, prompt, (*actions, last))
                if said is None:
                    unfinished.append((*actions, last))
                else:
                    out.append(said)
    return sorted(out, key=lambda said: (said.prompt, said.actions))


def _play(env: Any, prompt: int, actions: tuple[int, ...]) -> Said | None:
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

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.started = [0] * P
        self.left: dict[int, list[int]] = {}

    def act(
        self,
        obs: Any,
        state: Any,
        episode_start: torch.Tensor,
        deterministic: bool = False,
        generator: torch.Generator | None = None,
        playing: torch.Tensor | None = None,
    ) -> Any:
        for slot in episode_start.nonzero()[:, 0].tolist():
            prompt = int(obs["length"][slot]) - 1
            said = every_dialogue()[prompt * D + self.started[prompt] % D]
            self.started[prompt] += 1
            self.left[slot] = list(said.actions)
        actions = [self.left[slot].pop(0) if self.left.get(slot) else 0 for slot in range(len(episode_start))]
        return torch.tensor(actions), torch.zeros(len(actions)), state

    def evaluate(self, rollout: Any, want: Any = (), reference: Any = None) -> Any:
        raise NotImplementedError

    def values(self, rollout: Any) -> Any:
        raise NotImplementedError


def library(policy: LanguageModelPolicy) -> Rollout:
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
            strict=True,  # type: ignore[call-overload]
        )
    ]
    assert sorted(found) == sorted(keys)
    rollout = double(rollout.select(torch.tensor([found.index(key) for key in keys])))
    with torch.no_grad():
        return replace(rollout, log_probs=policy.evaluate(rollout)["log_probs"])


def make_agent(cls: type[Agent], group_size: int = 1, name: str = "gpt2", **settings: Any) -> Agent:
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


def _values(settings: dict[str, Any]) -> bool:
    return settings.get("baseline") == "value"


# What is compared: of the agents, and from the definitions.


class Walk:
    """The dialogues of a policy: their probabilities, what the critic says, and ∇ log π of every action.

    Args:
        policy: its model is read context by context.

    Attributes:
        said: the dialogues.
        log_probs: of every action, of each dialogue.
        chances: of the dialogues, given their prompt [P·D].
        scores: ∇ log π of each action, flat, of each dialogue.
        values: of the critic before each action, of each dialogue; empty without.
    """

    def __init__(self, policy: LanguageModelPolicy) -> None:
        self.said, self.policy = every_dialogue(), policy
        self.parameters = list(policy.model.parameters())
        contexts = {read: i for i, read in enumerate(dict.fromkeys(read for said in self.said for read in said.read))}
        laws = [self._law(read) for read in contexts]
        at = {(read, action): laws[i][action] for read, i in contexts.items() for action in range(len(laws[i]))}
        scores = {key: self._flat_gradient(log_prob) for key, log_prob in at.items()}
        pairs = [list(zip(said.read, said.actions, strict=True)) for said in self.said]
        self.log_probs = [[at[pair].item() for pair in each] for each in pairs]
        self.scores = [torch.stack([scores[pair] for pair in each]) for each in pairs]
        self.chances = torch.tensor([math.exp(sum(each)) for each in self.log_probs], dtype=torch.float64)
        self.values = [[self._value(read) for read in said.read] for said in self.said] if policy.critic else []

    def _law(self, read: tuple[int, ...]) -> torch.Tensor:
        logits = self.policy.model.eval()(torch.tensor([read])).logits[0, -1]
        return torch.log_softmax(logits / self.policy.temperature, -1)

    def _flat_gradient(self, value: torch.Tensor) -> torch.Tensor:
        grads = torch.autograd.grad(value, self.parameters, retain_graph=True, materialize_grads=True)
        return torch.cat([grad.flatten() for grad in grads])

    @torch.no_grad()
    def _value(self, read: tuple[int, ...]) -> float:
        hidden = self.policy.model.base_model(torch.tensor([read])).last_hidden_state[0, -1]
        return float(self.policy.critic.head(hidden))  # type: ignore[union-attr]

    def ascent(self, coefficients: list[list[float]]) -> torch.Tensor:
        """Return Σ coefficient · ∇ log π over the actions of all dialogues."""
        parts = zip(self.scores, coefficients, strict=True)
        return torch.stack([torch.tensor(each, dtype=torch.float64) @ score for score, each in parts]).sum(0)

    def true_gradient(self, gamma: float = 1.0, rewards: Callable[[Said], Any] = lambda said: said.rewards) -> Any:
        """Return ∇ E Σ_t γ^t r_t = E[Σ_t γ^t r_t · ∇ log π(dialogue)], t in actions."""
        chances = self.chances.tolist()
        totals = [sum(gamma**t * r for t, r in enumerate(rewards(said))) for said in self.said]
        parts = zip(chances, totals, self.said, strict=True)
        return self.ascent([[chance * total / P] * len(said.actions) for chance, total, said in parts])

    def expected(self, size: int, define: Callable[[list[int]], list[list[float]]]) -> torch.Tensor:
        """Return the expectation of Σ coefficient · ∇ log π over the groups of K dialogues of a prompt.

        Args:
            size: K.
            define: returns the coefficients of each action in a rollout of these dialogues.
        """
        total = [[0.0] * len(said.actions) for said in self.said]
        for rows, chance in groups(self.chances, size):
            for row, coefficients in zip(rows, define(rows), strict=True):
                total[row] = [before + chance * c for before, c in zip(total[row], coefficients, strict=True)]
        return self.ascent(total)


def groups(chances: torch.Tensor, size: int) -> Iterator[tuple[list[int], float]]:
    """Yield every group of K dialogues of each prompt once, and its probability, orders and prompts included."""
    of = chances.tolist()
    for prompt in range(P):
        for rows, orders in multisets(size, range(prompt * D, (prompt + 1) * D)):
            yield list(rows), orders * math.prod(of[row] for row in rows) / P


def expected_gradient(agent: Agent, rollout: Rollout, chances: torch.Tensor, size: int) -> torch.Tensor:
    """Return the expectation of the gradient of a rollout with one group of K episodes, flat, of the model's weights.

    Every group is prepared by itself, and what each action weighs is added up.

    Args:
        agent: of the policy that sampled.
        rollout: from `library`.
        chances: of its rows.
        size: K.
    """
    labelled = replace(rollout, success=torch.arange(len(rollout)).double())  # a label that stays with its row
    table = torch.zeros(rollout.mask.shape, dtype=torch.float64)
    state = agent.state_dict()
    for rows, chance in groups(chances, size):
        agent.load_state_dict(state)
        group = replace(labelled.select(torch.tensor(rows)), groups=torch.zeros(size, dtype=torch.int64))
        prepared = agent.prepare(group)
        table.index_add_(0, prepared.success.long(), chance * (prepared.weights * prepared.advantages).double())
    agent.load_state_dict(state)
    whole = replace(agent.prepare(rollout), advantages=table, weights=rollout.mask.double())
    return flat_gradient(agent, whole)


def flat_gradient(agent: Agent, prepared: Any) -> torch.Tensor:
    """Return the direction of ascent of the agent's loss in the model's weights, flat."""
    agent.policy.zero_grad(set_to_none=True)
    agent.loss(prepared)[0].backward()
    parameters = agent.policy.model.parameters()
    return -torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in parameters])
