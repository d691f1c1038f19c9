"""On the same completions, our gradient is TRL's.

TRL's own trainers run their own `train()`: sampler, rewards to advantages, loss, gradient accumulation. Only
generation is replaced: it returns the completions of a rollout of ours. The gradient is read just before the optimizer
takes it, twice: the second time is a second iteration over the same completions, when the policy is no longer the one
that sampled them and ratios are clipped. Of RLOO only the first is compared: TRL's has the clipped ratio of the whole
sequence, ours has none, and the two gradients are the same where that ratio is 1.

In single precision TRL is as it comes. In double precision, where the two should agree to the last digits, torch's
functions take the place of TRL's kernel for log-probabilities, which computes in float32 whatever the weights are, and
new tensors are in double precision, without which TRL's standard deviation is multiplied by sqrt(K/(K-1)) in float32.
"""

import copy
import itertools
import math
import random
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from identity_checks import collect
from tabular import relative_error
from tiny_models import text_envs, tiny_policy
from transformers import TrainerCallback

from rlenv.agents import CISPO, DAPO, GMPO, GRPO, GSPO, LUSPO, RLOO, SAPO, VESPO, DrGRPO, LanguageModelPolicy, Rollout
from rlenv.agents.estimators.mismatch import MODES

trl = pytest.importorskip("trl", reason="the extra 'peers' is not installed (make test-peers)")
with pytest.MonkeyPatch.context() as patched:
    patched.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    gmpo = pytest.importorskip("trl.experimental.gmpo")
datasets = pytest.importorskip("datasets")  # comes with it

# TRL reads a name that transformers is about to take away.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")

K, GROUPS, LONGEST, TEMPERATURE = 4, 3, 12, 0.7
REWARDS = [[0.0, 0.5, 1.0, 0.5], [1.0, 0.0, 0.0, 0.0], [0.5, 1.0, 0.5, 0.5]]  # [GROUPS, K], exact in float32

GROUP = {"loss_type": "grpo", "scale_rewards": "group", "learning_rate": 0.05}
TOKEN = {"loss_type": "dapo", "scale_rewards": "group", "epsilon_high": 0.28, "learning_rate": 0.05}
SEQUENCE = {**GROUP, "importance_sampling_level": "sequence", "epsilon": 0.03, "epsilon_high": 0.04}
LOG_SPACE = {"epsilon": -math.log(0.9), "epsilon_high": math.log(1.1)}
GATES = {**GROUP, "loss_type": "sapo", "sapo_temperature_pos": 2.0, "sapo_temperature_neg": 5.0}
LOSSES = {  # our class and settings; TRL's, and a learning rate with which ratios are clipped
    "rloo": (RLOO, {}, {"normalize_advantages": False, "learning_rate": 0.05}),
    "grpo": (GRPO, {}, GROUP),
    "grpo, batch": (GRPO, {"scale": "batch"}, {**GROUP, "scale_rewards": "batch"}),
    "grpo, bounded": (GRPO, {"max_ratio": 1.25}, {**GROUP, "delta": 1.25}),
    "dr_grpo": (DrGRPO, {}, {"loss_type": "dr_grpo", "scale_rewards": "none", "learning_rate": 0.3}),
    "dapo": (DAPO, {}, TOKEN),
    "dapo, masked": (DAPO, {"mask_truncated": True}, {**TOKEN, "mask_truncated_completions": True}),
    "gspo": (GSPO, {"clip_range": 0.03, "clip_range_high": 0.04}, SEQUENCE),
    "luspo": (LUSPO, {"clip_range": 0.03, "clip_range_high": 0.04}, {**SEQUENCE, "loss_type": "luspo"}),
    "gmpo": (GMPO, {"clip_range": 0.1, "clip_range_high": 0.1}, {**GROUP, **LOG_SPACE}),
    "vespo": (VESPO, {}, {**GROUP, "loss_type": "vespo"}),
    "cispo": (CISPO, {"max_ratio": 1.1}, {**GROUP, "loss_type": "cispo", "epsilon_high": 1.1}),
    "sapo": (SAPO, {"gate_temperature": 2.0, "gate_temperature_negative": 5.0}, GATES),
    "grpo, off-policy": (GRPO, {"off_policy_mask": 0.005}, {**GROUP, "off_policy_mask_threshold": 0.005}),
}
MODELS = [("llama", "float32", 1e-5), ("gpt2", "float32", 1e-5), ("gpt2", "float64", 1e-12)]


class Recorder(TrainerCallback):
    """Keeps the weights and the gradient that TRL had whenever its optimizer was about to step."""

    def __init__(self):
        self.steps, self.logs = [], {}

    def on_pre_optimizer_step(self, args, state, control, model, **rest):
        self.steps.append((copy.deepcopy(model.state_dict()), flat_gradient(model)))

    def on_log(self, args, state, control, logs, **rest):
        self.logs |= logs


