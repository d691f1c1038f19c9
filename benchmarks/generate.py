"""32 sampled tokens per row: ours through `reset` and `step`, against Hugging Face's `generate` with its cache."""

from __future__ import annotations

import torch

from agents import LanguageModelPolicy
from agents.rollouts.collector import Collector

from .floors import acting_floor
from .measure import Row, alternate, clock
from .worlds import endless_model, letter_envs, letter_prompts

PROMPT, TOKENS = 8, 32
REPEATS = {1: 8, 64: 4, 256: 2}  # batch size: rollouts of one measurement


def run(name: str, pairs: int) -> list[Row]:
    """Return a row for each batch size."""
    return [_compare(batch, repeats, pairs) for batch, repeats in REPEATS.items()]


def _compare(batch: int, repeats: int, pairs: int) -> Row:
    envs = letter_envs(batch, letter_prompts(batch, PROMPT), TOKENS)
    task = envs.task
    model = endless_model(task.vocab_size, task.max_length, task.eos_token_id)
    policy = LanguageModelPolicy(envs.single_observation_space, envs.single_action_space, model)
    collector, generator = Collector(envs, torch.device("cpu")), torch.Generator().manual_seed(0)
    prompts = torch.tensor([task.stream[i].prompt and task.encode([task.stream[i].prompt])[0] for i in range(batch)])

    def ours() -> float:
        with clock() as seconds:
            for _ in range(repeats):
                rollout = collector.collect(policy, batch, generator)
        assert rollout is not None and bool((rollout.lengths == TOKENS).all())
        return repeats * batch * TOKENS / seconds()

    def peer() -> float:
        with clock() as seconds, torch.no_grad():
            for _ in range(repeats):
                made = model.generate(
                    prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=TOKENS, do_sample=True, top_k=0,
                    pad_token_id=task.pad_token_id, eos_token_id=task.eos_token_id,
                )  # fmt: skip
        assert made.shape[1] == PROMPT + TOKENS
        return repeats * batch * TOKENS / seconds()

    taken = alternate(ours, peer, pairs)
    rollout = collector.collect(policy, batch, generator)
    assert rollout is not None
    ids = torch.cat([rollout.observations["tokens"][:, :PROMPT], rollout.actions], 1)  # type: ignore[index]
    with torch.no_grad():
        log_probs = model(ids).logits[:, PROMPT - 1 : -1].log_softmax(-1).gather(2, rollout.actions[..., None])[..., 0]
    gap = float((log_probs - rollout.log_probs).abs().max())
    quality = f"log-probabilities are those of the model's forward pass to {gap:.1g}"
    floor = acting_floor(model, batch, PROMPT, TOKENS)
    return Row.of(f"batch {batch}", *taken, "tokens/s", quality, less_is_better=False, floor=floor)
