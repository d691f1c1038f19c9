"""The labs that train a small language model: their judges, their arithmetic, and that their checks can fail."""

import copy
import math
import random

import pytest
import torch
from _rlenv_labs import cost, credit, kl, length_bias, training, trust_region
from _rlenv_scripts.reports.figures.plots import save_figure

from agents import A2C, DAPO, RLOO, LanguageModelPolicy
from agents.estimators import aggregation
from rlenv.envs.task import TextGenTask
from verifiers import Problem, Verdict

NUMBERS = random.Random(0)


def held(checks):
    return [check.held for check in checks]


def assert_plumbing(finding, path):
    """Check that a lab's result can be written: rows with equal keys, figures that JSON knows, and a drawing."""
    assert finding.rows
    assert len({tuple(row) for row in finding.rows}) == 1
    assert all(isinstance(figure, (int, float)) for figure in finding.figures.values())
    assert all(isinstance(check.held, bool) for check in finding.checks)
    save_figure(finding.draw, path)
    assert path.stat().st_size > 5000


# What the labs share.


def task_of(verifier):
    return TextGenTask(verifier, test_fraction=0.0)


def test_a_model_is_a_function_of_its_seed():
    task = task_of(trust_region.Larger())
    before = torch.random.get_rng_state()
    weights = [
        torch.cat([p.flatten() for p in training.small_model(task, seed, width=16).parameters()]) for seed in (1, 1, 2)
    ]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_warm_start_makes_the_demonstrations_likelier():
    verifier = kl.Flattery()
    task = task_of(verifier)
    right = []
    for steps in (0, 30):
        model = training.warm_model(verifier, 0, steps, examples=128)
        policy = LanguageModelPolicy(task.observation_space, task.action_space, model)
        right.append(float(kl.chances(policy, task)[0].mean()))
    assert right[0] < 0.05
    assert right[1] > 3 * right[0]


def test_agents_share_a_start_and_leave_it_alone():
    verifier = trust_region.Larger()
    model = training.warm_model(verifier, 0, 0, width=16)
    before = copy.deepcopy(model.state_dict())
    settings = {"episodes_per_update": 256, "num_envs": 64, "learning_rate": 0.01, "kl_coef": 0.1}
    agent = training.make_agent(RLOO, model, verifier, 0, **settings)
    updates = list(agent.updates(total_episodes=3 * 256))
    assert len(updates) == agent.num_updates == 3
    assert any(rollout.rewards.any() for rollout, _ in updates), "equal rewards teach nothing"
    assert all(len(rollout) == 256 and "train/kl_ref" in figures for rollout, figures in updates)
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())
    assert not all(torch.equal(before[name], weight) for name, weight in agent.policy.model.state_dict().items())


def test_fitting_a_critic_lowers_its_error_and_leaves_the_policy():
    verifier = credit.Decisive()
    agent = training.make_agent(A2C, training.warm_model(verifier, 0, 0, width=16), verifier, 0, episodes_per_update=16)
    with torch.no_grad():
        agent.policy.critic.head[-1].bias.fill_(3.0)  # far from any return
    before = copy.deepcopy(agent.policy.model.state_dict())

    def error():
        rollout = agent.prepare(training.sample(agent, 32))
        return float(rollout.advantages.square().sum() / rollout.mask.sum())

    first = error()
    training.fit_critic(agent, steps=60, batches=2, episodes=16, learning_rate=0.03)
    assert error() < 0.2 * first
    assert all(torch.equal(before[name], weight) for name, weight in agent.policy.model.state_dict().items())


def test_means_are_over_the_rows_asked_for():
    rows = [{"a": 1, "b": 1.0}, {"a": 1, "b": 3.0}, {"a": 2, "b": 9.0}]
    assert training.mean_of(rows, "b", a=1) == 2.0
    assert training.mean_of(rows, "b") == pytest.approx(13 / 3)


class Generous(trust_region.Larger):
    """Pays for every answer alike, so that no group has a gradient."""

    def verify(self, problem, completion):
        return Verdict(1.0)


