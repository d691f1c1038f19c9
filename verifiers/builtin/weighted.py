"""weighted: the weighted sum of several verifiers' rewards; each part is logged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from rlenv._checks import check_number
from rlenv._loop import runs_in
from rlenv._status import VERIFIER_FAILED

from ..base import MAX_REWARD, Execution, Probes, Problem, Verdict, Verifier, checked, has_dialogues, is_success
from ..isolation import isolate
from ..plugins.registry import make_verifier, register_verifier
from ..wrapping import WithPoser, makes_problems

if TYPE_CHECKING:
    from ..sandbox.pool import Isolated


@register_verifier("weighted")
class Weighted(WithPoser):
    """Several verifiers of the same completion; the reward is Σ weight · reward.

    The first part that can make problems provides the problems and demonstrations; if no part can, problems must be
    listed. A completion is a success if every part with a positive weight counts it as one, or the one part that
    `success_of` names (the first other one if that is not applicable). If a part fails, or the sum is beyond float32,
    the whole verdict is a failure; a part that is not applicable adds nothing. Parts that want worker processes get
    them; async reward functions run side by side. Prompts: from the part that poses the problems. Alphabet: the parts'
    alphabets together. Not caught: what no part catches; and a part with a small weight still pays for wrong answers.

    Args:
        parts: maps a name to a weight, or to a mapping with `weight`, the verifier's own arguments, and `verifier` if
            the name is not the verifier's: {"arith": 1, "length": {"weight": 0.1, "maximum": 3}}.
        success_of: the part that decides about success; None for all parts with a positive weight.

    Raises:
        ValueError: for no parts, a weight that is not a number, an unknown verifier or part, or unknown arguments.
    """

    def __init__(
        self, parts: Mapping[str, float | Mapping[str, Any]] | None = None, success_of: str | None = None
    ) -> None:
        if not isinstance(parts, Mapping) or not parts:
            raise ValueError(
                f"weighted: parts maps names to weights, as in {{'arith': 1}}, got {parts!r:.60}; or list the "
                "verifiers instead, --verifier arith,length=0.1"
            )
        if success_of is not None and success_of not in parts:
            raise ValueError(f"weighted: success_of must be one of {', '.join(parts)}, got {success_of!r}")
        self.success_of = success_of
        self.parts: dict[str, Verifier] = {}
        self.judges: dict[str, Verifier | Isolated] = {}  # the parts, or their worker processes
        self.weights: dict[str, float] = {}
        for name, given in parts.items():
            settings: dict[str, Any] = dict(given) if isinstance(given, Mapping) else {"weight": given}
            self.weights[name] = check_number(f"weighted: the weight of {name!r}", settings.pop("weight", None))
            part = self.parts[name] = make_verifier(settings.pop("verifier", name), **settings)
            if has_dialogues(part):
                raise ValueError(f"weighted: {name!r} has dialogues, and a sum judges single completions; use it alone")
            self.judges[name] = isolate(part) or part
        self.part_weights = self.weights
        members = list(self.parts.values())
        self.request = next((member.request for member in members if member.request), "")
        self.poser = self.posing = next(filter(makes_problems, members), members[0])
        named = [part.alphabet for part in members if part.alphabet != Verifier.alphabet]  # other parts accept any text
        self.alphabet = "".join(dict.fromkeys("".join(named))) or Verifier.alphabet
        runs = [part.execution for part in members]
        self.execution = Execution(
            slow=any(run.slow or run.isolated for run in runs), prefers_batches=any(run.prefers_batches for run in runs)
        )
        self.inputs = tuple(dict.fromkeys(name for part in members for name in part.inputs))
        weighed = [(weight, self.parts[name]) for name, weight in self.weights.items()]
        self.reward_range = _range(weighed)
        self.success_reward = sum(weight * part.success_reward for weight, part in weighed if weight > 0)

    @override
    def verify_batch(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        waits = [name for name, judge in self.judges.items() if getattr(judge, "is_async", False)]
        if waits and runs_in():
            waits = []
        with ThreadPoolExecutor(max(len(waits), 1)) as beside:  # coroutines wait side by side
            begun = {name: beside.submit(self.judges[name].verify_batch, problems, completions) for name in waits}
            columns = {}
            for name, part in self.parts.items():
                made = begun[name].result() if name in begun else self.judges[name].verify_batch(problems, completions)
                columns[name] = checked(part, made, len(completions))
        return [self._sum({name: column[row] for name, column in columns.items()}) for row in range(len(completions))]

    @override
    def probes(self, problem: Problem) -> Probes:  # what is right for this part may be wrong for another one
        return Probes(wrong=self.posing.probes(problem).wrong)

    def _sum(self, verdicts: dict[str, Verdict]) -> Verdict:
        for status in VERIFIER_FAILED:
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
        reason = "; ".join(verdict.reason for verdict in applicable.values() if verdict.reason)
        decide = [name for name, weight in self.weights.items() if weight > 0]
        wanted = [name for name in (self.success_of, *decide) if name in applicable]
        wanted = wanted[:1] if self.success_of else wanted
        success = bool(wanted) and all(is_success(self.parts[name], applicable[name]) for name in wanted)
        return Verdict(reward, parts, reason=reason, success=success)

    @override
    def close(self) -> None:
        for each in dict.fromkeys((*self.judges.values(), *self.parts.values())):
            each.close()


def _range(parts: Sequence[tuple[float, Verifier]]) -> tuple[float, float]:
    """Return the lowest and highest possible sum; a part that is not applicable adds nothing to it."""
    ends = [sorted(weight * end if weight else 0.0 for end in part.reward_range) for weight, part in parts]
    lows, highs = [low for low, _ in ends], [high for _, high in ends]
    return sum(min(low, 0.0) for low in lows) or min(lows), sum(max(high, 0.0) for high in highs) or max(highs)