class SameCompletions:
    """Mixed into a trainer of TRL: what it "generates" are the completions of `rollout`."""

    rollout: Rollout

    def _generate_single_turn(self, prompt_ids, *rest):
        assert prompt_ids == prompts_of(self.rollout)
        completions = completions_of(self.rollout)
        return completions if isinstance(self, trl.RLOOTrainer) else (completions, self.said())

    def said(self):
        """Return the log-probabilities while acting, as vLLM says them to TRL; None without a mismatch."""
        if not self.use_vllm:
            return None
        return [row[:n].tolist() for row, n in zip(self.rollout.log_probs, self.rollout.lengths, strict=True)]


class RLOOPeer(SameCompletions, trl.RLOOTrainer): ...


class GRPOPeer(SameCompletions, trl.GRPOTrainer): ...


class GMPOPeer(SameCompletions, gmpo.GMPOTrainer): ...


PEERS = {"rloo": (RLOOPeer, trl.RLOOConfig), "gmpo": (GMPOPeer, gmpo.GMPOConfig)}


class TorchLogProbs:
    """Takes the place of TRL's kernel, with its signature."""

    @staticmethod
    def apply(hidden, weight, bias, targets, temperature, *rest):
        law = torch.log_softmax(torch.nn.functional.linear(hidden, weight, bias) / temperature, -1)
        entropy = -(law.exp() * law).sum(-1)
        return law.gather(1, targets[:, None])[:, 0], entropy, None, None, None


@dataclass
class Match:
    """A rollout that both sides have seen: the means to make our gradient of it, and what TRL made of it."""

    policy: LanguageModelPolicy
    envs: object
    rollout: Rollout
    peer: Recorder

    def error(self, cls, step, **settings):
        """Return the relative error of our gradient with the weights that TRL had at this step."""
        self.policy.model.load_state_dict(self.peer.steps[0][0])
        agent = cls(self.policy, self.envs, episodes_per_update=len(self.rollout), device="cpu", **settings)
        agent.anchor.freeze_reference(self.policy)
        prepared = agent.prepare(self.rollout)
        weights, gradient = self.peer.steps[step]
        self.policy.model.load_state_dict(weights)
        self.policy.zero_grad()
        agent.loss(prepared)[0].backward()
        return relative_error(flat_gradient(self.policy.model), gradient)


def flat_gradient(model):
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def prompts_of(rollout):
    tokens, lengths = rollout.observations["tokens"], rollout.observations["length"]
    return [row[:length].tolist() for row, length in zip(tokens, lengths, strict=True)]


def completions_of(rollout):
    return [row[:length].tolist() for row, length in zip(rollout.actions, rollout.lengths, strict=True)]


def switch_dropout_off(model):
    """TRL trains in training mode; its `disable_dropout` misses attention's, which is no module."""
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.0


def count_positions_from_the_prompt(model):
    """Give GPT-2 the positions of the tokens of left-padded prompts.

    TRL gives none, so that absolute positions count the padding: its gradient of an episode then depends on the longest
    prompt beside it. A Llama's positions are relative and need no help.
    """

    def give_positions(module, args, kwargs):
        return args, kwargs | {"position_ids": (kwargs["attention_mask"].cumsum(1) - 1).clamp(min=0)}

    model.base_model.register_forward_pre_hook(give_positions, with_kwargs=True)


def sample(envs, policy):
    """Return episodes of unequal length after prompts of unequal length, some cut off, with `REWARDS`.

    TRL counts an episode whose last token happens to be the padding token as finished: such episodes are not cut off.
    """
    padding = envs.task.encoding.tokenizer.pad_token_id

    def fits(rollout):
        last = torch.tensor([row[-1] for row in completions_of(rollout)])
        unlike = rollout.truncated.any() and not (rollout.truncated & (last == padding)).any()
        return unlike and rollout.lengths.unique().numel() > 4

    rollout = next(filter(fits, (collect(policy, envs, K * GROUPS, seed=seed) for seed in range(1, 50))))
    assert rollout.groups.tolist() == [group for group in range(GROUPS) for _ in range(K)]
    assert rollout.observations["length"].unique().numel() == GROUPS
    assert not rollout.truncated.all()
    last = torch.arange(rollout.mask.shape[1]) == rollout.lengths[:, None] - 1  # [N, T]
    return replace(rollout, rewards=torch.tensor(REWARDS, dtype=policy.model.dtype).reshape(-1, 1) * last)


