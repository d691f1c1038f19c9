"""Checkpoints: what they keep, import and refuse; nothing is lost. tests/laws/test_resume.py continues them."""

import json
import math
import sys
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch
from anew import run_anew
from continued import everything, run
from counting_env import IMAGE, Somebody
from diagonal import diagonal
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec, registry
from refused import refusal
from runs import content
from safetensors.torch import load_file, save_file

import rlenv  # noqa: F401
from rlenv import agents
from rlenv.agents import PPO, RLOO, Agent, DivergedError, Reinforce, ReinforceBaseline, setting
from rlenv.agents.files import seal
from rlenv.agents.training.checkpoint import Checkpoint
from rlenv.agents.training.state import GeneratorState

SMALL = {"episodes_per_update": 4, "num_envs": 4, "device": "cpu"}
LISTED = {"problems": ["12+34="], "test_fraction": 0.0, "max_prompt_tokens": 6, "max_new_tokens": 4}
load = partial(Agent.load, device="cpu")


def pole(cls=ReinforceBaseline, **settings):
    return cls("MlpPolicy", "CartPole-v1", **{**SMALL, **settings})


def text(cls=Reinforce, env="TextGen-v0", **env_kwargs):
    return cls("tiny", env, env_kwargs={"verifier": "length:3", **LISTED, **env_kwargs}, **SMALL)


def reward(prompts, completions, **columns):
    return [float(len(completion)) for completion in completions]


class Own(Reinforce):
    """A class of the user's own."""

    def __init__(self, seed=0):
        super().__init__("MlpPolicy", "CartPole-v1", seed=seed, **SMALL)


def with_module(name):
    """Return a class that sets a module of its own."""
    setup = lambda self, env, group_size: setattr(self, name, torch.nn.Linear(1, 1))  # noqa: E731
    return type("Judging", (Reinforce,), {"setup": setup})


def poles(mode, slots):
    return gym.make_vec("CartPole-v1", num_envs=slots, vectorization_mode=mode)


def played():
    return pole(Reinforce).learn(1)


continued = partial(Reinforce.load, device="cpu", continue_env=True)
REFUSED = {  # the saved agent, how it is loaded or saved over, and what is named
    "another class": (partial(pole, Reinforce), ReinforceBaseline.load, ("holds a Reinforce, not a ReinforceB",)),
    "a class of one's own": (Own, Agent.load, ("a class of your own", "load()")),
    "a class of one's own, by its parent": (Own, Reinforce.load, ("a class of your own", "load()")),
    "a module of another name": (
        lambda: pole(with_module("head")),
        with_module("judge").load,
        ("the modules head", "setup of Judging sets judge"),
    ),
    "an environment of objects": (partial(text, verifier=reward), continued, ("name its environment", "pass env=")),
    "policy arguments": (pole, partial(load, policy_kwargs={"net_arch": [8]}), ("together with a finished policy",)),
    "slots": (played, lambda path: continued(path, env=poles("sync", 3)), ("4 slots", "3", "continue_env=False")),
    "kind": (played, lambda path: continued(path, env=poles("vector_entry_point", 4)), ("is of another environment",)),
    "a file of somebody's": (pole, lambda path: pole().save(path / "agent.json"), ("exists and is not a checkpoint",)),
    "other actions": (
        lambda: Reinforce("MlpPolicy", Somebody(IMAGE, spaces.MultiDiscrete([2, 3]))),
        partial(load, env=Somebody(IMAGE, spaces.MultiDiscrete([3, 2]))),  # which take as many weights
        ("load: the action space MultiDiscrete([3 2]) is not that of the policy",),
    ),
    "a function": (partial(pole, PPO, clip_range=math.cos), load, ("a function as clip_range: pass clip_range=...",)),
    "a folder of somebody's": (pole, lambda path: pole().save(path / "policy"), ("exists and is not a checkpoint",)),
}


