"""From text to tokens: text that looks like a control token stays text, or is refused."""

from __future__ import annotations

from transformers import PreTrainedTokenizerBase

from .text import NOT_UNICODE, is_unicode, shown
from .tokenizer import control_tokens

REMEMBERED = 65_536  # prompts in the cache


class Encoder:
    """Encodes prompts and answers with one tokenizer.

    Args:
        tokenizer: any Hugging Face tokenizer.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        self._control = control_tokens(tokenizer)
        self._prompts: dict[str, list[int]] = {}  # a cache: prompts repeat, in other epochs or by chance

    def prompts(self, texts: list[str]) -> list[list[int]]:
        """Return the tokens of prompts, with the start token that the tokenizer adds, if any."""
        new = [text for text in dict.fromkeys(texts) if text not in self._prompts]
        if len(self._prompts) + len(new) > REMEMBERED:
            self._prompts, new = {}, list(dict.fromkeys(texts))
        if new:
            encoded = self.spell("prompt", new, add_special_tokens=True)
            for ids in encoded:
                if ids and ids[-1] == self.tokenizer.eos_token_id:  # a prompt must stay open
                    ids.pop()
            self._prompts |= zip(new, encoded, strict=True)
        return [self._prompts[text] for text in texts]

    def spell(self, what: str, texts: list[str], add_special_tokens: bool = False) -> list[list[int]]:
        """Return the tokens of texts, and check them.

        Args:
            what: "prompt" or "demonstration", for the error message.
            texts: at least one.
            add_special_tokens: whether the tokenizer adds its own tokens around each text.

        Raises:
            ValueError: for a text that is not Unicode, has characters that the tokenizer does not know, or that this
                tokenizer would turn into a control token.
        """
        for text in texts:
            if not is_unicode(text):
                raise ValueError(f"{what} {shown(text)}: {NOT_UNICODE}")
        encoded = self.ids(texts, add_special_tokens)
        unknown = self.tokenizer.unk_token_id
        if unknown in (self.tokenizer.bos_token_id, self.tokenizer.eos_token_id):
            unknown = None  # then it does not show unknown characters
        for text, ids in zip(texts, encoded, strict=True):
            if unknown is not None and unknown in ids:
                outside = [c for c in dict.fromkeys(text) if unknown in self.tokenizer(c)["input_ids"]]
                raise ValueError(f"{what} {shown(text)} has characters outside the tokenizer's alphabet: {outside}")
            if any(spelled in text for spelled in self._control):
                control = set(self._control.values()) - {unknown}
                if control & set(self.ids([text])[0]):
                    raise ValueError(f"{what} {shown(text)} has text that this tokenizer reads as a control token")
        return encoded

    def ids(self, texts: list[str], add_special_tokens: bool = False) -> list[list[int]]:
        """Return the tokens of texts without checking them."""
        return self.tokenizer(
            texts,
            add_special_tokens=add_special_tokens,
            split_special_tokens=True,
            return_attention_mask=False,
            return_token_type_ids=False,
        )["input_ids"]
