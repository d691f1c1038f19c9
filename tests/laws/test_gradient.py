"""Identity 2: the expected gradient of unbiased agents is the true one, and that of every agent its equation's.

What is unbiased is compared with the derivative of the expected return over every rollout of an enumerable world
(`tests/support/tabular.py`); each agent, with all its biases, with its equation (`tests/laws/equations.py`), on
sampled rollouts: in the first pass, in a later one, and where another policy acted.
"""

import copy
import itertools
import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from diagonal import diagonal, slow
from equations import Played, best_of_subsets, objective
from tabular import (
    AT_THE_END,
    LEVELS,
    NEXT,
    REWARDS,
    SOLVED,
    P,
    S,
    T,
    TabularPolicy,
    Told,
    V,
    completion_log_probs,
    derivative,
    every_group,
    exact_values,
    expectation,
    expected_best,
    expected_gradient,
    gradient,
    kl_gradient,
    make_agent,
    moved_policy,
    objective_gradient,
    reading_the_other_prompt,
    relative_error,
    true_gradient,
    truncated_log_likelihood,
    updated_policies,
)
from updates import FAMILY, N, paid_at_the_end, sample, some_cut_off

from rlenv import agents
from rlenv._status import ERROR, OK
from rlenv.agents.estimators import aggregation
from rlenv.agents.estimators.best_of_k import BASELINES
from rlenv.agents.estimators.kl import RATIOS
from rlenv.agents.estimators.mismatch import MODES

TOLERANCE = 1e-10
OF_OTHERS = ("leave-one-out", "length-weighted", "optimal-token")  # means of the other episodes of the group
UNBIASED = ("none", "running-mean", *OF_OTHERS, "value", "greedy")  # test_gradient_check.py has those of other prompts

each_reward = pytest.mark.parametrize("rewards", [slow(AT_THE_END), REWARDS["reward at every step"]], ids=REWARDS)


def summed(cls):
    """Return the agent with its steps summed over each episode, so that no weight depends on a length."""
    return type(f"Summed{cls.__name__}", (cls,), {"weights": staticmethod(aggregation.sequence_sum)})


# Closed forms, with none of the agents' code in them.


def visits(log_pi):
    """Return the probability that a prompt's episode comes to each state [P, S], a constant."""
    pi = log_pi.detach().exp()
    chance = torch.zeros(P, S, dtype=pi.dtype)
    chance[:, 0] = 1.0
    for s, a in itertools.product(range(S), range(V)):  # states are numbered by length
        if NEXT[s, a] >= 0:
            chance[:, NEXT[s, a]] += chance[:, s] * pi[:, s, a]
    return chance


def documented_kl_gradient(estimator, way, policy, reference, sampler=None):
    """Return what the tables of `estimators/kl.py` say the anchor's gradient direction is, for β = 1 [P, S, V].

    Args:
        way: "reward", or the ratio in the loss, which is constant in a first pass.
        sampler: whose the episodes are, if not the policy's.
    """
    log_pi, log_ref = policy.logits.log_softmax(-1), reference.logits.detach().log_softmax(-1)
    log_old = (sampler or policy).logits.detach().log_softmax(-1)
    pi, gap, whole = log_pi.exp(), log_pi - log_ref, kl_gradient(policy, reference)
    k2, d = gap.square() / 2, visits(log_old)  # [P, S]

    def drawn(cost):
        """E_old[∇cost]: states and actions are the sampler's, then the cost alone is differentiated."""
        return derivative((d[..., None] * log_old.exp() * cost).sum((1, 2)).mean(), policy)

    def state_by_state(divergence):
        return derivative((d * divergence).sum(1).mean(), policy)

    reverse, forward = (pi * gap).sum(-1), (log_ref.exp() * -gap).sum(-1)  # KL(π || ref), KL(ref || π) [P, S]
    score_of_k3 = (1 - (-gap).exp()).detach() * log_pi  # its gradient is (1 - r) ∇log π
    return {
        ("k1", "reward"): lambda: whole,
        ("k2", "reward"): lambda: drawn(k2) - derivative(expectation(log_pi, k2), policy),
        ("k3", "reward"): lambda: whole + drawn(score_of_k3),
        ("exact", "reward"): lambda: whole + state_by_state(reverse),
        ("k1", "none"): lambda: state_by_state((log_old.exp() * (log_old - log_pi)).sum(-1)),
        ("k2", "none"): lambda: -drawn(gap.detach() * log_pi),
        ("k3", "none"): lambda: -drawn(score_of_k3),
        ("k1", "constant"): lambda: torch.zeros_like(log_pi),
        ("k2", "constant"): lambda: -state_by_state(reverse),
        ("k3", "constant"): lambda: -state_by_state(forward),
        ("exact", "constant"): lambda: -state_by_state(reverse),
        ("k1", "differentiated"): lambda: -state_by_state(reverse),
        ("k2", "differentiated"): lambda: -state_by_state((pi * k2).sum(-1)),
        ("k3", "differentiated"): lambda: -state_by_state(reverse),
    }[estimator, way]()


