"""What TextGen-v0's batched environment has to equal: single environments, one a slot, driven by Gymnasium's rules."""

import numpy as np
import torch
from gymnasium.vector import AutoresetMode

from rlenv.demonstrations import turn_tokens
from rlenv.textgen import TextGenEnv
from verifiers import Problem, Verdict, Verifier


class OddVerifier(Verifier):
    """Prompts of uneven length, some with a level, graded rewards, parts that come and go, and verdicts that fail."""

    alphabet = "abc"
    prompt_length = 4
    answer_length = 2
    reward_range = (0.0, float("inf"))

    def sample(self, rng):
        text = "".join(rng.choice(self.alphabet) for _ in range(rng.randint(1, 4)))
        return Problem(text, metadata={"level": len(text)} if text[0] != "a" else {})

    def verify(self, problem, completion):
        if "cc" in completion:
            return Verdict(0.0, status="error")
        if completion == "b":
            return Verdict(0.0, status="not_applicable")
        parts = {"a": float(completion.count("a"))} if completion.startswith("a") else {}
        if problem.prompt.startswith("b"):
            parts["b"] = -1.5
        return Verdict(0.25 * completion.count("a") + 0.5 * completion.count(problem.prompt[0]), parts)


class SlotReference:
    """B single environments whose episodes are numbered in the order they start, slot by slot."""

    def __init__(self, num_envs, mode, seed, **task):
        self.envs = [TextGenEnv(**task) for _ in range(num_envs)]
        self.mode, self.seed = mode, seed
        self.posed = [0] * num_envs  # how many episodes each single environment has been through
        self.next_episode = 0
        self.observations = [None] * num_envs
        self.done = [True] * num_envs

    def reset(self, rows):
        infos = [{} for _ in self.envs]
        for row in rows:
            infos[row] = self._start(row)
        return list(self.observations), infos

    def step(self, actions):
        results = [self._step(row, action) for row, action in enumerate(actions)]
        finished = [row for row, (_, terminated, _, _) in enumerate(results) if terminated]
        if self.mode is AutoresetMode.SAME_STEP:
            for row in finished:
                final = {"final_obs": self.observations[row], "final_info": results[row][3]}
                results[row] = (*results[row][:3], {**final, **self._start(row)})
        rewards, terminated, truncated, infos = map(list, zip(*results, strict=True))
        return list(self.observations), rewards, terminated, truncated, infos

    def _step(self, row, action):
        if self.done[row]:
            info = self._start(row) if self.mode is AutoresetMode.NEXT_STEP else {}
            return 0.0, False, False, info
        self.observations[row], reward, terminated, truncated, info = self.envs[row].step(action)
        self.done[row] = terminated or truncated
        return reward, terminated, truncated, info

    def _start(self, row):
        while self.posed[row] <= self.next_episode:
            seed = self.seed if self.posed[row] == 0 else None
            self.observations[row], info = self.envs[row].reset(seed=seed)
            self.posed[row] += 1
        self.next_episode += 1
        self.done[row] = False
        return info


def demonstration(task, problem):
    """Return the tokens of the verifier's demonstration of a problem."""
    return turn_tokens(task.encoding, problem, task.verifier.demonstration(problem))


def plain(value):
    """Return arrays, tensors and numpy scalars as lists and Python numbers, so that == compares them."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (np.ndarray, torch.Tensor)):
        return plain(value.tolist())
    return value.item() if isinstance(value, np.generic) else value


def slot_info(info, row):
    """Return one slot's part of a vector info: the keys whose `_key` mask holds there."""
    return {
        key: plain(slot_info(value, row) if isinstance(value, dict) else value[row])
        for key, value in info.items()
        if not key.startswith("_") and info[f"_{key}"][row]
    }


def slot_observation(observation, row):
    return plain({key: value[row] for key, value in observation.items()})


def assert_same(result, expected):
    """Check what a reset or step of a batched environment returned against what the single ones did."""
    (observation, *flags, info), (observations, *expected_flags, infos) = result, expected
    rows = range(len(observations))
    assert [slot_observation(observation, row) for row in rows] == plain(observations)
    assert [plain(flag) for flag in flags] == expected_flags
    assert [slot_info(info, row) for row in rows] == plain(infos)


def layout(info):
    """Return the keys, types and shapes of a vector info."""
    return {
        key: layout(value) if isinstance(value, dict) else (value.dtype, value.shape) for key, value in info.items()
    }
