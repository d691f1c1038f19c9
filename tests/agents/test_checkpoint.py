"""Checkpoints: what can be saved, what is refused, and that nothing of anybody's is lost."""

import json
import subprocess
import sys

import pytest
import torch
from diagonal import diagonal
from gymnasium.envs.registration import EnvSpec, registry
from safetensors.torch import load_file, save_file
from tiny_models import tiny_model

import rlenv  # noqa: F401
from agents import PPO, Agent, DivergedError, Reinforce, ReinforceBaseline
from agents.files import seal
from agents.training import checkpoint
from agents.training.checkpoint import Checkpoint, read_checkpoint

SMALL = {"episodes_per_update": 4, "num_envs": 4, "device": "cpu"}


def pole(cls=ReinforceBaseline, **kwargs):
    return cls("MlpPolicy", "CartPole-v1", **{**SMALL, **kwargs})


def reward(prompts, completions, **columns):
    return [float(len(completion)) for completion in completions]


@pytest.mark.parametrize("name", ["results", "thesis.txt"])
def test_a_path_that_holds_something_else_is_not_replaced(name, tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "figure.png").write_text("years of work")
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ValueError, match="exists and is not a checkpoint"):
        pole().save(tmp_path / name)
    assert (tmp_path / "results" / "figure.png").read_text() == "years of work"
    assert (tmp_path / "thesis.txt").read_text() == "years of work"
    assert len(list(tmp_path.iterdir())) == 2


def test_another_class_is_refused(tmp_path):
    pole(Reinforce).save(tmp_path / "agent")
    with pytest.raises(ValueError, match="holds a Reinforce, not a ReinforceBaseline"):
        ReinforceBaseline.load(tmp_path / "agent")
    assert type(Agent.load(tmp_path / "agent")) is Reinforce


def test_an_agent_whose_environment_was_made_with_objects_is_saved_and_asks_for_it(tmp_path):
    env_kwargs = {"verifier": reward, "problems": ["ab", "cd"], "test_fraction": 0.0, "max_new_tokens": 3}
    agent = Reinforce("tiny", "TextGen-v0", env_kwargs=env_kwargs, **SMALL)
    agent.save(tmp_path / "agent")
    with pytest.raises(ValueError, match="does not name its environment: pass env="):
        Reinforce.load(tmp_path / "agent", continue_env=True)
    assert Reinforce.load(tmp_path / "agent", device="cpu").get_env() is None
    loaded = Reinforce.load(tmp_path / "agent", env="TextGen-v0", env_kwargs=env_kwargs, device="cpu")
    assert loaded.env.task.verifier.function is reward


def test_the_reference_is_left_where_it_is_when_nobody_pays_for_it(tmp_path):
    agent = pole(kl_coef=0.1).learn(50)
    agent.save(tmp_path / "agent")
    assert ReinforceBaseline.load(tmp_path / "agent").anchor.reference is not None
    assert ReinforceBaseline.load(tmp_path / "agent", kl_coef=0.0).anchor.reference is None


@pytest.mark.parametrize(("text", "message"), [("{", "is damaged"), (json.dumps({"format": 99}), "format 99")])
def test_a_damaged_or_foreign_checkpoint_is_one_clear_line(text, message, tmp_path):
    pole().save(tmp_path / "agent")
    (tmp_path / "agent" / "agent.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        ReinforceBaseline.load(tmp_path / "agent")


def test_a_save_that_was_killed_between_its_renames_is_found(tmp_path):
    pole().save(tmp_path / "agent")
    (tmp_path / "agent").rename(tmp_path / ".agent-old")
    assert isinstance(ReinforceBaseline.load(tmp_path / "agent"), ReinforceBaseline)


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
    assert Agent.load(tmp_path / "agent", device="cpu").num_updates == 7


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), OSError(28, "No space left")])
def test_a_lack_of_memory_is_not_taken_for_damage(error, tmp_path, monkeypatch):
    def fail(*_):
        raise error

    pole().save(tmp_path / "agent")
    monkeypatch.setattr(ReinforceBaseline, "load_state_dict", fail)
    with pytest.raises(type(error)) as raised:
        Agent.load(tmp_path / "agent", device="cpu")
    assert raised.value is error


def rewritten(file, change):
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, metadata={"format": "pt"})


CHANGES = {
    "missing": (lambda tensors, name: tensors.pop(name), "missing"),
    "unexpected": (lambda tensors, name: tensors.update(stranger=torch.zeros(3)), "unexpected.*stranger"),
    "of another shape": (lambda tensors, name: tensors.update({name: torch.zeros(3)}), "size|shape"),
}


