"""Identity 2 with replies between the actions, in TextGen-v0 with a language model.

2 prompts, 3 tokens, turns of at most 2 tokens that end with the end token, with a stop string or at their limit: 5
turns, of which 2 are answered, so 13 dialogues of 1 to 4 actions. Replies and the rewards of both turns depend on the
prompt and on all that was said. The dialogues are those that the collector has found often enough; that they are all,
and what was read before each action, says the single environment, in which each is played again by hand. What agents
are compared with are plain forward passes over what was read.

P prompts, D dialogues of a prompt, T steps, K episodes a group.
"""

import functools
import itertools
from dataclasses import replace

import gymnasium as gym
import pytest
import torch
from dialogues import number_of
from identity_checks import collect, double
from tabular import relative_error
from tiny_models import tiny_policy

import rlenv  # noqa: F401
from rlenv import agents
from rlenv.agents.estimators import aggregation
from rlenv.verifiers import Dialogue, Problem, Reply, Turns, Verdict, Verifier

PROMPTS = ["b", "bb"]
ANSWERED = {"b": ("", "<pad><pad>"), "bb": ("b", "<pad><pad>")}  # which turns are not the last
WRITTEN = ("<pad>", "", "b")  # of each token, so that every turn is another one
SHAPE = {"max_new_tokens": 2, "stop_strings": "b", "test_fraction": 0.0}
P, D, T = 2, 13, 4


class TwoTurns(Verifier):
    """Answers some turns, with a reply and a reward that depend on the turn, and judges the second one."""

    alphabet = "b"
    prompt_length, answer_length, turns = 2, 2, Turns(2, reply_length=3)
    reward_range = (0.0, 3.0)
    inputs = ("completion.token_ids",)

    def sample(self, rng):
        return Problem(rng.choice(PROMPTS))

    def dialogue(self, problem):
        return Other(problem.text)


class Other(Dialogue):
    def __init__(self, prompt):
        self.said = [prompt]

    def reply(self, turn):
        said = "".join(WRITTEN[token] for token in turn.token_ids)
        self.said.append(said)
        chance = number_of(self.said)
        if len(self.said) == 2 and said in ANSWERED[self.said[0]]:
            return Reply("b" * (chance // 8 % 4), (1 + chance // 4 % 4) / 4)
        return Reply(reward=chance // 4 % 3 / 8, verdict=Verdict(chance // 16 % 5 / 4))


class SummedPPO(agents.PPO):
    weights = staticmethod(aggregation.sequence_sum)


def text_envs(slots=4, group_size=1):
    return gym.make_vec("TextGen-v0", slots, verifier=TwoTurns(), group_size=group_size, problems=PROMPTS, **SHAPE)


def log_probs_by(policy, rollout, read):
    """Return log π of the actions, each in a pass over what was read, 0 where a dialogue has ended [P·D, T]."""
    laws = {
        each: (policy.model.eval()(torch.tensor([each])).logits[0, -1] / policy.temperature).log_softmax(-1)
        for each in {each for row in read for each in row}
    }
    steps = [[laws[each] for each in row] for row in read]
    padded = torch.stack([torch.stack([*row, *row[:1] * (T - len(row))]) for row in steps])
    return padded.gather(2, rollout.actions[..., None])[..., 0].where(rollout.mask, 0)


@functools.cache
def every_dialogue():
    """Return every dialogue once, sampled by a policy to which all tokens are equally likely."""
    envs = text_envs(64)
    many = double(collect(tiny_policy("gpt2", envs, temperature=1000.0), envs, 2000))
    keys = [(int(n), *row.tolist()) for n, row in zip(many.observations["length"], many.actions, strict=True)]
    return many.select(torch.tensor([keys.index(key) for key in sorted(set(keys))]))


@functools.cache
def world(name, critic):
    """Return the policy that every agent on this model has; all dialogues, as sampled by it; what was read; log π."""
    policy = made(agents.ReinforceBaseline, name, baseline="value" if critic else "none").policy
    rollout = every_dialogue()
    read = [played(rollout, row) for row in range(len(rollout))]
    log_probs = log_probs_by(policy, rollout, read)
    return policy, replace(rollout, log_probs=log_probs.detach()), read, log_probs


def played(rollout, row):
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


def made(cls, name="gpt2", size=2, **settings):
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
    return agent


def gradient(loss, policy):
    """Return the gradient in the weights of the policy's model, flat."""
    grads = torch.autograd.grad(loss, list(policy.model.parameters()), retain_graph=True, materialize_grads=True)
    return torch.cat([grad.flatten() for grad in grads])


def test_everything_is_enumerated_and_stored_as_it_is_played_by_hand():
    policy, rollout, read, log_probs = world("gpt2", False)
    assert len(rollout) == P * D and rollout.mask.shape[1] == T
    chances = log_probs.sum(1).exp().detach()
    torch.testing.assert_close(chances.unflatten(0, (P, D)).sum(1), torch.ones(P).double(), rtol=1e-13, atol=0)
    positions = [row[mask].tolist() for row, mask in zip(rollout.positions, rollout.mask, strict=True)]
    assert positions == [[len(each) for each in row] for row in read]
    grown = {b - a for row in positions for a, b in itertools.pairwise(row)}
    assert len(grown) >= 3, "replies of several lengths"
    torch.testing.assert_close(policy.evaluate(rollout)["log_probs"].where(rollout.mask, 0), log_probs)


@pytest.mark.parametrize(
    ("name", "cls", "settings"),
    [
        ("gpt2", agents.Reinforce, {}),
        ("llama", agents.Reinforce, {"gamma": 0.9}),
        ("llama", agents.TOPR, {}),
        ("gpt2", agents.ReinforceBaseline, {"baseline": "value"}),
        ("gpt2", SummedPPO, {"gae_lambda": 1.0, "normalize_advantage": False}),
        ("gpt2", agents.ReinforceBaseline, {"baseline": "none", "kl_coef": 0.3}),
    ],
)
def test_the_expected_gradient_is_the_true_one(name, cls, settings):
    """That of E Σ_t γ^t r_t, t in actions, less the KL of whole dialogues.

    The other agents follow from their equations: what they are made of is right with replies, too (test_critic.py).
    """
    agent = made(cls, name, 1, **settings)
    policy, rollout, read, log_probs = world(name, agent.uses_critic)
    whole = log_probs.sum(1)  # log π of each dialogue
    gains = (rollout.rewards.where(rollout.mask, 0) * settings.get("gamma", 1.0) ** torch.arange(T).double()).sum(1)
    if agent.anchor.coef:
        reference = log_probs_by(agent.anchor.reference, rollout, read).sum(1).detach()
        gains = gains - agent.anchor.coef * (whole - reference)
    wanted = gradient((whole.exp() * gains).sum() / P, policy)
    prepared = agent.prepare(rollout)
    share = whole.exp().detach() * len(rollout) / P
    loss, _ = agent.loss(replace(prepared, weights=prepared.weights * share[:, None]))
    assert wanted.norm() > 1e-3 and relative_error(-gradient(loss, agent.policy), wanted) < 1e-10
