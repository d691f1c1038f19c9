"""The labs on policies that can be enumerated: their world, their theory, and that they can fail."""

from __future__ import annotations

import csv
import itertools
import json
from typing import Any

import pytest
import torch
from _rlenv_labs import bandit, baselines, lengths, snr
from _rlenv_labs.base import Finding
from _rlenv_labs.enumerable import episodes, gradients, make_agent, scores
from _rlenv_labs.verdicts import Task, binomial, coin, constant_of, right_answers, short_ratio, theory
from _rlenv_scripts.main import main
from _rlenv_scripts.reports.figures.plots import save_figure
from click.testing import CliRunner

import agents.estimators.aggregation as aggregation
import agents.estimators.baselines as estimators
from agents import RLOO, Reinforce, ReinforceBaseline
from agents.core.rollout import join
from agents.estimators import losses
from agents.exact import TablePolicy, World, WorldEnv, true_gradient

WORLD = World(tokens=3, steps=3, end=2)
PREFIXES, COMPLETIONS = 7, 15
LONG_TASKS = lengths.tasks()


@pytest.fixture
def logits(generator: torch.Generator) -> torch.Tensor:
    return torch.randn(PREFIXES, 3, generator=generator, dtype=torch.float64)


@pytest.fixture
def rewards(generator: torch.Generator) -> torch.Tensor:
    return torch.rand(COMPLETIONS, generator=generator, dtype=torch.float64)


def failed(finding: Finding) -> list[str]:
    return [check.text for check in finding.checks if not check.held]


# The world.


def test_scores_agree_with_automatic_differentiation(logits: torch.Tensor) -> None:
    found = torch.autograd.functional.jacobian(WORLD.log_probs, logits).flatten(1)
    torch.testing.assert_close(scores(WORLD, logits), found, rtol=0, atol=1e-14)


def test_single_episodes_through_the_real_loss_average_to_the_exact_gradient(
    logits: torch.Tensor, rewards: torch.Tensor
) -> None:
    agent = make_agent(Reinforce, WORLD, logits, copies=COMPLETIONS)
    every = torch.arange(COMPLETIONS)
    rollout = episodes(agent.policy, WORLD, every, rewards, copies=every)
    found = COMPLETIONS * gradients(agent, agent.prepare(rollout))  # [C, S, V]
    expected = (WORLD.log_probs(logits).exp()[:, None, None] * found).sum(0)
    torch.testing.assert_close(expected, true_gradient(WORLD, logits, WORLD.at_the_end(rewards)), rtol=0, atol=1e-14)
    single = rewards[:, None] * scores(WORLD, logits)
    torch.testing.assert_close(found.flatten(1), single, rtol=0, atol=1e-14)


def test_an_agent_that_plays_meets_the_episodes_that_are_made_by_hand(
    logits: torch.Tensor, rewards: torch.Tensor
) -> None:
    envs = WorldEnv(WORLD, WORLD.at_the_end(rewards[None]), num_envs=4)
    agent = Reinforce(TablePolicy(logits), envs, device="cpu", seed=0)
    played = agent.collector.collect(agent.policy, 60, agent.generator)
    assert played is not None
    assert not played.groups.any(), "all episodes of one prompt are a group"
    said = [tuple(row[shown].tolist()) for row, shown in zip(played.actions, played.mask, strict=True)]
    chosen = torch.tensor([WORLD.completions.index(sequence) for sequence in said])
    made = episodes(agent.policy, WORLD, chosen, rewards[chosen], copies=torch.zeros(60, dtype=torch.int64))
    assert len(set(said)) > 5
    assert torch.equal(played.mask, made.mask)
    for name in ("observations", "rewards", "log_probs"):
        kept, wanted = (getattr(rollout, name)[made.mask] for rollout in (played, made))
        torch.testing.assert_close(kept.double(), wanted.double(), rtol=0, atol=1e-6)


# Theory.


