"""The interface of policies: they act, evaluate their actions again and, with a critic, predict values."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import gymnasium as gym
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from ..fsdp import local
from ..rollout import Obs, Rollout, map_obs
from .actor import Actor, PolicyActor
from .choosing import LOG_PROBS, Evaluated, Want

State = Any
MODEL = "model"  # where a language model lies in the folder of its policy, with its tokenizer


class Policy(nn.Module):
    """Chooses actions and evaluates them again, with gradients.

    | symbol | meaning | shape |
    |---|---|---|
    | obs | a batch of observations, tensors | [B, ...] |
    | state | the policy's memory between steps: None for an MLP, the KV cache for a language model | - |
    | episode_start | whether a new episode begins with this observation; preferably on the CPU | bool [B] |
    | actions | the chosen actions | [B] or [B, A] |
    | log_probs | log pi(action given observation) | [B], or [N, T] for a rollout |

    The state only saves work: `act` with a running state equals `act` with a fresh one, and both equal
    `evaluate`.

    Attributes:
        obs_from_actions: True if every later observation is the first one plus the actions since, so that a rollout
            stores first observations only.
        kind: the name of this class in checkpoints and in the defaults of settings; where a kind has none, those of
            control are taken.
        critic: the module of all that only the critic has; without a critic, None or not there.
        is_categorical: whether an action is one choice out of A.
        squashes: whether its actions in a Box are between -1 and 1, which an actor stretches to the bounds.
        takes_appended: whether `act` takes `Actor.appended`, by name.
        draws_by_episode: whether the actors that it makes give `act` numbers of `EpisodeDraws` in place of a generator.
    """

    obs_from_actions: bool = False
    kind: str = ""
    is_categorical: bool = False
    squashes: bool = False
    takes_appended: bool = False
    draws_by_episode: bool = False

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return next(self.parameters()).device

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Defaults of settings that depend on this policy, and of "total_timesteps", the budget of a run.

        A class that has the same for all its policies has a dictionary in place of this property.
        """
        return {}

    def initial_state(self, num_envs: int) -> State:
        """Return the state before the first step of `num_envs` slots."""
        return None

    def act(
        self,
        obs: Obs,
        state: State,
        episode_start: torch.Tensor,
        deterministic: bool = False,
        generator: torch.Generator | None = None,
        playing: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, State]:
        """Return actions, their log-probabilities and the next state; the state passed in must not be used again.

        Slots that are not `playing` (bool [B]; None means all play) may get any action.
        """
        raise NotImplementedError

    def make_actor(
        self,
        obs: Any,
        action_space: gym.Space,
        device: torch.device,
        deterministic: bool = False,
        generator: torch.Generator | None = None,
    ) -> Actor:
        """Return the actor of one rollout; by default, it asks `act` on tensors.

        Args:
            obs: the first observations of all slots, as the environment gives them [B, ...].
            action_space: of one environment.
            device: of the policy.
            deterministic: whether the likeliest actions are taken.
            generator: for sampling them otherwise.
        """
        return PolicyActor(self, obs, action_space, device, deterministic, generator)

    def distribution(self, obs: Obs, state: State, episode_start: torch.Tensor) -> tuple[torch.Tensor, State]:
        """Return log pi of every action [B, A] in these observations, and the next state; nothing is chosen.

        For looking at a policy: `act` draws from the same distribution.

        Args:
            obs: [B, ...].
            state: returned by the last call; None for a fresh one, which is filled from the observations alone.
            episode_start: bool [B], on the CPU.

        Raises:
            ValueError: for a policy whose actions are not one choice out of A.
        """
        raise ValueError(f"{type(self).__name__} does not list its actions; supported: one discrete action per step")

    def evaluate(self, rollout: Rollout, want: Want = LOG_PROBS, reference: Self | None = None) -> Evaluated:
        """Return the wanted quantities of a rollout's actions by name, [N, T] and 0 in masked cells, in one pass.

        Args:
            rollout: the episodes.
            want: "log_probs": log π(a_t | s_t), differentiable. "entropy": of π(. | s_t), differentiable. "kl": KL(π ||
                reference) over all actions, differentiable. "score_norms": |∇ log π(a_t | s_t)|² in the logits, where
                the policy `is_categorical`; `evaluate_choices` makes all of them then, and the other divergences of
                `estimators.kl.DIVERGENCES`.
            reference: a policy with the same actions, for "kl"; it reads what the rollout has for a teacher, if
                anything, and is not differentiated.
        """
        raise NotImplementedError

    def costs(self, rollout: Rollout) -> torch.Tensor:
        """Return how many positions are read to evaluate each episode, int64 [N]."""
        return rollout.lengths

    def values(self, rollout: Rollout | Obs) -> torch.Tensor:
        """Return the critic's values [N, T], differentiable in the critic's parameters only; 0 in masked cells.

        A batch of observations [N, ...], tensors or arrays, counts as N episodes of one step, as in stable-baselines3.
        """
        raise ValueError(f"{type(self).__name__} was made without a critic")

    def adopt_tokenizer(self, metadata: Mapping[str, Any]) -> None:
        """Check that the tokenizer in an environment's metadata, if any, is the policy's; by default, it has none.

        Raises:
            ValueError: for another tokenizer.
        """

    def save(self, folder: Path) -> None:
        """Write the policy into an empty folder."""
        raise NotImplementedError

    @classmethod
    def load(cls, folder: Path, observation_space: Any, action_space: Any) -> Self:
        """Read the policy that `save` wrote."""
        raise NotImplementedError

    def frozen_copy(self) -> Self:
        """Return a copy that training never changes, such as the KL reference."""
        return copy.deepcopy(self).requires_grad_(False)

    def load_frozen(self, folder: Path, observation_space: Any, action_space: Any) -> Self:
        """Read the frozen copy of this policy that `save` wrote."""
        return type(self).load(folder, observation_space, action_space).to(self.device).requires_grad_(False)


