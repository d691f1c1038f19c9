"""A job in Python is that of the command line: one config, one result, one line for bad input."""

import json
from dataclasses import asdict, replace
from functools import partial
from inspect import getsource, signature
from typing import Any

import numpy as np
import pandas
import pytest
from inprocess import error_of, result_of, run
from refused import check_refused, refusal
from torch.nn import Identity, Sequential

import rlenv
from rlenv import TrainConfig
from rlenv._scripts.config.arguments import env_arguments
from rlenv._scripts.config.base import Config
from rlenv._scripts.config.names import short_name
from rlenv._settings import declared_by
from rlenv.agents import GRPO, PPO, RLOO
from rlenv.task import TextGenTask

SMALL = {"verifier_kwargs": {"digits": 1}, "sft_steps": 2, "sft_examples": 8, "sft_batch_size": 4, "episodes": 8}
SMALL |= {"eval_episodes": 2, "log_interval": 1, "device": "cpu", "report": False}
CHANGING = {"seconds", "sft_seconds", "run_dir"}


def length(prompts, completions, **columns):
    return [float(len(completion)) for completion in completions]


def test_a_config_of_python_is_that_of_the_command_line_and_of_a_file(tmp_path):
    settings = {"episodes_per_update": 8, "group_size": 4, "clip_range": 0.3}
    config = TrainConfig(agent="grpo", **SMALL, settings=settings, log_dir=tmp_path / "python")
    trained = rlenv.train(config)
    words = ["--agent", "grpo", "--verifier-arg", "digits=1", "--sft-steps", 2, "--sft-examples", 8]
    words += ["--sft-batch-size", 4, "--episodes", 8, "--eval-episodes", 2, "--log-interval", 1, "--device", "cpu"]
    words += ["--episodes-per-update", 8, "--group-size", 4, "--agent-arg", "clip_range=0.3", "--no-report"]
    typed = result_of(run("train", *words, "--log-dir", tmp_path / "typed", "--json"))
    again = ["--config", tmp_path / "python" / "config.json", "--log-dir", tmp_path / "file", "--no-report", "--json"]
    results = [trained.result, typed, result_of(run("train", *again))]
    assert len({json.dumps({n: v for n, v in one.items() if n not in CHANGING}) for one in results}) == 1
    kept = [json.loads((tmp_path / name / "config.json").read_text()) for name in ("python", "typed", "file")]
    assert kept[0] == kept[1] == kept[2] and kept[0]["group_size"] == 4 and kept[0]["settings"] == {"clip_range": 0.3}
    again_read = TrainConfig.from_file(tmp_path / "python" / "config.json").flat()
    assert json.loads(json.dumps(again_read, default=str)) == kept[0]
    assert trained.agent.clip_range == 0.3 and len(trained.samples) == 2 and trained.report is None
    assert "samples" not in repr(trained), "a notebook shows the last value of a cell: thousands of tokens"
    (tmp_path / "python" / "progress.csv").unlink()  # as another run in the same folder does
    assert trained.curve["time/episodes"][-1] == 8
    logged = {file: file.read_bytes() for file in trained.folder.rglob("*") if file.is_file()}
    assert trained.agent.learn(total_episodes=8, reset_num_timesteps=False).num_episodes == 16
    assert all(file.read_bytes() == content for file, content in logged.items()), "the run has ended"


def test_a_file_of_what_is_not_the_default_is_read_back_as_it_was_meant(tmp_path):
    options = {"env_id": "CartPole-v1", "env_kwargs": {"name": "a=b c", "n": None}, "stop_reward": -1.5}
    options |= {"ask": True, "sft_steps": 0, "stop_tokens": ("x", 7), "tools": ("calculator", "python")}
    settings = {"kl_coef": 0.5, "clip_range": 0.3}
    config = TrainConfig(**options, settings=settings, seed=0, timesteps=None)
    assert config.changed().keys() == {*options, "kl_coef", "settings"}
    (tmp_path / "options.json").write_text(json.dumps(config.changed()))
    again = TrainConfig.from_file(tmp_path / "options.json")
    assert again.flat() == config.flat() and again.typed == frozenset()
    assert again.chosen == {*options, "settings", *settings}


def test_a_run_that_begins_again_makes_the_environment_of_its_options_whether_these_are_defaults_or_not():
    options = {"test_fraction": 0.2, "ask": False, "long_prompts": "skip", "problems": None, "max_new_tokens": 7}
    made = [env_arguments(TrainConfig(**some), "TextGen-v0", {}) for some in (options, {"max_new_tokens": 7})]
    assert made[0] == made[1]