def every_estimate(baseline: str, task: Task) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradient of the real loss for every pair of answers of either prompt, and its probability."""
    count, size = len(task.pi), 2
    every = torch.tensor(list(itertools.product(range(count), repeat=2 * size)))  # [M, 2K]
    world = World(tokens=count, steps=1)
    agent = make_agent(ReinforceBaseline, world, task.pi.log()[None], copies=2 * len(every), baseline=baseline)
    constant = constant_of(baseline, task.rate)
    torch.nn.init.constant_(agent.policy.table, constant)
    prepared = []
    for number, answers in enumerate(every):
        if baseline == "running-mean":
            agent.load_state_dict({"mean": torch.tensor([constant], dtype=torch.float64)})
        verdicts = torch.cat([task.right[answers[:size]], 1 - task.right[answers[size:]]])  # the other's rate is 1 - p
        copies = 2 * number + torch.tensor([0, 0, 1, 1])
        prepared.append(agent.prepare(episodes(agent.policy, world, answers, verdicts, copies)))
    found = 2 * gradients(agent, join(prepared, obs_from_actions=False))[::2].flatten(1)
    return found, task.pi[every].prod(1)


@pytest.mark.parametrize("baseline", estimators.BASELINES)
def test_the_formula_agrees_with_every_rollout_there_is(baseline: str) -> None:
    task = Task("one in three", torch.full((3,), 1 / 3, dtype=torch.float64), torch.tensor([1.0, 0, 0]).double())
    found, chance = every_estimate(baseline, task)
    mean = chance @ found
    variance = float(chance @ found.square().sum(1) - mean.square().sum())
    assert float(chance.sum()) == pytest.approx(1, abs=1e-14)
    assert variance == pytest.approx(theory(baseline, 2, task), rel=1e-12)
    shrunk = {"group-mean": 1 / 2, "batch-mean": 3 / 4}.get(baseline, 1.0)
    torch.testing.assert_close(mean, shrunk * task.gradient, rtol=0, atol=1e-14)


def test_the_short_formula_is_exact_where_verdicts_are_independent_of_scores() -> None:
    for size, p in itertools.product((2, 3, 8), (0.1, 0.5, 0.9)):
        ratio = theory("none", size, coin(p)) / theory("leave-one-out", size, coin(p))
        assert ratio == pytest.approx(short_ratio(size, p), rel=1e-12)
        assert not coin(p).gradient.abs().max() > 1e-15
    near = theory("none", 4, right_answers(0.9)) / theory("leave-one-out", 4, right_answers(0.9))
    assert near != pytest.approx(short_ratio(4, 0.9), rel=1e-3)


def test_tasks_have_the_rate_they_are_made_for() -> None:
    for p in baselines.RATES:
        assert right_answers(p).rate == pytest.approx(p, abs=1e-12)
        assert coin(p).rate == pytest.approx(p, abs=1e-12)
        task = right_answers(p)
        exact = true_gradient(task.world, torch.zeros(1, 20), task.world.at_the_end(task.right))[0]
        torch.testing.assert_close(right_answers(p).gradient, exact, rtol=0, atol=1e-15)
    assert binomial(3, 0.5).tolist() == [0.125, 0.375, 0.375, 0.125]


def test_the_exact_variances_of_snr_agree_with_every_pair(logits: torch.Tensor, rewards: torch.Tensor) -> None:
    task = snr.Task(logits, rewards)
    pairs = torch.tensor(list(itertools.product(range(COMPLETIONS), repeat=2)))  # [225, 2]
    chance = task.pi[pairs].prod(1)
    for method, cls in (("no baseline", Reinforce), ("leave-one-out", RLOO)):
        agent = make_agent(cls, WORLD, logits, copies=len(pairs))
        copies = torch.arange(len(pairs)).repeat_interleave(2)
        rollout = episodes(agent.policy, WORLD, pairs.flatten(), rewards[pairs.flatten()], copies)
        found = len(pairs) * gradients(agent, agent.prepare(rollout)).flatten(1)
        distance = (found - task.gradient.flatten()).square().sum(1)
        assert float(chance @ distance) == pytest.approx(snr.exact_variance(method, 2, task), rel=1e-12)


# The labs hold, and they can fail.


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snr, "SIZES", (1, 2, 4, 8, 16, 32))
    monkeypatch.setattr(snr, "REPLICATIONS", 1000)
    monkeypatch.setattr(baselines, "RATES", (0.1, 0.4, 0.5, 0.9))
    monkeypatch.setattr(baselines, "SIZES", (2, 4))
    monkeypatch.setattr(baselines, "REPLICATIONS", 100)
    few_lengths(monkeypatch, 2048)
    monkeypatch.setattr(bandit, "RUNS", 12)
    monkeypatch.setattr(bandit, "MOST_UPDATES", 60)


@pytest.mark.parametrize("lab", [snr, pytest.param(baselines, marks=pytest.mark.slow)])
def test_it_holds_and_can_be_drawn(lab: Any, quick: None, tmp_path: Any) -> None:
    finding = lab.run(0)
    assert finding.held, failed(finding)
    assert len({tuple(row) for row in finding.rows}) == 1
    json.dumps(finding.figures)
    save_figure(finding.draw, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_baselines_holds_for_three_rates_and_two_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"RATES": (0.1, 0.4, 0.9), "SIZES": (2, 3), "SAMPLED_RATES": (0.4,), "SAMPLED_SIZE": 2, "REPLICATIONS": 40}
    for name, value in small.items():
        monkeypatch.setattr(baselines, name, value)
    few_lengths(monkeypatch, 2048)
    finding = baselines.run(0)
    assert finding.held, failed(finding)
    assert len(finding.checks) == 13
    assert len(finding.rows) == len(estimators.BASELINES) * (2 * 2 * 3 + 2 * 4)


def few_lengths(monkeypatch: pytest.MonkeyPatch, episodes: int) -> None:
    """Let answers of several steps take two tasks and four K."""
    monkeypatch.setattr(lengths, "tasks", lambda: [LONG_TASKS[1], LONG_TASKS[3]])
    monkeypatch.setattr(lengths, "SIZES", (2, 4, 8, 32))
    monkeypatch.setattr(lengths, "EPISODES", episodes)


@pytest.mark.parametrize("baseline", estimators.BASELINES)
def test_the_noise_of_answers_of_several_steps_is_that_of_its_definition(baseline: str) -> None:
    """|1/K Σ_i Σ_t (R_i - b_{i,t}) ∇log π - g*|², with each baseline written out."""
    task, groups, size = lengths.tasks()[3], 12, 4
    draws = torch.multinomial(task.pi, 2 * groups * size, replacement=True, generator=torch.Generator().manual_seed(0))
    answers, others = draws.view(2, groups, size)
    found = lengths.distances(baseline, task, answers, others)
    states, actions, mask = lengths.WORLD.paths
    pi = task.logits.softmax(-1)
    norm = (1 - 2 * pi[states, actions] + pi.square().sum(-1)[states]).where(mask, 0)  # [C, T]
    true = true_gradient(lengths.WORLD, task.logits, lengths.WORLD.at_the_end(task.rewards))
    for group in range(groups):
        mine, gains = answers[group], task.rewards[answers[group]]
        every = torch.cat([gains, 1 - task.rewards[others[group]]])
        estimate = torch.zeros_like(true)
        for i in range(size):
            for t in range(int(mask[mine[i]].sum())):
                state, action = states[mine[i], t], actions[mine[i], t]
                score = torch.nn.functional.one_hot(action, 3) - pi[state]
                rest = [j for j in range(size) if j != i]
                norms = [float(norm[mine[j], : t + 1].sum()) for j in rest]
                weights = {"length-weighted": [float(mask[mine[j]].sum()) for j in rest], "optimal-token": norms}
                shares = torch.tensor(weights.get(baseline, [1.0] * len(rest)), dtype=torch.float64)
                mean = float(shares @ gains[rest] / shares.sum())
                known = {"none": 0.0, "running-mean": 0.5, "value": float(task.values[state])}
                own = {"group-mean": (gains.mean(), size), "batch-mean": (every.mean(), 2 * size)}
                if baseline in own:  # scaled to the true gradient
                    whole, n = own[baseline]
                    advantage = float(gains[i] - whole) * n / (n - 1)
                else:
                    advantage = float(gains[i]) - known.get(baseline, mean)
                estimate[state] += advantage * score / size
        assert float(found[group]) == pytest.approx(float((estimate - true).square().sum()), rel=1e-9)


def test_tasks_of_several_steps_are_what_they_are_called() -> None:
    uneven, right, wrong, certain, other = lengths.tasks()
    for task in (uneven, right, wrong, certain, other):
        assert 0.3 < task.rate < 0.75
        assert float(task.pi.sum()) == pytest.approx(1, abs=1e-12)
        assert float(task.values[0]) == pytest.approx(task.rate, abs=1e-12)
    assert torch.equal(right.rewards, 1 - wrong.rewards)
    chosen = certain.pi.where(certain.rewards == 1, 0)
    assert float(chosen.max() / chosen.sum()) > 0.9  # one certain answer
    assert float(other.pi.where(other.rewards == 1, 0).max() / other.rate) < 0.5


def test_baselines_sees_weights_that_are_all_the_same(exact_only: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimators, "optimal_token", estimators.leave_one_out)
    assert any("optimal-token has 1.00 to 1.00 times" in text for text in failed(baselines.run(0)))


def test_the_seed_decides(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snr, "REPLICATIONS", 10)
    first, again, other = (snr.run(seed).rows for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_snr_sees_a_biased_baseline(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimators, "leave_one_out", estimators.group_mean)
    assert any("right on average" in text for text in failed(snr.run(0)))


@pytest.mark.slow
def test_snr_sees_a_baseline_that_does_nothing(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimators, "leave_one_out", estimators.none)
    assert any("Every variance is the exact one" in text for text in failed(snr.run(0)))


@pytest.mark.slow
def test_snr_sees_a_loss_that_divides_by_length(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reinforce, "weights", staticmethod(aggregation.sequence_mean))
    assert any("right on average" in text for text in failed(snr.run(0)))


def test_snr_sees_rollouts_that_are_not_independent(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = torch.multinomial

    def twice(pi: torch.Tensor, count: int, **kwargs: Any) -> torch.Tensor:
        return draw(pi, max(count // 2, 1000), **kwargs).repeat_interleave(2)[:count]

    monkeypatch.setattr(torch, "multinomial", twice)
    assert any("-1: fitted" in text for text in failed(snr.run(0)))


@pytest.fixture
def exact_only(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is sampled where an exact check is to fail."""
    for name, value in {"RATES": (0.1, 0.4, 0.9), "SIZES": (2,), "SAMPLED_RATES": (0.4,), "SAMPLED_SIZE": 2}.items():
        monkeypatch.setattr(baselines, name, value)
    monkeypatch.setattr(baselines, "REPLICATIONS", 10)
    few_lengths(monkeypatch, 64)


