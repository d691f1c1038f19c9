"""The policy that is trained is not the one that was sampled."""

import torch
from gymnasium import spaces
from museum import MADE_UP, OURS, Test, planted

from agents import ControlPolicy, LanguageModelPolicy
from agents.policies.language import policy as language_model
from agents.policies.language.decoding import merged_adapter
from agents.policies.language.decoding import step as decode_step
from agents.rollouts.record import Record
from rlenv.envs.textgen import TextGenEnv
from rlenv.text.encoder import Encoder

ACTING_IS_TRAINING = "agents/test_identities.py::test_acting_training_and_a_plain_forward_pass_agree"
SAMPLED_TOKENS = "agents/test_identities.py::test_trained_tokens_are_the_sampled_ones_end_token_included"
START_TOKEN = (
    "rlenv/text/test_tokenizer.py::test_a_prompt_keeps_its_start_token_and_loses_the_end_token_that_a_tokenizer_adds"
)


def change_rollouts(patch, change):
    """Let something happen to every rollout once it is collected."""
    collected = Record.rollout

    def changed(self):
        rollout = collected(self)
        change(rollout)
        return rollout

    patch.setattr(Record, "rollout", changed)


@planted(
    3,
    "huggingface/trl#5783, huggingface/trl#6337, verl-project/verl#7270, PrimeIntellect-ai/prime-rl#886",
    Test("agents/test_identities.py::test_generation_config_of_the_model_has_no_effect", name="gpt2"),
)
def test_sampling_settings_of_the_checkpoint(patch):
    """A temperature in the checkpoint's generation_config is applied while acting."""
    choose = LanguageModelPolicy._choose

    def warped(self, logits, deterministic, generator):
        return choose(self, logits / (self.model.generation_config.temperature or 1.0), deterministic, generator)

    patch.setattr(LanguageModelPolicy, "_choose", warped)


@planted(7, "huggingface/trl#6357, deepspeedai/DeepSpeedExamples#490", Test(SAMPLED_TOKENS, pad_is_eos=True))
def test_the_mask_is_made_of_token_ids(patch):
    """Steps that chose the padding token are masked; where it is the end token, the policy never learns to stop."""

    def mask_padding(rollout):
        rollout.mask &= rollout.actions != 1

    change_rollouts(patch, mask_padding)


@planted(9, "OpenRLHF/OpenRLHF#238", Test(SAMPLED_TOKENS, pad_is_eos=False))
def test_an_end_token_over_a_cut_completion(patch):
    """The last token of a completion that ran out of budget is replaced by the end token, which was not sampled."""

    def end(rollout):
        rollout.actions[rollout.truncated, rollout.lengths[rollout.truncated] - 1] = 1

    change_rollouts(patch, end)


@planted(
    10,
    "huggingface/trl#3000, huggingface/trl#3500, CarperAI/trlx#107",
    Test("agents/trainer/test_surface.py::test_dropout_stays_off_whatever_mode_is_asked_for"),
)
def test_training_mode(patch):
    """A call of train() turns dropout on."""
    patch.setattr(LanguageModelPolicy, "train", torch.nn.Module.train)


@planted(
    11,
    "huggingface/trl#6789, huggingface/trl#3867, verl-project/verl#2953",
    Test(ACTING_IS_TRAINING, name="gpt2", dtype="float32", temperature=1.0),
)
def test_the_softmax_in_bfloat16(patch):
    """Log-probabilities are computed in bfloat16."""

    def coarse(self, logits):
        return torch.log_softmax(logits[..., : self.vocab_size].bfloat16() / self.temperature, -1).float()

    patch.setattr(LanguageModelPolicy, "_log_softmax", coarse)
    patch.setattr(language_model, "try_out", lambda *args: None)


@planted(
    12,
    "huggingface/trl#5224, rllm-org/rllm#272, NovaSky-AI/SkyRL#123",
    Test("rlenv/text/test_tokenizer.py::test_tokens_that_text_would_cut_otherwise_are_kept"),
)
def test_completions_are_encoded_again(patch):
    """The text of a completion is encoded again, so other tokens are trained than were sampled."""
    observe = TextGenEnv._observation

    def encoded_again(self):
        start = len(self._prompt.tokens)
        (again,) = self.task.encoder.ids([self.task.tokenizer.decode(self._tokens[start:])])
        kept, self._tokens = self._tokens, self._tokens[:start] + again
        seen = observe(self)
        self._tokens = kept
        return seen

    patch.setattr(TextGenEnv, "_observation", encoded_again)


@planted(13, "huggingface/open-r1#462, huggingface/trl#3520", Test(START_TOKEN, template="<pad> $A"))
def test_no_start_token(patch):
    """Prompts lack the start token that the tokenizer adds."""
    ids = Encoder.ids
    patch.setattr(Encoder, "ids", lambda self, texts, add_special_tokens=False: ids(self, texts))