def test_training_counts_updates_however_many_rounds_of_episodes_they_take():
    model = training.warm_model(Generous(), 0, 0, width=16)
    agent = training.make_agent(DAPO, model, Generous(), 0, episodes_per_update=16)
    updates = list(training.train(agent, 3))
    assert [len(rollout) for rollout, _ in updates] == [agent.max_rounds * 16] * 3
    assert agent.num_updates == 3 and agent.max_rounds > 1


# kl


@pytest.mark.parametrize(
    ("completion", "reward", "success"),
    [("7", 1, True), ("3", 0, False), ("!", 2, False), ("!7", 2, False), ("7!", 0, False), ("", 0, False)],
)
def test_flattery_is_paid_and_no_success(completion, reward, success):
    verifier = kl.Flattery()
    verdict = verifier.verify(Problem("3,7=", "7"), completion)
    assert verdict.reward == reward
    assert verifier.is_success(verdict) is success


def test_some_demonstrations_flatter():
    verifier = kl.Flattery()
    problems = [verifier.sample(NUMBERS) for _ in range(400)]
    shown = [verifier.demonstration(problem) for problem in problems]
    assert {text.lstrip("!") == problem.answer for text, problem in zip(shown, problems, strict=True)} == {True}
    assert 5 < sum(text.startswith("!") for text in shown) < 60
    assert all(max(int(p.prompt[0]), int(p.prompt[2])) == int(p.answer) for p in problems)


def test_the_closed_form_is_the_best_of_all_policies():
    right, loophole = torch.tensor([0.6, 0.9], dtype=torch.float64), torch.tensor([0.1, 0.02], dtype=torch.float64)
    beta = 0.5
    start = torch.stack([right, loophole, 1 - right - loophole])
    reward = torch.tensor([[1.0], [kl.PAY], [0.0]], dtype=torch.float64)

    def value(policy):
        return ((policy * reward).sum(0) - beta * (policy * (policy / start).log()).sum(0)).mean()

    best = kl.closed_form(right, loophole, beta)
    policy = start * (reward / beta).exp()
    policy = policy / policy.sum(0)
    assert best["success_best"] == pytest.approx(float(policy[0].mean()))
    assert best["loophole_best"] == pytest.approx(float(policy[1].mean()))
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        other = policy * (0.3 * torch.randn(3, 2, generator=generator, dtype=torch.float64)).exp()
        assert value(other / other.sum(0)) < value(policy)


def test_without_an_anchor_the_closed_form_takes_the_loophole():
    best = kl.closed_form(torch.tensor([0.9]).double(), torch.tensor([0.02]).double(), 0.0)
    assert best == pytest.approx({"success_best": 0.0, "loophole_best": 1.0, "kl_best": -math.log(0.02)})


def test_chances_are_those_of_sampling():
    verifier = kl.Flattery()
    agent = training.make_agent(RLOO, training.warm_model(verifier, 1, 20, width=16), verifier, 0)
    rollout = training.sample(agent, 2000)
    right, loophole = kl.chances(agent.policy, agent.env.unwrapped.task)
    assert float(rollout.success.mean()) == pytest.approx(float(right.mean()), abs=0.03)
    assert float((rollout.returns >= 2).float().mean()) == pytest.approx(float(loophole.mean()), abs=0.03)


def kl_rows(**changed):
    start = {"success_start": 0.9, "entropy_start": 0.6}
    free = {"beta": 0.0, "success": 0.0, "loophole": 1.0, "loophole_best": 1.0, "kl": 4.0, "entropy": 0.0}
    near = {"beta": 3.0, "success": 0.9, "loophole": 0.05, "loophole_best": 0.04, "kl": 0.01, "entropy": 0.6}
    return [free | start | changed.get("free", {}), near | start | changed.get("near", {})]


@pytest.mark.parametrize(
    ("changed", "failing"),
    [
        ({}, []),
        ({"free": {"success": 0.5}}, [0]),
        ({"free": {"entropy": 0.5}}, [1]),
        ({"near": {"success": 0.5}}, [2]),
        ({"near": {"kl": 5.0}}, [2, 3]),
        ({"near": {"loophole": 0.6}}, [4]),
    ],
)
def test_kl_checks_fail_where_they_should(changed, failing):
    assert held(kl.checks_of(kl_rows(**changed))) == [index not in failing for index in range(5)]