FILES = {
    "model": ("TextGen-v0", "policy/model/model.safetensors", "model.norm.weight"),
    "critic": ("TextGen-v0", "policy/critic.safetensors", "head.0.bias"),
    "control": ("CartPole-v1", "policy/policy.safetensors", "action_net.bias"),
}


@pytest.mark.parametrize(
    ("env", "file", "name", "change", "message"),
    [
        pytest.param(
            *file, *change, id=f"{kind}-{how}", marks=[] if kind == "model" or how == "missing" else [pytest.mark.slow]
        )
        for kind, file in FILES.items()
        for how, change in CHANGES.items()
    ],
)
def test_tensors_that_do_not_fit_are_not_made_up(env, file, name, change, message, tmp_path):
    kwargs = {"verifier": "arith"} if env == "TextGen-v0" else {}
    PPO("auto", env, env_kwargs=kwargs, **SMALL).save(tmp_path / "agent")
    rewritten(tmp_path / "agent" / file, lambda tensors: change(tensors, name))
    seal(tmp_path / "agent")
    with pytest.raises(ValueError, match=f"(?i){message}") as error:
        PPO.load(tmp_path / "agent", device="cpu")
    assert "\n" not in str(error.value) and file.split("/")[1] in str(error.value)
    if "model" in file:
        with pytest.raises(ValueError, match=f"(?i){message}"):
            PPO(str(tmp_path / "agent" / "policy" / "model"), env, env_kwargs=kwargs, **SMALL)


@pytest.mark.parametrize("change", ["bit", "missing", "manifest"])
def test_a_file_that_was_changed_is_named(tmp_path, change):
    pole().save(tmp_path / "agent")
    file = tmp_path / "agent" / ("manifest.json" if change == "manifest" else "policy/policy.safetensors")
    if change == "bit":
        content = bytearray(file.read_bytes())
        content[-3] ^= 1
        file.write_bytes(content)
    else:
        file.unlink()
    with pytest.raises(ValueError, match=f"'.*agent' is damaged: .*{file.name}.*(differs|missing)"):
        Agent.load(tmp_path / "agent")


def test_a_file_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    pole().save(tmp_path / "agent")

    def fail(stream, digest):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("hashlib.file_digest", fail)
    with pytest.raises(ValueError, match=r"'.*agent' is damaged: agent\.json cannot be read: Input/output error"):
        Agent.load(tmp_path / "agent")


def test_a_checkpoint_of_links_loads(tmp_path):
    """Such as the cache of Hugging Face, whose snapshots are folders of links."""
    pole().save(tmp_path / "agent")
    for file in [path for path in (tmp_path / "agent").rglob("*") if path.is_file()]:
        blob = tmp_path / file.name
        file.replace(blob)
        file.symlink_to(blob)
    (tmp_path / "link").symlink_to(tmp_path / "agent", target_is_directory=True)
    assert type(Agent.load(tmp_path / "agent")) is type(Agent.load(tmp_path / "link")) is ReinforceBaseline
    blob.write_text("changed")
    with pytest.raises(ValueError, match="SHA-256 differs"):
        Agent.load(tmp_path / "agent")


@pytest.mark.parametrize("tied", [True, False])
def test_a_head_is_missing_only_where_it_is_no_copy_of_the_embeddings(tied, tmp_path):
    model = tiny_model("llama", 14)
    model.config.tie_word_embeddings = tied
    model.tie_weights()
    model.save_pretrained(tmp_path / "model")
    rewritten(tmp_path / "model" / "model.safetensors", lambda tensors: tensors.pop("lm_head.weight", None))
    make = lambda: PPO(str(tmp_path / "model"), "TextGen-v0", env_kwargs={"verifier": "arith"}, **SMALL)  # noqa: E731
    if tied:
        assert make().policy.critic is not None, "a new critic is not missing: no model folder holds one"
    else:
        with pytest.raises(ValueError, match=r"missing.*lm_head\.weight"):
            make()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_not_written_over_good_ones(value, tmp_path):
    agent = pole()
    agent.save(tmp_path / "agent")
    good = [weight.clone() for weight in agent.policy.parameters()]
    with torch.no_grad():
        agent.policy.net.value_net.bias.fill_(value)
    with pytest.raises(DivergedError, match=r"net\.value_net\.bias are not finite.*'.*agent' is left as it is"):
        agent.save(tmp_path / "agent")
    again = ReinforceBaseline.load(tmp_path / "agent", device="cpu")
    assert all(torch.equal(*pair) for pair in zip(again.policy.parameters(), good, strict=True))
    assert [path.name for path in tmp_path.iterdir()] == ["agent"]


