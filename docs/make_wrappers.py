"""Try each of Gymnasium's wrappers on TextGen-v0 and write the tables of docs/wrappers.md.

python docs/make_wrappers.py plays one episode with the right answer in every wrapper. A wrapper whose library is not
installed keeps its row.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import wrappers
from gymnasium.wrappers import vector

import rlenv  # noqa: F401 (registers TextGen-v0)
from verifiers import make_verifier

PAGE = Path(__file__).resolve().parent / "wrappers.md"
TASK: dict[str, Any] = {
    "verifier": make_verifier("arith"),
    "problems": [{"prompt": "12+34=", "answer": "46"}],
    "test_fraction": 0.0,
    "max_new_tokens": 4,
    "render_mode": "rgb_array",
}
ANSWER = ("4", "6", "<eos>")
KINDS = {"single": None, "batched": "vector_entry_point", "sync": "sync"}  # of environments, as gym.make_vec calls them
WORKS, NO_SENSE, REFUSED, NOT_RUN = "works", "runs, makes no sense", "refused", "makes no sense"


@dataclass(frozen=True)
class Case:
    """A wrapper, how it is made, and what is expected of it.

    Args:
        make: wraps an environment.
        total: of the rewards of the right answer; None for any.
        nonsense: why nobody should use it here, although it runs.
        note: for the page.
        needs: modules without which it cannot be tried.
        runs: whether to try it at all.
    """

    make: Callable[[Any], Any]
    total: float | None = 1.0
    nonsense: str = ""
    note: str = ""
    needs: tuple[str, ...] = ()
    runs: bool = True


def identity(value: Any) -> Any:
    """Return the same."""
    return value


def flat(env: Any) -> Any:
    """Return an environment whose observation is one vector."""
    return wrappers.FlattenObservation(env)


def pictured(env: Any) -> Any:
    """Return an environment whose observation is its picture."""
    return wrappers.AddRenderObservation(env)


NUMBERS = "token ids are names: their size means nothing"
ON_FLAT, ON_PICTURES = "behind `FlattenObservation`", "behind `AddRenderObservation`"
BRIDGE = "`pip install 'gymnasium[array-api]'`"
ARRAYS, JAX = ("array_api_compat",), ("array_api_compat", "jax")
SINGLE: dict[str, Case] = {
    "AtariPreprocessing": Case(wrappers.AtariPreprocessing, nonsense="for Atari games", runs=False),
    "DelayObservation": Case(
        lambda env: wrappers.DelayObservation(env, delay=1), nonsense="the policy would not see its newest token"
    ),
    "DtypeObservation": Case(lambda env: wrappers.DtypeObservation(flat(env), np.float32), note=ON_FLAT),
    "DiscretizeObservation": Case(lambda env: wrappers.DiscretizeObservation(env, 2)),
    "FilterObservation": Case(
        lambda env: wrappers.FilterObservation(env, ["tokens"]), note="rlenv's language models need both keys"
    ),
    "FlattenObservation": Case(flat, note="`length` becomes one-hot, L + 1 numbers"),
    "FrameStackObservation": Case(
        lambda env: wrappers.FrameStackObservation(env, 2), nonsense="an observation holds the whole episode"
    ),
    "GrayscaleObservation": Case(lambda env: wrappers.GrayscaleObservation(pictured(env)), note=ON_PICTURES),
    "TransformObservation": Case(lambda env: wrappers.TransformObservation(env, identity, env.observation_space)),
    "MaxAndSkipObservation": Case(lambda env: wrappers.MaxAndSkipObservation(env, skip=2)),
    "NormalizeObservation": Case(lambda env: wrappers.NormalizeObservation(flat(env)), nonsense=NUMBERS),
    "AddRenderObservation": Case(pictured, note="the picture is the observation; needs `rgb_array`"),
    "ResizeObservation": Case(
        lambda env: wrappers.ResizeObservation(pictured(env), (64, 64)), note=ON_PICTURES, needs=("cv2",)
    ),
    "ReshapeObservation": Case(lambda env: wrappers.ReshapeObservation(flat(env), (1, 21)), note=ON_FLAT),
    "RescaleObservation": Case(lambda env: wrappers.RescaleObservation(flat(env), 0, 1), nonsense=NUMBERS),
    "TimeAwareObservation": Case(wrappers.TimeAwareObservation, note="not needed: `length` counts the steps"),
    "ClipAction": Case(wrappers.ClipAction),
    "DiscretizeAction": Case(lambda env: wrappers.DiscretizeAction(env, 2)),
    "TransformAction": Case(
        lambda env: wrappers.TransformAction(env, identity, env.action_space),
        note="the agent's log-probabilities are those of the tokens before it",
    ),
    "RescaleAction": Case(lambda env: wrappers.RescaleAction(env, 0, 1)),
    "StickyAction": Case(
        lambda env: wrappers.StickyAction(env, 0.5), None, nonsense="writes tokens that the policy did not choose"
    ),
    "RepeatAction": Case(lambda env: wrappers.RepeatAction(env, 2), 0.0, nonsense="writes every token twice"),
    "ClipReward": Case(lambda env: wrappers.ClipReward(env, 0, 0.5), 0.5),
    "TransformReward": Case(lambda env: wrappers.TransformReward(env, lambda reward: 2 * reward), 2.0),
    "NormalizeReward": Case(wrappers.NormalizeReward, None, note="agents have `normalize_rewards`"),
    "TimeLimit": Case(
        lambda env: wrappers.TimeLimit(env, 2), 0.0, nonsense="cuts before the verdict; use `max_new_tokens`"
    ),
    "Autoreset": Case(wrappers.Autoreset),
    "PassiveEnvChecker": Case(wrappers.PassiveEnvChecker, note="`gym.make` adds it"),
    "OrderEnforcing": Case(wrappers.OrderEnforcing, note="`gym.make` adds it"),
    "RecordEpisodeStatistics": Case(wrappers.RecordEpisodeStatistics, note='return and length in `info["episode"]`'),
    "AddWhiteNoise": Case(lambda env: wrappers.AddWhiteNoise(env, 0.1), note="on pictures"),
    "ObstructView": Case(lambda env: wrappers.ObstructView(env, 0.1, 5), note="on pictures"),
    "RenderCollection": Case(wrappers.RenderCollection),
    "RecordVideo": Case(
        lambda env: wrappers.RecordVideo(env, tempfile.mkdtemp()),
        note="`pip install -e '.[video]'`",
        needs=("moviepy",),
    ),
    "HumanRendering": Case(wrappers.HumanRendering, note="`pip install -e '.[pictures]'`", needs=("pygame",)),
    "ArrayConversion": Case(lambda env: wrappers.ArrayConversion(env, np, torch), note=BRIDGE, needs=ARRAYS),
    "JaxToNumpy": Case(lambda env: wrappers.JaxToNumpy(env), nonsense="the environment does not use jax", needs=JAX),
    "JaxToTorch": Case(lambda env: wrappers.JaxToTorch(env), nonsense="the environment does not use jax", needs=JAX),
    "NumpyToTorch": Case(lambda env: wrappers.NumpyToTorch(env), note=BRIDGE, needs=ARRAYS),
}


def flats(env: Any) -> Any:
    """Return environments whose observations are one vector each."""
    return vector.FlattenObservation(env)


VECTOR: dict[str, Case] = {
    "VectorizeTransformObservation": Case(
        lambda env: vector.VectorizeTransformObservation(
            env, wrappers.TransformObservation, func=identity, observation_space=env.single_observation_space
        ),
        note="batched: use `TransformObservation`",
    ),
    "VectorizeTransformAction": Case(
        lambda env: vector.VectorizeTransformAction(
            env, wrappers.TransformAction, func=identity, action_space=env.single_action_space
        ),
        note="batched: use `TransformAction`",
    ),
    "VectorizeTransformReward": Case(
        lambda env: vector.VectorizeTransformReward(env, wrappers.TransformReward, func=lambda reward: 2 * reward), 2.0
    ),
    "DictInfoToList": Case(vector.DictInfoToList, note="agents need infos as a dictionary"),
    "TransformObservation": Case(lambda env: vector.TransformObservation(env, identity)),
    "FilterObservation": Case(
        lambda env: vector.FilterObservation(env, ["tokens"]), note="rlenv's language models need both keys"
    ),
    "FlattenObservation": Case(flats, note="the observation is a numpy array"),
    "GrayscaleObservation": Case(vector.GrayscaleObservation),
    "ResizeObservation": Case(lambda env: vector.ResizeObservation(env, (64, 64))),
    "ReshapeObservation": Case(lambda env: vector.ReshapeObservation(flats(env), (1, 21)), note=ON_FLAT),
    "RescaleObservation": Case(lambda env: vector.RescaleObservation(flats(env), 0, 1), nonsense=NUMBERS),
    "DtypeObservation": Case(lambda env: vector.DtypeObservation(flats(env), np.float32), note=ON_FLAT),
    "NormalizeObservation": Case(lambda env: vector.NormalizeObservation(flats(env)), nonsense=NUMBERS),
    "TransformAction": Case(lambda env: vector.TransformAction(env, identity)),
    "ClipAction": Case(vector.ClipAction),
    "RescaleAction": Case(lambda env: vector.RescaleAction(env, 0, 1)),
    "TransformReward": Case(lambda env: vector.TransformReward(env, lambda reward: 2 * reward), 2.0),
    "ClipReward": Case(lambda env: vector.ClipReward(env, 0, 0.5), 0.5),
    "NormalizeReward": Case(vector.NormalizeReward, None, note="agents have `normalize_rewards`"),
    "RecordEpisodeStatistics": Case(vector.RecordEpisodeStatistics, note="on the CPU"),
    "RecordVideo": Case(
        lambda env: vector.RecordVideo(env, tempfile.mkdtemp(), step_trigger=lambda step: step == 0),
        note="`pip install -e '.[video]'`",
        needs=("moviepy",),
    ),
    "HumanRendering": Case(
        vector.HumanRendering, note="`pip install -e '.[pictures]' opencv-python`", needs=("pygame", "cv2")
    ),
    "ArrayConversion": Case(
        lambda env: vector.ArrayConversion(env, np, torch), note="batched: tensors already", needs=ARRAYS
    ),
    "JaxToNumpy": Case(lambda env: vector.JaxToNumpy(env), nonsense="the environment does not use jax", needs=JAX),
    "JaxToTorch": Case(lambda env: vector.JaxToTorch(env), nonsense="the environment does not use jax", needs=JAX),
    "NumpyToTorch": Case(lambda env: vector.NumpyToTorch(env), note="batched: tensors already", needs=ARRAYS),
}
CASES = {"single": SINGLE, "batched": VECTOR, "sync": VECTOR}


def is_installed(case: Case) -> bool:
    """Tell whether the libraries of a wrapper are there."""
    return all(find_spec(module) is not None for module in case.needs)


def outcome(kind: str, name: str) -> str:
    """Return what becomes of an episode in a wrapper: "works", "runs, makes no sense" or "refused: why".

    Raises:
        AssertionError: if it runs, but the right answer does not get the reward that is expected.
    """
    case = CASES[kind][name]
    if not case.runs:
        return NOT_RUN
    try:
        rewards, over = play(kind, case.make)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        return f"{REFUSED}: {' '.join(str(error).split())}"
    assert over, f"{name} ({kind}): the episode does not end"
    right = case.total is None or all(abs(reward - case.total) < 1e-6 for reward in rewards)
    assert right, f"{name} ({kind}): rewards {rewards}, expected {case.total}"
    return NO_SENSE if case.nonsense else WORKS


def play(kind: str, make: Callable[[Any], Any]) -> tuple[list[float], bool]:
    """Play the right answer, and again where it does not end the episode; return the rewards and whether it ended."""
    with wrapped(kind, make) as (env, task):
        env.reset(seed=0)
        total: Any = 0.0
        for token in ANSWER * 2:
            action = task.tokenizer.convert_tokens_to_ids(token)
            actions = action if kind == "single" else np.full(2, action)
            if "ToTorch" in type(env).__name__ or type(env).__name__ == "ArrayConversion" or kind == "batched":
                actions = torch.as_tensor(actions)
            _, rewards, terminated, truncated, _ = env.step(actions)
            total = total + np.asarray(rewards, dtype=float)
            if np.all(np.logical_or(np.asarray(terminated), np.asarray(truncated))):
                return np.atleast_1d(total).tolist(), True
    return np.atleast_1d(total).tolist(), False


@contextmanager
def wrapped(kind: str, make: Callable[[Any], Any]) -> Iterator[tuple[Any, Any]]:
    """Yield a wrapped environment and its task; warnings of the wrappers are not the matter here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mode = KINDS[kind]
        inner: Any = gym.make("TextGen-v0", **TASK) if mode is None else None
        inner = inner or gym.make_vec("TextGen-v0", num_envs=2, vectorization_mode=mode, **TASK)
        task = (inner.envs[0] if kind == "sync" else inner).unwrapped.task
        try:
            env = make(inner)
            yield env, task
            env.close()
            if isinstance(env, (wrappers.RecordVideo, vector.RecordVideo)):
                shutil.rmtree(env.video_folder)
        finally:
            inner.close()


