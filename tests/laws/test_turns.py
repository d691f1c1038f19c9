"""Identity 2 with replies between the actions, in TextGen-v0 with a language model.

2 prompts, 3 tokens, turns of at most 2 tokens that end with the end token, with a stop string or at their limit: 5
turns, of which 2 are answered, so 13 dialogues of 1 to 4 actions. Replies and the rewards of both turns depend on the
prompt and on all that was said. The dialogues are those that the collector has found often enough; that they are all,
and what was read before each action, says the single environment, in which each is played again by hand. What agents
are compared with are plain forward passes over what was read.

P prompts, D dialogues of a prompt, T steps, K episodes a group.
"""

from __future__ import annotations

import copy
import functools
import itertools
from dataclasses import dataclass, replace
from typing import Any

import gymnasium as gym
import pytest
import torch
from diagonal import slow
from dialogues import number_of
from equations import Played, objective
from identity_checks import collect, double
from tiny_models import tiny_policy

import agents
import rlenv  # noqa: F401
from agents import Agent, LanguageModelPolicy, Rollout
from verifiers import Dialogue, Problem, Reply, Verdict, Verifier

PROMPTS = ["b", "bb"]
ANSWERED = {"b": ("", "<pad><pad>"), "bb": ("b", "<pad><pad>")}  # which turns are not the last
WRITTEN = ("<pad>", "", "b")  # of each token, so that every turn is another one
SHAPE = {"max_new_tokens": 2, "stop_strings": "b", "test_fraction": 0.0}
P, D, T = 2, 13, 4


class TwoTurns(Verifier):
    """Answers some turns, with a reply and a reward that depend on the turn, and judges the second one."""

    alphabet = "b"
    prompt_length, answer_length, reply_length, max_turns = 2, 2, 3, 2
    reward_range = (0.0, 3.0)
    wants = ("token_ids",)

    def sample(self, rng: Any) -> Problem:
        return Problem(rng.choice(PROMPTS))

    def dialogue(self, problem: Problem) -> Dialogue:
        return Other(problem.text)