def test_values_of_a_file_are_read_as_they_are_meant(tmp_path, monkeypatch):
    """Numbers need no point, names may look like numbers, and a list of layers is what peft takes."""
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / "job.yaml"
    numbers = "settings: {learning_rate: 1e-3, kl_coef: 5E-2, gamma: +1e+0, adam_eps: 1.5e-6}\nepisodes: '8'\n"
    texts = "cue: '1e3'\nmodel: 7\ncolumn: {answer: 1}\nlora_targets: [q_proj, v_proj]\nlog_dir: ~/run\n"
    path.write_text(numbers + texts)
    config = TrainConfig.from_file(path)
    assert config.settings == {"learning_rate": 0.001, "kl_coef": 0.05, "gamma": 1.0, "adam_eps": 1.5e-6}
    assert (config.episodes, config.cue, config.model, config.columns) == (8, "1e3", "7", {"answer": "1"})
    assert config.lora_targets == TrainConfig(lora_targets=["q_proj", "v_proj"]).lora_targets == "q_proj,v_proj"
    assert config.log_dir == tmp_path / "run" == rlenv.SftConfig(log_dir="~/run").log_dir
    for tokens, read in ((["7", "x", 3], (7, "x", 3)), ("7", (7,)), ([True], (True,))):  # an environment refuses True
        assert repr(TrainConfig(stop_tokens=tokens).stop_tokens) == repr(read)


def test_the_settings_of_an_agent_are_checked_before_it_is_made():
    assert [*signature(GRPO.config).parameters] == [*signature(GRPO).parameters][2:]
    assert GRPO.config(kl_coef=np.float32(0.5)).settings == {"kl_coef": 0.5}
    refusal(lambda: GRPO.config(kl_coeff=0.1), "did you mean 'kl_coef'", kind=TypeError)
    for wrong in ({"kl_coef": -1.0}, {"kl_in": "lost"}, {"mismatch_max": 9.0}):
        refusal(partial(GRPO.config, **wrong), *wrong)


def test_objects_of_python_are_named_and_a_resumed_run_asks_for_them(tmp_path):
    own: dict[str, Any] = {"verifier": length, "agent": RLOO, "problems": ["1>", "2>", "3>", "4>", "5>", "6>"]}
    own |= {"settings": {"episodes_per_update": 4, "group_size": 2}, "test_fraction": 0.5, "max_new_tokens": 3}
    few = {**SMALL, "sft_steps": 0, "verifier_kwargs": {}, "episodes": 4}
    first = rlenv.train(TrainConfig(**few | own, log_dir=tmp_path / "run"))
    kept = json.loads((tmp_path / "run" / "config.json").read_text())
    assert kept["verifier"].endswith(".length>") and kept["agent"] == "rloo" and kept["problems"] == "<builtins.list>"
    assert short_name(kept["verifier"]) == f"{__name__}.length", "a folder with a dot in front is hidden"
    assert first.result["eval"]["mean_reward"] >= 0
    assert "length" in error_of(run("train", "--resume", tmp_path / "run", "--episodes", 8))
    more = TrainConfig(resume=tmp_path / "run", episodes=8)
    line = refusal(lambda: rlenv.train(more), "verifier <", "length>, problems <")
    assert line.endswith(", verifier=..., problems=...)")
    call = f"rlenv.train(rlenv.TrainConfig(resume='{tmp_path / 'run'}', verifier=..., problems=...))"
    assert first.resume_command == call, "rlenv train --resume would refuse it"
    result = rlenv.train(replace(more, verifier=length, problems=own["problems"])).result
    assert result["episodes"] == 8 and result["updates"] == 2
    half = rlenv.EvaluateConfig(runs=tmp_path / "run", verifier=length)
    line = refusal(lambda: rlenv.evaluate(half), "pass it again, with EvaluateConfig(")
    assert ", verifier=..., problems=...)" in line
    folder = str(tmp_path / "run")
    again: dict[str, Any] = {"verifier": length, "problems": own["problems"], "runs": folder, "device": "cpu"}
    figures = rlenv.evaluate(rlenv.EvaluateConfig(**again))[folder]
    assert figures["problems"] == 3 and figures["mean_ep_length"] <= 3, "the split and the limits of the run"


def test_numbers_of_numpy_are_no_objects_of_python(tmp_path):
    few = {**SMALL, "sft_steps": 0, "verifier_kwargs": {"digits": np.int64(1)}}
    few |= {"env_kwargs": {"first_problem": np.int8(3)}}
    few["settings"] = {"group_size": np.int64(2), "kl_coef": np.float32(0.5), "episodes_per_update": 4}
    rlenv.train(TrainConfig(**few, log_dir=tmp_path / "run"))
    kept = json.loads((tmp_path / "run" / "config.json").read_text())
    assert [kept["verifier_kwargs"], kept["env_kwargs"]] == [{"digits": 1}, {"first_problem": 3}]
    assert (kept["group_size"], kept["kl_coef"]) == (2, 0.5)
    assert rlenv.train(TrainConfig(resume=tmp_path / "run", episodes=12)).result["updates"] == 3
    assert rlenv.evaluate(rlenv.EvaluateConfig(runs=tmp_path / "run", episodes=2, device="cpu"))


