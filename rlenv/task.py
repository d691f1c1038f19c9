"""A task, shared by the single and the batched environment: a judge, an encoding and a stream of problems."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlenv._checks import check_choice, check_count
from rlenv.verifiers import Problem, Verifier
from rlenv.verifiers.base import check_inputs, has_dialogues
from rlenv.verifiers.dialogues import check_replays
from rlenv.verifiers.plugins.registry import trusting

from .encoding import Encoding
from .forms import PARAMETERS, parted
from .judge import Judge
from .problems import Prompt, listed_problems
from .stream import ProblemStream
from .turns import Responder
from .vocabulary import make_tokenizer

if TYPE_CHECKING:
    from .curriculum import Curriculum, ThompsonChoice

Named = str | Verifier | Callable[..., Any] | Sequence[Any]
VERIFIER = inspect.Parameter("verifier", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Named)


class TextGenTask:
    """Everything about TextGen-v0 that does not depend on how many episodes run at once.

    Args:
        verifier: a name, "module:Name", "file.py:name", a Verifier, a reward function or a list of them; see
            `rlenv.verifiers.make_verifier`.
        arguments: those of `rlenv.forms`: how prompts are written (`Form`), how long all parts are (`Limits`), which
            problems are posed (`Posing`), and how the verifier is made and run (`Judging`).

    Raises:
        ValueError: for a value out of range; one line that names it and what is allowed.
    """

    __signature__ = inspect.Signature([VERIFIER, *PARAMETERS])

    def __init__(self, verifier: Named | None = None, **arguments: Any) -> None:
        form, limits, posing, judging = parted(arguments)
        self.judge = Judge.of(verifier, judging)
        self.verifier = self.judge.verifier
        with trusting(judging.trust):
            listed = listed_problems(posing, self.verifier)
        if listed is not None:
            check_inputs(self.verifier, listed)
        tokenizer = make_tokenizer(form, self.verifier, listed, posing.test_fraction)
        self.encoding = encoding = Encoding(tokenizer, self.verifier, listed, form, limits)
        listed = encoding.listed
        self.stream = ProblemStream(
            self.verifier,
            posing.split,
            posing.test_fraction,
            listed,
            encoding.prompts,
            posing.curriculum,
            posing.prompt_choice,
        )
        self.split, self.group_size, self.first_problem = posing.split, posing.group_size, posing.first_problem
        self.share = (0, 1) if posing.share is None else _share(*posing.share)
        first = self.stream[0] if listed is None or listed.encoded is None else self.stream.listed[0]
        self._prompt_tail = tuple(encoding.encoder.tail(first.prompt))
        if listed is None:
            check_inputs(self.verifier, [first])
        if has_dialogues(self.verifier) and self.judge.pool is not None:
            check_replays(self.verifier, first)
        self.responder = Responder(self.judge, encoding)

    @property
    def metadata(self) -> dict[str, Any]:
        """The task's part of the metadata, in the single and the batched environment."""
        return {
            "group_size": self.group_size,
            "max_episode_steps": self.encoding.max_new_tokens * self.encoding.max_turns,
            "max_new_tokens": self.encoding.max_new_tokens,
            "tokenizer": self.encoding.tokenizer,
            "stop_token_ids": self.encoding.stop_token_ids,
            "hidden_token_ids": tuple(sorted(self.encoding.special_token_ids - {*self.encoding.stop_token_ids})),
            "prompt_tail": self._prompt_tail,
            "part_weights": dict(self.verifier.part_weights),
        }

    def reseed(self, rng: np.random.Generator) -> None:
        """Start another stream of problems, drawn from the environment's own generator."""
        self.stream.begin(int(rng.integers(2**62)))

    def groups(self, episodes: Sequence[int]) -> list[int]:
        """Return the groups of K that these episodes belong to, by their numbers in the whole stream."""
        part, parts = self.share
        return [episode // self.group_size * parts + part for episode in episodes]

    def prompts(self, groups: Sequence[int]) -> list[Prompt]:
        """Return the prompts of groups.

        Raises:
            ValueError: as `ProblemStream.prompt`.
        """
        return self.stream.prompts([self.first_problem + group for group in groups])

    def read_options(self, options: Mapping[str, Any] | None, known: Sequence[str]) -> None:
        """Keep a reset's word about the training, `options["progress"]`, for verifiers that want it.

        Raises:
            ValueError: for an option that the environment does not know; ignored, it would restart other slots.
        """
        for name in options or ():
            check_choice("reset option", name, known)
        self.encoding.progress = (options or {}).get("progress", self.encoding.progress)

    def record(self, problem: Problem, info: Mapping[str, Any]) -> None:
        """Tell the curriculum or choice of prompts, if any, how an episode ended; only verdicts that are "ok" count.

        Of a stream that is shared, this is one part of the verdicts; see `shared_curriculum`.
        """
        if self.share[1] == 1 and info["verdict_status"] == "ok":
            self.stream.record(problem, info["is_success"])

    @property
    def listener(self) -> Callable[[Problem, Mapping[str, Any]], None] | None:
        """The method `record`, which learns of verdicts; None without a curriculum or choice, or of a shared stream."""
        return self.record if self.stream.curriculum is not None and self.share[1] == 1 else None

    @property
    def shared_curriculum(self) -> Curriculum | ThompsonChoice | None:
        """The curriculum of a shared stream, which needs the verdicts of all processes; None without one."""
        return self.stream.curriculum if self.share[1] > 1 else None


def _share(part: Any, parts: Any) -> tuple[int, int]:
    parts = check_count("the second number of share", parts)
    if check_count("the first number of share", part, low=0) >= parts:
        raise ValueError(f"share=({part}, {parts}): the first number must be below the second")
    return int(part), parts


def drawing(render_mode: str | None, modes: Sequence[str], encoding: Encoding) -> Any:
    """Return the picture of episodes in the mode "rgb_array"; None in the other ones.

    Raises:
        ValueError: for a mode that is not one of these.
    """
    if render_mode is not None:
        check_choice("render_mode", render_mode, modes)
    if render_mode != "rgb_array":
        return None
    from .picture import Picture  # pillow is for these alone

    return Picture(encoding.tokenizer, encoding.stop_token_ids, encoding.max_length)


def expanded(task: str | None = None, **given: Any) -> dict[str, Any]:
    """Return the arguments of `TextGenTask` for an environment that may name a task of `tasks.py`."""
    if task is None:
        return given
    from .tasks import arguments_of

    return arguments_of(task, given)