class Other(Dialogue):
    def __init__(self, prompt: str) -> None:
        self.said = [prompt]

    def reply(self, turn: Any) -> Reply:
        said = "".join(WRITTEN[token] for token in turn.token_ids)
        self.said.append(said)
        chance = number_of(self.said)
        if len(self.said) == 2 and said in ANSWERED[self.said[0]]:
            return Reply("b" * (chance // 8 % 4), (1 + chance // 4 % 4) / 4)
        return Reply(reward=chance // 4 % 3 / 8, verdict=Verdict(chance // 16 % 5 / 4))


def text_envs(slots: int = 4, group_size: int = 1) -> Any:
    return gym.make_vec("TextGen-v0", slots, verifier=TwoTurns(), group_size=group_size, problems=PROMPTS, **SHAPE)


@dataclass(frozen=True)
class Dialogues:
    """All dialogues as the collector stores them, and what a policy's model makes of them, read action by action.

    Attributes:
        policy: that of every agent on this model.
        rollout: prompt by prompt [P·D, T], as sampled by the policy.
        read: the tokens before each action, by hand.
        laws: log π of all tokens before each action, differentiable in the model's weights [P·D, T, V].
        log_probs: of the actions, 0 where a dialogue has ended [P·D, T].
        values: of the critic before each action; None without.
    """

    policy: LanguageModelPolicy
    rollout: Rollout
    read: list[list[tuple[int, ...]]]
    laws: torch.Tensor
    log_probs: torch.Tensor
    values: torch.Tensor | None


def read_by(policy: LanguageModelPolicy, rollout: Rollout, read: list[list[tuple[int, ...]]]) -> Dialogues:
    contexts = {each: i for i, each in enumerate(dict.fromkeys(each for row in read for each in row))}
    rows = torch.tensor([[contexts[each] for each in row] + [0] * (T - len(row)) for row in read])
    model, laws, values = policy.model.eval(), [], []
    for each in contexts:
        laws.append((model(torch.tensor([each])).logits[0, -1] / policy.temperature).log_softmax(-1))
        if policy.critic is not None:
            hidden = model.base_model(torch.tensor([each])).last_hidden_state[0, -1].detach()
            values.append(policy.critic.head(hidden).detach().double().squeeze())
    law = torch.stack(laws)[rows]
    log_probs = law.gather(2, rollout.actions[..., None])[..., 0].where(rollout.mask, 0)
    found = torch.stack(values)[rows].where(rollout.mask, 0) if values else None
    return Dialogues(policy, rollout, read, law, log_probs, found)


@functools.cache
def every_dialogue() -> Rollout:
    """Return every dialogue once, sampled by a policy to which all tokens are equally likely."""
    envs = text_envs(64)
    many = double(collect(tiny_policy("gpt2", envs, temperature=1000.0), envs, 2000))
    keys = [(int(n), *row.tolist()) for n, row in zip(many.observations["length"], many.actions, strict=True)]
    return many.select(torch.tensor([keys.index(key) for key in sorted(set(keys))]))


@functools.cache
def world(name: str, critic: bool) -> Dialogues:
    policy = made(agents.ReinforceBaseline, name, baseline="value" if critic else "none").policy
    rollout = every_dialogue()
    with torch.no_grad():
        rollout = replace(rollout, log_probs=policy.evaluate(rollout)["log_probs"])
    return read_by(policy, rollout, [played(rollout, row) for row in range(len(rollout))])


def played(rollout: Rollout, row: int) -> list[tuple[int, ...]]:
    """Return what is read before each action of a dialogue, which is played again in the single environment."""
    prompt = PROMPTS[int(rollout.observations["length"][row]) - 1]
    shape = {**SHAPE, "problems": [prompt], "max_prompt_tokens": 2}
    env = gym.make("TextGen-v0", verifier=TwoTurns(), disable_env_checker=True, **shape)
    obs, _ = env.reset(seed=0)
    read, over = [], False
    for step in range(int(rollout.lengths[row])):
        assert not over
        read.append(tuple(obs["tokens"][: obs["length"]].tolist()))
        obs, reward, over, _, _ = env.step(rollout.actions[row, step].item())
        assert reward == rollout.rewards[row, step]
    assert over
    return read


def made(cls: type[Agent], name: str = "gpt2", size: int = 2, **settings: Any) -> Agent:
    """Return a real agent with a language model whose next tokens depend on everything before."""
    envs = text_envs(4, size)
    critic = "head" if cls.uses_critic or settings.get("baseline") == "value" else None
    policy = tiny_policy(name, envs, 0.7, critic=critic)
    with torch.no_grad():
        for parameter in policy.critic.head.parameters() if policy.critic is not None else ():
            parameter.normal_(0, 1, generator=torch.Generator().manual_seed(1))
    agent = cls(policy, envs, device="cpu", episodes_per_update=P * D * size, **settings)
    if agent.anchor.coef:
        agent.anchor.freeze_reference(tiny_policy(name, envs, 0.7, seed=1))
    if settings.get("baseline") == "running-mean":
        agent.load_state_dict({"mean": torch.tensor([0.4, -0.3, 0.7, 0.1], dtype=torch.float64)})
    return agent


def gradient(loss: torch.Tensor, policy: Any) -> torch.Tensor:
    """Return the gradient in the weights of the policy's model, flat."""
    grads = torch.autograd.grad(loss, list(policy.model.parameters()), retain_graph=True, materialize_grads=True)
    return torch.cat([grad.flatten() for grad in grads])


def relative_error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    assert wanted.norm() > 1e-3, "there must be a gradient"
    return float((found - wanted).norm() / wanted.norm())


def test_everything_is_enumerated_and_stored_as_it_is_played_by_hand() -> None:
    here = world("gpt2", False)
    rollout = here.rollout
    assert len(rollout) == P * D and rollout.mask.shape[1] == T
    chances = here.log_probs.sum(1).exp().detach()
    torch.testing.assert_close(chances.unflatten(0, (P, D)).sum(1), torch.ones(P).double(), rtol=1e-13, atol=0)
    positions = [row[mask].tolist() for row, mask in zip(rollout.positions, rollout.mask, strict=True)]
    assert positions == [[len(each) for each in row] for row in here.read]
    grown = {b - a for row in positions for a, b in itertools.pairwise(row)}
    assert len(grown) >= 3, "replies of several lengths"
    torch.testing.assert_close(rollout.log_probs.where(rollout.mask, 0), here.log_probs.detach())


@pytest.mark.parametrize(
    ("name", "cls", "settings"),
    [
        ("gpt2", agents.Reinforce, {}),
        ("llama", agents.Reinforce, {"gamma": 0.9}),
        ("llama", agents.TOPR, {}),
        ("gpt2", agents.ReinforceBaseline, {"baseline": "value"}),
        ("gpt2", agents.ReinforceBaseline, {"baseline": "none", "kl_coef": 0.3}),
    ],
)
def test_the_expected_gradient_is_the_true_one(name: str, cls: type[Agent], settings: dict[str, Any]) -> None:
    """That of E Σ_t γ^t r_t, t in actions, less the KL of whole dialogues; the others follow from their equations."""
    agent = made(cls, name, 1, **settings)
    here = world(name, agent.uses_critic)
    rollout, whole = here.rollout, here.log_probs.sum(1)  # log π of each dialogue
    gains = (rollout.rewards.where(rollout.mask, 0) * settings.get("gamma", 1.0) ** torch.arange(T).double()).sum(1)
    if agent.anchor.coef:
        reference = read_by(copy.deepcopy(agent.anchor.reference), rollout, here.read).log_probs.sum(1).detach()
        gains = gains - agent.anchor.coef * (whole - reference)
    wanted = gradient((whole.exp() * gains).sum() / P, here.policy)
    prepared = agent.prepare(rollout)
    share = whole.exp().detach() * len(rollout) / P
    loss, _ = agent.loss(replace(prepared, weights=prepared.weights * share[:, None]))
    assert relative_error(-gradient(loss, agent.policy), wanted) < 1e-10


EQUATIONS: list[Any] = [
    *(
        ("gpt2", agents.ReinforceBaseline, {"baseline": baseline})
        for baseline in ("running-mean", "leave-one-out", "length-weighted", "optimal-token")
    ),
    ("llama", agents.ReinforceBaseline, {"baseline": "value", "gamma": 0.9}),
    ("gpt2", agents.Reinforce, {"kl_coef": 2.0, "kl_estimator": "exact", "kl_in": "loss"}),
    ("gpt2", agents.ReinforcePlusPlus, {}),
    ("llama", agents.GRPO, {}),
    ("gpt2", agents.GSPO, {}),
    ("gpt2", agents.DAPO, {}),
    ("llama", agents.RLOO, {"gamma": 0.9, "kl_coef": 0.3}),
    ("llama", agents.A2C, {"gamma": 0.9, "gae_lambda": 0.7}),
    slow("gpt2", agents.A2C, {"gamma": 1.0, "gae_lambda": 1.0}),
    ("gpt2", agents.PPO, {"gamma": 1.0, "gae_lambda": 0.5}),
    slow("llama", agents.PPO, {"gamma": 0.9, "gae_lambda": 0.7, "normalize_advantage": False}),
]


@pytest.mark.parametrize(("name", "cls", "settings"), EQUATIONS)
def test_the_gradient_is_that_of_the_equation(name: str, cls: type[Agent], settings: dict[str, Any]) -> None:
    """Replies are no steps: the value after an action is that of the context with the reply."""
    agent = made(cls, name, 3, **settings)
    here, draw = world(name, agent.uses_critic), torch.Generator().manual_seed(0)
    rows = torch.cat([torch.randint(p * D, (p + 1) * D, (3,), generator=draw) for p in (0, 1, 0, 1)])  # 4 groups of 3
    rollout = replace(here.rollout.select(rows), groups=torch.arange(4).repeat_interleave(3))
    law, reference = here.laws[rows], agent.anchor.reference
    if reference is not None:
        reference = read_by(copy.deepcopy(reference), here.rollout, here.read).laws[rows].detach()
    values = None if here.values is None else here.values[rows]
    state = copy.deepcopy(agent.state_dict())
    prepared = agent.prepare(rollout)
    agent.load_state_dict(state)
    tables = {
        "mask": rollout.mask,
        "actions": rollout.actions,
        "rewards": rollout.rewards.where(rollout.mask, 0),
        "law": law,
        "old": law.detach(),
        "acting": law.detach(),
        "reference": reference,
        "values": values,
        "old_values": values,
        "truncated": rollout.truncated,
    }
    it = Played(**{key: None if table is None else table.unflatten(0, (4, 3)) for key, table in tables.items()})
    wanted = gradient(objective(agent, it)[0], here.policy)
    assert relative_error(-gradient(agent.loss(prepared)[0], agent.policy), wanted) < 1e-8