def test_a_resumed_run_asks_for_a_function_among_the_settings_and_arguments(tmp_path):
    def rate(progress):
        return 0.1 + 0.1 * progress

    few = {"env_id": "CartPole-v1", "timesteps": 64, "eval_episodes": 0, "report": False, "device": "cpu"}
    agent = PPO.config(clip_range=rate, episodes_per_update=2, num_envs=2)
    world = {"sutton_barto_reward": rate}
    first = rlenv.train(TrainConfig(agent=agent, env_kwargs=world, log_dir=tmp_path / "run", **few))
    assert json.loads((tmp_path / "run" / "config.json").read_text())["settings"]["clip_range"].endswith(".rate>")
    more = {"resume": tmp_path / "run", "timesteps": 128}
    refusal(lambda: rlenv.train(TrainConfig(**more)), "env_kwargs", "clip_range", "settings={'clip_range': ...}")
    again = rlenv.train(TrainConfig(**more, env_kwargs=world, settings={"clip_range": rate}))
    assert again.agent.clip_range is rate and again.result["updates"] > first.result["updates"]


def test_a_config_is_copied_with_other_values_and_what_has_its_default_is_not_chosen():
    """With all 67 fields chosen, --save-every would exclude --save-every-updates, and options of text CartPole."""
    config = TrainConfig(env_id="CartPole-v1", agent=PPO.config(gamma=0.9), episodes=8, stop_tokens=["x"])
    for copied in (replace(config, seed=3), TrainConfig(**{**asdict(config), "seed": 3})):
        assert copied.chosen == copied.typed == config.chosen | {"settings", "seed"}
        assert copied == config.but(seed=3) != config


def test_a_value_that_is_assigned_to_a_config_is_checked_and_counts_as_given():
    config = TrainConfig(settings={"gamma": 0.9})
    config.sft_steps, config.log_dir, config.agent = 0, "runs/x", PPO.config(clip_range=0.3)  # type: ignore[assignment]
    assert config.typed == {"settings", "gamma", "sft_steps", "log_dir", "agent", "clip_range"} == config.chosen
    assert config.flat() == TrainConfig(agent="ppo", sft_steps=0, settings=config.settings).flat()
    for name, value, said in (("sead", 1, "did you mean 'seed'"), ("seed", -1, "seed"), ("kl_coef", 0.1, "settings=")):
        refusal(partial(setattr, config, name, value), said, kind=(TypeError, ValueError))
    assert config.seed == 0 and not hasattr(config, "sead")


OF_TEXT = [("curriculum", 1.5), ("long_prompts", "cut"), ("verifier_timeout", 0.0), ("system_prompt", " ")]
WRONG = [("episodes", 0), ("save_every", -1.5), ("track", "nobody"), ("sft_examples", 2.5)]


@pytest.mark.parametrize(("name", "value"), WRONG + OF_TEXT)
def test_a_wrong_value_has_one_sentence_in_python_in_a_file_and_on_the_command_line(name, value, tmp_path):
    (tmp_path / "job.json").write_text(json.dumps({name: value}))
    in_python = refusal(lambda: TrainConfig(**{name: value}), name)
    in_file = refusal(lambda: TrainConfig.from_file(tmp_path / "job.json"))
    typed = error_of(run("train", f"--{name.replace('_', '-')}={value}"))
    assert in_python in in_file and in_python in typed
    if (name, value) in OF_TEXT:
        assert refusal(lambda: TextGenTask("arith", **{name: value})) == in_python


def test_a_config_with_a_data_frame_can_be_shown_and_written():
    """It is refused with advice when the environment is made; a notebook shows the config before that."""
    frame = pandas.DataFrame({"prompt": ["1+1=", "1+2="], "answer": ["2", "3"]})
    config = TrainConfig(problems=frame, verifier="exact", verifier_kwargs={"collapse_whitespace": True})
    assert "problems=" in repr(config) and "verifier='exact'" in repr(config) and "seed" not in repr(config)
    assert config.flat()["problems"].startswith("<pandas.") and "problems" in config.changed()
    refusal(lambda: rlenv.train(config), "got a DataFrame; ", " frame.to_dict('records')")


def doing(job):
    """Return a job as a function of the fields of its config."""
    kind = next(iter(signature(job, eval_str=True).parameters.values())).annotation
    return lambda **fields: job(kind(**fields))


