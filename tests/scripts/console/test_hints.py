"""A name of TRL's or stable-baselines3's is answered with ours, in Python and on the command line."""

import inspect

import pytest
from _rlenv_scripts.training.command import train
from inprocess import run

from agents import AGENTS, PPO
from agents.foreign_names import FOREIGN, RUN
from agents.policies import ControlPolicy, LanguageModelPolicy
from rlenv.envs.task import TextGenTask

OPTIONS = {option.name: option.opts[0] for option in train.params}
TAKERS = {"": AGENTS.values(), "env_kwargs": [TextGenTask], "policy_kwargs": [ControlPolicy, LanguageModelPolicy]}
NETWORK = {"net_arch", "activation_fn", "use_sde"}  # ControlPolicy hands them on to stable-baselines3


@pytest.mark.parametrize("name", FOREIGN)
def test_a_name_from_elsewhere_is_answered_with_ours(name):
    ours, where, note = FOREIGN[name]
    takers = TAKERS.get(where, ())
    assert ours in OPTIONS if where == RUN else ours in NETWORK or any(ours in keywords(each) for each in takers)
    with pytest.raises(
        TypeError, match=f"PPO has no setting '{name}'; here it is .*{ours.replace('_', '[_-]')}"
    ) as error:
        PPO("MlpPolicy", "CartPole-v1", **{name: 1})
    assert note in str(error.value) and "\n" not in str(error.value)
    place = "--policy-arg" if where else "--agent-arg"
    written = OPTIONS.get(ours) or f"{place} {ours}=..."
    outcome = run("train", f"--{name}", 5)
    assert outcome.exit_code == 2
    assert outcome.stderr.startswith(f"Error: No such option '--{name}': here it is {written}")


def keywords(cls):
    return inspect.signature(cls).parameters