@pytest.mark.parametrize(("make", "call", "named"), REFUSED.values(), ids=REFUSED)
def test_a_refusal_is_one_line_and_changes_nothing(make, call, named, tmp_path):
    make().save(tmp_path / "agent")
    before = content(tmp_path)
    refusal(lambda: call(tmp_path / "agent"), *named)
    assert content(tmp_path) == before


def test_a_policy_that_load_would_make_of_another_class_is_named(tmp_path):
    agent = pole()
    agent.policy.__class__ = type("Mine", (type(agent.policy),), {})
    with pytest.warns(UserWarning, match="'control', of which load makes a ControlPolicy: give Mine a kind"):
        agent.save(tmp_path)


def test_an_agent_whose_environment_was_made_with_objects_is_loaded_without_it_or_with_another(tmp_path):
    env_kwargs = {"verifier": reward, **LISTED}
    Reinforce("tiny", "TextGen-v0", env_kwargs=env_kwargs, group_size=2, **SMALL).save(tmp_path / "agent")
    assert load(tmp_path / "agent").get_env() is None
    again = load(tmp_path / "agent", env="TextGen-v0", env_kwargs=env_kwargs)
    assert again.env.task.verifier.function is reward and (again.num_envs, again.group_size) == (4, 2)


def test_the_reference_is_left_where_nobody_pays_for_it_and_noticed_if_it_was_changed(tmp_path):
    agent = pole(RLOO, kl_coef=0.1).learn(50)
    agent.save(tmp_path / "agent")
    assert load(tmp_path / "agent").anchor.reference is not None
    assert load(tmp_path / "agent", kl_coef=0.0).anchor.reference is None
    with torch.no_grad():
        next(iter(agent.anchor.reference.parameters())).add_(1e-3)
    refusal(lambda: agent.save(tmp_path / "agent"), "the KL reference have changed", kind=RuntimeError)


def test_a_save_that_was_killed_between_its_renames_is_found(tmp_path):
    pole().save(tmp_path / "agent")
    (tmp_path / "agent").rename(tmp_path / ".agent-old")
    assert isinstance(load(tmp_path / "agent"), ReinforceBaseline)


def test_a_checkpoint_that_is_replaced_while_it_is_read_is_read_again(tmp_path, monkeypatch):
    agent = pole()
    agent.save(tmp_path / "agent")
    training = Checkpoint.training

    def replaced(saved, copied):
        monkeypatch.undo()
        agent.num_updates = 7
        agent.save(tmp_path / "agent", tmp_path / "earlier")
        (tmp_path / "earlier" / "training.json").unlink()
        return training(Checkpoint(tmp_path / "earlier", saved.facts, saved.policy, None))

    monkeypatch.setattr(Checkpoint, "training", replaced)
    assert load(tmp_path / "agent").num_updates == 7


# Damage; tests/reliability/test_corruption.py damages every file.


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), OSError(28, "No space left")])
def test_a_lack_of_memory_is_not_taken_for_damage_and_a_file_that_cannot_be_read_is(error, tmp_path, monkeypatch):
    def fail(*_):
        raise error

    pole().save(tmp_path / "agent")
    with monkeypatch.context() as patch, pytest.raises(type(error)) as raised:
        patch.setattr(GeneratorState, "load_state_dict", fail)
        load(tmp_path / "agent")
    assert raised.value is error
    if isinstance(error, OSError):
        monkeypatch.setattr("hashlib.file_digest", fail)
        refusal(lambda: load(tmp_path / "agent"), "agent' is damaged: agent.json cannot be read: No space left")


CHANGES = {
    "missing": (lambda tensors, name: tensors.pop(name), "missing"),
    "unexpected": (lambda tensors, name: tensors.update(stranger=torch.zeros(3)), "unexpected.*stranger"),
    "of another shape": (lambda tensors, name: tensors.update({name: torch.zeros(3)}), "size|shape"),
}
FILES = {
    "model": (partial(text, PPO), "policy/model/model.safetensors", "model.norm.weight"),
    "critic": (partial(text, PPO), "policy/critic.safetensors", "head.0.bias"),
    "control": (partial(pole, PPO), "policy/policy.safetensors", "action_net.bias"),
}


