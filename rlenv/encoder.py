"""From prompts and answers to tokens: text that looks like a control token stays text, or is refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, TypeVar

from tokenizers import AddedToken, Tokenizer
from transformers import PreTrainedTokenizerBase

from rlenv.verifiers.conversation import (
    NOT_UNICODE,
    Message,
    PromptText,
    as_messages,
    is_unicode,
    shown,
    text_of,
    with_cue,
    with_request,
)

from .chat import Chat, Piece, any_of, chat_tokens, control_tokens

STOP, STRING, CUT = "a stop token", "a stop string", "its limit"  # how a turn ends
BLOCK = 16  # texts encoded at once, because a long one takes a hundred times its memory
THOUGHTS = {"<think>", "</think>"}  # a system message may ask for them; other messages never have control tokens

T = TypeVar("T")
_latest: dict[str, tuple[Any, Any]] = {}  # by kind: the content that the last result was made from, and the result


class Encoder:
    """Encodes prompts and answers with one tokenizer.

    Args:
        tokenizer: any Hugging Face tokenizer.
        chat: renders conversations; None for one without a system prompt.
        chats_texts: whether prompts that are texts are rendered too, as a message of the user.
        request: a sentence that prompts in words end with, such as one that asks for the place of the answer.
        cue: what prompts that are not rendered end with, after the request.

    Raises:
        ValueError: for a request or cue that the tokenizer cannot spell.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        chat: Chat | None = None,
        chats_texts: bool = False,
        request: str = "",
        cue: str = "",
    ) -> None:
        self.tokenizer, self.chats_texts = tokenizer, chats_texts
        self.chat = Chat(tokenizer) if chat is None else chat
        self._control = control_tokens(tokenizer)
        unknown = tokenizer.unk_token_id
        # A token that also starts or ends texts does not show unknown characters.
        self._unknown = None if unknown in (tokenizer.bos_token_id, tokenizer.eos_token_id) else unknown
        self.request, self.cue = request, cue
        for name, text in (("request", request), ("cue", cue)):
            if text:
                self.spell(name, [text])

    def asked(self, prompt: PromptText) -> PromptText:
        """Return a prompt as the model reads it: if it is in words, with the request, and as a text with the cue."""
        if not (self.request or self.cue):
            return prompt
        prompt = with_request(prompt, self.request)
        return with_cue(prompt, self.cue) if isinstance(prompt, str) and not self.chats_texts else prompt

    def prompts(self, prompts: Sequence[PromptText]) -> list[list[int]]:
        """Return the tokens of prompts, with the start token that the tokenizer or the chat template adds, if any."""
        return [ids for ids, _ in self.encoded(prompts)]

    def encoded(self, prompts: Iterable[PromptText]) -> Iterator[tuple[list[int], str]]:
        """Yield the tokens of prompts, and their texts for the infos: of conversations as the chat template renders.

        Raises:
            ValueError: for a prompt that the tokenizer cannot spell, or the chat template cannot render.
        """
        asked = map(self.asked, prompts)
        while block := list(islice(asked, BLOCK)):
            plain = [prompt for prompt in block if isinstance(prompt, str) and not self.chats_texts]
            encoded = iter(self.spell("prompt", plain, add_special_tokens=True))
            for prompt in block:
                if self.is_chat(prompt):
                    ids, text = self._rendered(prompt)
                else:
                    ids, text = next(encoded), text_of(prompt)
                    if ids and ids[-1] == self.tokenizer.eos_token_id:  # a prompt must stay open
                        ids.pop()
                yield ids, prompt if isinstance(prompt, str) else text

    def once(self, kind: str, texts: Iterable[PromptText], limits: tuple[Any, ...], make: Callable[[], T]) -> T:
        """Return the result of `make`, or the last one of its kind if it was made from the same content.

        A run makes three environments: one plans its memory, one trains and one evaluates. They encode the same
        problems, which takes seconds. The content is compared by value: the tokenizer with all of its settings, the
        chat template and the texts around prompts.

        Args:
            kind: of the result; one of each kind is kept in this process.
            texts: that are encoded.
            limits: further values that the result depends on.
            make: encodes the texts; the result must not be changed.
        """
        if not self.tokenizer.is_fast:  # its settings cannot be read
            return make()
        texts, chat = list(texts), self.chat
        schemas = chat.schemas if any(map(self.is_chat, texts)) else []
        settings = [self.tokenizer.backend_tokenizer.to_str(), self.tokenizer.chat_template, self._control]
        around = [chat.system_prompt, schemas, self.chats_texts, self.request, self.cue]
        names = [self._unknown, self.tokenizer.eos_token_id, self.tokenizer.special_tokens_map]
        content = hashlib.blake2b(json.dumps([settings, around, names], default=str).encode())
        for text in texts:
            content.update(json.dumps(text).encode())
        made_from = type(self.tokenizer), content.digest(), limits
        known, result = _latest.get(kind, (None, None))  # read once: another thread may replace it
        if known != made_from:
            result = make()
            _latest[kind] = made_from, result
        return result

    def answered(self, prompts: Sequence[PromptText], answers: Sequence[str]) -> list[list[int]]:
        """Return the tokens of prompts with their answers, as a reward model reads them; answers are not checked.

        A text and its answer are one text. A conversation has the tokens of `prompts`, of the answer as plain
        text, and the chat template's tokens after a message of the assistant.
        """
        chats = list(map(self.is_chat, prompts))
        pairs = list(zip(prompts, answers, chats, strict=True))
        read = iter(self.prompts([prompt for prompt, _, chat in pairs if chat]))
        said = iter(self.ids([answer for _, answer, chat in pairs if chat]))
        plain = iter(self.ids([f"{self.asked(prompt)}{answer}" for prompt, answer, chat in pairs if not chat], True))
        return [[*next(read), *next(said), *self._after_answer] if chat else next(plain) for chat in chats]

    def tail(self, prompt: PromptText) -> list[int]:
        """Return the tokens that the chat template appends to the last message of a prompt; none for a text."""
        if not self.is_chat(prompt):
            return []
        last = self.chat.pieces(self.asked(prompt))[-1]
        return self._skeleton_encoder([last])[0] if last.role is None else []

    def reply(
        self, said: Sequence[Message], content: str | list[Message], ending: str, chat: bool, last: int | None = None
    ) -> list[int]:
        """Return the tokens that the environment appends to a turn: the missing part of its end, and the reply.

        Args:
            said: the conversation so far, of which the last message is that turn.
            content: of the reply.
            ending: of the turn: `STOP`, `STRING` or `CUT`.
            chat: whether the conversation is rendered with the chat template.
            last: the turn's last token.

        Raises:
            ValueError: if the template cannot render the reply, or the tokenizer cannot spell it.
        """
        if isinstance(content, str) or chat:
            text = text_of(content)
        else:  # messages, in a plain text
            text = "".join(f"{message['content']}\n" for message in content)
        _check_unicode("reply", text)
        if not chat:
            end = [int(self.tokenizer.eos_token_id)] if ending == CUT else []
            return [*end, *(self.spell("reply", [text])[0] if text else ())]
        ids = self._checked("reply", text, self.chat.after_turn(said, as_messages(content)))
        if ending == STOP and self.end_of_turn in ids:  # the model has written one
            return ids[ids.index(self.end_of_turn) + 1 :]
        # Turns of GLM end with the token that the reply begins with, such as <|user|>.
        return ids[1:] if ending == STOP and ids[:1] == [last] else ids

    @cached_property
    def _after_answer(self) -> list[int]:
        after = self.chat.after_answer
        return self._skeleton_encoder([Piece(after, None)])[0] if after else []

    def is_chat(self, prompt: PromptText) -> bool:
        """Tell whether a prompt is rendered with the chat template."""
        return self.chats_texts or not isinstance(prompt, str)

    @cached_property
    def _skeleton_encoder(self) -> SkeletonEncoder:
        return SkeletonEncoder(self.tokenizer, chat_tokens(self.tokenizer, self.chat))

    @cached_property
    def end_of_turn(self) -> int | None:
        """The special token that the chat template puts after a message of the assistant; None if there is none."""
        if not self.tokenizer.chat_template:
            return None
        found = self._skeleton_encoder.pattern.match(self.chat.after_answer.lstrip())
        return None if found is None else self._skeleton_encoder.control[found[0]]

    def spell(self, what: str, texts: list[str], add_special_tokens: bool = False) -> list[list[int]]:
        """Return the tokens of texts, and check them.

        Args:
            what: "prompt", "demonstration" or "reply", for the error message.
            texts: at least one.
            add_special_tokens: whether the tokenizer adds its own tokens around each text.

        Raises:
            ValueError: for a text that is not Unicode, has characters that the tokenizer does not know, or that this
                tokenizer would turn into a control token.
        """
        for text in texts:
            _check_unicode(what, text)
        encoded = self.ids(texts, add_special_tokens)
        for text, ids in zip(texts, encoded, strict=True):
            if self._unknown is not None and self._unknown in ids:
                raise self._outside(what, text)
            if any(spelled in text for spelled in self._control):
                control = set(self._control.values()) - {self._unknown}
                if control & set(self.ids([text])[0]):
                    raise _reads_control(what, text)
        return encoded

    def ids(self, texts: list[str], add_special_tokens: bool = False) -> list[list[int]]:
        """Return the tokens of texts without checking them."""
        if not texts:
            return []
        return self.tokenizer(
            texts,
            add_special_tokens=add_special_tokens,
            split_special_tokens=True,
            return_attention_mask=False,
            return_token_type_ids=False,
        )["input_ids"]

    def _rendered(self, prompt: PromptText) -> tuple[list[int], str]:
        """Return the tokens and the text of a rendered prompt, which has no other control tokens than it may have."""
        text = text_of(prompt)
        _check_unicode("prompt", text)
        pieces = self.chat.pieces(prompt)
        fields = [] if isinstance(prompt, str) else [each for message in prompt for each in message.items()]
        beside = [str(value) for key, value in fields if key not in ("role", "content")]  # such as calls of tools
        if any(control in each for each in beside for control in self._skeleton_encoder.control):
            raise _reads_control("prompt", text)  # for the template writes calls, and its own text may hold them
        return self._checked("prompt", text, pieces), "".join(piece.text for piece in pieces)

    def _checked(self, what: str, text: str, pieces: Sequence[Piece]) -> list[int]:
        """Return the tokens of these pieces, which have no other control tokens than they may have."""
        ids, written = self._skeleton_encoder(pieces)
        control = set(self._skeleton_encoder.control.values())
        found = [token for token in ids if token in control]
        if found != written:
            if self._unknown is not None and found.count(self._unknown) > written.count(self._unknown):
                raise self._outside(what, "".join(piece.text for piece in pieces))
            raise _reads_control(what, text)
        return ids

    def _outside(self, what: str, text: str) -> ValueError:
        outside = [c for c in dict.fromkeys(text) if self._unknown in self.ids([c])[0]]
        if outside:
            return ValueError(f"{what} {shown(text)} has characters outside the tokenizer's alphabet: {outside}")
        words = [word for word in dict.fromkeys(text.split()) if self._unknown in self.ids([word])[0]]
        return ValueError(f"{what} {shown(text)} has words that the tokenizer cannot spell: {shown(words)}")


