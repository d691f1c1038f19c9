"""Verifiers for TRL's GRPOTrainer: as a reward function, or a dialogue as an environment class."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlenv._status import VERIFIER_FAILED
from rlenv.verifiers import Problem, Verdict, Verifier, make_verifier
from rlenv.verifiers.base import CARRIED, Completion, has_dialogues, is_success
from rlenv.verifiers.conversation import as_messages, text_of
from rlenv.verifiers.plugins.registry import label_of

from .posing import SEEDS, Episode, Posed, as_text

SEED = "problem_seed"  # the column that says which problem of the verifier a row is
TAKEN = ("prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric", "environments")


def rows(verifier: str | Verifier, count: int, first_seed: int = 0, **kwargs: Any) -> list[dict[str, Any]]:
    """Return problems of a verifier as rows of a dataset: `Dataset.from_list(rows("guess", 500))`.

    A row has a `prompt` of messages (so the model needs a chat template), an `answer`, and the `problem_seed` by which
    `reward_function` and `environment` know the problem again. TRL's `num_generations` completions of a row share
    its problem.

    Args:
        verifier: that makes problems, or its name.
        count: how many.
        first_seed: of the first row; take others for evaluation.
        kwargs: arguments of the verifier's constructor.

    Raises:
        ValueError: for a verifier that makes no problems.
    """
    posed = Posed(make_verifier(verifier, **kwargs))
    try:
        problems = {seed % SEEDS: posed.problem(seed % SEEDS) for seed in range(first_seed, first_seed + count)}
        return [
            {"prompt": as_messages(problem.prompt), "answer": problem.answer, SEED: seed}
            for seed, problem in problems.items()
        ]
    finally:
        posed.close()


def reward_function(verifier: Any, **kwargs: Any) -> Callable[..., list[float | None]]:
    """Return a verifier of single completions as one of TRL's `reward_funcs`.

    A row with a `problem_seed` is that problem of the verifier. Any other row is a problem with its prompt, `answer`
    and other columns. A verdict that could not be reached is None, which TRL leaves out, and a warning has the reason;
    success and the named parts of the others are logged with TRL's `log_metric`. Verifiers that ask for worker
    processes have them, until `close()` of the function is called or the process ends.

    Args:
        verifier: what `rlenv.verifiers.make_verifier` takes.
        kwargs: arguments of the verifier's constructor.

    Raises:
        ValueError: for a verifier with dialogues, and as `make_verifier` says.
    """
    made = make_verifier(verifier, **kwargs)
    if has_dialogues(made):
        raise ValueError(f"{type(made).__name__} has dialogues: pass environment(...) as environment_factory instead")
    posed = Posed(made)

    def reward(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:
        problems = _problems(posed, prompts, columns)
        verdicts = posed.judge(problems, _completions(made, completions, columns))
        _warn_of(name, verdicts)
        log: Callable[[str, float], None] | None = columns.get("log_metric")
        known = [each for each in verdicts if each.status == "ok"]
        if log is not None and known:
            log(f"{name}/success", sum(is_success(made, each) for each in known) / len(known))
            for part in dict.fromkeys(part for each in verdicts for part in each.parts):
                values = [each.parts[part] for each in verdicts if part in each.parts]
                log(f"{name}/{part}", math.fsum(values) / len(values))
        return [float(each.reward) if each.status == "ok" else None for each in verdicts]

    name = label_of(verifier)
    reward.__name__ = reward.__qualname__ = name
    reward.close = posed.close  # type: ignore[attr-defined]
    return reward


def environment(verifier: Any, **kwargs: Any) -> type:
    """Return a verifier with dialogues as a class for TRL's `environment_factory`.

    The model takes its turns in the dialogue by calls of the tool `say`, whose result is the reply. The reward is the
    sum of the dialogue's rewards; a dialogue that the model leaves has that of an episode out of turns. Take `rows` as
    the dataset: without it, the completions of a group would have different problems.

    Args:
        verifier: what `rlenv.verifiers.make_verifier` takes.
        kwargs: arguments of the verifier's constructor.

    Raises:
        ValueError: for a verifier that judges single completions, and as `make_verifier` says.
    """
    made = make_verifier(verifier, **kwargs)
    if not has_dialogues(made):
        raise ValueError(f"{type(made).__name__} judges single completions: pass reward_function(...) as reward_funcs")
    name = type(made).__name__
    return type(name, (_Playing,), {"posed": Posed(made), "__module__": __name__, "__doc__": _Playing.__doc__})


class _Playing:
    """One dialogue at a time; TRL makes the objects and resets them."""

    posed: Posed
    _episode: Episode | None = None

    def reset(self, prompt: Any = "", answer: str = "", problem_seed: int | None = None, **columns: Any) -> str | None:
        """Begin an episode; return the problem's prompt, unless the row has it already.

        Raises:
            ValueError: for a row that says nothing of a problem.
        """
        if self._episode is not None:
            self._episode.close()
        self._episode = None
        if problem_seed is None and not text_of(prompt).strip():
            raise ValueError(f"the dataset needs a column {SEED!r}: take rlenv.trl.rows(verifier, count)")
        row = {"answer": answer, **columns, **({} if problem_seed is None else {SEED: problem_seed})}
        (problem,) = _problems(self.posed, [prompt], {name: [value] for name, value in row.items()})
        self._episode = self.posed.begin(problem)
        asked = text_of(problem.prompt)
        return None if text_of(prompt).endswith(asked) else asked

    def say(self, text: str) -> str:
        """Take your next turn in the dialogue and read the reply.

        Args:
            text: What you say.
        """
        if self._episode is None:
            raise ValueError("no episode has begun")
        reply = self._episode.say(as_text(text))
        over = "" if reply.verdict is None else "The dialogue is over."
        return "\n".join(each for each in (text_of(reply.content) if reply.content else "", over) if each)

    def get_reward(self) -> float | None:
        """Return the reward of the episode; None if the verifier failed."""
        episode = self._episode
        if episode is None:
            return None
        if episode.verdict is None:
            episode.give_up()
        if episode.verdict is not None:
            _warn_of(type(self).__name__, [episode.verdict])
        return episode.reward


def _warn_of(name: str, verdicts: Sequence[Verdict]) -> None:
    """Warn of verdicts that could not be reached, since TRL says nothing of a reward that is None."""
    if failed := [each for each in verdicts if each.status in VERIFIER_FAILED]:
        of = f"{name}: {len(failed)} of {len(verdicts)} completions have no verdict"
        warnings.warn(f"{of}, the first: {failed[0].reason}", stacklevel=3)


def _problems(posed: Posed, prompts: Sequence[Any], columns: Mapping[str, Sequence[Any]]) -> list[Problem]:
    """Return the problems of a batch: posed from the column of seeds, else made from the rows' columns."""
    if SEED in columns:
        return [posed.problem(int(seed) % SEEDS) for seed in columns[SEED]]
    others = [name for name in columns if name not in (*TAKEN, "answer")]
    answers = columns.get("answer", [None] * len(prompts))  # None: of a row without one, as datasets fill it in
    texts = ["" if answer is None else str(answer) for answer in answers]
    return [
        Problem(prompt, texts[row], {name: columns[name][row] for name in others}) for row, prompt in enumerate(prompts)
    ]


def _completions(verifier: Verifier, completions: Sequence[Any], columns: Mapping[str, Any]) -> list[str]:
    """Return the texts of a batch, with token ids and training progress if the verifier asks for inputs."""
    texts = [_text(each) for each in completions]
    if not {*CARRIED}.intersection(verifier.inputs):
        return texts
    ids, state = columns.get("completion_ids", [None] * len(texts)), columns.get("trainer_state")
    progress = {} if state is None else {"num_updates": state.global_step, "max_updates": state.max_steps}
    return [Completion.of(text, tokens, progress) for text, tokens in zip(texts, ids, strict=True)]


def _text(completion: Any) -> str:
    """Return the text of a completion: itself, or the content of the assistant's last message."""
    if isinstance(completion, str):
        return completion
    said = [message.get("content") for message in completion if message.get("role") == "assistant"]
    return (said[-1] if said else "") or ""
