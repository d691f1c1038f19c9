"""The settings of single algorithms that are options of `rlenv train`: here, since `--help` imports no torch."""

from __future__ import annotations

from typing import Any, Literal

from rlenv._settings import setting

from ..training.settings import TRAIN, AgentSettings
from . import TABLE


class BaselineOptions(AgentSettings):
    """The options of `ReinforceBaseline`."""

    baseline: Literal[
        "none",
        "running-mean",
        "batch-mean",
        "group-mean",
        "leave-one-out",
        "length-weighted",
        "optimal-token",
        "james-stein",
        "greedy",
        "value",
    ] = setting(
        fixed=True,
        default="leave-one-out",
        help="What is subtracted from the return.",
        commands=TRAIN,
        more="The table in `estimators/baselines.py` says what each is and whether it biases the gradient.",
    )
    returns: Literal["return-to-go", "episode"] = setting(
        default="return-to-go",
        help="Which return a step gets.",
        commands=TRAIN,
        more="G_t = Σ_{k≥t} γ^{k-t} r_k, or R at every step. With γ < 1 the former leaves out the factor γ^t of the "
        "exact gradient, as the field does.",
    )


class PlusPlusOptions(AgentSettings):
    """The options of `ReinforcePlusPlus`."""

    baseline: Literal["none", "group-mean"] = setting(
        default="none",
        help="What is subtracted from the return.",
        commands=TRAIN,
        more='In the formulas: b. "group-mean" is the paper\'s REINFORCE++-baseline, in groups of at least 2.',
    )


class PKPOOptions(AgentSettings):
    """The options of `PKPO`."""

    baseline: Literal["none", "loo", "loo-1"] = setting(
        default="loo-1",
        help="What is subtracted from the return.",
        commands=TRAIN,
        more="b_i is the mean best of k - 1 others (loo-1, which the paper recommends), of k others (loo), or nothing.",
    )


class TaughtOptions(AgentSettings):
    """The options of agents with a teacher."""

    teacher: Any = setting(
        fixed=True,
        default=None,
        help="What is distilled: a run folder, a checkpoint, or the folder or id of a model, with the same tokens.",
        saved=False,
        commands=TRAIN,
        shown="none",
        more="Or a policy. Checkpoints keep its weights, not its name.",
    )
    teacher_temperature: float | None = setting(
        fixed=True,
        default=None,
        help="Temperature at which the teacher is evaluated.",
        above=0,
        saved=False,
        commands=TRAIN,
        shown="the policy's",
    )


OPTIONS: dict[str, type[AgentSettings]] = {  # by algorithm
    "reinforce-baseline": BaselineOptions,
    "reinforce-plus-plus": PlusPlusOptions,
    "pkpo": PKPOOptions,
    "delightful": BaselineOptions,
    "distillation": TaughtOptions,
    "sdpo": TaughtOptions,
}
SETTINGS = {name: OPTIONS.get(name, AgentSettings) for name in TABLE}  # that may have an option