def slope_of_success(success, size):
    """Return what standardized rewards of 0 and 1 multiply the gradient of the chance of success by [P].

    Σ_s Binomial(s; K-1, p) (A of a success beside s others - A of a failure beside them), as the own episode is in the
    mean and in the standard deviation.
    """
    total = torch.zeros_like(success)
    for others in range(size):
        chance = math.comb(size - 1, others) * success**others * (1 - success) ** (size - 1 - others)
        spread = [math.sqrt(n * (size - n) / size / (size - 1)) + 1e-4 for n in (others, others + 1)]
        total += chance * ((1 - (others + 1) / size) / spread[1] + others / size / spread[0])
    return total


# The true gradient, perhaps times a constant.


def of_baseline(name, factor=1.0, size=2, **settings):
    return agents.ReinforceBaseline, size, {"baseline": name, **settings}, factor


DISCOUNTED, ANCHORED = {"returns": "episode", "gamma": 0.9}, {"kl_coef": 0.3}
SUMMED = {"gae_lambda": 1.0, "normalize_advantage": False}
UNBOUNDED = {"mismatch": "sequence-truncate", "mismatch_max": None}
EXACT = [  # agent, K, settings, and what the true gradient is times
    *((agents.Reinforce, size, {}, 1.0) for size in (1, 2)),
    (agents.Reinforce, 1, {"gamma": 0.9}, 1.0),
    *(of_baseline(name, size=2) for name in UNBIASED),
    *(of_baseline(name, size=4, returns="episode") for name in UNBIASED),
    *(of_baseline(name, **DISCOUNTED) for name in UNBIASED),
    *(of_baseline("group-mean", (size - 1) / size, size) for size in (2, 4)),  # the own episode is in the mean
    of_baseline("group-mean", 1 / 2, returns="episode"),
    *(of_baseline(name, **ANCHORED) for name in ("none", "leave-one-out", "value")),
    of_baseline("leave-one-out", **ANCHORED, returns="episode"),
    of_baseline("group-mean", 1 / 2, **ANCHORED),
    *((agents.RLOO, size, settings, 1.0) for size in (2, 4) for settings in ({}, {"gamma": 0.9}, ANCHORED)),
    *((agents.DrGRPO, size, {"max_steps": T}, (size - 1) / size / T) for size in (2, 4)),
    (agents.DrGRPO, 2, {"max_steps": T, **ANCHORED}, 1 / 2 / T),
    *((agents.TOPR, 1, {"threshold": threshold}, 1.0) for threshold in (0.5, 0.2)),
    (agents.Delightful, 2, {"gate_width": 1e13}, 1 / 2),  # a gate that is half open everywhere
    (summed(agents.A2C), 1, {"gae_lambda": 1.0}, 1.0),  # for any critic
    (summed(agents.PPO), 1, SUMMED, 1.0),
]


