"""Bugs that other projects had, planted here one by one: each makes an identity fail, by a factor of at least 100.

Every test runs one check twice: on the code as it is, with its tolerance, and on the code with the bug, with a
hundred times that tolerance.
"""

import pytest
import torch
from counting_env import CountingPolicy, counting_envs
from gymnasium.vector import AutoresetMode
from identity_checks import (
    EXACT,
    anchored_agent,
    check_acting_equals_training,
    check_anchor_pulls_back,
    check_counting_rollout,
    check_credit,
    check_first_pass_is_on_policy,
    check_kl_gradient,
    check_micro_batches,
    check_plain_reference,
    check_running_equals_fresh,
    check_same_gradient,
    check_state_forgets_old_weights,
    collect,
    credit_agent,
    double,
    padded,
    poisoned,
)
from museum import MADE_UP, caught_by
from tiny_models import text_envs, tiny_policy, zero_reward

from agents import Collector, LanguageModelPolicy, Reinforce, ReinforceBaseline, Rollout
from agents.learner.kl_anchor import Anchor
from agents.policies.language import policy as language_model
from agents.policies.language.decoding import step as steps
from agents.policies.language.decoding.decoder import ContextDecoder, Decoder
from agents.policies.language.decoding.kv_cache import SlotCache
from agents.policies.language.training import forward as contexts
from agents.rollouts import record
from agents.rollouts.record import Record

FACTOR = 100
ACTING_IS_TRAINING = "agents/test_identities.py::test_acting_training_and_a_plain_forward_pass_agree"
CREDIT = "agents/test_identities.py::test_every_sampled_token_is_credited_with_the_reward_of_its_own_text"
ANY_LAYOUT = "agents/test_identities.py::test_gradient_does_not_depend_on_row_order_padding_or_masked_cells"
EVERY_STEP = "agents/test_identities.py::test_every_step_of_a_numpy_environment_is_stored_in_its_place"
ANCHOR = "agents/test_identities.py::test_kl_anchor_pulls_along_the_exact_gradient"
CPU = torch.device("cpu")
models = pytest.mark.parametrize("name", ["gpt2", "llama"])


@pytest.fixture
def caught(monkeypatch):
    """Return a function that asserts that a check passes before a bug is planted, and fails by far with it."""

    def run(check, plant, tolerance=EXACT):
        check(tolerance)
        with monkeypatch.context() as patch, torch.random.fork_rng():
            torch.manual_seed(0)
            patch.setattr(language_model, "try_out", lambda *args: None)  # or it would see some of them first
            plant(patch)
            with pytest.raises(AssertionError, match=r"differ by|clip fraction"):
                check(FACTOR * tolerance)

    return run


def parity(name, temperature=1.0, identity=check_acting_equals_training, cls=LanguageModelPolicy):
    """Return identity 1 as a function of the tolerance."""

    def check(tolerance):
        envs = text_envs(4, group_size=2)
        identity(tiny_policy(name, envs, temperature, cls=cls), envs, tolerance)

    return check


# A policy is sampled that is not the one trained.


@caught_by(
    4,
    "huggingface/trl#3681, PrimeIntellect-ai/prime-rl#1525, modelscope/ms-swift#8427",
    ACTING_IS_TRAINING,
)
@models
def test_logits_shifted_by_one(name, caught):
    """The log-probability of a token is read one position too early."""
    sequences = contexts._sequences

    def shifted(rollout):
        ids, lengths, steps, columns, actions = sequences(rollout)
        return ids, lengths, steps, (columns - 1).clamp(min=0), actions

    caught(parity(name), lambda patch: patch.setattr(contexts, "_sequences", shifted))


@caught_by(
    1,
    "huggingface/trl#3029, huggingface/trl#4159, GMISWE/tinker-cloud#26",
    ACTING_IS_TRAINING,
)
@models
@pytest.mark.parametrize("temperature", [0.6, 0.9, 1.3])
def test_temperature_missing_in_training(name, temperature, caught):
    """Training leaves out the temperature that acting divides the logits by."""
    evaluate = LanguageModelPolicy.evaluate_actions

    def at_one(self, rollout, entropy=True):
        own, self.temperature = self.temperature, 1.0
        try:
            return evaluate(self, rollout, entropy)
        finally:
            self.temperature = own

    caught(parity(name, temperature), lambda patch: patch.setattr(LanguageModelPolicy, "evaluate_actions", at_one))


