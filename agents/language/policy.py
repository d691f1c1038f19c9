"""Any causal language model of transformers as a policy over tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
from gymnasium import spaces
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from typing_extensions import override

from rlenv._checks import check_choice, check_flag, check_number

from ..devices import take_rows, widest
from ..estimators.kl import DIVERGENCES
from ..policies.base import MODEL, Policy, episodes_of
from ..policies.choosing import LOG_PROBS, Evaluated, Source, Want, choose, evaluate_choices
from ..policies.token_spaces import check_text_spaces
from ..rollout import Obs, Rollout
from . import policy_folder
from .acting_copy import acting_copy, is_changed
from .attention import one_thread, without_cudnn
from .cuda_graph import CapturedDecoder, Captures
from .decoder import Decoder
from .kv_cache import SlotCache
from .loading import base_of, check_model, has_adapter, has_plain_head, load_model
from .prefix_sharing import takes_forests
from .products import fast_products, least_rows
from .reading import ChosenLogProbs, Reading, layers_of, plan_reading
from .seats import Contexts
from .self_check import faults_named, try_out
from .sizes import TRAINED, rates_of
from .vocabulary import check_tokens

if TYPE_CHECKING:
    from .adapters import Adapter
    from .critic import Critic

ELEMENTS = 3 * 2**24  # of a chunk of `by_chunks`; 192 MiB in float32
GPU_ELEMENTS = 2**28  # products of few rows would read a large head again and again


class LanguageModelPolicy(Policy):
    """pi(a | s) = softmax(logits(s) / temperature)[a], over the environment's vocabulary.

    Acting reads only the newest token of each slot, with a KV cache as recurrent state; training reads each episode
    in one teacher-forced pass. Both use the same softmax in at least float32, the same temperature, and never
    dropout. Nothing is truncated (top-k, top-p): the sampled policy is the trained one.

    Args:
        observation_space: Dict(tokens=Box [L], length=Discrete).
        action_space: Discrete(V).
        model: a preset ("tiny", "small", "base"), a folder or model id, or a model object.
        temperature: divides the logits; above 0.
        critic: "head" (reads the policy's trunk without changing it), "separate" (has a second trunk), or None.
        dtype: of the weights: "float32", "bfloat16", "float16" or "float64". None means float32, whatever precision
            the files have; a model object keeps its precision. Of bfloat16, the optimizer keeps float32 copies.
        merge_rows: in training, read equal episodes once. Does not change the results.
        share_prefixes: in training, read equal beginnings of episodes once. Does not change the results.
        pack_weights: in acting on a CPU, copy large weights into the order in which products read them.
        cuda_graphs: on a GPU, capture a step of acting once and replay it.
        attention: how the model computes attention, "sdpa" or "eager"; None for the model's default.
        lora_rank: r of a LoRA adapter (see `adapters.py`): the model is frozen, and only the adapter is trained. None
            trains the model, or the adapter that its folder has.
        lora_alpha: α, above 0; the adapter counts α / r times. None for 2 r.
        lora_targets: the layers that get one: names, or a text such as "q_proj,v_proj"; None or "all-linear"
            for all linear layers of attention and MLP.
        activation_checkpointing: in training, compute each layer again in the backward pass, which takes less memory
            and about a third more time. Does not change the results.

    Raises:
        ValueError: for spaces that hold no text, an unknown model, a model whose files lack weights (tied weights and
            a new critic may be missing), or one whose vocabulary or context is too small.
    """

    obs_from_actions = True
    takes_appended = True
    draws_by_episode = True
    is_categorical = True
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
        pack_weights: bool = True,
        cuda_graphs: bool = True,
        attention: str | None = None,
        lora_rank: int | None = None,
        lora_alpha: float | None = None,
        lora_targets: Sequence[str] | None = None,
        activation_checkpointing: bool = False,
    ) -> None:
        super().__init__()
        self.vocab_size, self.max_length = check_text_spaces(observation_space, action_space)
        self.temperature = check_number("temperature", temperature, low=0.0, above=True)
        trained = Path(model) if has_adapter(model) else None
        base, name = base_of(model)
        lora = (trained, lora_rank, lora_alpha, lora_targets)
        adapts = hasattr(model, "peft_config") or any(each is not None for each in lora)
        if adapts:
            from . import adapters  # with peft

            adapters.library()
        self.model = load_model(base, self.vocab_size, self.max_length, dtype, attention)
        self.adapter: Adapter | None = adapters.adapt(self.model, name, *lora) if adapts else None
        self.borrows_base = False  # a copy's is from another policy, which saves it
        self.merge_rows = check_flag("merge_rows", merge_rows)
        self.share_prefixes = check_flag("share_prefixes", share_prefixes)
        self.pack_weights = check_flag("pack_weights", pack_weights)
        self.cuda_graphs = check_flag("cuda_graphs", cuda_graphs)
        self._captures = Captures()
        self.activation_checkpointing = check_flag("activation_checkpointing", activation_checkpointing)
        if activation_checkpointing and not layers_of(self.model):
            raise ValueError(f"activation_checkpointing is not for {type(self.model).__name__}: it has no known layers")
        with faults_named(self.model):
            self.head_is_plain = has_plain_head(self.model)
        try_out(self, lambda reading: self._logits(self._states(reading)))
        # `save` writes these beside the model; see `adopt_tokenizer`.
        self.tokenizer: Any = None
        self.stop_token_ids: tuple[int, ...] = ()  # the tokenizer's end token if empty
        self.critic: Critic | None = None
        if critic is not None:
            from .critic import Critic  # for agents with one alone

            self.critic = Critic(self.model, check_choice("critic", critic, policy_folder.CRITICS) == "separate")
        self.eval()

    @override
    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode: with dropout, the trained policy would differ from the sampled one."""
        return super().train(False)

    # Acting.

    @override
    def initial_state(self, num_envs: int, longest: int = 0) -> Decoder:
        """Return the decoder of `num_envs` slots, with the weights as they are now; see `acting_copy`.

        An evaluation may have contexts of up to `longest` tokens, more than the training.
        """
        max_length = max(longest, self.max_length)
        if self.device.type == "cuda" and self.cuda_graphs and not any(map(is_changed, self.model.modules())):
            return self._captures.decoder(self.model, self._choose, num_envs, max_length)
        packs = self.pack_weights and num_envs >= least_rows(self.model.dtype)
        acting, cache = acting_copy(self.model, packs), SlotCache(self.model, num_envs, max_length)
        return Decoder(acting, self.model, cache, self.head_is_plain)

    @override
    @one_thread()
    @torch.no_grad()
    def act(
        self,
        obs: Obs,
        state: Decoder | None,
        episode_start: torch.Tensor,
        deterministic: bool = False,
        generator: Source = None,
        playing: torch.Tensor | None = None,
        appended: torch.Tensor | int | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, Decoder]:
        """Return tokens [B], their log-probabilities [B] and the state, which has read all tokens but these.

        A reply of the environment after the last action is read in one pass, while other slots run on. `appended`, as
        in `Actor`, only saves comparing lengths, for which the host would wait for a GPU.
        """
        state, asked = self._asked(obs, state, episode_start, playing, appended)
        numbers: Any = None if deterministic else generator  # of which each chooses a token
        if not deterministic and not isinstance(generator, torch.Tensor):
            count, device = asked.lengths.shape, asked.lengths.device
            numbers = torch.rand(count, dtype=widest(device), generator=generator, device=device)
        with without_cudnn(asked.tokens.device):
            if isinstance(state, CapturedDecoder):
                return *state.act(asked, numbers), state
            logits = state.logits(asked)
            return *self._choose(logits, numbers), state

    @override
    @one_thread()
    @torch.no_grad()
    def distribution(
        self, obs: Obs, state: Decoder | None, episode_start: torch.Tensor
    ) -> tuple[torch.Tensor, Decoder]:
        state, asked = self._asked(obs, state, episode_start)
        with without_cudnn(asked.tokens.device):
            return self._distribution(state.logits(asked)), state

    def _asked(
        self,
        obs: Obs,
        state: Decoder | None,
        starts: torch.Tensor,
        playing: torch.Tensor | None = None,
        appended: torch.Tensor | int | None = None,
    ) -> tuple[Decoder, Contexts]:
        """Return a state of the present weights, and what it is asked.

        A new rollout, in which all slots start, has a new state, since weights may change without torch counting it.
        """
        assert isinstance(obs, dict)
        tokens, lengths = obs["tokens"], obs["length"].clamp(min=1)  # a slot that has not started may get any token
        longest = tokens.shape[1]
        same = state is not None and state.cache.num_rows == len(lengths) and state.cache.max_length >= longest
        if state is None or not same or state.is_old() or (bool(starts.all()) and not state.is_new):
            if longest > self.max_length:
                check_model(self.model, self.vocab_size, longest)
            state, starts = self.initial_state(len(lengths), longest), torch.ones_like(starts)
        answers = state.appended(lengths, appended)
        starts = starts if answers is None else starts | (answers < -1)
        return state, Contexts(tokens, lengths, starts, playing, answers)

    def _choose(self, logits: torch.Tensor, numbers: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return tokens and their log-probabilities [B], given logits [B, V] and a number for each; None is greedy."""
        return choose(self._distribution(logits), numbers is None, numbers)

    def _distribution(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the log-probabilities that tokens are drawn with [B, V], given logits [B, V]."""
        return self._log_softmax(logits)

    def _log_softmax(self, logits: torch.Tensor) -> torch.Tensor:
        """Return log pi from logits [..., V'], for acting and training alike."""
        precision = torch.promote_types(logits.dtype, torch.float32)  # on a GPU one kernel, from 16 bits too
        return torch.log_softmax(self._tempered(logits), dim=-1, dtype=precision)

    def _tempered(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the logits of which pi is the softmax [..., V], given [..., V']: some models pad their vocabulary."""
        logits = logits[..., : self.vocab_size]
        if self.temperature == 1:
            return logits
        return logits.to(torch.promote_types(logits.dtype, torch.float32)) / self.temperature

    # Training. An edge is a context and the token chosen in it; equal steps share one (see `Reading`).

    @override
    def evaluate(self, rollout: Rollout, want: Want = LOG_PROBS, reference: Self | None = None) -> Evaluated:
        names = tuple(want)

        def per_edge(states: torch.Tensor, actions: torch.Tensor, *theirs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            if names == LOG_PROBS:
                return (ChosenLogProbs.apply(self._tempered(self._logits(states)), actions),)
            log_probs, ref_log_probs = self._log_softmax(self._logits(states)), None  # [E, V]
            if theirs and reference is not None:
                with torch.no_grad():
                    ref_log_probs = reference._log_softmax(reference._logits(*theirs))
            found = evaluate_choices(log_probs, actions, names, ref_log_probs)
            return tuple(found[name] for name in names)

        reading = seen = self._reading(rollout)
        theirs: tuple[torch.Tensor, ...] = ()
        if reference is not None and DIVERGENCES.keys() & names:
            if "hinted" in rollout.extras:  # equal steps may have unequal hints
                reading, seen = reading.by_step(), reference._reading(rollout.as_taught).by_step()
            with torch.no_grad():
                theirs = (reference._states(seen),)
        made = by_chunks(per_edge, self.vocab_size, self._states(reading), reading.actions, *theirs)
        steps = (rollout.in_cells(take_rows(values, reading.edge_of_step)) for values in made)
        return dict(zip(names, steps, strict=True))

    @property
    @override
    def defaults(self) -> dict[str, Any]:
        """Defaults that depend on the model's size."""
        size = self.model.num_parameters()
        rate, warm_rate = rates_of(size, self.adapter is not None)
        few = {"warmup_updates": 0} if size > TRAINED else {}  # few, large updates
        return {"total_timesteps": 1_600_000, "learning_rate": rate, "sft_learning_rate": warm_rate, **few}

    @override
    def costs(self, rollout: Rollout) -> torch.Tensor:
        """Return the number of tokens read per episode [N], including its prompt, replies and hints."""
        rollout = rollout.as_taught
        assert isinstance(rollout.observations, dict)
        if rollout.positions is not None:
            return rollout.positions.where(rollout.mask, 1).amax(1)
        return rollout.observations["length"] + rollout.lengths - 1

    def hinted(self, rollout: Rollout, metadata: Mapping[str, Any], most: int) -> Rollout:
        """Return a rollout with the observations of its teacher: the same after a hint, if the episode has one.

        Args:
            rollout: the episodes of an update.
            metadata: of their environment.
            most: tokens of a right answer that is shown, or of feedback.
        """
        config = self.model.config.get_text_config()
        from .hints import with_hints  # for teachers alone

        return with_hints(rollout, metadata, most, getattr(config, "max_position_embeddings", self.max_length))

    @override
    def values(self, rollout: Rollout | Obs) -> torch.Tensor:
        if self.critic is None:
            return super().values(rollout)
        rollout = episodes_of(self, rollout)
        reading = self._reading(rollout)
        values = self.critic(self.model, reading, self.activation_checkpointing)
        return rollout.in_cells(take_rows(values, reading.edge_of_step))

    def _reading(self, rollout: Rollout) -> Reading:
        """Return the reading plan for evaluating these episodes."""
        shares = self.share_prefixes and takes_forests(self.model)
        width = 3 * self.model.config.get_text_config().hidden_size if shares else None
        return plan_reading(rollout, self.merge_rows, width)

    @property
    def _reads_trunk(self) -> bool:
        """Whether training reads the trunk and applies the head itself; not if the whole model has a hook."""
        return self.head_is_plain and not is_changed(self.model)

    def _states(self, reading: Reading) -> torch.Tensor:
        """Return the input of `_logits` for each edge [E, ...]: the trunk's output, or the logits themselves."""
        if self._reads_trunk:
            return reading.outputs(self.model.base_model, "last_hidden_state", self.activation_checkpointing)
        return reading.outputs(self.model, "logits", self.activation_checkpointing)

    def _logits(self, states: torch.Tensor) -> torch.Tensor:
        with fast_products(states.device, states.dtype, states.numel()):
            return self.model.get_output_embeddings()(states) if self._reads_trunk else states

    # The tokenizer, the critic, and checkpoints.

    @override
    def adopt_tokenizer(self, metadata: Mapping[str, Any]) -> None:
        if (tokenizer := metadata.get("tokenizer")) is None:
            return
        check_tokens(tokenizer, self.model, self.tokenizer)
        if self.tokenizer is None:
            self.tokenizer, self.stop_token_ids = tokenizer, tuple(metadata.get("stop_token_ids", ()))

    @override
    def frozen_copy(self) -> Self:
        """Return a frozen copy, for the KL anchor.

        With an adapter it shares the base and has no critic. A fresh adapter changes nothing, so the copy is the base
        itself, bit for bit; a trained one is copied.
        """
        if self.adapter is None:
            return super().frozen_copy()
        return self.on_the_same_base(with_adapter=not self.adapter.is_fresh)

    def on_the_same_base(self, with_adapter: bool) -> Self:
        """Return a frozen copy that shares the base, with a copy of the adapter or without one."""
        from . import adapters  # of policies that have one

        twin: Self = adapters.share_frozen(self, {id(self.critic): None}).requires_grad_(False)
        twin.borrows_base = True
        if not with_adapter:
            adapters.drop_adapter(twin.model)
            twin.adapter = None
        return twin

    save = policy_folder.write
    load = classmethod(policy_folder.read)

    def export(self, folder: str | Path, merge: bool = True) -> None:
        """Write the model and its tokenizer for use without this library.

        Args:
            folder: to write into.
            merge: write a plain model, with W + s B A in place of W, for `AutoModelForCausalLM.from_pretrained`; of a
                16-bit model in float32, since most of a small adapter would be rounded away. False writes the adapter
                alone, in peft's format, and its base if that has no name.

        Raises:
            ValueError: for `merge=False` without an adapter.
        """
        policy_folder.export(self, Path(folder), merge)

    @override
    def load_frozen(self, folder: Path, observation_space: Any, action_space: Any) -> Self:
        if not policy_folder.saved_setting(folder, policy_folder.BORROWS):
            return super().load_frozen(folder, observation_space, action_space)
        frozen: Self = policy_folder.with_adapter_of(self, folder / MODEL)
        frozen.temperature = float(policy_folder.saved_setting(folder, "temperature"))
        return frozen


def by_chunks(
    function: Callable[..., tuple[torch.Tensor, ...]], width: int, *inputs: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Return `function(*inputs)` without keeping the intermediate results of all rows at once.

    Beyond `ELEMENTS` elements (on a GPU `GPU_ELEMENTS`), the rows are computed in chunks, whose intermediate results
    are dropped and computed again in the backward pass.

    Args:
        function: maps inputs [E, ...] to outputs [E, ...], each row independently.
        width: elements per row of its intermediate results, such as the size of the vocabulary.
        inputs: [E, ...] each.
    """
    rows = max((GPU_ELEMENTS if inputs[0].device.type == "cuda" else ELEMENTS) // width, 1)
    if len(inputs[0]) <= rows:
        return function(*inputs)
    chunks = zip(*(x.split(rows) for x in inputs), strict=True)
    parts = [checkpoint(function, *chunk, use_reentrant=False) for chunk in chunks]
    return tuple(torch.cat(columns) for columns in zip(*parts, strict=True))