@each_reward
@pytest.mark.parametrize(("cls", "size", "settings", "factor"), EXACT)
def test_the_expected_gradient_is_the_true_one(cls, size, settings, factor, rewards):
    """Of the discounted objective, less the KL of the anchor in the reward; test_gradient_check.py has batch-mean."""
    agent = make_agent(cls, size, **settings)
    wanted = true_gradient(agent.policy, rewards, settings.get("gamma", 1.0))
    if agent.anchor.settings.kl_coef:
        wanted = wanted + agent.anchor.settings.kl_coef * kl_gradient(agent.policy, agent.anchor.reference)
    assert relative_error(expected_gradient(agent, rewards, size), factor * wanted) < TOLERANCE


# Sequence ratios and gates.


def successes(policy):
    """Return the chance of success of each prompt, differentiable [P]."""
    return (completion_log_probs(policy.logits.log_softmax(-1)).exp() * (LEVELS == 1)).sum(1)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("settings", [{}, {"power": 1.0, "decay": 0.0, "power_negative": 1.0, "decay_negative": 0.0}])
def test_without_a_weight_by_length_only_the_standard_deviation_is_left(settings, size):
    """Each prompt's success has its true direction; plain importance weights keep it in a later pass."""
    agent = make_agent(summed(agents.VESPO) if settings else agents.LUSPO, size, episodes_per_update=36, **settings)
    rollout, probability = every_group(agent.policy, SOLVED, size)
    prepared, share = agent.prepare(rollout), (len(rollout) / (P * size) * probability)[:, None]
    sampler = moved_policy(agent.policy) if settings else agent.policy
    found = gradient(agent, replace(prepared, weights=prepared.weights * share))
    before, now = (successes(policy) for policy in (sampler, agent.policy))
    wanted = derivative((slope_of_success(before.detach(), size) * now).mean(), agent.policy)
    assert relative_error(found, wanted) < TOLERANCE


# A rollout that is some updates old.


@diagonal("cls, staleness", [agents.RLOO, agents.TOPR], [0, 1, 2, 4])
def test_unbounded_weights_of_episodes_are_exact_however_old_a_rollout_is(cls, staleness):
    policies, size = updated_policies(TabularPolicy(), 4, 8.0), 1 if cls is agents.TOPR else 2
    agent = make_agent(cls, size, **UNBOUNDED)
    agent.policy.load_state_dict(policies[-1].state_dict())
    found = expected_gradient(agent, AT_THE_END, size, policies[-1 - staleness])
    assert relative_error(found, true_gradient(agent.policy)) < TOLERANCE


@each_reward
@pytest.mark.parametrize("lam", [0.0, 0.5])
def test_with_a_perfect_critic_every_lambda_is_exact(lam, rewards):
    agent = make_agent(summed(agents.PPO), **SUMMED | {"gae_lambda": lam})
    agent.policy.table.data = exact_values(agent.policy, rewards)
    assert relative_error(expected_gradient(agent, rewards, 2), true_gradient(agent.policy, rewards)) < TOLERANCE


# The KL anchor.


