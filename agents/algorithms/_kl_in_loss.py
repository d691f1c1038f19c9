"""The KL anchor in the loss, shared by the agents whose advantages are not linear in the rewards.

They would divide a penalty in the reward, too, as they divide the rewards of a group (by their mean, their best, the
standard deviation of each part). In the loss, k2 has the gradient of KL(π ‖ ref) state by state; for actions of
another policy, in later passes and with `mismatch`, it needs `kl_ratio` (`estimators/kl.py`).
"""

from __future__ import annotations

from typing import Any

from rlenv._settings import setting

KL_IN: Any = setting(
    default="loss", more="In the reward, it would change what rewards are divided by or compared with."
)
KL_ESTIMATOR: Any = setting(default="k2")
