"""From the tokens of finished episodes to verdicts: decode, verify, check what came back."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from verifiers import Problem, Verdict, Verifier


def judge(
    verifier: Verifier,
    tokenizer: PreTrainedTokenizerBase,
    problems: Sequence[Problem],
    completions: Sequence[Sequence[int]],
) -> tuple[list[str], list[Verdict]]:
    """Decode the completions and have them judged in one batch.

    Special tokens inside a completion are decoded as their text: they are part of what the model said.

    Args:
        verifier: the judge.
        tokenizer: turns tokens into text.
        problems: the problem of each episode.
        completions: the token ids of each completion, without the token that ended it.

    Returns:
        The texts and their verdicts, in order.

    Raises:
        ValueError: if the verifier returns another number of verdicts, or something else than verdicts.
    """
    texts = _decode(tokenizer, [list(tokens) for tokens in completions])
    verdicts = list(verifier.verify_batch(problems, texts))
    if len(verdicts) != len(texts) or not all(isinstance(verdict, Verdict) for verdict in verdicts):
        raise ValueError(f"{type(verifier).__name__}.verify_batch must return {len(texts)} verdicts, got {verdicts!r}")
    return texts, verdicts


def _decode(tokenizer: PreTrainedTokenizerBase, completions: list[list[int]]) -> list[str]:
    if tokenizer.is_fast:  # what batch_decode comes to, without its look at every token's type
        return tokenizer.backend_tokenizer.decode_batch(completions, skip_special_tokens=False)
    return tokenizer.batch_decode(completions, skip_special_tokens=False, clean_up_tokenization_spaces=False)