def test_baselines_sees_one_that_does_nothing(exact_only: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimators, "leave_one_out", estimators.none)
    texts = failed(baselines.run(0))
    assert any("agree with the formula" in text for text in texts)
    assert any("is (K-1)/(K(1-p)), exactly" in text for text in texts)
    assert any("Leave-one-out hurts" in text for text in texts)


@pytest.mark.slow
def test_baselines_sees_a_biased_one(exact_only: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimators, "leave_one_out", estimators.group_mean)
    assert any("Every baseline's mean is the true gradient" in text for text in failed(baselines.run(0)))


@pytest.mark.slow
def test_baselines_sees_a_loss_that_weighs_steps_otherwise(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "policy_gradient", lambda log_probs, advantages: 2 * advantages * log_probs)
    texts = failed(baselines.run(0))
    assert "sampled gradients of the agent's loss" in texts[0]
    assert all("Answers of 1 to" in text or "as good as" in text for text in texts[1:]), "nothing exact"


@pytest.mark.slow
def test_bandit_sees_a_loss_that_ignores_the_reward(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "policy_gradient", lambda log_probs, advantages: log_probs)
    monkeypatch.setattr(bandit, "RUNS", 2)
    texts = failed(bandit.run(0))
    for part in (
        "The expected gradient",
        "With the baseline 4.9",
        "with probability 0.3 without",
        "find the best answer",
    ):
        assert any(part in text for text in texts), part


