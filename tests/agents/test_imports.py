"""What is slow to import is imported by those who use it."""

import os
import signal
import subprocess
import sys
import traceback

import pytest

import agents
import rlenv  # noqa: F401
from agents import policies

FORKED = """
import subprocess
import sys
for name in [*sys.modules]:
    if name.split(".")[0] in ("agents", "transformers", "tokenizers", "peft", "rlenv"):
        del sys.modules[name]
    elif name.startswith(("torch.distributed.tensor", "torch.distributed.fsdp")):
        del sys.modules[name]
        vars(sys.modules["torch.distributed"]).pop(name.split(".")[2], None)  # for `from torch.distributed import fsdp`
sys.modules["transformers"] = None  # importing it is an error
import agents
assert "torch.distributed.tensor" not in sys.modules and "torch.distributed.fsdp" not in sys.modules
agent = agents.PPO("auto", "CartPole-v1", device="cpu", num_envs=1, episodes_per_update=1)
agent.save(sys.argv[1])
agents.PPO.load(sys.argv[1], device="cpu")
assert not {"tokenizers", "peft", "rlenv"} & set(sys.modules)
"""


def test_control_imports_nothing_of_language_models_again(tmp_path):
    """In a fork that has forgotten all of this: what is imported anew is what our own modules import."""
    child = os.fork()
    if child == 0:
        status = 1
        signal.alarm(120)
        try:
            sys.argv[1:] = [str(tmp_path / "saved")]
            exec(FORKED, {})
            status = 0
        except BaseException:
            (tmp_path / "error").write_text(traceback.format_exc())
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert status == 0, (tmp_path / "error").read_text()


@pytest.mark.parametrize("package", [agents, policies])
def test_public_names_are_there_however_they_are_imported(package):
    everything = {}
    exec(f"from {package.__name__} import *", everything)
    for name in package.__all__:
        assert getattr(package, name) is everything[name]
        assert name in dir(package)
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'LanguageModelPolicies'"):
        package.LanguageModelPolicies  # noqa: B018


def test_the_classes_of_policies_are_known_by_their_kind():
    assert dict(policies.KINDS) == {"control": agents.ControlPolicy, "language-model": agents.LanguageModelPolicy}
    assert all(cls.kind == kind for kind, cls in policies.KINDS.items()) and policies.KINDS.get("nothing") is None


LOADING = """
import sys
from agents import PPO, Agent
found = type(PPO.load(sys.argv[1], device="cpu")).__name__
print(found, {"agents.algorithms.rloo", "rlenv"} & set(sys.modules))
print(Agent.load(sys.argv[2], device="cpu").origin["env"])
"""


def test_a_checkpoint_is_loaded_where_nobody_has_imported_its_class_and_its_environment(tmp_path):
    """Registered names need no trust: those of the parts of a verifier, too."""
    agents.VAPO("MlpPolicy", "CartPole-v1", device="cpu").save(tmp_path / "pole")
    world = {"verifier": "weighted", "verifier_kwargs": {"parts": {"arith": 1, "length": {"weight": 1, "maximum": 3}}}}
    agents.Reinforce("tiny", "TextGen-v0", env_kwargs=world, num_envs=1, device="cpu").save(tmp_path / "text")
    command = [sys.executable, "-c", LOADING, str(tmp_path / "pole"), str(tmp_path / "text")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("VAPO set()\nrlenv:TextGen-v0\n", 0), done.stderr
