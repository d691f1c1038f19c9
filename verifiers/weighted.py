"""weighted: the sum of several verifiers' rewards, each with a weight, each logged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .base import MAX_REWARD, Problem, Verdict, Verifier, checked
from .isolation import isolate
from .posed import Posed
from .registry import make_verifier, register_verifier

FAILURES = ("error", "timeout")


@register_verifier("weighted")
class Weighted(Posed):
    """Several verifiers of the same completion; the reward is Σ weight · reward.

    The first part that makes problems poses them and gives the demonstrations; without one the problems come from
    elsewhere. A completion is a success where every part with a positive weight counts it as one. A part that fails
    makes the whole verdict a failure, as does a sum beyond float32; a part that is not applicable adds
    nothing. Parts that want worker processes get them. Prompts: those of the part that poses them. Alphabet: those of
    the parts that name one, together. What it does not catch: what none of its parts does; a part with a small weight
    still earns where the answer is wrong.

    Args:
        parts: name to weight, or to a mapping with `weight`, maybe `verifier` (where the name is not the verifier's)
            and the verifier's own arguments: {"arith": 1, "length": {"weight": 0.1, "maximum": 3}}.

    Raises:
        ValueError: for no parts, a weight that is no number, weights whose sum is beyond float32, an unknown
            verifier, or arguments that it does not take.
    """

    def __init__(self, parts: Mapping[str, float | Mapping[str, Any]]) -> None:
        if not isinstance(parts, Mapping) or not parts:
            raise ValueError(f"weighted: parts maps names to weights, as in {{'arith': 1}}; got {parts!r}")
        self.parts: dict[str, Verifier] = {}
        self.weights: dict[str, float] = {}
        for name, given in parts.items():
            settings: dict[str, Any] = dict(given) if isinstance(given, Mapping) else {"weight": given}
            weight = settings.pop("weight", None)
            self.weights[name] = _weight(name, weight)
            self.parts[name] = isolate(make_verifier(settings.pop("verifier", name), **settings))
        members = list(self.parts.values())
        self.poser = next((part for part in members if part.makes_problems), members[0])
        named = [part.alphabet for part in members if part.alphabet != Verifier.alphabet]  # the others take any text
        self.alphabet = "".join(dict.fromkeys("".join(named))) or Verifier.alphabet
        self.prompt_length, self.answer_length = self.poser.prompt_length, self.poser.answer_length
        self.levels = self.poser.levels
        self.prefers_batches = any(part.prefers_batches for part in members)
        self.slow = any(part.slow or part.isolated for part in members)
        weighed = [(weight, self.parts[name]) for name, weight in self.weights.items() if weight]
        self.reward_range = _range(weighed)
        self.success_reward = sum(weight * part.success_reward for weight, part in weighed if weight > 0)

    def verify(self, problem: Problem, completion: str) -> Verdict:
        """Judge one completion by every part."""
        return self.verify_batch([problem], [completion])[0]

    def verify_batch(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        """Judge many completions by every part."""
        columns = {
            name: checked(part, part.verify_batch(problems, completions), len(completions))
            for name, part in self.parts.items()
        }
        return [self._sum({name: column[row] for name, column in columns.items()}) for row in range(len(completions))]

    def is_success(self, verdict: Verdict) -> bool:
        """Tell whether every part with a positive weight that applies counts its own reward as a success."""
        if verdict.status != "ok":
            return False
        wanted = [name for name, weight in self.weights.items() if weight > 0 and name in verdict.parts]
        return bool(wanted) and all(self.parts[name].is_success(_part(verdict, name)) for name in wanted)

    def _sum(self, verdicts: dict[str, Verdict]) -> Verdict:
        for status in FAILURES:
            for name, verdict in verdicts.items():
                if verdict.status == status:
                    return Verdict(0.0, status=verdict.status, reason=f"{name}: {verdict.reason}")
        applicable = {name: verdict for name, verdict in verdicts.items() if verdict.status == "ok"}
        if not applicable:
            return Verdict(0.0, status="not_applicable")
        parts = {name: verdict.reward for name, verdict in applicable.items()}
        for name, verdict in applicable.items():
            parts |= {f"{name}/{inner}": value for inner, value in verdict.parts.items()}
        reward = sum(self.weights[name] * verdict.reward for name, verdict in applicable.items())
        if not abs(reward) <= MAX_REWARD:
            return Verdict(0.0, status="error", reason="the weighted sum is beyond float32")
        return Verdict(reward, parts)

    def paraphrases(self, problem: Problem) -> list[str]:
        """Return what every part accepts of the paraphrases of the part that poses problems."""
        made = self.poser.paraphrases(problem)
        verdicts = self.verify_batch([problem] * len(made), made)
        return [text for text, verdict in zip(made, verdicts, strict=True) if self.is_success(verdict)]

    def close(self) -> None:
        """Give back what the parts hold."""
        for part in self.parts.values():
            part.close()


def _weight(name: str, value: Any) -> float:
    try:
        weight = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan
    except OverflowError:
        weight = math.inf
    if not math.isfinite(weight):
        raise ValueError(f"weighted: the weight of {name!r} must be a number, got {value!r:.60}")
    return weight


def _range(weighed: Sequence[tuple[float, Verifier]]) -> tuple[float, float]:
    """Return the least and the greatest sum.

    Raises:
        ValueError: if parts with bounded rewards can reach a sum beyond float32, which trainers calculate in.
    """
    bounded = [(weight, part) for weight, part in weighed if all(map(math.isfinite, part.reward_range))]
    ends = [sorted(weight * end for end in part.reward_range) for weight, part in bounded]
    low, high = sum(low for low, _ in ends), sum(high for _, high in ends)
    if low < -MAX_REWARD or high > MAX_REWARD:
        weights = ", ".join(f"{weight:g}" for weight, _ in bounded)
        raise ValueError(f"weighted: the weights {weights} make rewards beyond float32; use smaller ones")
    others = [sorted(weight * end for end in part.reward_range) for weight, part in weighed]
    return sum(low for low, _ in others), sum(high for _, high in others)


def _part(verdict: Verdict, name: str) -> Verdict:
    """Return what one part said, as `_sum` wrote it down."""
    inner = {key.removeprefix(f"{name}/"): value for key, value in verdict.parts.items() if key.startswith(f"{name}/")}
    return Verdict(verdict.parts[name], inner)
