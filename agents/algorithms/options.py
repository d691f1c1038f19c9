"""The settings of single algorithms that are options of `rlenv train`: here, since `--help` imports no torch."""

from __future__ import annotations

from typing import Any

from ..settings import setting
from ..training.settings import TRAIN, AgentSettings


class BaselineOptions(AgentSettings):
    """The options of `ReinforceBaseline`."""

    baseline: str = setting(
        "leave-one-out",
        "What is subtracted from the return.",
        one_of=(
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
        ),
        commands=TRAIN,
        more="The table in `estimators/baselines.py` says what each is and whether it biases the gradient.",
    )
    returns: str = setting(
        "return-to-go",
        "Which return a step gets.",
        one_of=("return-to-go", "episode"),
        commands=TRAIN,
        more="G_t = Σ_{k≥t} γ^{k-t} r_k, or R at every step. With γ < 1 the former leaves out the factor γ^t of the "
        "exact gradient, as the field does.",
    )


class PlusPlusOptions(AgentSettings):
    """The options of `ReinforcePlusPlus`."""

    baseline: str = setting(
        "none",
        "What is subtracted from the return.",
        one_of=("none", "group-mean"),
        commands=TRAIN,
        more='In the formulas: b. "group-mean" is the paper\'s REINFORCE++-baseline, in groups of at least 2.',
    )


class PKPOOptions(AgentSettings):
    """The options of `PKPO`."""

    baseline: str = setting(
        "loo-1",
        "What is subtracted from the return.",
        one_of=("none", "loo", "loo-1"),
        commands=TRAIN,
        more="b_i is the mean best of k - 1 others (loo-1, which the paper recommends), of k others (loo), or nothing.",
    )


class TaughtOptions(AgentSettings):
    """The options of agents with a teacher."""

    teacher: Any = setting(
        None,
        "What is distilled: a run folder, a checkpoint, or the folder or id of a model, with the same tokens.",
        saved=False,
        commands=TRAIN,
        shown="none",
        more="Or a policy. Checkpoints keep its weights, not its name.",
    )
    teacher_temperature: float | None = setting(
        None,
        "Temperature at which the teacher is evaluated.",
        above=0,
        saved=False,
        commands=TRAIN,
        shown="the policy's",
    )