class SkeletonEncoder:
    """Encodes a rendered conversation as the tokenizer would, but finds control tokens only where they may be.

    It uses a copy of the tokenizer that has a second spelling, a mark, for each control token and does not recognize
    the first one. Marks replace control tokens in the template's text, and those around thoughts in messages of the
    system; other contents stay as they are. So the text between two control tokens is cut into tokens as in the whole
    text.

    Args:
        tokenizer: any fast Hugging Face tokenizer.
        control: the ids of the control tokens by their text.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, control: dict[str, int]) -> None:
        self.tokenizer, self.control = tokenizer, control
        self.pattern = any_of(control)
        self._of_system = any_of(control.keys() & THOUGHTS - control_tokens(tokenizer).keys())
        self._marks = {text: f"\U0010fffd{number}\U0010fffd" for number, text in enumerate(self.control)}

    @cached_property
    def _marked(self) -> tuple[Tokenizer, dict[int, int]]:
        """The copy, and the control tokens that its marks stand for."""
        if not self.tokenizer.is_fast:
            raise ValueError(f"conversations need a fast tokenizer, got {type(self.tokenizer).__name__}")
        copy = Tokenizer.from_str(self.tokenizer.backend_tokenizer.to_str())
        copy.no_truncation()
        copy.no_padding()
        copy.add_special_tokens(list(self.control))  # so that `encode_special_tokens` turns all of them into text
        known, meant = self.tokenizer.added_tokens_decoder, {}
        for text, mark in self._marks.items():
            like = known.get(self.control[text])
            strips = {} if like is None else {"lstrip": like.lstrip, "rstrip": like.rstrip}
            copy.add_tokens([AddedToken(mark, normalized=False, special=False, **strips)])
            token = copy.token_to_id(mark)
            assert token is not None  # it was added
            meant[token] = self.control[text]
        return copy, meant

    def __call__(self, pieces: Sequence[Piece]) -> tuple[list[int], list[int]]:
        """Return the tokens of a rendered conversation, and the control tokens that it may have, in order."""
        copy, meant = self._marked
        copy.encode_special_tokens = True  # a pickled tokenizer forgets it
        marked, written = [], []
        for piece in pieces:
            if piece.role not in (None, "system"):
                marked.append(piece.text)
                continue
            pattern = self.pattern if piece.role is None else self._of_system
            marked.append(pattern.sub(lambda found: self._marks[found[0]], piece.text))
            written += [self.control[text] for text in pattern.findall(piece.text)]
        ids = copy.encode("".join(marked), add_special_tokens=False).ids
        return [meant.get(token, token) for token in ids], written


def _check_unicode(what: str, text: str) -> None:
    if not is_unicode(text):
        raise ValueError(f"{what} {shown(text)}: {NOT_UNICODE}")


def _reads_control(what: str, text: str) -> ValueError:
    return ValueError(f"{what} {shown(text)} has text that this tokenizer reads as a control token")
