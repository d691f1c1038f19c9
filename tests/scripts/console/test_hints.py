"""An unknown option says what it is called here, in the words of the command line."""

import re

import pytest
from inprocess import run

from agents.core import sb3_names

SAID = {
    "--n-steps": "(steps per slot and rollout) is --episodes-per-update here, finished episodes per rollout: about ",
    "--n_epochs": "is --agent-arg num_epochs=... here",
    "--batch-size": "(steps per mini-batch) is --agent-arg num_minibatches=... here, mini-batches per pass: ",
    "--n-envs": "is --num-envs here",
    "--target-kl": "has no counterpart: --agent-arg num_epochs=... says how often a rollout is used",
    "--use-sde": "is --policy-arg use_sde=... here",
    "--sde-sample-freq": "is --policy-arg sde_sample_freq=... here, 1 for new noise at every step",
    "--rms-prop-eps": "is --adam-eps here: every agent uses Adam",
    "--buffer-size": "is of off-policy agents",
}


@pytest.mark.parametrize(("option", "said"), SAID.items(), ids=SAID)
def test_a_name_of_stable_baselines3_is_answered_with_ours(option, said):
    outcome = run("train", option, 5)
    assert outcome.exit_code == 2
    (line,) = outcome.stderr.strip().splitlines()
    name = option.lstrip("-").replace("-", "_")
    assert line.startswith(f"Error: No such option '{option}': stable-baselines3's {name} {said}"), line


@pytest.mark.parametrize("name", sb3_names.SAID)
def test_no_answer_speaks_python(name):
    said = sb3_names.option_hint(name, ["agent_args", "policy_args", "num_envs"])
    assert said and not re.search(r"'\w+'|\{", said)


@pytest.mark.parametrize("option", ["--clip-range", "--gae_lambda", "--num-epochs"])
def test_a_setting_without_an_option_is_an_agent_arg(option):
    outcome = run("train", option, 1)
    name = option.lstrip("-").replace("-", "_")
    assert outcome.stderr.strip() == f"Error: No such option '{option}': pass --agent-arg {name}=..."


@pytest.mark.parametrize("option", ["--n-steps", "--clip-range"])
def test_a_command_without_agents_settings_has_no_such_hint(option):
    assert "stable-baselines3" not in (line := run("evaluate", option, 5).stderr) and "agent-arg" not in line


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("n_steps", "stable-baselines3's n_steps (steps per slot and rollout) is --episodes-per-update here"),
        ("clip_range", "pass --agent-arg clip_range=..."),
    ],
)
def test_a_file_of_options_is_answered_alike(tmp_path, key, said):
    (tmp_path / "run.yaml").write_text(f"{key}: 5\n")
    outcome = run("train", "--config", tmp_path / "run.yaml")
    assert outcome.exit_code == 2 and f"sets the unknown option {key!r}; {said}" in outcome.stderr


def test_an_agent_arg_is_answered_alike():
    outcome = run("train", "--agent-arg", "n_steps=5")
    assert "--agent-arg n_steps: stable-baselines3's n_steps (steps per slot and rollout) is" in outcome.stderr
