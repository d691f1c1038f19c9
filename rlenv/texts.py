"""Small helpers for texts."""

from __future__ import annotations

from rlenv.verifiers.conversation import Message, last_of

WORDS = 5  # letters of a prompt in words, which may be asked for a place of the answer: "12+7=" is none
PromptText = str | list[Message]


def with_cue(prompt: str, cue: str) -> str:
    """Return a prompt that ends with a cue, such as "\\nSolution:", if there is one and the prompt is in words."""
    if not cue or prompt.endswith(cue) or not _is_in_words(prompt):
        return prompt
    return f"{prompt.rstrip()}{cue}"


def with_request(prompt: PromptText, request: str) -> PromptText:
    """Return a prompt that ends with a request, if there is one and the prompt is in words."""
    said = last_of(prompt)
    if not request or request in said or not _is_in_words(said):
        return prompt
    if isinstance(prompt, str):
        text = prompt.rstrip()
        return f"{text} {request}{prompt[len(text) :]}"
    *before, last = prompt
    return [*before, {**last, "content": f"{last['content']} {request}"}] if last["role"] == "user" else prompt


def _is_in_words(text: str) -> bool:
    return sum(map(str.isalpha, text)) >= WORDS