@planted(13, "vllm-project/vllm#27515", Test(START_TOKEN, template="<pad> $A"))
def test_two_start_tokens(patch):
    """Prompts have their start token twice."""
    ids = Encoder.ids

    def twice(self, texts, add_special_tokens=False):
        made = ids(self, texts, add_special_tokens)
        return [[each[0], *each] for each in made] if add_special_tokens else made

    patch.setattr(Encoder, "ids", twice)


@planted(
    46,
    "huggingface/transformers#29279, huggingface/transformers#47853, ggml-org/llama.cpp#24382",
    Test("rlenv/text/test_tokenizer.py::test_text_that_spells_a_control_token_stays_text", spelled="<eos>", given=None),
    error=ValueError,
)
def test_text_becomes_a_control_token(patch):
    """Text of a user that spells a special token is encoded as that token."""

    def ids(self, texts, add_special_tokens=False):
        return self.tokenizer(texts, add_special_tokens=add_special_tokens)["input_ids"]

    patch.setattr(Encoder, "ids", ids)


@planted(
    None,
    OURS,
    Test(
        "agents/policies/control/test_control.py::test_actions_begin_where_their_space_begins",
        space=spaces.Discrete(3, start=5),
    ),
    error=AssertionError,
)
def test_actions_are_counted_from_zero(patch):
    """With Discrete(3, start=5), the environment gets 0 to 2."""
    patch.setattr(ControlPolicy, "for_env", lambda self, actions: actions)


@planted(
    None,
    OURS,
    Test(
        "agents/policies/control/test_control.py::test_squashed_actions_fill_the_bounds_and_have_their_own_log_probability"
    ),
)
def test_squashed_actions_are_cut_at_the_bounds(patch):
    """Squashed actions reach the environment as they are, between -1 and 1, whatever the bounds of its space."""

    def clipped(self, actions):
        return actions.clamp(torch.as_tensor(self.action_space.low), torch.as_tensor(self.action_space.high))

    patch.setattr(ControlPolicy, "for_env", clipped)


@planted(
    None,
    OURS,
    Test(
        "agents/policies/language/test_models.py::test_models_that_act_otherwise_than_they_train_are_refused_in_one_line",
        name="roberta",
    ),
)
def test_any_model_is_taken(patch):
    """A model that counts positions in an unusual way is accepted, and acts otherwise than it is trained."""
    patch.setattr(language_model, "try_out", lambda *args: None)


@planted(
    None,
    OURS,
    Test(
        "agents/policies/language/decoding/test_decoding.py::test_whatever_modules_are_given_is_decoded_as_it_is_trained",
        change="hook",
        place="model.layers.0.self_attn.v_proj",
        late=False,
    ),
)
def test_hooks_are_passed_over(patch):
    """The fast decode step ignores hooks on the model's modules."""
    patch.setattr(decode_step, "is_changed", lambda module: False)


@planted(
    None,
    OURS,
    Test(
        "agents/policies/language/decoding/test_decoding.py::test_captured_steps_are_dropped_when_a_weight_or_buffer_lies_elsewhere",
        move="storage",
    ),
)
def test_moved_weights_are_not_seen(patch):
    """A captured decode step reads weights where they were before they moved."""
    patch.setattr(decode_step.Layout, "holds", lambda self, thorough=False: True)


ADAPTED = Test(
    "agents/policies/language/test_adapters.py::test_a_policy_with_an_adapter_acts_as_it_trains",
    name="llama",
    dtype="float32",
    tolerance=1e-3,
)


@planted(14, "unslothai/unsloth#3802, unslothai/unsloth#1844", ADAPTED)
def test_the_adapter_is_left_out_of_acting(patch):
    """The base model acts, without the adapter that is trained."""
    patch.setattr(merged_adapter, "merged_weight", lambda layer: layer.base_layer.weight)


@planted(None, MADE_UP, ADAPTED)
def test_the_adapter_is_merged_once(patch):
    """The adapter is merged into the model that acts when that is made, and never again."""
    refresh, done = merged_adapter.Merged.refresh, set()
    patch.setattr(merged_adapter.Merged, "refresh", lambda self: self in done or done.add(self) or refresh(self))


@planted(
    None,
    OURS,
    Test(
        "agents/policies/language/test_adapters.py::test_acting_follows_changes_that_torch_does_not_count",
        change=lambda weight, _: weight.data.add_(0.2),
        dtype="float64",
        tolerance=1e-12,
    ),
)
def test_the_adapter_is_merged_again_only_if_torch_counts_a_change(patch):
    """Averages of weights and weights loaded through `data` are trained and never acted with."""
    patch.setattr(merged_adapter.Merged, "forget", lambda self: None)
