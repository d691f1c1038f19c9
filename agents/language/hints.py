"""Contexts of a policy as its own teacher: the prompt with a right answer or the verdict's feedback, then the answer.

In a conversation the hint ends the last message, where the chat template's own text begins that the environment names
in its metadata as "prompt_tail". In plain text it stands before the prompt, whose answer has to follow it: a right
answer as an example, prompt and answer. Tokens are moved, never encoded again; words that the tokenizer cannot spell
are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..devices import to_device, to_host
from ..rollout import Rollout

RIGHT = ("\n\nThis is a right answer:\n\n", "\n\nGive a right answer.")
WRONG = ("\n\nA first answer was wrong:\n\n", "\n\nGive a right answer.")
BETWEEN = "\n\n"  # in plain text, before the prompt


def spelled(tokenizer: Any, text: str) -> list[int]:
    """Return the tokens of a text, without the tokens for characters that the tokenizer does not know."""
    ids = tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    return [token for token in ids if token != tokenizer.unk_token_id]


def feedback_speller(metadata: Mapping[str, Any], most: int) -> Callable[[str], torch.Tensor] | None:
    """Return a function from a text to its first tokens, then -1 [most]; None if the environment has no tokenizer."""
    tokenizer = metadata.get("tokenizer")

    def speller(text: str) -> torch.Tensor:
        ids = spelled(tokenizer, text.encode(errors="replace").decode())[:most] if text else []  # of any string
        return torch.tensor([*ids, *[-1] * (most - len(ids))], dtype=torch.int64)

    return None if tokenizer is None else speller


def with_hints(rollout: Rollout, metadata: Mapping[str, Any], most: int, context: int) -> Rollout:
    """Return a rollout with the teacher's observations, and with flags of the episodes that have a hint.

    The hint is the last turn of the first other right episode of the group; without one, the verdict's feedback.

    Args:
        rollout: of text.
        metadata: of the environment.
        most: tokens of a demonstration; a longer one is not shown.
        context: the most tokens of an episode with its hint; else it has none.
    """
    assert isinstance(rollout.observations, dict)
    frame, control = _Frame(metadata), {*metadata["stop_token_ids"], *metadata.get("hidden_token_ids", ())}
    right = rollout.ok & (rollout.success == 1)
    tokens, first, actions, lengths, groups, solved, columns = to_host(
        rollout.observations["tokens"], rollout.observations["length"], rollout.actions, rollout.lengths,
        rollout.groups, right, rollout.columns,
    )  # fmt: skip
    told = rollout.extras["feedback"].cpu() if "feedback" in rollout.extras else None
    answers: dict[int, dict[int, list[int]]] = {group: {} for group in groups.tolist()}  # of its right episodes
    for row in solved.nonzero()[:, 0].tolist():
        answer, column = actions[row, : lengths[row]], columns[row, : lengths[row]]
        replied = (column.diff() > 1).nonzero()[:, 0].tolist()
        turn = answer[replied[-1] + 1 :] if replied else answer
        answers[int(groups[row])][row] = [token for token in turn.tolist() if token not in control]
    rows, taught = [], []
    for row, group in enumerate(groups.tolist()):
        prompt = tokens[row, : first[row]].tolist()
        found = [answer for other, answer in answers[group].items() if other != row and len(answer) <= most]
        said = found[0] if found else [] if told is None else told[row][told[row] >= 0].tolist()
        place, hint = frame.hint(prompt, said, bool(found))
        end = int(columns[row, lengths[row] - 1]) + 1 if lengths[row] else len(prompt)
        taught.append(bool(found or said) and end + len(hint) <= context)
        rows.append((place, hint if taught[-1] else []))
    hinted = {name: to_device(value, rollout.mask.device) for name, value in _placed(tokens, first, rows).items()}
    return rollout.with_extras(hinted=hinted, taught=to_device(torch.tensor(taught), rollout.mask.device))


def _placed(
    tokens: torch.Tensor, first: torch.Tensor, rows: Sequence[tuple[int, list[int]]]
) -> dict[str, torch.Tensor]:
    """Return observations with each row's hint inserted at its place."""
    longer = tokens.new_zeros(len(rows), tokens.shape[1] + max(len(hint) for _, hint in rows))
    added = torch.tensor([len(hint) for _, hint in rows])
    for row, (place, hint) in enumerate(rows):
        joined = torch.cat([tokens[row, :place], tokens.new_tensor(hint), tokens[row, place:]])
        longer[row, : len(joined)] = joined
    return {"tokens": longer, "length": first + added}


class _Frame:
    """The words around hints, and where these stand.

    Args:
        metadata: of the environment.
    """

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self.tokenizer = metadata["tokenizer"]
        self.tail = list(metadata.get("prompt_tail", ()))
        self.right, self.wrong = ([spelled(self.tokenizer, text) for text in frame] for frame in (RIGHT, WRONG))
        self.between = spelled(self.tokenizer, BETWEEN) or [self.tokenizer.eos_token_id]

    def hint(self, prompt: list[int], said: list[int], is_answer: bool) -> tuple[int, list[int]]:
        """Return the place in a prompt and the tokens of a hint: a right answer, or feedback."""
        if self.tail and prompt[-len(self.tail) :] == self.tail:
            before, after = self.right if is_answer else self.wrong
            return len(prompt) - len(self.tail), [*before, *said, *after]
        place = int(prompt[0] == self.tokenizer.bos_token_id)
        return place, [*(prompt[place:] if is_answer else []), *said, *self.between]
