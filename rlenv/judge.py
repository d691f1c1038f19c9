"""From the tokens of finished episodes to verdicts: decode, verify, check what came back."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from transformers import PreTrainedTokenizerBase

from verifiers import Isolated, Problem, Verdict, Verifier
from verifiers.base import checked
from verifiers.worker_process import describe


def judge(
    verifier: Verifier, problems: Sequence[Problem], completions: Sequence[str], flag_errors: bool = False
) -> list[Verdict]:
    """Have completions judged in one batch.

    Args:
        verifier: the judge.
        problems: the problem of each episode.
        completions: the text of each.
        flag_errors: whether an exception of the verifier becomes a verdict with the status "error". The batch is then
            judged one by one, so that one completion does not cost the others their verdicts.

    Returns:
        The verdicts, in order.

    Raises:
        ValueError: if the verifier returns another number of verdicts, or something else than verdicts.
    """
    if not flag_errors:
        return checked(verifier, verifier.verify_batch(problems, completions), len(completions))
    try:
        return judge(verifier, problems, completions)
    except Exception as error:  # whatever a plugin raises
        if len(completions) == 1:
            return [Verdict(0.0, status="error", reason=describe(error))]
    return [judge(verifier, [problem], [text], True)[0] for problem, text in zip(problems, completions, strict=True)]


def decode(tokenizer: PreTrainedTokenizerBase, completions: list[list[int]]) -> list[str]:
    """Return the texts of completions; special tokens inside are decoded as their text: they were said, too."""
    if tokenizer.is_fast:  # what batch_decode comes to, without its look at every token's type
        return tokenizer.backend_tokenizer.decode_batch(completions, skip_special_tokens=False)
    return tokenizer.batch_decode(completions, skip_special_tokens=False, clean_up_tokenization_spaces=False)


class LateVerdicts:
    """Completions handed in while other episodes are still being written; their verdicts are fetched together.

    Worker processes judge them meanwhile; any other verifier judges them in one batch when they are fetched.

    Args:
        verifier: the judge.
        flag_errors: as in `judge`.
    """

    def __init__(self, verifier: Verifier, flag_errors: bool) -> None:
        self.verifier, self.flag_errors = verifier, flag_errors
        self.clear()

    @staticmethod
    def help(verifier: Verifier) -> bool:
        """Tell whether a verifier gains by judging late."""
        return isinstance(verifier, Isolated) or verifier.prefers_batches

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without verdicts on their way: the copy asks its own workers for them."""
        return self.__dict__ | {"_futures": []}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        problems, texts = self._problems, self._texts
        self.clear()
        self.hand_in(problems, texts)

    def clear(self) -> None:
        """Forget what was handed in."""
        self._problems: list[Problem] = []
        self._texts: list[str] = []
        self._futures: list[Future[Verdict]] = []

    def hand_in(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[int]:
        """Take completions in and return the numbers of their verdicts, counted from the last fetching."""
        first = len(self._texts)
        self._problems += problems
        self._texts += completions
        if isinstance(self.verifier, Isolated):
            self._futures += self.verifier.submit(problems, completions)
        return list(range(first, len(self._texts)))

    def fetch(self) -> tuple[list[Problem], list[Verdict]]:
        """Return the problems and the verdicts of everything handed in, in order, once they are all there."""
        problems = self._problems
        if self._futures:
            verdicts = [future.result() for future in self._futures]
        else:
            verdicts = judge(self.verifier, problems, self._texts, self.flag_errors)
        self.clear()
        return problems, verdicts
