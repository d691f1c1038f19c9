"""Bugs of code for a GPU, planted: each makes a test of this folder fail, which passes without it."""

from __future__ import annotations

import pytest
import torch
from museum import load

from agents.estimators import baselines
from agents.learner import learner, master_weights
from agents.policies import base
from agents.policies.language.decoding import cuda_graph, products, sampling
from agents.policies.language.decoding import step as decode_step
from agents.policies.language.decoding.decoder import ContextDecoder
from agents.policies.language.policy import LanguageModelPolicy
from agents.rollouts import record
from rlenv.envs import vector

cuda, counts = load("gpu/test_cuda.py"), load("gpu/test_synchronizations.py")
kernels = load("gpu/test_kernels.py")
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="a real device does not count")
GRPO = cuda.test_every_agent_trains_on_the_device_with_finite_figures, "grpo"
PLANTED = []


def caught_by(test, *arguments, error=AssertionError, match=None, slow=True):
    """Make a parameter of a function that plants a bug: the test that fails with it, and how."""

    def decorate(plant):
        marks = [pytest.mark.slow] if slow else []
        PLANTED.append(pytest.param(plant, test, arguments, error, match, marks=marks, id=plant.__name__))
        return plant

    return decorate


@caught_by(counts.test_a_step_on_text_waits_once_and_once_more_for_ends_or_restarts, slow=False)
def the_environment_reads_a_number_in_every_step(patch):
    observe = vector.TextGenVectorEnv._observation
    patch.setattr(vector.TextGenVectorEnv, "_observation", lambda self: self._lengths.max().item() and observe(self))


@caught_by(counts.test_a_step_on_text_waits_once_and_once_more_for_ends_or_restarts)
def rewards_are_sent_from_memory_that_is_not_pinned(patch):
    patch.setattr(vector, "to_device", lambda values, device: torch.from_numpy(values).to(device))


@caught_by(counts.test_an_update_of_grpo_waits_a_few_times, slow=False)
def a_mask_picks_cells_in_every_micro_batch(patch):
    diagnose = learner.Learner.diagnose

    def picking(self, log_probs, batch):
        return diagnose(self, log_probs, batch) | {"train/mean": log_probs[batch.learnable].mean()}

    patch.setattr(learner.Learner, "diagnose", picking)


@caught_by(counts.test_an_update_of_ppo_on_text_waits_four_times_per_optimizer_step)
def the_loss_is_read_in_every_micro_batch(patch):
    loss = learner.Learner.loss

    def read(self, batch):
        value, figures = loss(self, batch)
        return value, {name: figure.item() for name, figure in figures.items()}

    patch.setattr(learner.Learner, "loss", read)


@caught_by(counts.test_an_update_of_grpo_waits_a_few_times)
def groups_are_numbered_by_looking_at_them(patch):
    patch.setattr(baselines, "numbered", lambda groups: groups.unique(return_inverse=True)[1])


@caught_by(counts.test_the_copies_of_16_bit_weights_are_compared_in_one_look)
def weights_are_compared_one_by_one(patch):
    def follow(self):
        for parameter, master in self._copied:
            assert torch.equal(master.to(parameter.dtype), parameter)

    patch.setattr(master_weights.MasterWeights, "follow", follow)


@caught_by(counts.test_without_captured_graphs_a_step_waits_twice)
def contexts_are_shared_on_a_gpu(patch):
    def initial_state(self, num_envs):
        return ContextDecoder(self._actor, self._step, self._choose, num_envs, self.max_length)

    patch.setattr(LanguageModelPolicy, "initial_state", initial_state)


@caught_by(
    cuda.test_every_agent_trains_on_the_device_with_finite_figures, "grpo", error=RuntimeError, match="generator"
)
def a_generator_of_the_cpu_draws_for_the_device(patch):
    def seed_generators(self):
        self.generator = self.order_generator = torch.Generator().manual_seed(0)

    patch.setattr(learner.Learner, "seed_generators", seed_generators)


@caught_by(*GRPO, error=RuntimeError, match="same device")
def a_copy_to_the_device_is_forgotten(patch):
    patch.setattr(record, "to_device", lambda values, device: torch.as_tensor(values))


@caught_by(cuda.test_control_trains_on_the_device, error=TypeError, match="numpy", slow=False)
def actions_become_an_array_where_they_are(patch):
    patch.setattr(base, "numpy_actions", lambda actions, space: actions.numpy())