def train_peer(loss, policy, rollout, tokenizer, micro_batches, folder, correction=None, beta=0.0):
    """Let TRL train a copy of the policy's model on a rollout; return what it recorded."""
    trainer_class, config_class = PEERS.get(loss, (GRPOPeer, trl.GRPOConfig))
    iterations = 1 if loss == "rloo" else 2

    def verdicts(completion_ids, **rest):
        assert completion_ids == completions_of(rollout)
        return rollout.returns.tolist()

    config = config_class(
        output_dir=str(folder), use_cpu=True, bf16=False, activation_checkpointing=False, dataloader_pin_memory=False,
        report_to="none", disable_tqdm=True, save_strategy="no", logging_strategy="no", shuffle_dataset=False,
        num_generations=K, max_completion_length=LONGEST, temperature=TEMPERATURE, beta=0.0,
        num_iterations=iterations, max_steps=iterations, gradient_accumulation_steps=micro_batches,
        per_device_train_batch_size=len(rollout) // micro_batches, optim="sgd", lr_scheduler_type="constant",
        max_grad_norm=0.0, **{"epsilon": 0.2, **LOSSES[loss][2], **(correction or {})},
    )  # fmt: skip
    model = copy.deepcopy(policy.model)
    if model.config.model_type == "gpt2":
        count_positions_from_the_prompt(model)
    texts = [tokenizer.decode(prompt) for prompt in prompts_of(rollout)[::K]]
    recorder = Recorder()
    trainer = trainer_class(
        model=model,
        reward_funcs=verdicts,
        args=config,
        train_dataset=datasets.Dataset.from_dict({"prompt": texts}),
        processing_class=copy.deepcopy(tokenizer),
        callbacks=[recorder],
    )
    trainer.rollout = rollout
    if beta:  # TRL would load the reference from a folder
        trainer.beta, trainer.ref_model = beta, copy.deepcopy(trainer.model).eval()
    trainer.use_vllm = correction is not None and "vllm_importance_sampling_mode" in correction
    trainer.train()
    assert len(recorder.steps) == iterations
    return recorder


@pytest.fixture
def match(tmp_path, monkeypatch):
    """Return a function that makes a `Match`. TRL seeds every global generator there is; they are put back."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002

    def make(loss, kind="llama", dtype="float32", micro_batches=1, noise=0.0, **more):
        envs = text_envs(group_size=K, max_new_tokens=LONGEST)
        policy = tiny_policy(kind, envs, TEMPERATURE, dtype)
        switch_dropout_off(policy.model)
        rollout = sample(envs, policy)
        if noise:
            said = noise * torch.randn(rollout.mask.shape, generator=torch.Generator().manual_seed(3))
            rollout = replace(rollout, log_probs=rollout.log_probs + said.to(rollout.log_probs))
        if dtype == "float64":
            monkeypatch.setattr("trl.trainer.utils._ChunkedLogProbFunction", TorchLogProbs)
            torch.set_default_dtype(torch.float64)
        peer = train_peer(loss, policy, rollout, envs.task.encoding.tokenizer, micro_batches, tmp_path, **more)
        torch.set_default_dtype(torch.float32)
        return Match(policy, envs, rollout, peer)

    yield make
    torch.set_default_dtype(torch.float32)
    random.setstate(states[0])
    np.random.set_state(states[1])  # noqa: NPY002
    torch.set_rng_state(states[2])


@pytest.mark.parametrize("micro_batches", [1, 3])  # TRL shuffles the rows over them, groups mixed
@pytest.mark.parametrize(("kind", "dtype", "tolerance"), MODELS)
@pytest.mark.parametrize("loss", LOSSES)
def test_our_gradient_is_trls(match, loss, kind, dtype, tolerance, micro_batches):
    seen = match(loss, kind, dtype, micro_batches)
    if loss == "cispo":
        assert seen.peer.logs["cispo_clip_ratio"] > 0
    elif loss not in ("rloo", "sapo", "vespo"):
        assert seen.peer.logs["clip_ratio/low_mean"] > 0 and seen.peer.logs["clip_ratio/high_mean"] > 0
    cls, settings, _ = LOSSES[loss]
    for step in range(len(seen.peer.steps)):
        assert seen.error(cls, step, **settings) <= tolerance


@pytest.mark.parametrize(
    ("loss", "mode"),
    [*itertools.product(["grpo", "sapo"], MODES), ("vespo", "token-truncate"), ("vespo", "token-mask")],
)
def test_our_weights_of_what_another_policy_sampled_are_trls(match, loss, mode):
    """Acting said other log-probabilities than a training pass; TRL's weight for vLLM is that of the same name."""
    theirs = {
        "vllm_importance_sampling_mode": mode.replace("-", "_"),
        "vllm_importance_sampling_clip_min": 0.7,
        "vllm_importance_sampling_clip_max": 1.4,
    }
    seen = match(loss, "gpt2", "float64", noise=0.2, correction=theirs)
    cls, settings, _ = LOSSES[loss]
    ours = {"mismatch": mode, "mismatch_min": 0.7, "mismatch_max": 1.4}
    for step in (0, 1):
        assert seen.error(cls, step, **settings, **ours) <= 1e-12
        assert seen.error(cls, step, **settings) > 1e-3


@pytest.mark.parametrize(("theirs", "ours"), [(True, "differentiated"), (False, "none")])
def test_our_kl_in_the_loss_is_trls_with_and_without_a_ratio(match, theirs, ours):
    """The reference of both is the model before training, so the first step's KL is 0."""
    seen = match("grpo", "gpt2", "float64", correction={"use_bias_correction_kl": theirs}, beta=0.3)
    settings = {"kl_coef": 0.3, "kl_estimator": "k3", "kl_in": "loss", "kl_ratio": ours}
    assert seen.error(GRPO, 1, **settings) <= 1e-12
    assert seen.error(GRPO, 1) > 1e-3