@contextmanager
def seeded_weights(seed: int) -> Iterator[None]:
    """Draw the initial weights of modules from a seed; torch's global state is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def critic_parameters(policy: nn.Module) -> list[nn.Parameter]:
    """Return the trainable parameters of a policy's critic, if it has one."""
    critic = getattr(policy, "critic", None)
    return [] if critic is None else [p for p in critic.parameters() if p.requires_grad]


def actor_parameters(policy: nn.Module) -> list[nn.Parameter]:
    """Return all other trainable parameters of a policy."""
    critic = {id(parameter) for parameter in critic_parameters(policy)}
    return [p for p in policy.parameters() if p.requires_grad and id(p) not in critic]


def episodes_of(policy: Policy, seen: Rollout | Obs) -> Rollout:
    """Return a rollout as it is, and a batch of observations [N, ...] as episodes of one step [N, 1]."""
    if isinstance(seen, Rollout):
        return seen
    obs = map_obs(lambda x: torch.as_tensor(x, device=policy.device), seen)
    count = len(next(iter(obs.values())) if isinstance(obs, dict) else obs)
    mask = torch.ones(count, 1, dtype=torch.bool, device=policy.device)
    kept = obs if policy.obs_from_actions else map_obs(lambda x: x[:, None], obs)
    return Rollout.of_demonstrations(kept, mask.long(), mask)


def weights_digest(module: nn.Module) -> str:
    """Return the SHA-256 of a module's weights, names and types included; if dealt out, of this process's part."""
    digest = hashlib.sha256()
    for name, weights in module.state_dict(keep_vars=True).items():
        digest.update(f"{name} {weights.dtype} {tuple(weights.shape)}".encode())
        held: Any = local(weights).detach()
        digest.update(held.cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def load_weights(module: nn.Module, file: Path, known: Mapping[str, torch.Tensor] | None = None) -> None:
    """Read the tensors of a module from a safetensors file; `known` are the tensors that it leaves out.

    Raises:
        ValueError: if the file is missing or damaged, or its tensors are not exactly the module's.
    """
    try:
        module.load_state_dict({**(known or {}), **load_file(file)})
    except (OSError, RuntimeError, SafetensorError) as error:
        reasons = " ".join(str(error).split("\n\t")[-3:]).strip()
        raise ValueError(f"the weights in {str(file)!r} do not fit: {reasons}") from error