def test_policy_arguments_for_a_finished_policy_are_refused(tmp_path):
    pole().save(tmp_path / "agent")
    with pytest.raises(ValueError, match="together with a finished policy"):
        ReinforceBaseline.load(tmp_path / "agent", policy_kwargs={"net_arch": [8]})


# Nothing that a checkpoint names is imported or run unless the user vouches for it.

MODULE = "somebodys_verifiers"
SOURCE = """
from pathlib import Path
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.envs.registration import register

Path(__file__).with_name("imported").touch()
register("Trap-v0", entry_point="gymnasium.envs.classic_control.cartpole:CartPoleEnv")

def shout(prompts, completions):
    return [1.0] * len(prompts)
"""


@pytest.fixture
def somebodys(tmp_path, monkeypatch):
    """Put a module that notes its import on the path; yield that note."""
    (tmp_path / f"{MODULE}.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "imported"
    sys.modules.pop(MODULE, None)
    registry.pop("Trap-v0", None)


def weighted(parts):
    return {"verifier": "weighted", "verifier_kwargs": {"parts": {"arith": 1, **parts}}}


LISTED = {"problems": ["12+34="], "test_fraction": 0.0, "max_prompt_tokens": 6, "max_new_tokens": 4}
NAMED = {
    "environment": {"env": f"{MODULE}:Trap-v0", "env_kwargs": {}},
    "verifier": {"env_kwargs": {"verifier": f"{MODULE}:shout", **LISTED}},
    "verifier that says it is trusted": {"env_kwargs": {"verifier": f"{MODULE}:shout", "trust": True, **LISTED}},
    "part": {"env_kwargs": weighted({f"{MODULE}:shout": 1})},
    "named part": {"env_kwargs": weighted({"shout": {"weight": 1, "verifier": f"{MODULE}:shout"}})},
}


def altered(path, **facts):
    """Save an agent, let agent.json say something else, and return the folder."""
    Reinforce("tiny", "TextGen-v0", env_kwargs={"verifier": "length", **LISTED}, **SMALL).save(path)
    saved = json.loads((path / "agent.json").read_text())
    (path / "agent.json").write_text(json.dumps(saved | facts))
    seal(path)
    return path


@pytest.mark.parametrize("facts", NAMED.values(), ids=NAMED)
def test_loading_imports_no_module_that_only_the_checkpoint_names(facts, somebodys, tmp_path):
    with pytest.raises(ValueError, match=rf"'{MODULE}:\w+.*pass --trust \(Python: trust=True\)") as refusal:
        Agent.load(altered(tmp_path / "agent", **facts), device="cpu")
    assert "\n" not in str(refusal.value)
    assert not somebodys.exists()


@pytest.mark.parametrize("name", ["device", "policy_kwargs", "tensorboard_log", "env"])
def test_a_checkpoint_sets_nothing_that_it_does_not_keep(name, tmp_path):
    path = tmp_path / "agent"
    Reinforce("MlpPolicy", "CartPole-v1", **SMALL).save(path)
    kept = json.loads((path / "agent.json").read_text())["settings"]
    with pytest.raises(ValueError, match=rf"is damaged: {name} is not a setting that a checkpoint keeps$"):
        Agent.load(altered(path, settings=kept | {name: "x"}), device="cpu")


def test_a_checkpoint_that_is_trusted_imports_what_it_names(somebodys, tmp_path):
    agent = Reinforce("tiny", "TextGen-v0", env_kwargs={"verifier": f"{MODULE}:shout", **LISTED}, **SMALL)
    agent.save(tmp_path / "agent")
    again = Agent.load(tmp_path / "agent", device="cpu", trust=True)
    assert again.env.task.verifier.function([""], [""]) == [1.0]
    assert again.origin == agent.origin
    with pytest.raises(ValueError, match="trust=True"):
        Agent.load(tmp_path / "agent", device="cpu")


def test_an_environment_passed_by_the_user_is_the_users_own_statement(somebodys, tmp_path):
    kwargs = {"verifier": f"{MODULE}:shout", **LISTED}
    path = altered(tmp_path / "agent", env="nowhere:Trap-v0")
    again = Agent.load(path, env="rlenv:TextGen-v0", env_kwargs=kwargs, device="cpu")
    assert again.env.task.verifier.function([""], [""]) == [1.0]


NAMES = {"name": {"verifier": "length:3"}, "parts": weighted({"length": {"weight": 0.1, "maximum": 3}})}


@diagonal("env, kwargs", ["TextGen-v0", "rlenv:TextGen-v0"], NAMES)
def test_registered_names_load_without_further_words(env, kwargs, tmp_path):
    kwargs = {**kwargs, **LISTED}
    Reinforce("tiny", env, env_kwargs=kwargs, **SMALL).save(tmp_path / "agent")
    assert Agent.load(tmp_path / "agent", device="cpu").origin["env_kwargs"] == kwargs


def test_an_agent_of_text_loads_where_nobody_imported_rlenv(tmp_path):
    Reinforce("tiny", "TextGen-v0", env_kwargs={"verifier": "length:3", **LISTED}, **SMALL).save(tmp_path / "agent")
    load = f"from agents import Agent; print(Agent.load({str(tmp_path / 'agent')!r}).origin['env'])"
    done = subprocess.run([sys.executable, "-c", load], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("rlenv:TextGen-v0\n", 0), done.stderr


def test_an_environment_that_the_user_registered_needs_no_trust(somebodys, tmp_path, monkeypatch):
    """Also before anybody imported its package; Gymnasium's own id behind another package does."""
    monkeypatch.setitem(registry, "Snare-v0", EnvSpec("Snare-v0", entry_point=f"{MODULE}:CartPoleEnv"))
    Reinforce("MlpPolicy", "Snare-v0", **SMALL).save(tmp_path / "agent")
    del sys.modules[MODULE], registry["Trap-v0"]
    assert Agent.load(tmp_path / "agent", device="cpu").origin["env"] == f"{MODULE}:Snare-v0"
    del sys.modules[MODULE], registry["Trap-v0"]
    with pytest.raises(ValueError, match="pass --trust"):
        Agent.load(altered(tmp_path / "agent", env=f"{MODULE}:CartPole-v1", env_kwargs={}), device="cpu")


# Parts.


class Counting:
    """A part that counts what it was asked."""

    def __init__(self):
        self.count = 0

    def state_dict(self):
        return {"count": torch.tensor(self.count)}

    def load_state_dict(self, state):
        self.count = int(state["count"])


class WithParts(ReinforceBaseline):
    """An agent with more to keep, of each kind."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self.shared, self.own = Counting(), Counting()

    def parts(self):
        return super().parts() | {"shared": self.shared}

    def own_parts(self):
        return super().own_parts() | {"own": self.own}


def test_a_part_is_kept_because_it_is_declared(tmp_path):
    agent = WithParts("MlpPolicy", "CartPole-v1", device="cpu")
    agent.shared.count, agent.own.count = 3, 4
    agent.save(tmp_path / "agent")
    back = WithParts.load(tmp_path / "agent", device="cpu")
    assert (back.shared.count, back.own.count) == (3, 4)


def test_a_part_without_a_state_is_an_error_and_a_setting_may_be_turned_on(tmp_path):
    ReinforceBaseline("MlpPolicy", "CartPole-v1", device="cpu").save(tmp_path / "agent")
    fresh = ReinforceBaseline.load(tmp_path / "agent", device="cpu", normalize_rewards=True)
    assert fresh.updater.reward_scale.moments.count == 0
    facts = json.loads((tmp_path / "agent" / "agent.json").read_text()) | {"agent": None}
    (tmp_path / "agent" / "agent.json").write_text(json.dumps(facts))
    seal(tmp_path / "agent")
    with pytest.raises(ValueError, match="agent' cannot be loaded: KeyError: 'shared'"):
        WithParts.load(tmp_path / "agent", device="cpu")


def test_a_checkpoint_that_was_found_whole_is_not_hashed_again_unless_it_is_replaced(tmp_path, monkeypatch):
    agent = pole()
    agent.save(tmp_path / "agent")
    checked = []
    monkeypatch.setattr(checkpoint, "check_seal", lambda folder: checked.append(folder))
    found = read_checkpoint(tmp_path / "agent")
    assert Agent.load(found, device="cpu").num_updates == 0 and len(checked) == 1
    agent.num_updates = 7
    agent.save(tmp_path / "agent")
    assert Agent.load(found, device="cpu").num_updates == 7 and len(checked) == 2
