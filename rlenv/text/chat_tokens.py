"""Which added tokens a chat template writes, and which of them a message may write, too."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from .chat import Chat
from .tokenizer import added_tokens, control_tokens

ROLES = ("system", "user", "assistant")  # of the conversation that shows what a template writes


@dataclass(frozen=True)
class ChatTokens:
    """The tokens that are not ordinary text in a conversation.

    Attributes:
        ids: of the special tokens, and of other added tokens that the template writes or reads, by their text.
        of_system: those that a system message may use: not special, and no turn begins or ends with them. In all other
            messages, each of them is text.
    """

    ids: dict[str, int]
    of_system: frozenset[str]

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase, chat: Chat) -> ChatTokens:
        """Return those of a tokenizer with its chat template.

        What the template writes is seen in its renderings: it may put a token together from parts, and a text in its
        source may be what it looks for in a message, as in `content.split('</think>')`.
        """
        added, special = added_tokens(tokenizer), control_tokens(tokenizer)
        template = tokenizer.chat_template or ""
        source = template if isinstance(template, str) else "".join(template.values())
        pattern = any_of(added)
        inside, around = set(), set()
        for without in range(2):  # with a message of the system, and without
            for text, turn_begins in chat.own_texts(ROLES[without:]):
                found = pattern.findall(text)
                around |= set(found[:1] if turn_begins else found)
                inside |= set(found)
        ids = {text: index for text, index in added.items() if text in special or text in inside or text in source}
        return cls(ids, frozenset(ids.keys() - special.keys() - around))


def any_of(texts: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern of any of these texts, the longest that fits; without a text, of nothing."""
    return re.compile("|".join(map(re.escape, sorted(texts, key=len, reverse=True))) or "(?!)")