@diagonal("file, change", FILES, CHANGES)
def test_tensors_that_do_not_fit_are_not_made_up(file, change, tmp_path):
    (make, place, name), (change, message) = file, change
    make().save(tmp_path / "agent")
    tensors = load_file(tmp_path / "agent" / place)
    change(tensors, name)
    save_file(tensors, tmp_path / "agent" / place, metadata={"format": "pt"})
    seal(tmp_path / "agent")
    with pytest.raises(ValueError, match=f"(?i){message}") as error:
        load(tmp_path / "agent")
    assert "\n" not in str(error.value) and place.split("/")[1] in str(error.value)
    if "model" in place:
        with pytest.raises(ValueError, match=f"(?i){message}"):
            PPO(str(tmp_path / "agent" / "policy" / "model"), "TextGen-v0", env_kwargs={"verifier": "arith"}, **SMALL)


# What is not saved.


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_not_written_over_good_ones(value, tmp_path):
    agent = pole()
    agent.save(tmp_path / "agent")
    before = content(tmp_path)
    with torch.no_grad():
        agent.policy.net.value_net.bias.fill_(value)
    with pytest.raises(DivergedError, match=r"net\.value_net\.bias are not finite.*'.*agent' is left as it is"):
        agent.save(tmp_path / "agent")
    assert content(tmp_path) == before


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_update_that_did_not_end_is_not_saved(error, tmp_path, monkeypatch):
    agent, steps = pole(PPO, num_epochs=3, num_minibatches=2), []
    run(agent, 1)
    agent.save(tmp_path / "agent")
    before, step = content(tmp_path), agent.optimizer.step

    def interrupted():
        step()
        steps.append(1)
        if len(steps) == 3:
            raise error

    monkeypatch.setattr(agent.optimizer, "step", interrupted)
    with pytest.raises(error):
        run(agent, 1)
    with pytest.raises(RuntimeError, match=r"update 2 did not end.*'.*agent' is left as it is"):
        agent.save(tmp_path / "agent")
    assert agent.updating and content(tmp_path) == before
    run(agent, 1)
    agent.save(tmp_path / "agent")
    assert everything(load(tmp_path / "agent")) == everything(agent)


# Nothing that a checkpoint names is imported unless the user vouches for it; see tests/reliability/test_corruption.py

MODULE = "somebodys_verifiers"
SOURCE = """
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.envs.registration import register

register("Trap-v0", entry_point="gymnasium.envs.classic_control.cartpole:CartPoleEnv")

def shout(prompts, completions):
    return [1.0] * len(prompts)
"""


