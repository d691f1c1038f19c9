"""An engine as an actor: it is asked for whole turns, and the environment takes their tokens one by one.

The environment alone ends turns. Tokens count as long as the context of a slot is the one that they were written
after; tokens left when a reply or the next episode comes are surplus and never actions. A slot without tokens waits
until no slot has any left: then all of them ask in one round, in the order of their episodes. So what is asked, and
with which seed, does not depend on the clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from typing_extensions import override

from ..devices import to_device
from ..errors import EngineError
from ..policies.actor import Actor, for_env
from ..policies.draws import hashed, key_of
from .base import Engine, Request, checked, unasked


class EngineActor(Actor):
    """Acts with an engine during one rollout.

    Args:
        engine: has the policy's weights.
        policy: of language; its temperature and vocabulary count.
        metadata: of the environment: where turns end.
        num_slots: B.
        space: of one action.
        device: of the tensors that a rollout keeps.
        generator: gives the key of the rollout's draws; None takes the likeliest tokens.
    """

    def __init__(
        self,
        engine: Engine,
        policy: Any,
        metadata: Mapping[str, Any],
        num_slots: int,
        space: gym.Space,
        device: torch.device,
        generator: torch.Generator | None,
    ) -> None:
        self.engine, self.policy, self.space, self.device = engine, policy, space, device
        self.stops = tuple(metadata.get("stop_token_ids", ()))
        self.longest = int(metadata.get("max_new_tokens") or policy.max_length)  # turn
        self.key = None if generator is None else key_of(generator)
        self.started = 0
        self.episode, self.turn, self.part = np.zeros((3, num_slots), dtype=np.int64)
        self.taken, self.length = np.zeros((2, num_slots), dtype=np.int64)  # tokens of the turn, and of the context
        self.place, self.end = np.zeros((2, num_slots), dtype=np.int64)  # in the next two, of what is not taken yet
        self.tokens = np.zeros((num_slots, self.longest), dtype=np.int64)
        self.log_probs = np.zeros((num_slots, self.longest), dtype=np.float32)

    @override
    def act(self, obs: Any, starts: np.ndarray, playing: np.ndarray) -> tuple[Any, torch.Tensor, torch.Tensor]:
        playing = playing if self.waiting is None else playing & ~self.waiting
        self._follow(torch.as_tensor(obs["length"]).cpu().numpy(), starts, playing)
        has_tokens = self.place < self.end
        if not (playing & has_tokens).any() and playing.any():
            self._ask(torch.as_tensor(obs["tokens"]).cpu().numpy(), np.flatnonzero(playing))
            has_tokens = self.place < self.end
        self.acting = playing & has_tokens
        slots, at = np.arange(len(playing)), self.place.clip(max=self.longest - 1)
        actions, log_probs = (to_device(kept[slots, at], self.device) for kept in (self.tokens, self.log_probs))
        for counter in (self.place, self.taken, self.length):
            counter += self.acting
        taken = actions if isinstance(obs["tokens"], torch.Tensor) else actions.cpu().numpy()
        return for_env(taken, self.space), actions, log_probs

    def _follow(self, lengths: np.ndarray, starts: np.ndarray, playing: np.ndarray) -> None:
        """Number new episodes and turns and reset their slots' counters, given the lengths of the contexts [B]."""
        begun = np.flatnonzero(starts)
        self.episode[begun] = self.started + np.arange(len(begun))
        self.started += len(begun)
        next_turn = playing & ~starts & ((lengths != self.length) | (self.taken >= self.longest))
        self.turn[next_turn] += 1
        self.turn[begun] = 0
        new = starts | next_turn
        for counter in (self.part, self.taken, self.place, self.end):
            counter[new] = 0
        self.length[new] = lengths[new]

    def _ask(self, contexts: np.ndarray, slots: np.ndarray) -> None:
        """Have the engine write for these slots, given the contexts [B, L].

        Raises:
            EngineError: for an answer that no policy over this vocabulary writes.
        """
        slots = slots[self.episode[slots].argsort()]
        room = np.minimum(self.longest - self.taken, contexts.shape[1] - self.length)[slots].clip(min=1)
        requests = [
            Request(
                contexts[slot, : self.length[slot]].tolist(),
                most,
                0.0 if self.key is None else self.policy.temperature,
                self.stops,
                self._seed(slot),
            )
            for slot, most in zip(slots, room.tolist(), strict=True)
        ]
        open_requests = dict(enumerate(requests))
        for written in self.engine.write(requests):
            request = open_requests.pop(written.place, None)
            if request is None:
                raise EngineError(unasked(written.place, len(requests)))
            try:
                tokens, log_probs = checked(written, request, self.policy.vocab_size)
            except EngineError as error:
                raise EngineError(f"request {written.place + 1} of {len(requests)}: {error}") from error
            slot, count = slots[written.place], len(tokens)
            self.tokens[slot, :count], self.log_probs[slot, :count] = tokens, log_probs
            self.place[slot], self.end[slot] = 0, count
        if missing := len(open_requests):
            raise EngineError(f"the engine left {missing} of {len(requests)} requests without an answer; restart it")
        self.part[slots] += 1

    def _seed(self, slot: int) -> int:
        """Return the seed of a request: a hash of the rollout's key, the episode, its turn and the part of the turn."""
        named = (self.key or 0, int(self.episode[slot]), int(self.turn[slot]), int(self.part[slot]))
        return hashed(",".join(map(str, named)).encode()) >> 1
