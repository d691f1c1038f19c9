"""An episode as a picture: its tokens as a strip of boxes, and the reward at the end. For `render_mode="rgb_array"`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from transformers import PreTrainedTokenizerBase

from rlenv.verifiers.text import visible

WIDTH, MARGIN, GAP = 640, 16, 4  # pixels
BOX, FONT, FOOT = 32, 20, 48  # height of a box and of its letters, height of the line with the reward
TOKENS_PER_LINE = 12  # what sets the height; how many fit depends on their texts
MOST_LINES = 8  # of longer episodes the newest lines are shown
LONGEST = 24  # characters of a token
PAPER, INK, SOFT = "#ffffff", "#1f2328", "#656d76"
PROMPT, GENERATED, STOP = "#eaeef2", "#ddf4ff", "#fbefff"
GOOD, BAD, NEITHER = "#1a7f37", "#cf222e", "#9a6700"


class Picture:
    """Draws episodes of one environment; every picture has the same size, so that they make a video.

    Letters come from the font that pillow brings with it. It has Latin letters; others are drawn as empty boxes.

    Args:
        tokenizer: of the tokens.
        stop_token_ids: tokens that end a turn, drawn in a separate color.
        max_length: tokens of the longest episode, which sets the height.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stop_token_ids: Iterable[int], max_length: int) -> None:
        self.tokenizer, self.stop_token_ids = tokenizer, set(stop_token_ids)
        self.lines = min(MOST_LINES, -(-max_length // TOKENS_PER_LINE))
        height = 2 * MARGIN + self.lines * (BOX + GAP) + FOOT
        self.size = (WIDTH, height + height % 2)  # video formats want even numbers

    def frame(self, tokens: Sequence[int], prompt_length: int, outcome: str, success: bool | None) -> np.ndarray:
        """Return an episode as uint8 [height, width, 3].

        Args:
            tokens: the prompt's and the generated ones.
            prompt_length: how many tokens are the prompt.
            outcome: the line below the tokens; "" while the episode runs.
            success: its color, by whether the episode was solved; None for an episode without a verdict.
        """
        image = Image.new("RGB", self.size, PAPER)
        draw = ImageDraw.Draw(image)
        boxes = list(self._layout(tokens))
        first = max(0, 1 + max((line for line, *_ in boxes), default=0) - self.lines)
        for index, (line, left, right, text) in enumerate(boxes):
            if line < first:
                continue
            top = MARGIN + (line - first) * (BOX + GAP)
            color = PROMPT if index < prompt_length else STOP if tokens[index] in self.stop_token_ids else GENERATED
            draw.rounded_rectangle((left, top, right, top + BOX), radius=6, fill=color)
            draw.text(((left + right) / 2, top + BOX / 2), text, fill=INK, font=_font(), anchor="mm")
        middle = self.size[1] - FOOT // 2
        if outcome:
            color = NEITHER if success is None else GOOD if success else BAD
            draw.ellipse((MARGIN, middle - 7, MARGIN + 14, middle + 7), fill=color)
            draw.text((MARGIN + 24, middle), outcome, fill=color, font=_font(), anchor="lm")
        else:
            count = len(tokens) - prompt_length
            said = f"{count} token{'' if count == 1 else 's'}"
            draw.text((MARGIN, middle), said, fill=SOFT, font=_font(), anchor="lm")
        return np.asarray(image)

    def _layout(self, tokens: Sequence[int]) -> Iterator[tuple[int, int, int, str]]:
        """Yield line, left end, right end (pixels) and text of every token's box."""
        line, left = 0, MARGIN
        for token in tokens:
            text = token_text(self.tokenizer, token)
            text = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
            width = max(BOX, round(_font().getlength(text)) + 14)
            if left > MARGIN and left + width > WIDTH - MARGIN:
                line, left = line + 1, MARGIN
            yield line, left, min(left + width, WIDTH - MARGIN), text
            left += width + GAP


def token_text(tokenizer: PreTrainedTokenizerBase, token: int) -> str:
    """Return a token as one visible line: a special one by its name, spaces as ·, line ends and the like escaped."""
    if token in tokenizer.all_special_ids:
        return str(tokenizer.convert_ids_to_tokens(token))
    return visible(str(tokenizer.decode([token])))


@cache
def _font() -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(FONT)
