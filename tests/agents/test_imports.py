"""What is slow to import is imported by those who use it."""

from anew import run_anew

import rlenv  # noqa: F401
from rlenv import agents

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
