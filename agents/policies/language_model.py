"""Any causal language model of transformers as a policy over tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Self

import torch
from gymnasium import spaces
from torch import nn
from transformers import PreTrainedModel

from ..checks import check_choice, check_flag
from ..rollout import Obs, Rollout
from .base import Policy, choose, scatter_steps
from .captured import CapturedDecoder, Captures, Ticket
from .chunks import by_chunks
from .contexts import Reading, plan_reading
from .critic import CRITICS, Critic
from .decoding import ContextDecoder, Decoder
from .layout import Layout, is_changed
from .models import has_plain_head, load_model, row_limit
from .steps import make_step
from .trial import faults_named, try_out

_MODEL, _CONFIG = "model", "policy.json"
_SWITCHES = ("merge_rows", "share_prefixes", "share_contexts", "cuda_graphs")


class LanguageModelPolicy(Policy):
    """pi(a | s) = softmax(logits(s) / temperature)[a], over the environment's vocabulary.

    Acting reads only the newest token of each slot, with a KV cache as recurrent state; training reads each episode
    in one teacher-forced pass. Both use the same softmax in at least float32, the same temperature, and never
    dropout. Nothing is truncated (top-k, top-p): the sampled policy is the trained one.

    Args:
        observation_space: Dict(tokens=Box [L], length=Discrete).
        action_space: Discrete(V).
        model: a preset ("tiny"), a folder or model id, or a model object.
        temperature: divides the logits; above 0.
        critic: "head" (on the policy's trunk, which it leaves alone), "separate" (a trunk of its own), or None.
        dtype: of the weights: "float32", "bfloat16", "float16" or "float64". None: float32, whatever precision was
            stored; a model object keeps its own. Training in half precision loses most updates to rounding.
        merge_rows: in training, read equal episodes once. Does not change what is computed.
        share_prefixes: in training, read equal beginnings of episodes once. Does not change what is computed.
        share_contexts: in acting without captured graphs, read equal contexts once. Does not change what is computed.
        cuda_graphs: on a GPU, capture a step of acting once and replay it.
        attention: how the model computes attention, "sdpa" or "eager"; None for the model's own choice.

    Raises:
        ValueError: for spaces that hold no text, an unknown model, one whose weights are not complete (tied ones aside;
            a critic is new here), or one whose vocabulary or context is too small.
    """

    defaults = {
        "total_timesteps": 1_600_000,
        "gamma": 1.0,
        "learning_rate": 3e-4,
        "episodes_per_update": 256,
        "num_envs": 256,
    }
    obs_from_actions = True
    kind = "language-model"

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        model: str | Path | PreTrainedModel = "tiny",
        temperature: float = 1.0,
        critic: str | None = None,
        dtype: str | None = None,
        merge_rows: bool = True,
        share_prefixes: bool = True,
        share_contexts: bool = True,
        cuda_graphs: bool = True,
        attention: str | None = None,
    ) -> None:
        super().__init__()
        if not is_text(observation_space, action_space):
            raise ValueError(
                "a language model needs observations Dict(tokens=Box[L], length=Discrete) and actions Discrete(V), "
                f"got {observation_space} and {action_space}"
            )
        if not temperature > 0 or temperature == float("inf"):
            raise ValueError(f"temperature must be a positive number, got {temperature!r}")
        self.vocab_size = int(action_space.n)
        self.max_length = int(observation_space["tokens"].shape[0])
        self.temperature = temperature
        self.model = load_model(model, self.vocab_size, self.max_length, dtype, attention)
        with faults_named(self.model):
            self._head_is_plain = has_plain_head(self.model)
        self.merge_rows = check_flag("merge_rows", merge_rows)
        self.share_prefixes = check_flag("share_prefixes", share_prefixes)
        self.share_contexts = check_flag("share_contexts", share_contexts)
        self.cuda_graphs = check_flag("cuda_graphs", cuda_graphs)
        self._renew_step()
        try_out(self.model, self._step, self._logits_of, self.vocab_size, self.max_length)
        self.tokenizer: Any = None  # saved beside the model where somebody sets it; never used here
        self.critic: Critic | None = None
        if critic is not None:
            self.critic = Critic(self.model, check_choice("critic", critic, CRITICS) == "separate")
        self.eval()

    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode: dropout would make the trained policy another than the sampled one."""
        return super().train(False)

    def initial_state(self, num_envs: int) -> Decoder | Ticket:
        """Return an empty KV cache for `num_envs` slots."""
        if not self._layout.holds(thorough=True):
            self._renew_step()
        parts = (self.model, self._step, self._choose, num_envs, self.max_length)
        heard = any(map(is_changed, self._layout.modules))  # hooks are Python, which a graph does not run
        if self.device.type == "cuda" and self.cuda_graphs and not heard:
            if num_envs not in self._captured:
                self._captured[num_envs] = CapturedDecoder(*parts)
            return Ticket(self._captured[num_envs])
        return ContextDecoder(*parts) if self.share_contexts else Decoder(*parts)

    @torch.no_grad()
    def act(
        self,
        obs: Obs,
        state: Decoder | Ticket | None,
        episode_start: torch.Tensor,
        deterministic: bool = False,
        generator: torch.Generator | None = None,
        playing: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, Decoder | Ticket]:
        """Return tokens [B], their log-probabilities [B] and the state that has read everything but those tokens."""
        assert isinstance(obs, dict)
        tokens, lengths = obs["tokens"], obs["length"].clamp(min=1)  # a slot that never started gets any token
        if state is None or state.num_slots != len(lengths):
            state = self.initial_state(len(lengths))
        stale = state.is_stale()
        if not self._layout.holds(thorough=stale or bool(episode_start.any())):
            self._renew_step()
        if state.step is not self._step:
            state = self.initial_state(len(lengths))
            stale = state.is_stale()
        if stale:
            episode_start = torch.ones_like(episode_start)
        return *state.act(tokens, lengths, episode_start, playing, deterministic, generator), state

    def _renew_step(self) -> None:
        """Make the decode step for the model as it is now; what was captured of the last one is dropped."""
        self._layout, self._captured = Layout(self.model), Captures()
        self._step = make_step(self.model, self.max_length)

    def _choose(
        self, logits: torch.Tensor, deterministic: bool, generator: torch.Generator | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return tokens and their log-probabilities [B], given logits [B, V]."""
        return choose(self._log_softmax(logits), deterministic, generator)

    def evaluate_actions(self, rollout: Rollout, entropy: bool = True) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return log-probabilities and entropies [N, T] from one teacher-forced pass."""

        def figures(states: torch.Tensor, actions: torch.Tensor) -> tuple[torch.Tensor, ...]:
            log_probs = self._log_softmax(self._logits(states))  # [E, V]
            chosen = log_probs.gather(1, actions[:, None])[:, 0]
            return (chosen, -(log_probs.exp() * log_probs).sum(-1)) if entropy else (chosen,)

        reading = self._reading(rollout)
        made = by_chunks(figures, self.vocab_size, self._states(reading), reading.actions)
        log_probs, *entropies = (scatter_steps(values[reading.edge_of_step], rollout.mask) for values in made)
        return log_probs, entropies[0] if entropies else None

    def costs(self, rollout: Rollout) -> torch.Tensor:
        """Return the tokens of each episode that are read [N], the prompt's included."""
        assert isinstance(rollout.observations, dict)
        return rollout.observations["length"] + rollout.lengths - 1

    def predict_values(self, rollout: Rollout) -> torch.Tensor:
        """Return the critic's values [N, T]; the policy's trunk gets no gradient."""
        if self.critic is None:
            return super().predict_values(rollout)
        reading = self._reading(rollout)
        return scatter_steps(self.critic(self.model, reading)[reading.edge_of_step], rollout.mask)

    def kl_divergence(self, reference: Self, rollout: Rollout) -> torch.Tensor:
        """Return the exact KL(pi || reference) over the vocabulary at every step [N, T]."""

        def divergence(ours: torch.Tensor, theirs: torch.Tensor) -> tuple[torch.Tensor]:
            log_probs = self._log_softmax(self._logits(ours))
            with torch.no_grad():
                ref_log_probs = reference._log_softmax(reference._logits(theirs))
            return ((log_probs.exp() * (log_probs - ref_log_probs)).sum(-1),)

        reading = self._reading(rollout)
        with torch.no_grad():
            theirs = reference._states(reading)
        (values,) = by_chunks(divergence, self.vocab_size, self._states(reading), theirs)
        return scatter_steps(values[reading.edge_of_step], rollout.mask)

    def critic_parameters(self) -> list[nn.Parameter]:
        """Return the parameters of the critic."""
        return [] if self.critic is None else list(self.critic.parameters())

    def renew_critic(self) -> None:
        """Let a separate critic start from the trunk as it is now."""
        if self.critic is not None and self.critic.trunk is not None:
            self.critic.trunk.load_state_dict(self.model.base_model.state_dict())

    def save(self, folder: Path) -> None:
        """Write model/, a folder that `AutoModelForCausalLM.from_pretrained` reads, and the critic beside it."""
        if self.tokenizer is not None:
            self.model.generation_config.eos_token_id = self.tokenizer.eos_token_id
            self.model.generation_config.pad_token_id = self.tokenizer.pad_token_id
            self.tokenizer.save_pretrained(folder / _MODEL)
        self.model.save_pretrained(folder / _MODEL)
        kind = None if self.critic is None else CRITICS[self.critic.trunk is not None]
        config = {
            "temperature": self.temperature,
            "critic": kind,
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "attention": self.model.config.get_text_config()._attn_implementation,
            **{name: getattr(self, name) for name in _SWITCHES},
        }
        (folder / _CONFIG).write_text(json.dumps(config) + "\n", encoding="utf-8")
        if self.critic is not None:
            self.critic.save(folder)

    @classmethod
    def load(cls, folder: Path, observation_space: Any, action_space: Any) -> Self:
        """Read what `save` wrote."""
        config = json.loads((folder / _CONFIG).read_text(encoding="utf-8"))
        policy = cls(observation_space, action_space, folder / _MODEL, **config)
        if policy.critic is not None:
            policy.critic.load(folder)
        return policy

    def _reading(self, rollout: Rollout) -> Reading:
        """Plan what has to be read to evaluate these episodes."""
        width = self.model.config.get_text_config().hidden_size // 2  # longer rows: attention starts to cost
        return plan_reading(rollout, self.merge_rows, self.share_prefixes, width, row_limit(self.model))

    @property
    def _reads_trunk(self) -> bool:
        """Whether training reads the trunk and applies the head itself; a hook on the whole model needs the whole."""
        return self._head_is_plain and not is_changed(self.model)

    def _states(self, reading: Reading) -> torch.Tensor:
        """Return what `_logits` needs to know of each edge [E, ...]: the trunk's output, or the logits themselves."""
        if self._reads_trunk:
            return reading.outputs(self.model, self.model.base_model, "last_hidden_state")
        return reading.outputs(self.model, self.model, "logits")

    def _logits(self, states: torch.Tensor) -> torch.Tensor:
        return self.model.get_output_embeddings()(states) if self._reads_trunk else states

    def _logits_of(self, reading: Reading) -> torch.Tensor:
        return self._logits(self._states(reading))

    def _log_softmax(self, logits: torch.Tensor) -> torch.Tensor:
        """Return log pi from logits [..., V'], for acting and training alike."""
        logits = logits[..., : self.vocab_size]  # some models pad their vocabulary
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if self.temperature != 1:
            logits = logits / self.temperature
        return torch.log_softmax(logits, dim=-1)


def is_text(observation_space: spaces.Space, action_space: spaces.Space) -> bool:
    """Tell whether these are the spaces of a text environment: append-only tokens and a token to choose."""
    return (
        isinstance(observation_space, spaces.Dict)
        and set(observation_space.spaces) == {"tokens", "length"}
        and isinstance(observation_space["tokens"], spaces.Box)
        and isinstance(action_space, spaces.Discrete)
        and action_space.start == 0
    )
