"""Each lab once, small; those without training hold, and one that does not is exit code 1."""

import json

import pytest
import torch
from _rlenv_labs import LABS, bandit, baselines, credit, find_lab, kl, length_bias, pass_at_k, snr, trust_region
from _rlenv_labs.training import make_agent, small_model, train, warm_model
from _rlenv_scripts.main import main
from click.testing import CliRunner

from agents import DAPO, LanguageModelPolicy
from agents.estimators import aggregation, losses
from rlenv.envs.task import TextGenTask
from verifiers import Problem, Verdict

TINY = {"WARM_STEPS": 2, "STARTS": 1, "UPDATES": 2, "EPISODES": 8}
SMALL = {
    "snr": (snr, {"REPLICATIONS": 500, "SIZES": (1, 2, 8, 32)}),
    "baselines": (baselines, {"RATES": (0.1, 0.3, 0.9), "SIZES": (2, 4), "SHOWN": 4}),
    "bandit": (bandit, {"RUNS": 2, "MOST_UPDATES": 5}),
    "kl": (kl, TINY | {"BETAS": (0.0, 1.0), "EVALUATION": 8}),
    "credit": (
        credit, TINY | {"EPISODES": 16, "TRAIN_EPISODES": 16, "ROLLOUTS": 2, "FIT_STEPS": 2, "FIT_BATCHES": 1},
    ),
    "length-bias": (length_bias, TINY | {"EPISODES": 32, "LAST": 1}),
    "trust-region": (trust_region, TINY | {"EPISODES": 16}),
    "pass-at-k": (pass_at_k, {"STEPS": 1000}),
}  # fmt: skip
EXACT = ("snr", "baselines", "pass-at-k")  # hold at this size, too


@pytest.mark.parametrize("name", LABS)
def test_a_lab_runs_and_its_files_are_written(name, monkeypatch, tmp_path):
    module, sizes = SMALL[name]
    for constant, value in sizes.items():
        monkeypatch.setattr(module, constant, value)
    outcome = CliRunner().invoke(main, ["lab", name, "--out", str(tmp_path), "--json"])
    assert outcome.exit_code in (0, 1) and (outcome.exit_code == 0 or name not in EXACT), outcome.output
    result = json.loads(outcome.stdout.splitlines()[-1])
    assert result == json.loads((tmp_path / f"{name}.json").read_text()) and result["held"] is (outcome.exit_code == 0)
    assert all(isinstance(check["held"], bool) for check in result["checks"])
    assert len((tmp_path / f"{name}.csv").read_text().splitlines()) > 2
    assert (tmp_path / f"{name}.png").stat().st_size > 5000


def test_bandit_sees_what_a_baseline_does():
    checks = bandit.push_checks({name: bandit.single_samples(name) for name in (bandit.PLAIN, bandit.RUNNING)})
    assert all(check.held for check in checks)
    alike = bandit.push_checks(dict.fromkeys((bandit.PLAIN, bandit.RUNNING), bandit.single_samples(bandit.PLAIN)))
    assert [check.held for check in alike] == [True, True, False, False, False]


def test_snr_sees_a_loss_that_is_scaled(monkeypatch):
    for constant, value in SMALL["snr"][1].items():
        monkeypatch.setattr(snr, constant, value)
    plain = losses.policy_gradient
    monkeypatch.setattr(losses, "policy_gradient", lambda *given, **more: 1.1 * plain(*given, **more))
    assert [check.held for check in snr.run(0).checks[:2]] == [False, False]


def test_baselines_sees_a_theory_that_is_off(monkeypatch):
    theory = baselines.theory
    monkeypatch.setattr(baselines, "theory", lambda *given: 1.001 * theory(*given))
    rows = [row for name in ("none", "leave-one-out") for row in baselines.rows_of(name, 2)]
    assert [check.held for check in baselines.theory_checks(rows)] == [False, True, True]


def test_the_gradients_of_pass_at_k_are_those_of_the_objectives_anywhere(monkeypatch):
    monkeypatch.setattr(pass_at_k, "START", torch.tensor([0.05, 0.6, 0.35], dtype=torch.float64))
    gaps = pass_at_k.objective_gaps()
    assert list(gaps) == ["RLOO", "MaxRL", "PKPO, k = 8"] and max(gaps.values()) < 1e-10


