"""gem: the environments of the package gem-llm, "gem:game:GuessTheNumber-v0-easy" and others."""

from __future__ import annotations

import difflib
from typing import Any

from typing_extensions import override

from ...plugins.extras import require
from ...plugins.registry import register_verifier
from .stepped import SteppedWorld


@register_verifier("gem")
class Gem(SteppedWorld):
    """An environment of GEM; its rewards are those of its steps.

    A problem is a seed, and the prompt is what the environment says first. GEM's global random state is kept apart from
    ours. The package gem-llm 0.1.0 allows Python 3.11 and 3.12. Environments of lists of questions download them.

    Args:
        env: its id, such as "game:GuessTheNumber-v0-easy"; it is played as `gem.make` makes it.
        turns: actions per episode; an episode with more ends with a reward of 0.
        reply_length: longest observation in characters; by default twice the longest opening of a few.
        reward_range: lowest and highest reward of an episode.
        success_reward: the least reward of an episode that counts as a success.
        settings: further arguments of `gem.make`, such as max_turns.

    Raises:
        ValueError: if gem-llm is not installed, for an unknown id (with the closest matches), or settings that the
            environment does not take.
    """

    needs = {"gem": "gem"}

    def __init__(
        self,
        env: str,
        turns: int = 20,
        reply_length: int | None = None,
        reward_range: Any = (-1.0, 1.0),
        success_reward: float = 1.0,
        **settings: Any,
    ) -> None:
        self.env, self.settings = env, settings
        library = require("gem", "gem", "verifier 'gem'")
        known = sorted(require("gem.envs.registration", "gem", "verifier 'gem'").ENV_REGISTRY)
        if env not in known:
            close = difflib.get_close_matches(str(env), known, n=3)
            hint = f"did you mean {', '.join(close)}?" if close else f"there are {len(known)}, such as {known[0]}"
            raise ValueError(f"gem: unknown environment {env!r}; {hint}")
        try:
            library.make(env, **settings)
        except Exception as error:  # whatever its constructor raises
            lines = [line.strip() for line in str(error).splitlines() if any(map(str.isalpha, line))]
            raise ValueError(f"gem:{env} cannot be made with {settings}: {' '.join(lines[:1])}") from error
        super().__init__(f"gem:{env}", turns, reply_length, reward_range, success_reward)

    @override
    def make(self) -> Any:
        return require("gem", "gem", "verifier 'gem'").make(self.env, **self.settings)
