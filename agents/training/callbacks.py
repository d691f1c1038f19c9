"""Callbacks of stable-baselines3, as the loop calls them."""

from __future__ import annotations

from typing import Any

from stable_baselines3.common.callbacks import BaseCallback, CallbackList, ConvertCallback, ProgressBarCallback


class StepsBar(ProgressBarCallback):
    """stable-baselines3's progress bar, moved by the steps taken instead of one step per slot and call."""

    def _on_training_start(self) -> None:
        super()._on_training_start()
        self.first = self.model.num_timesteps

    def _on_step(self) -> bool:
        self.pbar.update(self.model.num_timesteps - self.first - self.pbar.n)
        return True


def as_callback(callback: Any, agent: Any, progress_bar: bool = False) -> BaseCallback:
    """Return one initialised callback.

    Args:
        callback: None, a callback, a function of (locals, globals) that returns False to stop, or a list of these.
        agent: passed to the callbacks as their model.
        progress_bar: whether to add stable-baselines3's.

    Raises:
        TypeError: for anything else, such as a class or a callback of another library.
    """
    several = [_as_one(each) for each in (callback if isinstance(callback, (list, tuple)) else [callback])]
    several += [StepsBar()] * progress_bar
    made = several[0] if len(several) == 1 else CallbackList(several)
    made.init_callback(agent)
    return made


def _as_one(callback: Any) -> BaseCallback:
    if isinstance(callback, BaseCallback):
        return callback
    if isinstance(callback, type) or not (callback is None or callable(callback)):
        raise TypeError(
            f"callback={callback!r:.80} is not a callback; pass an instance of stable-baselines3's BaseCallback, a "
            "function of (locals, globals), or a list of these"
        )

    def goes_on(local: dict[str, Any], other: dict[str, Any]) -> bool:
        answer = callback and callback(local, other)
        return answer is None or bool(answer)  # stable-baselines3 takes None, of a function without return, for False

    return ConvertCallback(goes_on)