def row(name: str, kinds: tuple[str, ...]) -> str:
    """Return the row of a wrapper in the table of these kinds of environments."""
    case = CASES[kinds[0]][name]
    cells = [outcome(kind, name) for kind in kinds]
    said = "; ".join(part for part in (case.nonsense, case.note) if part)
    return f"| `{name}` | {' | '.join(cell.replace('|', '/') for cell in cells)} | {said} |"


def page() -> str:
    """Return the page with its tables as they are now; rows that cannot be tried here stay as they are."""
    text = PAGE.read_text(encoding="utf-8")
    for table, kinds in (("single", ("single",)), ("vector", ("batched", "sync"))):
        before, start, rest = text.partition(f"<!-- {table} -->\n")
        old, end, after = rest.partition(f"<!-- end of {table} -->")
        assert start and end, f"wrappers.md has no place for the table {table}"
        kept = {name: line for line in old.splitlines() for name in re.findall(r"^\| `(\w+)`", line)}
        head = [
            "wrapper",
            *({"single": "`gym.make`", "batched": "batched", "sync": "sync"}[kind] for kind in kinds),
            "",
        ]
        lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
        for name, case in CASES[kinds[0]].items():
            lines.append(row(name, kinds) if is_installed(case) else kept[name])
        text = f"{before}{start}" + "\n".join(lines) + f"\n{end}{after}"
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8", newline="\n")