@caught_by(1, "huggingface/trl#4159", ACTING_IS_TRAINING)
@models
def test_temperature_missing_everywhere_is_seen_by_the_plain_reference(name, caught):
    """Acting and training both leave out the temperature."""

    def ignoring(self, logits):
        return logits[..., : self.vocab_size]

    caught(
        parity(name, 0.6, check_plain_reference),
        lambda patch: patch.setattr(LanguageModelPolicy, "_tempered", ignoring),
    )


@caught_by(
    5,
    "huggingface/trl#469, huggingface/trl#6800, OpenRLHF/OpenRLHF#217, CarperAI/trlx#508",
    ACTING_IS_TRAINING,
)
@models
def test_positions_of_the_longest_slot_for_all(name, caught):
    """Shorter contexts get the positions of the longest one."""

    def plant(patch):
        make = language_model.make_step

        def spoiled(*args):
            step = make(*args)
            return lambda tokens, positions, cache, window, ragged, unread: step(
                tokens, torch.full_like(positions, window - 1), cache, window, ragged, unread
            )

        patch.setattr(language_model, "make_step", spoiled)

    caught(parity(name), plant)


@caught_by(6, "huggingface/trl#2708", ACTING_IS_TRAINING)
@models
def test_attention_mask_missing_while_acting(name, caught):
    """Acting attends to padding."""
    looks_back = steps.looks_back

    def sees_all(positions, window):
        return tuple(torch.ones_like(x) for x in looks_back(positions, window))

    caught(parity(name), lambda patch: patch.setattr(steps, "looks_back", sees_all))


@caught_by(
    10,
    "huggingface/trl#4, huggingface/trl#3234",
    ACTING_IS_TRAINING,
)
@models
def test_dropout_on(name, caught):
    """Dropout is on while acting and training."""

    def plant(patch):
        make = LanguageModelPolicy.__init__

        def spoiled(self, *args, **kwargs):
            make(self, *args, **kwargs)
            self.model.train()

        patch.setattr(LanguageModelPolicy, "__init__", spoiled)

    caught(parity(name), plant)
    caught(parity(name, identity=check_first_pass_is_on_policy), plant)


@caught_by(
    2,
    "huggingface/trl#7269, huggingface/trl#3494, PrimeIntellect-ai/prime-rl#679",
    ACTING_IS_TRAINING,
)
@models
def test_top_k_while_acting(name, caught):
    """Acting samples from the likeliest tokens only; training knows them all."""

    def truncated(self, *contexts, logits=ContextDecoder.logits):
        made = logits(self, *contexts)
        return made.where(made >= made.topk(4).values[:, -1:], -torch.inf)

    caught(parity(name), lambda patch: patch.setattr(ContextDecoder, "logits", truncated))


@caught_by(
    14,
    "PrimeIntellect-ai/prime-rl#1650, NVIDIA-NeMo/RL#4018, pytorch/rl#4016",
    "agents/test_identities.py::test_state_is_not_reused_after_the_weights_changed",
)
@models
def test_cache_reused_after_the_weights_changed(name, caught):
    """The KV cache from before an update is still used after it."""
    caught(
        parity(name, identity=check_state_forgets_old_weights),
        lambda patch: patch.setattr(Decoder, "is_stale", lambda self: False),
    )


@caught_by(None, MADE_UP, "agents/test_identities.py::test_running_state_equals_fresh_state_at_every_step")
@models
def test_restarted_slots_keep_the_old_context(name, caught):
    """A slot that restarts goes on in the KV cache of its last episode."""

    def not_placed(self, rows, read, source_rows, place=SlotCache.place):
        if not self.layers[0].is_initialized:
            place(self, rows, read, source_rows)

    plant = lambda patch: patch.setattr(SlotCache, "place", not_placed)  # noqa: E731
    caught(parity(name), plant)
    caught(parity(name, identity=check_running_equals_fresh), plant)