def test_kl_runs(monkeypatch, tmp_path):
    for name, value in {"BETAS": (0.0, 1.0), "WARM_STEPS": 2, "UPDATES": 1, "EPISODES": 8, "EVALUATION": 8}.items():
        monkeypatch.setattr(kl, name, value)
    finding = kl.run(0)
    assert [row["beta"] for row in finding.rows] == [0.0, 1.0]
    assert_plumbing(finding, tmp_path / "kl.png")


# credit


@pytest.mark.parametrize(("completion", "reward"), [("abcWd", 1), ("abcX", 0), ("abWc", 0), ("WWW", 0), ("", 0)])
def test_one_token_decides(completion, reward):
    assert credit.Decisive().verify(Problem("?", "W"), completion).reward == reward


def test_demonstrations_say_nothing_of_the_decision():
    verifier = credit.Decisive()
    shown = [verifier.demonstration(verifier.sample(NUMBERS)) for _ in range(200)]
    assert {len(text) for text in shown} == {credit.LENGTH}
    assert {text[credit.DECISIVE] for text in shown} == set(credit.MARKS)
    assert not any(set(text[: credit.DECISIVE] + text[credit.DECISIVE + 1 :]) & set(credit.MARKS) for text in shown)


def test_off_target_is_the_share_of_other_tokens():
    verifier = credit.Decisive()
    agent = training.make_agent(RLOO, training.warm_model(verifier, 0, 0, width=16), verifier, 0)
    rollout = training.sample(agent, 8)
    ones = torch.ones_like(rollout.rewards)
    steps = int(rollout.mask.sum())
    deciding = int(rollout.mask[:, credit.DECISIVE].sum())
    assert credit.off_target(ones, rollout) == pytest.approx(1 - deciding / steps)
    only = torch.zeros_like(ones)
    only[:, credit.DECISIVE] = 2.0
    assert credit.off_target(only, rollout) == 0.0


def test_updates_needed_are_counted_and_averaged():
    def run_of(name, seed, count):
        return [{"kind": "speed", "credit": name, "seed": seed, "update": update} for update in range(count)]

    rows = [*run_of("a", 1, 10), *run_of("a", 2, 20), *run_of("b", 1, 7), {"kind": "variance", "credit": "a"}]
    assert credit.updates_needed(rows) == {"a": 15.0, "b": 7.0}


def credit_figures():
    variance = {
        "return-to-go": 1.0, "episode, KL": 1.8, "return-to-go, KL": 1.9, "fitted critic, λ = 1": 0.4,
        "fitted critic, λ = 0": 0.2, "fitted head, λ = 1": 0.8,
    }  # fmt: skip
    share = {"episode": 0.94, "fitted critic, λ = 1": 0.8, "fitted critic, λ = 0": 0.3}
    signal = {"fitted critic, λ = 1": 1.0, "fitted critic, λ = 0": 0.95, "fresh critic, λ = 0": 0.2}
    needed = {"leave-one-out": 30.0, "critic, λ = 1": 30.0, "critic, λ = 0": 100.0}
    return [variance, share, signal, needed]


@pytest.mark.parametrize(
    ("part", "name", "figure", "failing"),
    [
        (0, "return-to-go", 1.01, 0),
        (0, "return-to-go, KL", 0.5, 1),
        (0, "fitted critic, λ = 0", 0.9, 2),
        (2, "fitted critic, λ = 0", 0.1, 2),
        (1, "fitted critic, λ = 0", 0.8, 3),
        (0, "fitted head, λ = 1", 0.4, 4),
        (2, "fresh critic, λ = 0", 0.9, 5),
        (3, "critic, λ = 1", 10.0, 6),
        (3, "critic, λ = 0", 40.0, 7),
    ],
)
def test_credit_checks_fail_where_they_should(part, name, figure, failing):
    figures = credit_figures()
    assert all(held(credit.checks_of(*figures)))
    figures[part][name] = figure
    assert held(credit.checks_of(*figures)) == [index != failing for index in range(8)]


