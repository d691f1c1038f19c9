"""What is slow to import is imported by those who use it."""

import os
import signal
import subprocess
import sys
import traceback

import pytest

import agents
from agents import policies

CHILD = """
import subprocess
import sys
sys.modules["transformers"] = None  # importing it is an error
import agents
assert "torch.distributed.tensor" not in sys.modules and "torch.distributed.fsdp" not in sys.modules
agent = agents.PPO("auto", "CartPole-v1", device="cpu", num_envs=1, episodes_per_update=1)
agent.save(sys.argv[1])
agents.PPO.load(sys.argv[1], device="cpu")
assert not {"tokenizers", "peft", "rlenv"} & set(sys.modules)
"""


FORKED = f"""
import subprocess
import sys
for name in [*sys.modules]:
    if name.split(".")[0] in ("agents", "transformers", "tokenizers", "peft", "rlenv"):
        del sys.modules[name]
    elif name.startswith(("torch.distributed.tensor", "torch.distributed.fsdp")):
        del sys.modules[name]
        vars(sys.modules["torch.distributed"]).pop(name.split(".")[2], None)  # for `from torch.distributed import fsdp`
{CHILD}
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
    assert all(cls.kind == kind for kind, cls in policies.KINDS.items())
    assert "nothing" not in policies.KINDS and policies.KINDS.get("nothing") is None


LOADING = """
import subprocess
import sys
import agents
print(type(agents.PPO.load(sys.argv[1], device="cpu")).__name__, "agents.algorithms.rloo" in sys.modules)
"""


def test_a_checkpoint_is_loaded_by_a_parent_that_has_not_imported_its_class(tmp_path):
    agents.VAPO("MlpPolicy", "CartPole-v1", device="cpu").save(tmp_path / "saved")
    command = [sys.executable, "-c", LOADING, str(tmp_path / "saved")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "VAPO False\n"
