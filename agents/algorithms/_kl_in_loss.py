"""What agents share whose advantages are not linear in the rewards: the KL anchor is in the loss."""

from __future__ import annotations

from ..settings import setting
from ..training.settings import AgentSettings


class KLInLoss(AgentSettings):
    """Settings of an agent that takes no KL penalty in the reward.

    What it does to the rewards of a group (division by their mean, their best, the standard deviation of each part) it
    would do to the penalty, too. In the loss, k2 has the gradient of KL(π ‖ ref) state by state; for actions of another
    policy, in later passes and with `mismatch`, it needs `kl_ratio` (`estimators/kl.py`).
    """

    kl_in = setting(
        "loss", one_of=("loss",), more="In the reward, it would change what rewards are divided by or compared with."
    )
    kl_estimator = setting("k2", more="k1 has no gradient in the loss.")
