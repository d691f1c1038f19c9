"""The optimizer step: what changes nothing, what is skipped, and how fast it goes."""

from __future__ import annotations

import copy

import pytest
import torch
from tabular import TabularPolicy
from tiny_models import text_envs, tiny_policy

from agents import GRPO, PPO, RLOO, Agent, ReinforceBaseline
from agents.descent import MAX_SKIPPED, Descent

NAN, INF = float("nan"), float("inf")


def descent_of(learning_rate: object = 0.1, schedule: str = "constant", max_grad_norm: float = 1.0) -> Descent:
    return Descent(TabularPolicy(), learning_rate, schedule, max_grad_norm)


def set_gradients(descent: Descent, actor: float, critic: float) -> None:
    policy = descent.policy
    policy.logits.grad, policy.table.grad = torch.full_like(policy.logits, actor), torch.full_like(policy.table, critic)


def snapshot(descent: Descent) -> tuple[list[torch.Tensor], dict]:
    return [p.detach().clone() for p in descent.policy.parameters()], copy.deepcopy(descent.optimizer.state_dict())


def assert_unchanged(descent: Descent, before: tuple[list[torch.Tensor], dict]) -> None:
    weights, optimizer = before
    assert all(torch.equal(p, q) for p, q in zip(descent.policy.parameters(), weights, strict=True))
    for ours, theirs in zip(descent.optimizer.state_dict()["state"].values(), optimizer["state"].values(), strict=True):
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)


# Steps that change nothing.


@pytest.mark.parametrize("none", [True, False])
def test_a_gradient_of_zero_changes_nothing_whatever_adam_remembers(none: bool) -> None:
    descent = descent_of()
    for _ in range(3):
        set_gradients(descent, 0.2, -0.1)
        descent.step()
    before = snapshot(descent)
    assert any(state["exp_avg"].any() for state in before[1]["state"].values()), "Adam has momentum"
    for _ in range(3):
        descent.optimizer.zero_grad(set_to_none=True)
        if not none:
            set_gradients(descent, 0.0, 0.0)
        assert descent.step() == 0.0
        assert_unchanged(descent, before)
    set_gradients(descent, 1e-12, 0.0)
    descent.step()
    assert not torch.equal(descent.policy.logits, before[0][0]), "the smallest gradient does"


@pytest.mark.parametrize("cls", [RLOO, GRPO, ReinforceBaseline])
def test_equal_rewards_after_unequal_ones_leave_every_weight_where_it_is(cls: type[Agent]) -> None:
    envs = text_envs(4, group_size=4)
    agent = cls(tiny_policy("gpt2", envs, dtype="float32"), envs, episodes_per_update=16, device="cpu")
    start = [p.detach().clone() for p in agent.policy.parameters()]
    agent.learn(1)
    before = snapshot(agent.descent)
    assert any(not torch.equal(p, q) for p, q in zip(start, before[0], strict=True))
    envs.task.verifier.function = lambda prompts, completions: [0.1] * len(prompts)
    agent.learn(1)
    assert agent.last_metrics["rollout/frac_reward_zero_std"] == 1 and agent.num_updates == 1
    assert agent.last_metrics["train/grad_norm"] == 0.0
    assert_unchanged(agent.descent, before)


@pytest.mark.parametrize("where", ["actor", "critic"])
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_a_gradient_that_is_no_number_is_skipped_and_counted(where: str, bad: float) -> None:
    descent = descent_of()
    set_gradients(descent, 0.2, 0.2)
    descent.step()
    before = snapshot(descent)
    for count in range(1, MAX_SKIPPED):
        set_gradients(descent, 0.1, 0.1)
        getattr(descent.policy, {"actor": "logits", "critic": "table"}[where]).grad.view(-1)[3] = bad
        descent.step()
        assert descent.skipped == count
        assert_unchanged(descent, before)
    set_gradients(descent, 0.2, 0.2)
    descent.step()
    assert descent.skipped == 0, "one good gradient starts the count anew"
    assert not torch.equal(descent.policy.logits, before[0][0])


def test_bad_steps_of_one_update_count_once() -> None:
    descent = descent_of()
    for update in range(1, MAX_SKIPPED):
        for step in range(2 * MAX_SKIPPED):
            set_gradients(descent, NAN, 0.0)
            descent.step(new_update=step == 0)
        assert descent.skipped == update