@pytest.mark.parametrize(
    ("verifier", "right", "wrong"),
    [
        (kl.Flattery(), "7", "3"), (credit.Decisive(), "abcWd", "abWcd"), (length_bias.Opening(), "a...", "b,,,"),
        (trust_region.Larger(), "7", ""),
    ],
)  # fmt: skip
def test_the_judges_of_the_labs_know_right_from_wrong(verifier, right, wrong):
    problem = Problem("3,7=", {"Decisive": "W", "Opening": "a"}.get(type(verifier).__name__, "7"))
    verdicts = [verifier.verify(problem, text) for text in (right, wrong)]
    assert [verifier.is_success(verdict) for verdict in verdicts] == [True, False]
    assert [verdict.reward for verdict in verdicts] == [1, 0]


def test_the_loophole_pays_more_and_is_no_success():
    verdict = kl.Flattery().verify(Problem("3,7=", "7"), "!7")
    assert verdict.reward == 2 and not kl.Flattery().is_success(verdict)


def test_the_closed_form_of_the_anchor_is_the_best_of_all_policies():
    right, loophole = torch.tensor([0.6, 0.9], dtype=torch.float64), torch.tensor([0.1, 0.02], dtype=torch.float64)
    start, pay = torch.stack([right, loophole, 1 - right - loophole]), torch.tensor([[1.0], [kl.PAY], [0.0]]).double()
    policy = (start.log() + pay / 0.5).softmax(0)
    assert kl.closed_form(right, loophole, 0.5)["success_best"] == pytest.approx(float(policy[0].mean()))
    assert kl.closed_form(right, loophole, 0.0)["loophole_best"] == 1


def test_the_exact_push_of_the_length_weight_is_jensens():
    q, length = length_bias.STOP, length_bias.LENGTH
    ended = sum((1 - q) ** (n - 1) * q * (1 / n - q) for n in range(1, length + 1))
    expected = (ended - (1 - q) ** length * q) / 2  # the weight is 1/(N T), N = 2; one cut off has no end
    push = length_bias.end_push(aggregation.sequence_mean)
    assert push == pytest.approx({"right": expected, "wrong": -expected}) and expected > 0.05


def test_a_slipping_policy_is_a_mixture_in_acting_and_training():
    verifier = length_bias.Opening()
    task = TextGenTask(verifier, test_fraction=0.0)
    model = small_model(task, 0, width=16)
    plain, slipping = (
        cls(task.observation_space, task.action_space, model)
        for cls in (LanguageModelPolicy, length_bias.SlippingPolicy)
    )
    logits = 20 * torch.randn(5, task.vocab_size, generator=torch.Generator().manual_seed(0))
    expected = (1 - length_bias.SLIP) * plain._log_softmax(logits).exp() + length_bias.SLIP / task.vocab_size
    torch.testing.assert_close(slipping._log_softmax(logits).exp(), expected, rtol=0, atol=1e-6)
    agent = make_agent(DAPO, slipping, verifier, 0)
    rollout = agent.collector.collect(agent.policy, 8, agent.generator)
    log_probs = agent.policy.evaluate_actions(rollout, entropy=False)[0]
    torch.testing.assert_close(log_probs[rollout.mask], rollout.log_probs[rollout.mask], rtol=0, atol=1e-5)


class Generous(trust_region.Larger):
    """Pays for every answer alike, so that no group has a gradient."""

    def verify(self, problem, completion):
        return Verdict(1.0)


def test_training_counts_updates_however_many_rounds_of_episodes_they_take():
    agent = make_agent(DAPO, warm_model(Generous(), 0, 0, width=16), Generous(), 0, episodes_per_update=16)
    updates = list(train(agent, 3))
    assert [len(rollout) for rollout, _ in updates] == [agent.max_rounds * 16] * 3 and agent.max_rounds > 1


def test_an_unknown_lab_is_refused_with_the_closest_name():
    with pytest.raises(ValueError, match="did you mean 'bandit'"):
        find_lab("bandi")