@caught_by(cuda.test_acting_equals_training, "float64", error=RuntimeError, match="capturing", slow=False)
def a_captured_step_draws_random_numbers(patch):
    choose = LanguageModelPolicy._choose
    patch.setattr(
        LanguageModelPolicy, "_choose", lambda self, logits, greedy, source: choose(self, logits, greedy, None)
    )


@caught_by(cuda.test_acting_equals_training, "float64", error=RuntimeError, match="capturing")
def a_captured_step_reads_a_number(patch):
    step = decode_step.LlamaStep.__call__

    def reading(self, tokens, positions, cache, window, ragged=True, unread=None):
        return step(self, tokens, positions, cache, int(positions.max()) + 1, ragged, unread)

    patch.setattr(decode_step.LlamaStep, "__call__", reading)


@caught_by(cuda.test_acting_equals_training, "float64")
def a_step_gets_its_positions_in_a_new_tensor(patch):
    """The graph goes on reading the old one."""
    captured_step = cuda_graph.CapturedDecoder._captured_step

    def elsewhere(self, *key):
        self.capture.positions = self.capture.positions.clone()
        return captured_step(self, *key)

    patch.setattr(cuda_graph.CapturedDecoder, "_captured_step", elsewhere)


@caught_by(cuda.test_acting_equals_training, "float64")
def the_buffer_of_tokens_is_never_written_again(patch):
    newest, first = cuda_graph.newest_tokens, []
    patch.setattr(cuda_graph, "newest_tokens", lambda *args: (first.append(newest(*args)), first[0])[1])


@caught_by(cuda.test_a_captured_step_chooses_as_an_eager_one, "llama", False)
def noise_is_drawn_once(patch):
    empty = cuda_graph.Capture.noise.func

    def drawn_once(self):
        if "drawn" not in vars(self):
            self.drawn = empty(self).exponential_()
            self.drawn.exponential_ = lambda **kwargs: None
        return self.drawn

    patch.setattr(cuda_graph.Capture, "noise", property(drawn_once))


@caught_by(cuda.test_acting_equals_training, "float64")
def results_are_memory_of_the_graph(patch):
    """What a step returns is not copied to tensors that stay."""
    patch.setattr(
        LanguageModelPolicy, "_choose", lambda self, logits, greedy, source, kept=[]: kept_outside(self, logits, kept)
    )


@caught_by(kernels.test_projections_are_one_product_that_follows_the_optimizer)
def joined_weights_are_a_copy(patch):
    patch.setattr(products, "joined", lambda weights: torch.cat([weight.detach() for weight in weights]))


@caught_by(kernels.test_a_captured_step_chooses_in_parts_what_it_chooses_at_once, "patch")
def the_slots_of_a_part_share_their_noise(patch):
    choose = sampling.choose
    patch.setattr(sampling, "choose", lambda law, greedy, noise: choose(law, greedy, noise[:1].expand_as(noise)))


@caught_by(kernels.test_masks_are_added_and_made_once_per_step, "patch")
def a_boolean_mask_reaches_the_layers(patch):
    patch.setattr(decode_step, "masks_by_kind", lambda model, visible, distance, dtype: {"full_attention": visible})


def kept_outside(policy, logits, kept):
    log_probs = policy._distribution(logits)
    kept.append(log_probs)  # of the first run: later ones do not write here
    return kept[0].argmax(-1), kept[0].amax(-1)


@pytest.mark.slow
def test_a_key_with_a_generator_captures_again(monkeypatch):
    act = cuda_graph.CapturedDecoder.act

    def keyed(self, tokens, lengths, starts, playing, deterministic, generator):
        if getattr(self.capture, "generator", generator) is not generator:
            self.capture.runs.clear()
        self.capture.generator = generator
        return act(self, tokens, lengths, starts, playing, deterministic, generator)

    monkeypatch.setattr(cuda_graph.CapturedDecoder, "act", keyed)
    with pytest.MonkeyPatch.context() as inner, pytest.raises(AssertionError):
        cuda.test_a_second_evaluation_captures_nothing(False, inner)


@pytest.mark.parametrize(("plant", "test", "arguments", "error", "match"), PLANTED)
def test_a_planted_bug_is_caught(plant, test, arguments, error, match, monkeypatch, device):
    given = (device,) if test.__module__ == counts.__name__ else arguments
    with torch.random.fork_rng(devices=[]):
        plant(monkeypatch)
        with pytest.raises(error, match=match), pytest.MonkeyPatch.context() as inner:
            test(*(inner if each == "patch" else each for each in given))
