"""The KL anchor in the loss, shared by the agents whose advantages are not linear in the rewards.

What they do to the rewards of a group (division by their mean, their best, the standard deviation of each part) they
would do to a penalty in the reward, too. In the loss, k2 has the gradient of KL(π ‖ ref) state by state; for actions of
another policy, in later passes and with `mismatch`, it needs `kl_ratio` (`estimators/kl.py`).
"""

from __future__ import annotations

from typing import Any

from ..settings import setting

KL_IN: Any = setting(
    default="loss", more="In the reward, it would change what rewards are divided by or compared with."
)
KL_ESTIMATOR: Any = setting(default="k2", more="k1 has no gradient in the loss.")
