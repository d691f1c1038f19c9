"""A run that is stopped and continued: some updates of it, and everything that its future depends on."""

import json

from rlenv.agents.policies.base import weights_digest
from rlenv.agents.rollouts.env_state import env_state
from rlenv.agents.training.state import own_parts_of, parts_of


def run(agent, updates, goal=10**6):
    """Train for some updates of a long run; return the metrics of each."""
    stream = []
    steps = agent.updates(goal - agent.num_timesteps, reset_num_timesteps=agent.num_updates == 0)
    for _, metrics in steps:
        stream.append({**metrics, "steps": agent.num_timesteps})
        if len(stream) == updates:
            steps.close()
    return stream


def bytes_of(tensors):
    return [tensor.detach().contiguous().numpy().tobytes() for tensor in tensors]


def everything(agent):
    """Return all that the future of a run depends on, in comparable form."""
    optimizer = agent.policy_optimizer.state_dict()
    return {
        "weights": weights_digest(agent.policy),
        "reference": agent.anchor.reference and weights_digest(agent.anchor.reference),
        "moments": [bytes_of(each.values()) for each in optimizer["adam"]["state"].values()],
        "optimizer": (bytes_of(optimizer["masters"]), optimizer["skipped"], optimizer["total_skipped"]),
        "generator": bytes_of([agent.generator.get_state()]),
        "envs": json.dumps(env_state(agent.env)),
        "algorithm": str({name: part.state_dict() for name, part in agent.carried.items()}),
        "rewards": parts_of(agent)["reward_scale"].state_dict(),
        "counters": (agent.num_timesteps, agent.trained_timesteps, agent.num_episodes, agent.num_updates),
        "watches": [own_parts_of(agent)[name].state_dict() for name in ("failures", "start")],
    }