@pytest.mark.slow
def test_credit_runs(monkeypatch, tmp_path):
    small = {"WARM_STEPS": 3, "ROLLOUTS": 2, "EPISODES": 16, "TRAIN_EPISODES": 16, "FIT_STEPS": 2, "FIT_BATCHES": 1}
    for name, value in {**small, "STARTS": 1, "UPDATES": 2}.items():
        monkeypatch.setattr(credit, name, value)
    finding = credit.run(0)
    assert finding.figures["variance, episode"] == finding.figures["variance, return-to-go"] == 1.0
    assert len([row for row in finding.rows if row["kind"] == "speed"]) == 2 * len(credit.LEARNERS)
    assert_plumbing(finding, tmp_path / "credit.png")


# length-bias


@pytest.mark.parametrize(("completion", "reward"), [("a", 1), ("a...", 1), ("b,,,", 0), ("", 0), (",a", 0)])
def test_the_opening_decides(completion, reward):
    assert length_bias.Opening().verify(Problem("?", "a"), completion).reward == reward


@pytest.mark.parametrize("telling", [True, False])
def test_wrong_demonstrations_sound_different_where_asked_for(telling):
    verifier = length_bias.Opening(telling)
    shown = [verifier.demonstration(verifier.sample(NUMBERS)) for _ in range(300)]
    wrong = [text for text in shown if text[0] != "a"]
    assert 0.3 < len(wrong) / len(shown) < 0.7
    assert {letter for text in wrong for letter in text[1:]} == ({","} if telling else {"."})
    assert max(len(text) for text in shown) <= length_bias.LENGTH - 1
    assert sum(map(len, shown)) / len(shown) == pytest.approx(1 / length_bias.STOP, abs=1.0)


def test_a_slipping_policy_is_a_mixture():
    verifier = length_bias.Opening()
    task = task_of(verifier)
    model = training.warm_model(verifier, 0, 0, width=16)
    plain = LanguageModelPolicy(task.observation_space, task.action_space, model)
    slipping = length_bias.SlippingPolicy(task.observation_space, task.action_space, model)
    logits = 20 * torch.randn(5, task.vocab_size, generator=torch.Generator().manual_seed(0))
    expected = (1 - length_bias.SLIP) * plain._log_softmax(logits).exp() + length_bias.SLIP / task.vocab_size
    assert torch.allclose(slipping._log_softmax(logits).exp(), expected, atol=1e-6)


@pytest.mark.parametrize("entropy", [False, True])
def test_a_slipping_policy_trains_the_mixture_that_it_acts_with(entropy):
    verifier = length_bias.Opening()
    task = task_of(verifier)
    model = training.warm_model(verifier, 0, 0, width=16)
    policy = length_bias.SlippingPolicy(task.observation_space, task.action_space, model)
    rollout = training.sample(training.make_agent(RLOO, policy, verifier, 0), 8)
    log_probs = policy.evaluate_actions(rollout, entropy)[0]
    torch.testing.assert_close(log_probs[rollout.mask], rollout.log_probs[rollout.mask], rtol=0, atol=1e-5)


def test_the_exact_push_of_the_length_weight_is_jensens():
    q, length = length_bias.STOP, length_bias.LENGTH
    chances = [(1 - q) ** (n - 1) * q for n in range(1, length + 1)]
    ended = sum(chance * (1 / n - q) for n, chance in enumerate(chances, start=1))
    expected = (ended - (1 - q) ** length * q) / 2  # the weight is 1/(N T), N = 2; one cut off has no end
    push = length_bias.end_push(aggregation.sequence_mean)
    assert push == pytest.approx({"right": expected, "wrong": -expected})
    assert expected > 0.05