@caught_by(None, MADE_UP, ACTING_IS_TRAINING)
@models
def test_prompts_one_column_off_in_the_cache(name, caught):
    """Prompts are copied into the KV cache one column too far right."""

    def place(self, rows, read, source_rows, place=SlotCache.place):
        place(self, rows, read, source_rows)
        for layer in self.layers:
            layer.keys[rows], layer.values[rows] = layer.keys[rows].roll(1, 2), layer.values[rows].roll(1, 2)

    caught(parity(name), lambda patch: patch.setattr(SlotCache, "place", place))


@caught_by(None, MADE_UP, ACTING_IS_TRAINING)
@models
def test_forked_contexts_without_what_they_share(name, caught):
    """Slots that choose different tokens get no copy of the context they shared."""
    caught(parity(name), lambda patch: patch.setattr(SlotCache, "copy", lambda self, *rows: None))


@caught_by(None, MADE_UP, ACTING_IS_TRAINING)
@models
def test_slots_share_a_context_after_they_have_parted(name, caught):
    """Slots that chose different tokens still share a context."""

    def never_parted(self, unread, lengths, going, children=ContextDecoder._children):
        return children(self, torch.zeros_like(unread), lengths, going)

    caught(parity(name), lambda patch: patch.setattr(ContextDecoder, "_children", never_parted))


@caught_by(None, MADE_UP, ACTING_IS_TRAINING)
@models
def test_tokens_of_a_tree_see_their_siblings(name, caught, monkeypatch):
    """Where episodes are read as a tree, a token attends to other branches."""
    monkeypatch.setattr(contexts, "WORTH_IT", 10.0)  # always
    grow = contexts._grow

    def causal(chains, *limits):
        made = grow(chains, *limits)
        return made and (*made[:2], torch.ones_like(made[2]).tril(), made[3])

    caught(parity(name), lambda patch: patch.setattr(contexts, "_grow", causal))


@caught_by(None, MADE_UP, ACTING_IS_TRAINING)
@models
def test_tokens_of_a_tree_counted_along_the_row(name, caught, monkeypatch):
    """Where episodes are read as a tree, positions count along the row instead of the branch."""
    monkeypatch.setattr(contexts, "WORTH_IT", 10.0)  # always
    grow = contexts._grow

    def counted(chains, *limits):
        made = grow(chains, *limits)
        return made and (made[0], torch.arange(made[0].shape[1]).expand_as(made[0]), *made[2:])

    caught(parity(name), lambda patch: patch.setattr(contexts, "_grow", counted))


# Credit that goes astray.


def credit(tolerance):
    check_credit(credit_agent(text_envs(4)), tolerance)


@caught_by(
    9,
    "rasbt/reasoning-from-scratch#185",
    CREDIT,
)
def test_end_token_masked_out_of_the_loss(caught):
    """The end token is left out of the loss, and the policy forgets how to stop."""
    without_end = property(lambda self: self.mask & self.ok[:, None] & (self.actions != 1))
    caught(credit, lambda patch: patch.setattr(Rollout, "learnable", without_end))


@caught_by(
    27,
    "huggingface/trl#3750, huggingface/trl#1893, huggingface/trl#5338",
    CREDIT,
)
@pytest.mark.parametrize("shift", [-1, 1])
def test_reward_on_the_wrong_step(shift, caught):
    """The reward is paid one step too late, on padding, or one step too early, before the end token."""

    def shifted(self, finished=Record.rollout):
        rollout = finished(self)
        rollout.rewards = rollout.rewards.roll(shift, 1)
        return rollout

    caught(credit, lambda patch: patch.setattr(Record, "rollout", shifted))