@pytest.mark.parametrize("returns", ["return-to-go", "episode"])
@pytest.mark.parametrize("place", ["reward", "loss"])
@pytest.mark.parametrize("estimator", ["k1", "k2", "k3", "exact"])
def test_every_kl_estimator_does_what_its_table_says(estimator, place, returns):
    agent = make_agent(baseline="leave-one-out", returns=returns, kl_coef=1.0, kl_estimator=estimator, kl_in=place)
    way = place.replace("loss", "constant")
    wanted = documented_kl_gradient(estimator, way, agent.policy, agent.anchor.reference)
    assert relative_error(expected_gradient(agent, torch.zeros_like(AT_THE_END), 2), wanted) < TOLERANCE
    together = 1.0 * wanted + true_gradient(agent.policy)
    assert relative_error(expected_gradient(agent, AT_THE_END, 2), together) < TOLERANCE


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_every_ratio_of_the_kl_does_what_its_table_says(estimator, ratio):
    """In a later pass: the weights have moved since the rollout was prepared."""
    agent = make_agent(agents.RLOO, 2, kl_coef=1.0, kl_estimator=estimator, kl_in="loss", kl_ratio=ratio)
    rollout, probability = every_group(agent.policy, torch.zeros_like(AT_THE_END), 2)
    prepared, share = agent.prepare(rollout), (len(rollout) / (P * 2) * probability)[:, None]
    sampler = moved_policy(agent.policy)
    found = gradient(agent, replace(prepared, weights=prepared.weights * share))
    wanted = documented_kl_gradient(estimator, ratio, agent.policy, agent.anchor.reference, sampler)
    assert relative_error(found, wanted) < TOLERANCE


@pytest.mark.parametrize(
    ("cls", "settings"),
    [
        *((agents.Distillation, {"estimator": estimator}) for estimator in ("sampled", "centred", "exact")),
        *((agents.SDPO, {"teacher_weights": weights}) for weights in ("averaged", "live", "start")),
    ],
)
def test_an_agent_with_a_teacher_descends_the_kl_to_what_it_says_state_by_state(cls, settings):
    """SDPO's says it with the hint."""
    agent = make_agent(cls, 1, Told, **settings)
    policy, teacher = agent.policy, agent.anchor.reference
    if cls is agents.SDPO:
        teacher = reading_the_other_prompt(teacher)
    found = expected_gradient(agent)
    assert relative_error(found, documented_kl_gradient("exact", "constant", policy, teacher)) < TOLERANCE
    whole = kl_gradient(policy, teacher)  # of whole episodes, which has what an action does to later states
    assert torch.cosine_similarity(found.flatten(), whole.flatten(), 0) < 0.99


# Other objectives than the expected reward.


@pytest.mark.parametrize("size", [2, 3, 4])
def test_maxrl_is_exact_for_the_log_likelihood_truncated_one_below_the_group(size):
    agent = make_agent(agents.MaxRL, size, episodes_per_update=36)
    found = expected_gradient(agent, SOLVED, size)
    for order in (size - 1, size, size + 1):
        wanted = objective_gradient(agent.policy, partial(truncated_log_likelihood, order=order), SOLVED)
        assert (relative_error(found, wanted) < TOLERANCE) == (order == size - 1)


OF_K = {f"{k} of {size}": (size, k) for size, k in ((2, 1), (2, 2), (3, 1), (3, 2), (3, 3))}


@diagonal("sizes, rewards, baseline", OF_K, {"pass@k": SOLVED, "the best of k": AT_THE_END - 0.25}, BASELINES)
def test_pkpo_is_exact_for_the_best_of_k(sizes, rewards, baseline):
    size, k = sizes
    agent = make_agent(agents.PKPO, size, k=k, baseline=baseline, episodes_per_update=36)
    wanted = objective_gradient(agent.policy, partial(expected_best, k=k), rewards)
    assert relative_error(expected_gradient(agent, rewards, size), wanted) < TOLERANCE


@pytest.mark.parametrize("baseline", BASELINES)
def test_pkpo_takes_the_best_of_the_verdicts_there_are(baseline):
    pays = torch.tensor([0.5, 9.0, 2.0, -1.0] * 6)
    status = torch.full((N,), OK)
    status[[1, 4, 5, 6, 8, 9, 10, 11]] = ERROR
    rollout = replace(paid_at_the_end(sample(), pays), status=status)
    found = make_agent(agents.PKPO, 4, k=4, baseline=baseline).prepare(rollout).advantages[:, 0]
    wanted = torch.tensor(best_of_subsets([0.5, 2.0, -1.0], 3, baseline), dtype=torch.float64)
    torch.testing.assert_close(found[[0, 2, 3]], wanted, rtol=0, atol=1e-12)
    assert float(found[7]) == (-1.0 if baseline == "none" else 0.0)  # a group of one
    assert not found[status == ERROR].any()