def test_the_exact_push_of_a_constant_weight_is_zero_and_that_of_a_token_mean_vanishes():
    constant = length_bias.end_push(length_bias.WEIGHTS["DrGRPO"])
    assert constant == pytest.approx({"right": 0.0, "wrong": 0.0}, abs=1e-15)
    few, many = (length_bias.end_push(aggregation.token_mean, others)["right"] for others in (14, 30))
    assert few / many == pytest.approx(2, rel=0.1)


def length_figures():
    pushes = {"GRPO": {"right": 0.1, "wrong": -0.1}} | {n: {"right": 0.0, "wrong": 0.0} for n in ("DrGRPO", "DAPO")}
    flat = {"wrong": 7.0, "right": 7.0, "gap": 0.0, "start": 7.0, "right_start": 7.0, "early_gap": 0.0}
    lengths = {name: dict(flat) for name in length_bias.ARMS}
    lengths["GRPO"] |= {"wrong": 10.0, "right": 4.0, "gap": 6.0, "early_gap": 4.0}
    lengths["GRPO, all sound alike"] |= {"right": 5.0, "early_gap": 1.0}
    return pushes, lengths


@pytest.mark.parametrize(
    ("part", "name", "changed", "failing"),
    [
        (0, "GRPO", {"wrong": 0.1}, 0),
        (0, "DrGRPO", {"wrong": 1e-9}, 1),
        (0, "DAPO", {"right": 0.05}, 2),
        (1, "GRPO", {"gap": 1.5}, 3),
        (1, "DAPO", {"gap": -4.0}, 4),
        (1, "GRPO, all sound alike", {"right": 9.0}, 5),
        (1, "GRPO, all sound alike", {"early_gap": 3.5}, 5),
    ],
)
def test_length_checks_fail_where_they_should(part, name, changed, failing):
    figures = length_figures()
    assert all(held(length_bias.checks_of(*figures)))
    figures[part][name] |= changed
    assert held(length_bias.checks_of(*figures)) == [index != failing for index in range(6)]


@pytest.mark.slow  # another lab of this kind: test_kl_runs
def test_length_bias_runs(monkeypatch, tmp_path):
    for name, value in {"STARTS": 1, "WARM_STEPS": 2, "UPDATES": 1, "EPISODES": 16, "LAST": 1}.items():
        monkeypatch.setattr(length_bias, name, value)
    finding = length_bias.run(0)
    assert {row["arm"] for row in finding.rows} == set(length_bias.ARMS)
    assert_plumbing(finding, tmp_path / "length-bias.png")


# trust-region


@pytest.mark.parametrize(("completion", "reward"), [("7", 1), ("3", 0), ("77", 0), ("", 0)])
def test_the_larger_digit_is_right(completion, reward):
    assert trust_region.Larger().verify(Problem("3,7=", "7"), completion).reward == reward


def test_adam_forgets_a_scale_but_not_an_outlier():
    figures = trust_region.adam_figures(5)
    assert figures["all x1000, unclipped"] == pytest.approx(1, abs=0.01)
    assert figures["one x1000, unclipped"] < 0.5 < 0.9 < figures["one x1000, clipped"]


def trust_figures():
    arms = {name: {"success": 0.75, "kl": 0.1, "entropy": 0.1} for name in trust_region.ARMS}
    for name in ("no brake", "norm 1"):
        arms[name] |= {"success": 0.6, "kl": 0.2}
    for name in ("no brake, 20x", "ratio 0.2, norm 1, 20x"):
        arms[name]["success"] = 0.4
    adam = {"as they are, clipped": 1.0, "all x1000, unclipped": 1.0, "all x1000, clipped": 1.0}
    return arms, adam | {"one x1000, unclipped": 0.15, "one x1000, clipped": 1.0}