@caught_by(
    32,
    "om-ai-lab/VLM-R1#129, alessiodm/drl-zh#17, tenstorrent/tt-metal#46548",
    CREDIT,
)
@pytest.mark.parametrize("order", ["reversed", "repeated", "sorted by length"])
def test_rows_permuted_between_reward_and_log_prob(order, caught):
    """Rewards are in another order than the rows they belong to."""

    def permuted(self, finished=Record.rollout):
        rollout = finished(self)
        rows = torch.arange(len(rollout))
        rows = {"reversed": rows.flip(0), "repeated": rows // 2, "sorted by length": rollout.lengths.argsort()}[order]
        rollout.rewards = rollout.returns[rows][:, None] * torch.nn.functional.one_hot(
            rollout.lengths - 1, rollout.mask.shape[1]
        )
        return rollout

    caught(credit, lambda patch: patch.setattr(Record, "rollout", permuted))


@caught_by(
    32,
    "tenstorrent/tt-metal#46548",
    CREDIT,
)
def test_verdicts_in_another_order_than_their_rows(caught):
    """The environment gives verdicts to the wrong slots."""
    from rlenv.envs.vector import TextGenVectorEnv

    def crossed(self, rows, finish=TextGenVectorEnv._finish):
        info, rewards = finish(self, rows)
        return info, rewards[-1:] + rewards[:-1]

    caught(credit, lambda patch: patch.setattr(TextGenVectorEnv, "_finish", crossed))


@caught_by(
    23,
    "sail-sg/understand-r1-zero#11, huggingface/trl#3256",
    CREDIT,
)
def test_mean_over_the_length_instead_of_the_sum(caught):
    """An episode's steps are averaged instead of summed."""
    mean = staticmethod(lambda mask: mask / mask.sum(1, keepdim=True).clamp(min=1) / len(mask))
    caught(credit, lambda patch: patch.setattr(ReinforceBaseline, "weights", mean))


# The anchor.


def flip(patch):
    penalty = Anchor.penalty
    patch.setattr(Anchor, "penalty", lambda self, *args: -penalty(self, *args))


@caught_by(
    18,
    "Unakar/Logic-RL#58, qiancheng0/ToolRL#52",
    ANCHOR,
)
def test_kl_sign_flipped_against_the_exact_gradient(caught):
    """The KL penalty in the loss has the wrong sign."""
    caught(lambda tolerance: check_kl_gradient(anchored_agent(text_envs(4)), tolerance), flip, 1e-10)


@caught_by(
    29,
    "tensorforce/tensorforce#105, THUDM/slime#774",
    ANCHOR,
)
def test_reference_is_ignored_or_aliased(caught):
    """The KL penalty is always zero."""

    def plant(patch):
        patch.setattr(Anchor, "penalty", lambda self, policy, rollout, log_probs: 0 * log_probs)

    caught(lambda tolerance: check_kl_gradient(anchored_agent(text_envs(4)), tolerance), plant, 1e-10)


@caught_by(
    18, "Unakar/Logic-RL#58", "agents/test_identities.py::test_anchor_alone_brings_the_policy_back_to_the_reference"
)
@pytest.mark.parametrize(("estimator", "place"), [("k1", "reward"), ("exact", "loss")])
def test_kl_sign_flipped_drives_the_policy_away(estimator, place, monkeypatch):
    """The KL to the reference grows in training, because its penalty is rewarded."""

    def train():
        envs = text_envs(16, zero_reward, max_new_tokens=2)
        anchor = {"kl_coef": 1.0, "kl_estimator": estimator, "kl_in": place}
        policy = tiny_policy("gpt2", envs, dtype="float32")
        agent = Reinforce(policy, envs, episodes_per_update=64, num_envs=16, learning_rate=1e-3, device="cpu", **anchor)
        agent.anchor.reference = tiny_policy("gpt2", envs, dtype="float32").requires_grad_(False)
        with torch.no_grad():
            policy.model.transformer.ln_f.weight.mul_(1.5)
        check_anchor_pulls_back(agent, envs)

    train()
    flip(monkeypatch)
    with pytest.raises(AssertionError, match="the KL went from"):
        train()


# Rows, micro-batches and masks.


def layout(identity):
    def check(tolerance):
        envs = text_envs(4, group_size=2)
        policy = tiny_policy("gpt2", envs)
        agent = ReinforceBaseline(policy, envs, episodes_per_update=8, max_grad_norm=1e9, device="cpu")
        identity(agent, double(collect(policy, envs, 8)), tolerance)

    return check


@caught_by(
    24,
    "huggingface/trl#3231, huggingface/trl#6024",
    "agents/test_identities.py::test_gradient_does_not_depend_on_the_micro_batch_size",
)
def test_each_micro_batch_takes_its_own_mean(caught):
    """Each micro-batch is divided by its own number of rows, so the gradient grows with their number."""

    def plant(patch):
        split = Rollout.split

        def own_mean(self, *limits):
            for batch in split(self, *limits):
                batch.weights = batch.weights * len(self) / len(batch)
                yield batch

        patch.setattr(Rollout, "split", own_mean)

    caught(layout(check_micro_batches), plant)


@caught_by(
    25,
    "huggingface/trl#6439, allenai/open-instruct#535",
    ANY_LAYOUT,
)
def test_mean_over_the_padding(caught):
    """The mean counts masked steps."""

    def plant(patch):
        patch.setattr(ReinforceBaseline, "weights", staticmethod(lambda mask: mask / mask.numel()))

    def check(agent, rollout, tolerance):
        check_same_gradient(agent, rollout, padded(rollout), tolerance, "padding")

    caught(layout(check), plant)


@caught_by(
    26,
    "areal-project/AReaL#1346",
    ANY_LAYOUT,
)
def test_masked_rewards_leak_into_returns(caught):
    """Returns include what is stored in masked cells."""
    from agents.algorithms import reinforce_baseline

    def plant(patch):
        leaky = lambda rewards, mask, gamma=1.0: rewards.flip(1).cumsum(1).flip(1)  # noqa: E731
        patch.setitem(reinforce_baseline.RETURNS, "return-to-go", leaky)

    def check(agent, rollout, tolerance):
        check_same_gradient(agent, rollout, padded(rollout), tolerance, "padding: differ by")
        check_same_gradient(agent, rollout, poisoned(rollout), tolerance, "poison")

    caught(layout(check), plant)


# Environments.


def counting(mode, episodes=11, slots=4):
    lengths = [1 + (5 * i) % 7 for i in range(100)]
    rollout = Collector(counting_envs(slots, mode, lengths), CPU).collect(CountingPolicy(), episodes)
    check_counting_rollout(rollout, lengths)


@caught_by(
    35,
    "Farama-Foundation/Gymnasium#1227, vwxyzjn/cleanrl#499",
    EVERY_STEP,
)
def test_dead_step_of_next_step_autoreset_is_trained(monkeypatch):
    """The step that only restarts a slot is trained on."""
    counting(AutoresetMode.NEXT_STEP)
    restart = Collector._restart

    def at_once(self, record, obs, dones, infos):
        self.mode = AutoresetMode.SAME_STEP
        restarted = restart(self, record, obs, dones, infos)
        self.mode = AutoresetMode.NEXT_STEP
        return restarted

    monkeypatch.setattr(Collector, "_restart", at_once)
    with pytest.raises(AssertionError):
        counting(AutoresetMode.NEXT_STEP)


@caught_by(
    36,
    "Farama-Foundation/Gymnasium#1132, Farama-Foundation/Gymnasium#1680",
    EVERY_STEP,
)
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_observations_stored_without_a_copy(mode, monkeypatch):
    """Stored observations are the environment's buffer, which each step overwrites."""
    counting(mode)
    monkeypatch.setattr(record, "to_single", torch.as_tensor)
    with pytest.raises(AssertionError):
        counting(mode)


@caught_by(
    None, MADE_UP, "agents/test_identities.py::test_all_started_episodes_are_finished_so_long_ones_are_not_left_out"
)
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_whichever_episodes_finish_first_are_taken(mode, monkeypatch):
    """A rollout takes whichever episodes finish first, which favours short ones."""
    counting(mode)
    finish = Record.finish

    def by_end(self, dones, *args):
        finish(self, dones, *args)
        self.finished = max(self.finished, self.num_episodes - int((self.episode >= 0).sum()))

    monkeypatch.setattr(Record, "finish", by_end)
    with pytest.raises(AssertionError):
        counting(mode)