def test_bad_gradients_in_a_row_are_an_error_with_the_last_good_weights() -> None:
    descent = descent_of()
    before = snapshot(descent)
    for _ in range(MAX_SKIPPED - 1):
        set_gradients(descent, NAN, 0.0)
        descent.step()
    set_gradients(descent, NAN, 0.0)
    with pytest.raises(RuntimeError, match=f"{MAX_SKIPPED} updates in a row had non-finite gradients"):
        descent.step()
    assert_unchanged(descent, before)


# Clipping.


def test_actor_and_critic_are_clipped_each_by_itself() -> None:
    descent = descent_of(max_grad_norm=0.5)
    set_gradients(descent, 3.0, 1e-3)
    norm = float(descent.policy.logits.grad.norm())
    critic = descent.policy.table.grad.clone()
    assert descent.step() == pytest.approx(norm), "what is returned is the actor's norm before clipping"
    assert float(descent.policy.logits.grad.norm()) == pytest.approx(0.5, rel=1e-4)
    torch.testing.assert_close(descent.policy.table.grad, critic)
    set_gradients(descent, 1e-3, 1e9)
    actor = descent.policy.logits.grad.clone()
    descent.step()
    torch.testing.assert_close(descent.policy.logits.grad, actor)
    assert float(descent.policy.table.grad.norm()) == pytest.approx(0.5, rel=1e-4)


# The learning rate.


@pytest.mark.parametrize(
    ("learning_rate", "schedule", "rates"),
    [
        (0.2, "linear", [0.2, 0.1, 0.05, 0.0]),
        (0.2, "constant", [0.2, 0.2, 0.2, 0.2]),
        (lambda remaining: 0.3 * remaining**2, "linear", [0.3, 0.075, 0.01875, 0.0]),
        (lambda remaining: 0.3 * remaining**2, "constant", [0.3, 0.075, 0.01875, 0.0]),
    ],
)
def test_the_rate_follows_its_schedule(learning_rate: object, schedule: str, rates: list[float]) -> None:
    descent = descent_of(learning_rate, schedule)
    assert descent.rate == rates[0] == descent.optimizer.param_groups[0]["lr"]
    for remaining, rate in zip((1.0, 0.5, 0.25, 0.0), rates, strict=True):
        descent.set_progress(remaining)
        assert descent.rate == pytest.approx(rate)
        assert all(group["lr"] == descent.rate for group in descent.optimizer.param_groups)


def test_the_first_step_of_adam_moves_every_weight_by_the_rate() -> None:
    descent = descent_of(0.01, max_grad_norm=1e9)
    before = descent.policy.logits.detach().clone()
    set_gradients(descent, 2.0, 0.0)
    descent.step()
    torch.testing.assert_close(before - descent.policy.logits, torch.full_like(before, 0.01), rtol=1e-4, atol=0)
    descent.set_progress(0.0)
    assert descent.rate == 0.01, "a constant rate does not fall"


@pytest.mark.parametrize("rate", [0, -1e-3, NAN, INF, "fast", None, True])
def test_a_rate_that_is_no_positive_number_is_refused(rate: object) -> None:
    with pytest.raises(ValueError, match=r"^learning_rate must be a finite number above 0, got ") as error:
        descent_of(rate)
    assert repr(rate) in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("schedule", ["linaer", "cosine", None, 3])
def test_an_unknown_schedule_is_refused(schedule: str) -> None:
    with pytest.raises(ValueError, match=r"^unknown lr_schedule .*allowed: linear, constant$"):
        descent_of(0.1, schedule)


@pytest.mark.parametrize("norm", [0, -1.0, NAN, INF, "1"])
def test_a_norm_that_is_no_positive_number_is_refused(norm: float) -> None:
    with pytest.raises(ValueError, match=r"^max_grad_norm must be a finite number above 0, got "):
        descent_of(max_grad_norm=norm)


def test_an_agent_with_several_steps_a_rollout_keeps_one_rate_for_all_of_them() -> None:
    agent = PPO("MlpPolicy", "CartPole-v1", episodes_per_update=4, learning_rate=0.01, device="cpu")
    rates: list[float] = []
    step = agent.descent.step
    agent.descent.step = lambda **first: (rates.append(agent.optimizer.param_groups[0]["lr"]), step(**first))[1]
    agent.learn(total_episodes=12)
    steps = agent.num_epochs * agent.num_minibatches
    assert agent.num_updates == 3 and len(rates) == 3 * steps == 48
    assert rates == [pytest.approx(0.01 * share) for share in (1, 2 / 3, 1 / 3) for _ in range(steps)]
