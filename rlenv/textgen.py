"""TextGen-v0, one episode at a time, with numpy: the reference implementation."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from rlenv.verifiers import Problem

from .encoder import CUT
from .judge import Exchange
from .problems import Prompt
from .task import TextGenTask, drawing, expanded
from .turns import Turn, outcome_of


class TextGenEnv(gym.Env[dict[str, Any], np.int64]):
    """Text generation as a Gymnasium environment: every action is a token, the reward comes at the end.

    Observation: `tokens` [L], the prompt and everything generated so far, right-padded, and `length`, how
    many of them are real. Action: a token id. Reward: 0 at every step but the last; there, the verdict's reward.
    A stop token sets `terminated`. Running out of `max_new_tokens` sets `terminated` and `truncated`:
    the verdict on the cut text is final, so no critic may bootstrap past it, and the cut is still visible.
    Info at the end: `completion`, `verdict` (named parts), `is_success`, `verifier_failed` (timeout or error),
    `verdict_status`, `verdict_reason`, and `level` if the problems have one. The key `episode` is left to
    Gymnasium's `RecordEpisodeStatistics`.

    If the verifier has dialogues (`Verifier.dialogue`), an episode has several turns. A turn ends with a stop
    token, a stop string or at `max_new_tokens`; then the reply is appended, and `length` grows by 1 and the tokens of
    the reply, which are never actions. Every turn may be rewarded. The episode ends with a verdict, or when turns or
    context run out (`terminated` and `truncated`). Info at a turn's end: `turn`, `reply` and `appended`, the number of
    tokens; at the end also `messages` and `turns`, and `completion` is the last turn.

    Args:
        render_mode: None, "ansi" (`render` returns the text), "human" (episodes are printed as they end) or "rgb_array"
            (`render` returns a picture of the tokens, uint8 [height, width, 3]; see `rlenv.picture`).
        task: everything else, see `rlenv.task.TextGenTask`; or `task="gsm8k"`, see `rlenv.tasks`, and what differs.
    """

    metadata: dict[str, Any] = {
        "render_modes": ["ansi", "human", "rgb_array"],
        "render_fps": 4,
        "traits": {"verdicts_in_infos": True, "replies_in_infos": True, "reset_options": ("progress",)},
    }

    def __init__(self, render_mode: str | None = None, **task: Any) -> None:
        self.render_mode = render_mode
        self.task = TextGenTask(**expanded(**task))
        self.action_space = self.task.encoding.action_space
        self.observation_space = self.task.encoding.observation_space
        self.metadata = {**self.metadata, **self.task.metadata}
        self._prompt: Prompt | None = None
        self._tokens: list[int] = []
        self._done = False
        self._turn_began = 0  # column of the turn's first token
        self._exchange: Exchange | None = None  # of the newest episode with the other side
        self._next_episode, self._posed = 0, False  # in the stream, and whether that has begun
        self._outcome = ""
        self._success: bool | None = None
        self._picture = drawing(render_mode, self.metadata["render_modes"], self.task.encoding)

    @property
    def problem(self) -> Problem | None:
        """The problem of the newest episode, with its reference answer; None before the first `reset`."""
        return None if self._prompt is None else self._prompt.problem

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Start the next episode of the stream; with a seed, the first one of that seed's stream.

        `options["progress"]` tells verifiers that want it how far the training is; see `Completion`.
        """
        self.task.read_options(options, self.metadata["traits"]["reset_options"])
        if seed is not None or not self._posed:
            super().reset(seed=seed)
            self.task.reseed(self.np_random)
            self._next_episode, self._posed = 0, True
        self.task.stream.update()
        groups = self.task.groups([self._next_episode])
        self._prompt = self.task.prompts(groups)[0]
        self._next_episode += 1
        self._tokens, self._done, self._outcome = list(self._prompt.tokens), False, ""
        self._success, self._turn_began = None, len(self._tokens)
        self._leave()
        self._exchange = self.task.responder.begin(self._prompt.problem)
        return self._observation(), {"group": groups[0], "prompt": self._prompt.text}

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Append a token; if it ends a turn, append the reply, or judge the episode and end it.

        Raises:
            ValueError: for an action outside the vocabulary.
            RuntimeError: if the episode is over.
        """
        if self._exchange is None or self._done:
            raise RuntimeError("the episode is over (or none was started): call reset() before step()")
        encoding = self.task.encoding
        whole = np.issubdtype(np.asarray(action).dtype, np.integer) and np.ndim(action) == 0
        if not whole or not 0 <= int(action) < encoding.vocab_size:
            raise ValueError(f"action {action} is outside the vocabulary; allowed: 0 to {encoding.vocab_size - 1}")
        self._tokens.append(int(action))
        turn = self._tokens[self._turn_began :]
        used_up = len(turn) == encoding.max_new_tokens or len(self._tokens) == encoding.max_length
        ending = encoding.ending(turn) or (CUT if used_up else None)
        if ending is None:
            return self._observation(), 0.0, False, False, {}
        over = Turn(self._exchange, turn, ending, encoding.max_length - len(self._tokens))
        self._done = True  # also if the verifier raises
        (answer,) = self.task.responder.answer([over])
        self._done = answer.tokens is None
        if answer.tokens is None:
            self.task.record(self._exchange.problem, answer.info)
            self._outcome, self._success = outcome_of(answer.reward, answer.info)
            if self.render_mode == "human":
                self.render()
        else:
            self._tokens += answer.tokens
            self._turn_began = len(self._tokens)
        return self._observation(), answer.reward, self._done, answer.cut, answer.info

    def _leave(self) -> None:
        """Give up the episode under way, if any."""
        if self._exchange is not None:
            self.task.judge.close(self._exchange)
        self._exchange = None

    def render(self) -> str | np.ndarray | None:
        """Return the prompt, the completion so far and the reward: as text ("ansi"), printed ("human"), or a picture.

        None before the first `reset`, and without a render mode that returns something.
        """
        if self._prompt is None:
            return None
        if self._picture is not None:
            return self._picture.frame(self._tokens, len(self._prompt.tokens), self._outcome, self._success)
        (completion,) = self.task.encoding.shown([self._tokens[len(self._prompt.tokens) :]])
        text = f"{self._prompt.text}│{completion}" + f"  {self._outcome}" * bool(self._outcome)
        if self.render_mode == "human":
            print(text)
            return None
        return text

    def state_dict(self) -> dict[str, Any]:
        """Return the place in the stream of problems, in plain values; the next `reset` goes on from it."""
        return {"next_episode": self._next_episode, "posed": self._posed, "stream": self.task.stream.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state from `state_dict`.

        Raises:
            ValueError: if the environment poses other problems.
        """
        next_group = state["next_episode"] // self.task.group_size
        self.task.stream.load_state_dict(state["stream"], self.task.first_problem + next_group)
        self._next_episode, self._posed, self._prompt = state["next_episode"], state["posed"], None
        self._leave()

    def close(self) -> None:
        """Stop worker processes and close the verifier."""
        self._leave()
        self.task.judge.stop()

    def _observation(self) -> dict[str, Any]:
        tokens = np.full(self.task.encoding.max_length, self.task.encoding.pad_token_id, dtype=np.int64)
        tokens[: len(self._tokens)] = self._tokens
        return {"tokens": tokens, "length": np.int64(len(self._tokens))}