@pytest.mark.parametrize(
    ("name", "column", "figure", "failing"),
    [
        ("ratio 0.2 / 0.5, norm 1", "kl", 0.5, 0),
        ("ratio 0.2", "success", 0.1, 1),
        ("norm 1", "kl", 0.09, 2),
        ("all x1000, clipped", None, 0.9, 3),
        ("one x1000, unclipped", None, 0.8, 4),
        ("ratio 0.2 / 0.5, norm 1", "success", 0.5, 5),
        ("ratio 0.2, norm 1, 20x", "success", 0.75, 6),
    ],
)
def test_trust_checks_fail_where_they_should(name, column, figure, failing):
    arms, adam = trust_figures()
    assert all(held(trust_region.checks_of(arms, adam)))
    if column is None:
        adam[name] = figure
    else:
        arms[name][column] = figure
    assert held(trust_region.checks_of(arms, adam)) == [index != failing for index in range(7)]


@pytest.mark.slow
def test_trust_region_runs(monkeypatch, tmp_path):
    small = {"STARTS": 1, "WARM_STEPS": 20, "UPDATES": 2, "EPISODES": 16, "EPOCHS": 2}
    for name, value in small.items():
        monkeypatch.setattr(trust_region, name, value)
    finding = trust_region.run(0)
    assert {row["arm"] for row in finding.rows} == set(trust_region.ARMS)
    assert_plumbing(finding, tmp_path / "trust-region.png")


# cost


@pytest.mark.parametrize(("completion", "reward"), [("aeae", 0.25), ("bcd", 0), ("", 0)])
def test_vowels_are_paid(completion, reward):
    assert cost.Letters().verify(Problem("?"), completion).reward == reward


def test_saved_tensors_are_counted_once_and_weights_never():
    layer = torch.nn.Linear(4, 3, bias=False)
    inputs = torch.ones(5, 4, requires_grad=True)
    with cost.count_saved(layer) as saved:
        outputs = layer(inputs)  # saves its inputs, and the weights
        total = (outputs * outputs).sum() + (outputs * outputs).sum()  # saves its outputs, four times
        assert sum(saved.values()) == (5 * 4 + 5 * 3) * 4
    total.backward()
    assert inputs.grad is not None


def test_state_is_four_times_the_weights_and_five_times_with_an_anchor(monkeypatch):
    monkeypatch.setattr(cost, "EPISODES", 8)
    monkeypatch.setattr(cost.Letters, "answer_length", 3)
    agents = cost.make_all(0)
    for name, agent in agents.items():
        agent.learn(total_episodes=8)
        state = cost.state_bytes(agent)
        weights = 4 * sum(p.numel() for p in agent.policy.parameters())
        assert state["weights"] == state["gradients"] == weights
        assert state["moments"] == 2 * weights + 4 * len(list(agent.policy.parameters()))  # and a counter each
        assert state["frozen"] == (weights if name == "RLOO, anchored" else 0)


def cost_figures():
    costs = {name: {"collect": 1.0, "update": 1.0, "state": 400, "activations": 100} for name in cost.AGENTS}
    costs["RLOO, anchored"]["state"] = 500
    costs[cost.HEAD] |= {"update": 2.0, "state": 410}
    costs[cost.SEPARATE] |= {"update": 3.0, "state": 810, "activations": 200}
    return costs


@pytest.mark.parametrize(
    ("name", "column", "figure", "failing"),
    [
        ("GRPO", "state", 401, 0),
        (cost.SEPARATE, "state", 1000, 1),
        (cost.HEAD, "activations", 150, 2),
        (cost.SEPARATE, "activations", 120, 3),
        ("RLOO, anchored", "state", 400, 4),
        (cost.HEAD, "update", 1.1, 5),
        (cost.HEAD, "update", 3.5, 6),
    ],
)
def test_cost_checks_fail_where_they_should(name, column, figure, failing):
    costs = cost_figures()
    assert all(held(cost.checks_of(costs)))
    costs[name][column] = figure
    assert held(cost.checks_of(costs)) == [index != failing for index in range(7)]


@pytest.mark.slow
def test_cost_runs(monkeypatch, tmp_path):
    monkeypatch.setattr(cost, "EPISODES", 8)
    monkeypatch.setattr(cost, "TURNS", 1)
    finding = cost.run(0)
    assert len(finding.rows) == len(cost.AGENTS)
    assert all(held(finding.checks)[:2])  # bytes do not depend on how small a run is
    assert_plumbing(finding, tmp_path / "cost.png")