@pytest.mark.slow
def test_bandit_sees_a_baseline_that_does_nothing(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimators.RunningMean, "__call__", lambda self, returns, rollout: torch.zeros_like(returns))
    texts = failed(bandit.run(0))
    for part in (
        "With the baseline 4.9",
        "with probability 0.3 without",
        "variance",
        "From single samples",
        "median run",
    ):
        assert any(part in text for text in texts), part
    assert not any("The expected gradient" in text for text in texts)  # it is unbiased all the same


# The command.


@pytest.mark.slow
def test_the_command_writes_three_files_and_says_what_it_found(quick: None, tmp_path: Any) -> None:
    outcome = CliRunner().invoke(main, ["lab", "bandit", "--out", str(tmp_path / "new"), "--json"])
    assert outcome.exit_code == 0, outcome.output
    result = json.loads(outcome.stdout.splitlines()[-1])
    assert result["held"]
    assert all(check["held"] for check in result["checks"])
    assert json.loads((tmp_path / "new" / "bandit.json").read_text(encoding="utf-8")) == result
    exact = result["figures"]["one_sample"]["no baseline"]["expected_gradient"]
    assert exact == pytest.approx([0.3 * 3.1, -0.5 * 1.9, 0.2 * 0.1], abs=1e-6)
    assert (tmp_path / "new" / "bandit.png").stat().st_size > 10_000
    with (tmp_path / "new" / "bandit.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(bandit.TRAINED) * (bandit.MOST_UPDATES + 1)
    assert float(rows[0]["expected_reward"]) == pytest.approx(4.9)
    assert max(float(row["expected_reward"]) for row in rows) > 7.7


def test_a_claim_that_does_not_hold_is_exit_code_1(quick: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(losses, "policy_gradient", lambda log_probs, advantages: -advantages * log_probs)
    monkeypatch.setattr(bandit, "RUNS", 2)
    monkeypatch.setattr(bandit, "MOST_UPDATES", 5)
    outcome = CliRunner().invoke(main, ["lab", "bandit", "--out", str(tmp_path)])
    assert outcome.exit_code == 1, outcome.output
    assert "The claim did not hold." in outcome.stdout
    assert "  failed  The expected gradient" in outcome.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"bandit.csv", "bandit.json", "bandit.png"}