@pytest.fixture
def somebodys(tmp_path, monkeypatch):
    """Put a module on the path; yield the name of its verifier."""
    (tmp_path / f"{MODULE}.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield f"{MODULE}:shout"
    sys.modules.pop(MODULE, None)
    registry.pop("Trap-v0", None)


def altered(path, **facts):
    """Let agent.json say something else, and return the folder."""
    saved = json.loads((path / "agent.json").read_text())
    (path / "agent.json").write_text(json.dumps(saved | facts))
    seal(path)
    return path


def test_what_the_user_names_or_trusts_is_imported(somebodys, tmp_path):
    agent = text(verifier=somebodys)
    agent.save(tmp_path / "agent")
    trusted = load(tmp_path / "agent", trust=True)
    assert trusted.origin == agent.origin, "trust is of that call"
    refusal(lambda: load(tmp_path / "agent"), "trust=True")
    path = altered(tmp_path / "agent", env="nowhere:Trap-v0")
    named = load(path, env="rlenv:TextGen-v0", env_kwargs={"verifier": somebodys, **LISTED})
    for each in (trusted, named):
        assert each.env.task.verifier.function([""], [""]) == [1.0]


def test_an_environment_that_the_user_registered_needs_no_trust(somebodys, tmp_path, monkeypatch):
    """Also before anybody imported its package; Gymnasium's own id behind another package does."""
    monkeypatch.setitem(registry, "Snare-v0", EnvSpec("Snare-v0", entry_point=f"{MODULE}:CartPoleEnv"))
    Reinforce("MlpPolicy", "Snare-v0", **SMALL).save(tmp_path / "agent")
    del sys.modules[MODULE], registry["Trap-v0"]
    assert load(tmp_path / "agent").origin["env"] == f"{MODULE}:Snare-v0"
    del sys.modules[MODULE], registry["Trap-v0"]
    refusal(lambda: load(altered(tmp_path / "agent", env=f"{MODULE}:CartPole-v1", env_kwargs={})), "pass --trust")


def test_a_checkpoint_keeps_what_its_caller_adds_and_names_anything_else(tmp_path):
    agent, array = pole(), np.arange(6.0)[::2]
    array.flags.writeable = False
    agent.extra_state = {"array": array, "scalar": np.float32(0.5), "whole": np.int64(3), "yes": np.bool_(True)}
    agent.extra_state |= {"note": "later", "numbers": [1, 2.5, None], "moments": torch.arange(3.0)}
    agent.save(tmp_path / "agent")
    back = load(tmp_path / "agent").extra_state
    assert type(back["array"]) is np.ndarray and back.pop("array").tolist() == [0.0, 2.0, 4.0]
    assert torch.equal(back.pop("moments"), torch.arange(3.0))
    assert back == {"scalar": 0.5, "whole": 3, "yes": True, "note": "later", "numbers": [1, 2.5, None]}
    for value, kind in (({1}, "set"), (object(), "object"), (np.array([None]), "object")):
        agent.extra_state = {"mine": [1, {"deep": value}]}
        with pytest.raises(TypeError, match=rf"extra/mine\[1\]/deep cannot be saved: .*{kind}"):
            agent.save(tmp_path / "agent")
    held = type("Holding", (Reinforce,), {"held": setting(default=None), "__annotations__": {"held": "object"}})
    with pytest.raises(TypeError, match=r"the setting held cannot be saved: .*set; .*saved=False"):
        pole(held, held={1}).save(tmp_path / "agent")


LATER = """
import sys
slow = ("transformers", "tokenizers", "peft", "torch.distributed.tensor", "torch.distributed.fsdp")
forgotten, distributed = {}, vars(sys.modules["torch.distributed"])
for name in [*sys.modules]:
    if name.startswith(slow):
        forgotten[name] = sys.modules.pop(name)
parts = {name: distributed.pop(name) for name in ("tensor", "fsdp") if name in distributed}  # of `torch.distributed`
sys.modules["transformers"] = None  # importing it is an error
from rlenv import agents
assert "torch.distributed.tensor" not in sys.modules and "torch.distributed.fsdp" not in sys.modules
agent = agents.PPO("auto", "CartPole-v1", device="cpu", num_envs=1, episodes_per_update=1)
agent.save(folder + "/saved")
agents.PPO.load(folder + "/saved", device="cpu")
assert not {"rlenv.agents.algorithms.vapo", "tokenizers", "peft", "rlenv.textgen"} & set(sys.modules)
assert type(agents.PPO.load(folder + "/pole", device="cpu")).__name__ == "VAPO"
assert not {"rlenv.agents.algorithms.rloo", "rlenv.textgen"} & set(sys.modules)
sys.modules.update(forgotten)
distributed.update(parts)
assert agents.Agent.load(folder + "/text", device="cpu").origin["env"] == "rlenv:TextGen-v0"
"""


def test_control_imports_nothing_of_language_models_and_a_checkpoint_what_its_names_stand_for(tmp_path):
    """Registered names need no trust, those of the parts of a verifier too, where nobody imported the environment."""
    agents.VAPO("MlpPolicy", "CartPole-v1", device="cpu").save(tmp_path / "pole")
    world = {"verifier": "weighted", "verifier_kwargs": {"parts": {"arith": 1, "length": {"weight": 1, "maximum": 3}}}}
    agents.Reinforce("tiny", "TextGen-v0", env_kwargs=world, num_envs=1, device="cpu").save(tmp_path / "text")
    run_anew(LATER, folder=str(tmp_path))
