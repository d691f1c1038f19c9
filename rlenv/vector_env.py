"""TextGen-v0 batched, with torch tensors: many episodes at once, each as `textgen.py` specifies it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, repeat
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from rlenv._checks import check_choice, check_count

from ._loop import always
from .autoreset import Autoreset
from .encoder import CUT, STOP, STRING
from .slots import Slots, columns
from .task import TextGenTask, drawing, expanded
from .turns import Turn, outcome_of

Obs = dict[str, torch.Tensor]
Info = dict[str, Any]


class TextGenVectorEnv(VectorEnv[Obs, torch.Tensor, torch.Tensor]):
    """B slots of TextGen-v0 whose observations, rewards and flags are torch tensors on one device.

    Episodes are numbered in the order they start, slot by slot, so a single environment with the same seed poses the
    same problems in the same order, and the K episodes of a group are consecutive. Episodes that end at the same step
    are judged in one batch. Infos have the keys of `TextGenEnv` and follow Gymnasium's convention: numpy arrays over
    slots, each `key` with its mask `_key`; `_completion` says which slots ended an episode. Gymnasium's vector
    wrappers use numpy and therefore need `device="cpu"`.

    `reset(options={"reset_mask": mask})` restarts only those slots, and stepping a finished slot does nothing and
    returns reward 0: Gymnasium's mode DISABLED; `autoreset.Autoreset` has the others. Restarting slots while others
    continue is continuous batching. Slots that were never reset count as finished.

    Args:
        num_envs: B, the number of slots.
        device: of the tensors, such as "cpu" or "cuda".
        render_mode: None, "ansi" or "rgb_array": `render` returns a tuple with the text or the picture of every slot.
        late_verdicts: do not wait for the verdict when an episode ends, if that saves time (the verifier has worker
            processes, or prefers batches). The reward of that step is NaN, and the infos hold `completion` and
            `verdict_future`, one `concurrent.futures.Future` per slot. Its result is a dictionary: `reward`, and the
            keys that the infos would have had. With a curriculum or a choice of prompts, the next reset without a mask
            waits for all of them.
        late_replies: do not wait for the replies of dialogues, if the verifier has worker processes. The slot waits for
            its reply while others go on: its actions are ignored, its observation stays, its reward is 0, and the
            infos have `waiting`, until the step that brings the reply, with its reward. When more than half of the
            slots wait, or no other slot goes on, the oldest eighth of the replies is waited for, in the order in which
            their turns ended, so episodes do not depend on the clock.
        task: everything else, see `rlenv.task.TextGenTask`; or `task="gsm8k"`, see `rlenv.tasks`, and what differs.

    Attributes:
        playing: slots whose episode is not over, bool [B]; some of them wait for a reply, the others act.
        settles_always: whether a curriculum or a choice of prompts counts verdicts at resets with a mask, too.

    Raises:
        ValueError: for an unknown device or render mode, or any error of `TextGenTask`.
    """

    metadata: dict[str, Any] = {
        "render_modes": ["ansi", "rgb_array"],
        "render_fps": 4,
        "autoreset_mode": AutoresetMode.DISABLED,
        "traits": {
            "finished_slots_may_step": True,
            "ends_are_in_infos": True,
            "verdicts_in_infos": True,
            "replies_in_infos": True,
            "groups_span_slots": True,
            "reset_options": ("progress", "groups", "goes_on"),
            "agent_settings": (
                *("device", "group_size", "late_verdicts", "late_replies", "flag_errors", "trust", "share"),
                "tokenizer",
            ),
        },
    }

    def __init__(
        self,
        num_envs: int = 1,
        device: str | torch.device = "cpu",
        render_mode: str | None = None,
        late_verdicts: bool = False,
        late_replies: bool = False,
        **task: Any,
    ) -> None:
        num_envs = check_count("num_envs", num_envs)
        self.task = TextGenTask(**expanded(**task))
        self._slots = Slots(self.task.responder, self.task.listener, num_envs, late_verdicts, late_replies)
        self.metadata = {
            **self.metadata,
            "late_verdicts": self._slots.verdicts is not None,
            "late_replies": self._slots.replies is not None,
            **self.task.metadata,
            "share": self.task.share,
            "hears_verdicts": self.task.shared_curriculum is not None,
        }
        self.render_mode = render_mode
        self.num_envs = num_envs
        encoding = self.task.encoding
        self.single_action_space = encoding.action_space
        self.single_observation_space = encoding.observation_space
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        try:
            self._tokens = torch.full((num_envs, encoding.max_length), encoding.pad_token_id, device=device)  # [B, L]
        except (RuntimeError, AssertionError) as error:
            raise ValueError(f"device {str(device)!r} cannot be used: {str(error).splitlines()[0]}") from error
        self.device = self._tokens.device
        self._lengths = torch.zeros(num_envs, dtype=torch.int64, device=self.device)  # [B]
        self._moves = torch.zeros(num_envs, dtype=torch.int64, device=self.device)  # 1 in slots that act, else 0 [B]
        self._rows = torch.arange(num_envs, device=self.device)
        # The host decides who ends: it keeps what it needs for that, and learns the actions of each step.
        self.playing = np.zeros(num_envs, dtype=bool)
        self._acting = self.playing  # those that do not wait for a reply [B]
        self._taken = np.zeros(num_envs, dtype=np.int64)  # actions of each turn, of which a completion is one [B]
        self._completions = np.zeros((num_envs, encoding.max_new_tokens), dtype=np.int64)
        self._stops = np.array(encoding.stop_token_ids)
        self._next_episode, self._posed = 0, False  # in the stream, and whether that has begun
        self.settles_always = False
        self._again: Iterator[int] | None = None  # groups that are posed again, instead of the next ones
        self._picture = drawing(render_mode, self.metadata["render_modes"], encoding)
        self._outcomes: list[tuple[str, bool | None]] = [("", None)] * num_envs  # for pictures only

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Obs, Info]:
        """Start new episodes in every slot, or in the slots of `options["reset_mask"]` (bool, [B]).

        Without a mask, a new group begins, even if the last one is incomplete. With a seed, the stream of problems
        starts again from that seed, and groups are numbered from 0.
        `options["progress"]` tells verifiers that want it how far the training is; see `Completion`.
        `options["goes_on"]` is a function that is asked while `step` waits for replies: once it returns False, `step`
        raises `concurrent.futures.CancelledError`, and only another reset goes on. It holds until the next reset
        without a mask.
        `options["groups"]`, numbers of groups from infos, poses their prompts again: one episode each in this order,
        here and at the next resets with a mask; the last one also in what they start beyond. A reset without a mask and
        without groups, or `load_state_dict`, goes on in the stream.

        Raises:
            ValueError: if the mask has another shape or selects nothing, a group has not been posed, or an option is
                unknown.
        """
        self.task.read_options(options, ("reset_mask", *self.metadata["traits"]["reset_options"]))
        mask = None if options is None else options.get("reset_mask")
        rows = list(range(self.num_envs)) if mask is None else np.flatnonzero(self._flags("reset_mask", mask)).tolist()
        if not rows:
            raise ValueError(f"reset_mask must select one of the {self.num_envs} slots, got {mask!r}")
        if mask is None or "goes_on" in (options or {}):
            self.task.judge.goes_on = (options or {}).get("goes_on", always)
        if seed is not None or not self._posed:
            super().reset(seed=seed)
            self.task.reseed(self.np_random)
            self._next_episode, self._posed = 0, True
        if (again := (options or {}).get("groups")) is not None:
            numbers = self._in_stream(again)
            self._again = chain(numbers, repeat(numbers[-1]))
        elif mask is None:  # begin a new group
            self._again, self._next_episode = None, self._groups_begun() * self.task.group_size
        starts = self._start(rows, new_rollout=mask is None)
        return self._observation(), columns(starts, self.num_envs)

    def step(self, actions: Any, acting: Any = None) -> tuple[Obs, torch.Tensor, torch.Tensor, torch.Tensor, Info]:
        """Append a token in every slot that acts, and the replies to turns that ended; judge the episodes that ended.

        Args:
            actions: token ids [B].
            acting: the slots that take their action, bool [B]; None for all. The others stay as they are: their reward
                is 0, and their episodes do not end. Late replies still reach the slots that wait for one.

        Raises:
            ValueError: for an action outside the vocabulary in a slot that acts, or a batch or mask of the wrong shape.
        """
        if not self._posed:
            raise RuntimeError("no episode was started: call reset() before step()")
        actions = torch.as_tensor(actions, device=self.device)
        if actions.shape != (self.num_envs,) or actions.is_floating_point() or actions.dtype is torch.bool:
            raise ValueError(f"actions must be {self.num_envs} token ids, got {actions.dtype} {tuple(actions.shape)}")
        actions, acts = actions.long(), None if acting is None else self._flags("acting", acting)
        rewards, ended, cut, infos = self._answer(*self._append(actions, acts))
        kind = HostTensor if self.device.type == "cpu" else torch.Tensor
        paid, over, short = (to_device(each, self.device).as_subclass(kind) for each in (rewards, ended, cut))
        return self._observation(), paid, over, short, columns(infos, self.num_envs)

    def record_outcomes(self, levels: Iterable[float], successes: Iterable[float]) -> None:
        """Record how episodes of all processes ended, in the same order, in the curriculum of a shared stream.

        Args:
            levels: of each episode, or the number of its arm (`prompt_arm` in the infos), if it has one.
            successes: 1 or 0 for each; episodes without a verdict are left out.

        Raises:
            ValueError: if the stream is not shared, or has neither a curriculum nor a choice of prompts.
        """
        if self.task.shared_curriculum is None:
            raise ValueError("only the curriculum or choice of prompts of a shared stream is told of verdicts")
        for level, success in zip(levels, successes, strict=True):
            self.task.shared_curriculum.record(int(level), bool(success))

    def state_dict(self) -> dict[str, Any]:
        """Return the place in the stream of problems, in plain values; the next `reset` without a mask goes on from it.

        Episodes under way are not part of it. Verdicts that come late are waited for if a curriculum needs them.
        """
        if self._slots.verdicts is not None:
            self._slots.verdicts.flush()
        begun = self._groups_begun() * self.task.share[1] * self.task.group_size  # of the whole stream
        return {"next_episode": begun, "posed": self._posed, "stream": self.task.stream.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state from `state_dict`.

        Raises:
            ValueError: if the environment poses other problems.
        """
        begun = -(-state["next_episode"] // (self.task.share[1] * self.task.group_size))
        self.task.stream.load_state_dict(state["stream"], self.task.first_problem + begun * self.task.share[1])
        if self._slots.verdicts is not None:
            self._slots.verdicts.forget()
        self._next_episode = begun * self.task.group_size
        self._posed, self._again = state["posed"], None
        self._slots.leave(range(self.num_envs))
        self._set_playing(list(range(self.num_envs)), False)

    def render(self) -> tuple[Any, ...] | None:
        """Return the prompt and the completion so far of every slot: texts, or pictures uint8 [height, width, 3]."""
        if self.render_mode is None:
            return None
        return tuple(map(self._shown, range(self.num_envs)))

    def _shown(self, row: int) -> Any:
        """Return the text or the picture of a slot, replies included."""
        prompt = self._slots.prompts.get(row)
        read, text = ([], "") if prompt is None else (prompt.tokens, prompt.text)
        after = self._tokens[row, len(read) : self._slots.held[row]].tolist()
        if self._picture is not None:
            return self._picture.frame([*read, *after], len(read), *self._outcomes[row])
        return f"{text}│{self.task.encoding.shown([after])[0]}"

    def _groups_begun(self) -> int:
        return -(-self._next_episode // self.task.group_size)

    def _in_stream(self, groups: Iterable[int]) -> list[int]:
        """Return the numbers of groups that have been posed."""
        begun = self._groups_begun() * self.task.share[1]
        numbers = list(map(int, groups))
        if not numbers or min(numbers) < 0 or max(numbers) >= begun:
            posed = f"those from 0 to {begun - 1}" if begun else "none so far"
            raise ValueError(f"options['groups'] must be groups that have been posed, {posed}; got {groups!r:.60}")
        if old := [group for group in numbers if not self.task.stream.remembers(self.task.first_problem + group)]:
            raise ValueError(f"group {old[0]} of the curriculum is too old to be posed again")
        return numbers

    def _flags(self, name: str, mask: Any) -> np.ndarray:
        flags = torch.as_tensor(mask).cpu()
        if flags.shape != (self.num_envs,) or flags.dtype != torch.bool:
            raise ValueError(f"{name} must be {self.num_envs} booleans, got {mask!r}")
        return flags.numpy()

    def _start(self, rows: list[int], new_rollout: bool = False) -> dict[int, Info]:
        """Start the next episodes of the stream in these slots; return their infos.

        Before, a curriculum or a choice of prompts counts the verdicts so far if a rollout begins, or always.
        """
        if new_rollout or self.settles_always:
            if self._slots.verdicts is not None:
                self._slots.verdicts.flush()
            self.task.stream.update()
        if self._again is None:
            numbers = range(self._next_episode, self._next_episode + len(rows))
            groups = self.task.groups(numbers)
            self._next_episode = numbers.stop
        else:
            groups = [next(self._again) for _ in rows]
        prompts = self.task.prompts(groups)
        block = np.full((len(rows), self.task.encoding.max_length + 1), self.task.encoding.pad_token_id, dtype=np.int64)
        for i, prompt in enumerate(prompts):
            self._outcomes[rows[i]] = ("", None)
            if i and prompt is prompts[i - 1]:  # of the same group
                block[i] = block[i - 1]
            else:
                block[i, : len(prompt.tokens)] = prompt.tokens
                block[i, -1] = len(prompt.tokens)
        index, sent = to_device(np.array(rows), self.device), to_device(block, self.device)
        self._tokens[index], self._lengths[index] = sent[:, :-1], sent[:, -1]
        self._taken[rows] = 0
        self._slots.begin(rows, prompts)
        self._set_playing(rows, True)
        starts = ({"group": group, "prompt": prompt.text} for group, prompt in zip(groups, prompts, strict=True))
        return dict(zip(rows, starts, strict=True))

    def _append(self, actions: torch.Tensor, acting: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Write one token into every slot that acts; return which turns are over [B] and which were cut [B]."""
        encoding = self.task.encoding
        acts = self._acting if acting is None else self._acting & acting
        moves = self._moves if acting is None else to_device(acts.astype(np.int64), self.device)
        tokens = actions.cpu().numpy()  # the only wait for the device
        outside = acts & ((tokens < 0) | (tokens >= encoding.vocab_size))
        if outside.any():
            allowed = f"allowed: 0 to {encoding.vocab_size - 1}"
            raise ValueError(f"action {tokens[outside][0]} is outside the vocabulary; {allowed}")
        rows = np.flatnonzero(acts)
        self._completions[rows, self._taken[rows]] = tokens[rows]
        self._taken[rows] += 1
        ended = acts & (tokens[:, None] == self._stops).any(axis=1)
        if encoding.stop_strings:
            asked = np.flatnonzero(acts & ~ended)
            turns = [self._completions[row, : self._taken[row]].tolist() for row in asked]
            ended[asked] = encoding.at_stop_string(turns)
        self._slots.held += acts
        used_up = (self._taken >= encoding.max_new_tokens) | (self._slots.held >= encoding.max_length)
        cut = acts & ~ended & used_up
        column = self._lengths.clamp(max=encoding.max_length - 1)
        if len(rows) < self.num_envs:  # the other slots keep their tokens
            actions = actions.where(moves > 0, self._tokens[self._rows, column])
        self._tokens[self._rows, column] = actions
        self._lengths += moves
        return ended | cut, cut

    def _set_playing(self, rows: Any, playing: bool) -> None:
        self.playing = self.playing.copy()
        self.playing[rows] = playing
        self._acting = self.playing & ~self._slots.waiting
        self._moves = to_device(self._acting.astype(np.int64), self.device)

    def _answer(self, over: np.ndarray, cut: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[int, Info]]:
        """Append the replies to turns that are over, or close their episodes, as far as the other side has answered.

        Args:
            over: slots whose turn ended, bool [B].
            cut: slots whose turn ended at its limit, bool [B].

        Returns:
            Rewards, which episodes ended and which were cut off [B], and the infos of slots.
        """
        rewards, appended = np.zeros(self.num_envs, dtype=np.float32), np.zeros(self.num_envs, dtype=np.int64)
        ended, short = np.zeros((2, self.num_envs), dtype=bool)
        if not (over.any() or self._slots.waiting.any()):
            return rewards, ended, short, {}
        turns = self._turns(np.flatnonzero(over), cut)
        try:
            answers = self._slots.answer(turns, going=int(np.count_nonzero(self._acting)) - len(turns))
        except BaseException:  # of a verifier, or Ctrl-C
            self._set_playing(over, False)
            raise
        for row, answer in answers.items():
            rewards[row], ended[row], short[row] = answer.reward, answer.tokens is None, answer.cut
            if answer.tokens is None:
                if self._picture is not None:
                    self._outcomes[row] = outcome_of(answer.reward, answer.info)
                if "verdict_status" in answer.info:  # else the verdict comes later
                    self.task.record(self._slots.exchanges[row].problem, answer.info)
            else:
                self._taken[row], appended[row] = 0, len(answer.tokens)
        self._append_replies(appended, [token for row in sorted(answers) for token in answers[row].tokens or ()])
        self._set_playing(ended, False)
        infos = {row: {"waiting": True} for row in np.flatnonzero(self._slots.waiting).tolist()}
        return rewards, ended, short, infos | {row: answer.info for row, answer in answers.items()}

    def _turns(self, rows: np.ndarray, cut: np.ndarray) -> dict[int, Turn]:
        """Return the turns that are over in these slots [n], by slot."""
        encoding, taken = self.task.encoding, self._taken[rows]
        room = encoding.max_length - self._slots.held[rows]
        written = self._completions[rows, : taken.max(initial=0)]
        turns = {}
        # As lists, once for all: asking arrays for one number after the other takes twice as long.
        for row, ids, length, left in zip(*(each.tolist() for each in (rows, written, taken, room)), strict=True):
            ids = ids[:length]
            ending = CUT if cut[row] else STOP if ids[-1] in encoding.stop_token_ids else STRING
            turns[row] = Turn(self._slots.exchanges[row], ids, ending, left)
        return turns

    def _append_replies(self, appended: np.ndarray, tokens: list[int]) -> None:
        """Write replies of these lengths [B] behind the contexts, all in one copy; their tokens follow each other."""
        if not tokens:
            return
        rows = np.repeat(np.arange(self.num_envs), appended)
        place = np.arange(len(tokens)) - np.repeat(appended.cumsum() - appended, appended)  # in its reply
        cells = to_device(np.stack([rows, self._slots.held[rows] + place, np.array(tokens)]), self.device)
        self._tokens[cells[0], cells[1]] = cells[2]
        self._slots.held += appended
        self._lengths += to_device(appended, self.device)

    def close_extras(self, **kwargs: Any) -> None:
        """Stop worker processes and close the verifier."""
        self._slots.leave(range(self.num_envs))
        self.task.judge.stop()

    def _observation(self) -> Obs:
        return {"tokens": self._tokens.clone(), "length": self._lengths.clone()}


def make_vector_env(autoreset_mode: str | AutoresetMode = AutoresetMode.DISABLED, **task: Any) -> VectorEnv:
    """Return TextGen-v0 batched; its slots restart as the mode says: "Disabled", "NextStep" or "SameStep"."""
    modes = {member.value: member for member in AutoresetMode}
    mode = modes[check_choice("autoreset_mode", getattr(autoreset_mode, "value", autoreset_mode), modes)]
    env = TextGenVectorEnv(**task)
    return env if mode is AutoresetMode.DISABLED else Autoreset(env, mode)


make_vector_env.metadata = TextGenVectorEnv.metadata  # type: ignore[attr-defined]  # its traits, before it is made


class HostTensor(torch.Tensor):
    """A CPU tensor for which mixed operations with numpy return arrays.

    Gymnasium's vector wrappers, such as `RecordEpisodeStatistics`, compute `array += tensor`,
    `np.logical_or(tensor, tensor)` and `1 - flags`, and write arrays into rewards; with plain tensors these fail.
    """

    __array_priority__ = -1

    def __array_wrap__(self, array: np.ndarray, context: Any = None, return_scalar: bool = False) -> Any:
        """Return the results of numpy's functions unchanged."""
        return array[()] if return_scalar else array

    def __rsub__(self, other: Any) -> Any:
        """Return other - self; as in numpy, a flag counts as 0 or 1."""
        return other - (self.numpy() if self.dtype is torch.bool else self.as_subclass(torch.Tensor))

    def __setitem__(self, index: Any, value: Any) -> None:
        """Write values, also from a numpy array."""
        super().__setitem__(index, torch.as_tensor(value))


def to_device(values: np.ndarray, device: torch.device) -> torch.Tensor:
    """Return an array as a tensor on a device; a GPU reads it by itself, from memory that it can access."""
    tensor = torch.from_numpy(values)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