# The equation of every agent.


def bounded(mode, low, high):
    return {"mismatch": mode, "mismatch_min": low, "mismatch_max": high}


PARTS = ({"right": 1.0, "short": 0.5}, {"right": 1.0}, {"short": -2.0, "right": 1.0})
ACTED = {
    f"{cls.__name__}, {mode}, {low:g} to {high:g}": {"cls": cls, "ent_coef": 0.1, **bounded(mode, low, high)}
    for cls, low, high in ((agents.RLOO, 0, 3), (agents.GRPO, 0.7, 1.4), (agents.GSPO, 0.5, 2), (agents.PPO, 0, 3))
    for mode in MODES
} | {
    "SAPO, acted": {"cls": agents.SAPO, **bounded("token-truncate", 0.0, 1.2), "num_epochs": 2},
    **{f"VESPO, {mode}": {"cls": agents.VESPO, **bounded(mode, 0.7, 1.4), "num_epochs": 2} for mode in MODES},
    "CISPO, acted": {"cls": agents.CISPO, **bounded("token-truncate", 0.0, 1.2)},
    "TOPR, acted": {"cls": agents.TOPR, **bounded("token-truncate", 0.0, 1.2), "num_epochs": 2},
    "GRPO, acted and masked": {"cls": agents.GRPO, **UNBOUNDED, "off_policy_mask": 0.02},
    **{
        f"{kl}, ratio {ratio}": FAMILY[f"{kl} in the loss"] | {"cls": agents.RLOO, **UNBOUNDED, "kl_ratio": ratio}
        for kl, ratio in (("k2", "constant"), ("k3", "differentiated"), ("k2", "none"))
    },
}
EQUATIONS = FAMILY | {
    "discounted": {"cls": agents.ReinforceBaseline, "gamma": 0.9, "ent_coef": 0.1},
    **{f"{name}, discounted": FAMILY[f"baseline {name}"] | {"gamma": 0.9} for name in UNBIASED},
    "a critic": {"cls": agents.ReinforceBaseline, "baseline": "value", "vf_coef": 0.7, "gamma": 0.9},
    "GRPO, batch": {"cls": agents.GRPO, "scale": "batch", "max_ratio": 1.25},
    "GRPO, clipped": {"cls": agents.GRPO, "clip_range": 0.1, "clip_range_high": 0.4},
    "GRPO, masked": {"cls": agents.GRPO, "clip_range": 0.99, "clip_range_high": 0.99, "off_policy_mask": 0.1},
    "SAPO, narrow": {"cls": agents.SAPO, "gate_temperature": 5.0, "gate_temperature_negative": 20.0},
    "GMPO, bounded": {"cls": agents.GMPO, "clip_range": 0.05, "clip_range_high": 0.05, "max_ratio": 1.15},
    "VESPO, steep": {"cls": agents.VESPO, "power": 0.5, "decay": 6.0, "power_negative": 5.0, "decay_negative": 0.0},
    "Delightful, narrow": {"cls": agents.Delightful, "gate_width": 0.1, "baseline": "none", "gamma": 0.9},
    "DPPO, bounded": {"cls": agents.DPPO, "max_moved": 0.15, "max_ratio": 1.3},
    "TOPR, low": {"cls": agents.TOPR, "threshold": 2.0},
    "MaxRL, both signs": {"cls": agents.MaxRL, "clip_range": 0.4},
    "PPO, plain": {"cls": agents.PPO, "gae_lambda": 0.5, "normalize_advantage": False, "vf_coef": 0.7},
    **{f"SDPO, {name}": {"cls": agents.SDPO, "divergence": name} for name in ("forward-kl", "jensen-shannon")},
    "Distillation, rewards": FAMILY["Distillation, exact"] | {"reward_coef": 0.7},
    **{f"PKPO, {name}": {"cls": agents.PKPO, "k": 3, "baseline": name} for name in BASELINES},
    "VAPO, plain": {"cls": agents.VAPO, "length_alpha": 0.4, "gae_lambda": 0.5, "normalize_advantage": False},
    **{f"GDPO, {list(weights)}": {"cls": agents.GDPO, "part_weights": weights} for weights in PARTS},
    **{f"{name}, fewer": FAMILY[name] | {"share": 0.05} for name in ("ClipCov", "KLCov")},
    "ClipCov, bounded": FAMILY["ClipCov"] | {"max_covariance": 0.8},
}


