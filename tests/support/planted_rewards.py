"""Reward functions with a fault each, for the runs that the doctor must name."""

import zlib


def constant(prompts, completions, **columns):
    """Pay every completion the same."""
    return [0.5] * len(completions)


def longer(prompts, completions, **columns):
    """Pay for length."""
    return [float(len(text)) for text in completions]


def shorter(prompts, completions, **columns):
    """Pay for the empty answer."""
    return [-float(len(text)) for text in completions]


def nines(prompts, completions, **columns):
    """Pay for each digit 9, whatever the question."""
    return [float(text.count("9")) for text in completions]


def padded(prompts, completions, completion_ids, **columns):
    """Pay for the padding token."""
    return [float(ids.count(0)) for ids in completion_ids]


def shaky(prompts, completions, **columns):
    """Fail on one completion in twenty."""
    return [
        float("nan") if zlib.crc32((p + c).encode()) % 20 == 0 else 1.0
        for p, c in zip(prompts, completions, strict=True)
    ]


def broken(prompts, completions, **columns):
    """Fail always."""
    raise RuntimeError("the reward model is not loaded")