train, sft, evaluate, compare = map(doing, (rlenv.train, rlenv.sft, rlenv.evaluate, rlenv.compare))


@pytest.mark.parametrize(
    ("call", "fields", "named"),
    [
        (train, {"log_dir": "full"}, "overwrite=True"),
        (train, {"eval_episodes": 0, "eval_every": 1}, "eval_episodes=..., eval_every=..."),
        (train, {"problems": []}, ""),
        (sft, {"epochs": 1}, "epochs=..., problems=..., sft_steps=..."),
    ],
)
def test_an_error_that_names_options_says_what_they_are_in_python(call, fields, named, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/config.json").touch()
    with pytest.raises(ValueError, match="--" if named else None) as error:
        call(**fields)
    assert getattr(error.value, "__notes__", []) == [f"In Python: {named}"] * bool(named)


def test_a_policy_is_warmed_up_from_python(tmp_path):
    few = {"verifier_kwargs": {"digits": 1}, "eval_episodes": 2, "device": "cpu"}
    warm = rlenv.sft(rlenv.SftConfig(**few, sft_steps=1, sft_examples=8, log_dir=tmp_path / "warm"))
    assert warm.result["steps"] == 1 and warm.agent.learn(total_episodes=2).num_episodes >= 2


OF_POLE = {"agents": "ppo", "env_id": "CartPole-v1", "settings": {"clip_range": len}}
ELSEWHERE = "compare starts processes"
REFUSED = {  # the job, the fields of its config, and what the error says
    "a seed": (TrainConfig, {"seed": -1}, ["seed"]),
    "no arguments": (TrainConfig, {"env_kwargs": 3}, ["env_kwargs"]),
    "no path": (TrainConfig, {"log_dir": 3}, ["log_dir must be a path"]),
    "no settings": (TrainConfig, {"settings": 3}, ["settings must be a table"]),
    "a setting": (TrainConfig, {"learning_rate": 1.0}, ["learning_rate is a setting of the agent"]),
    "no such field": (TrainConfig, {"sead": 1}, ["did you mean 'seed'"]),
    "a module": (TrainConfig, {"model": Sequential(Identity())}, ["model must be a text, got Sequential", "Identity"]),
    "a field among the settings": (TrainConfig, {"settings": {"seed": 1}}, ["settings name seed"]),
    "a field of an agent": (TrainConfig, {"agent": RLOO.config(seed=1)}, ["settings name seed"]),
    "a setting twice": (TrainConfig, {"agent": RLOO.config(kl_coef=0.1), "settings": {"kl_coef": 0.2}}, ["kl_coef"]),
    "a plan": (train, {**SMALL, "sft_steps": 0, "dry_run": True}, ["rlenv train --dry-run"]),
    "a misspelled setting": (
        train,
        {**SMALL, "agent": "rloo", "settings": {"learning_rat": 1.0}},
        ["'learning_rat'; did you mean 'learning_rate'?", "kl_coef"],
    ),
    "a class": (compare, {"agents": [RLOO]}, ["agents must be names", "RLOO"]),
    "an object": (compare, {"verifier": len}, [ELSEWHERE, "verifier is an object"]),
    "a function": (compare, OF_POLE, [ELSEWHERE, "clip_range is an object"]),
    "a list": (compare, {"verifier": "exact", "problems": ["1>"]}, [ELSEWHERE, "problems is an object"]),
    "a table": (rlenv.train, {"config": {"seed": 3}}, ["train takes TrainConfig(", "got {'seed': 3}"]),
    "another job's": (rlenv.sft, {"config": TrainConfig(seed=3)}, ["SftConfig", "got TrainConfig"]),
    "no folder": (evaluate, {"runs": ["a", {}]}, ["got {}; name its folder: run.folder"]),
    "nothing": (evaluate, {"runs": [], "device": "cpu"}, ["runs is empty"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_done_is_refused_in_one_line_and_makes_no_folder(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_refused(*REFUSED[name])
    assert list(tmp_path.iterdir()) == []


def test_each_config_says_itself_that_it_is_a_dataclass():
    """Jedi, which completes in Jupyter, counts the fields of those classes alone; pyright and mypy ask their base."""
    public = TrainConfig, rlenv.SftConfig, rlenv.EvaluateConfig, rlenv.CompareConfig
    assert all(f"\n    {name}: " in cls.__doc__ for cls in public for name in declared_by(cls))
    classes = [Config]
    for cls in classes:
        classes += [each for each in cls.__subclasses__() if each not in classes]
    assert len(classes) > 20
    for cls in classes[1:]:
        assert getsource(cls).startswith("@with_settings\n") and "__dataclass_fields__" in vars(cls), cls