def law(policy, states):
    return policy.logits.flatten(0, 1)[states].log_softmax(-1)


def played(rollout, size, **tables):
    """Return what is known of a rollout whose groups of this size stand one after the other; tables are [N, ...]."""
    known = {"mask": rollout.mask, "actions": rollout.actions, "rewards": rollout.rewards.where(rollout.mask, 0)}
    known |= {"truncated": rollout.truncated, **{name: table for name, table in tables.items() if table is not None}}
    parts = {name.removeprefix("parts/"): part.unflatten(0, (-1, size)) for name, part in rollout.extras.items()}
    return Played(**{name: table.unflatten(0, (-1, size)) for name, table in known.items()}, parts=parts)


def gradients(loss, policy):
    parameters = list(policy.parameters())
    grads = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
    return torch.cat([grad.flatten() for grad in grads])


@diagonal("settings, later", EQUATIONS | ACTED, {"first pass": False, "later pass": True})
def test_the_gradient_of_every_rollout_is_that_of_the_equation(settings, later):
    """The loss has its figures, too; in a later pass it is that of micro-batches."""
    agent, acted = make_agent(**{"group_size": 4, **settings}), any(settings is each for each in ACTED.values())
    rollout = some_cut_off(sample())
    state = {name: copy.deepcopy(part.state_dict()) for name, part in agent.carried.items()}
    if "part_weights" in settings:
        rollout.extras = {"parts/right": rollout.returns, "parts/short": 1 / rollout.lengths.double()}
    acting = moved_policy(agent.policy, 0) if acted else copy.deepcopy(agent.policy)
    if acted:
        rollout = replace(rollout, log_probs=acting.evaluate(rollout)["log_probs"].detach())
    old = copy.deepcopy(agent.policy)
    prepared = agent.prepare(rollout)
    for name, part in agent.carried.items():
        part.load_state_dict(state[name])
    if later:
        moved_policy(agent.policy)
        with torch.no_grad():
            agent.policy.table += torch.randn(P, S, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    now, states = agent.policy, rollout.observations
    read = prepared.extras.get("hinted", states)
    it = played(
        rollout,
        4,
        law=law(now, states),
        **{name: law(policy, states).detach() for name, policy in (("old", old), ("acting", acting))},
        reference=None if agent.anchor.reference is None else law(agent.anchor.reference, read).detach(),
        taught=prepared.extras.get("taught"),
        values=now.table.flatten()[states].where(rollout.mask, 0),
        old_values=old.table.flatten()[states].where(rollout.mask, 0).detach(),
        final_values=old.table.flatten()[rollout.final_observations].where(rollout.truncated, 0).detach(),
    )
    ascended, critic, stopped = objective(agent, it)
    parts = [agent.loss(part) for part in prepared.split(5 if later else None)]
    found, wanted = (gradients(each, agent.policy) for each in (sum(loss for loss, _ in parts), critic - ascended))
    assert wanted.any() and relative_error(found, wanted) < 1e-12
    policy_loss = float(sum(metrics["train/policy_loss"] for _, metrics in parts))
    assert policy_loss == pytest.approx(-float(ascended.detach()), rel=1e-12, abs=1e-14)
    assert stopped is None or sum(int(metrics["train/clip_fraction"]) for _, metrics in parts) == int(stopped)
