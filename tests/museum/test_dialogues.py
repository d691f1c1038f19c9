"""Episodes in which the environment answers: its tokens, rewards and waiting are taken for the policy's."""

from dataclasses import replace

import torch
from gymnasium.vector import AutoresetMode
from museum import MADE_UP, OURS, Test, planted

from agents.policies.language.decoding.decoder import ContextDecoder, Decoder
from agents.rollouts.record import Record
from agents.rollouts.replies import Replies
from rlenv.envs.slot_dialogues import SlotDialogues
from rlenv.envs.vector import TextGenVectorEnv

PLAYED = "agents/rollouts/test_replies.py::test_actions_are_found_in_the_final_tokens_and_keep_their_rewards"
LATE = "rlenv/envs/test_late_replies.py"
DECODING = "agents/policies/language/decoding/test_replies.py"
SAMPLED = "agents/rollouts/test_sampled_tokens.py::test_the_tokens_of_twenty_turns_are_trained_as_they_were_sampled"


def change_rollouts(patch, change):
    collected = Record.rollout
    patch.setattr(Record, "rollout", lambda self: change(collected(self)))


@planted(None, MADE_UP, Test(SAMPLED, name="chatml"))
def test_tokens_of_replies_are_trained(patch):
    """Whatever stands between the first action and the last counts as sampled, replies included."""

    def everything(rollout):
        if rollout.positions is None:
            return rollout
        return replace(rollout, positions=None)

    change_rollouts(patch, everything)


@planted(None, MADE_UP, Test(PLAYED, mode=AutoresetMode.DISABLED))
def test_what_a_turn_earned_is_paid_at_the_end(patch):
    """The rewards of all turns are added up and paid for the last token, so every turn is credited with all of them."""

    def at_the_end(rollout):
        last = torch.arange(rollout.mask.shape[1]) == rollout.lengths[:, None] - 1
        return replace(rollout, rewards=rollout.returns[:, None] * last)

    change_rollouts(patch, at_the_end)


@planted(None, MADE_UP, Test(SAMPLED, name="llama2"))
def test_turns_are_encoded_again(patch):
    """What is trained is the text of each turn, encoded anew, which is often not what was sampled."""
    rendered = []
    init = TextGenVectorEnv.__init__

    def remember(self, *args, **kwargs):
        init(self, *args, **kwargs)
        rendered[:] = [self.task]

    def drifted(rollout):
        task, actions = rendered[0], rollout.actions.clone()
        for row, steps in enumerate(rollout.lengths.tolist()):
            again = task.encoder.spell("turn", [task.tokenizer.decode(actions[row, :steps])])[0]
            kept = min(steps, len(again))
            actions[row, :kept] = torch.tensor(again[:kept])
        return replace(rollout, actions=actions)

    patch.setattr(TextGenVectorEnv, "__init__", remember)
    change_rollouts(patch, drifted)


@planted(
    None,
    MADE_UP,
    Test(
        f"{DECODING}::test_the_running_state_equals_a_fresh_one_after_replies",
        kind="own",
        tells=True,
        name="gpt2",
        seed=0,
    ),
)
def test_the_cache_does_not_read_replies(patch):
    """Acting goes on with a cache that has read the turn, and not the reply to it."""
    patch.setattr(Decoder, "appended", lambda self, lengths, said: None)


@planted(
    None,
    OURS,
    Test(
        f"{DECODING}::test_who_waits_for_a_reply_stays_apart_from_who_goes_on_with_the_same_token",
        kind="shared",
    ),
)
def test_contexts_of_two_lengths_share_a_row(patch):
    """Slots with the same context share a row of the cache by their newest token, though one of them has not grown."""

    children = ContextDecoder._children

    def by_token(self, unread, lengths, going):
        return children(self, unread, torch.zeros_like(lengths), going)

    patch.setattr(ContextDecoder, "_children", by_token)


@planted(None, MADE_UP, Test(f"{LATE}::test_the_oldest_eighth_is_taken_in_the_order_asked_when_more_than_half_wait"))
def test_a_reply_reaches_another_slot(patch):
    """Replies are given to the slots that wait in the order of their numbers, not in the order in which they asked."""
    take = SlotDialogues._take

    def by_slot(self, count):
        return dict(zip(sorted(self._asked), take(self, count).values(), strict=False))

    patch.setattr(SlotDialogues, "_take", by_slot)


@planted(
    None,
    MADE_UP,
    Test(f"{LATE}::test_resets_and_restored_states_drop_what_was_asked_before", mode=AutoresetMode.DISABLED),
)
def test_an_old_reply_reaches_a_new_episode(patch):
    """A slot that is reset while it waits gets the reply to the episode that was given up."""
    leave = SlotDialogues.leave

    def kept(self, rows):
        asked, waiting = dict(self._asked), self.waiting.copy()
        leave(self, rows)
        self._asked, self.waiting = asked, waiting

    patch.setattr(SlotDialogues, "leave", kept)


@planted(
    None,
    MADE_UP,
    Test(
        f"{LATE}::test_a_rollout_with_late_replies_is_the_one_with_immediate_replies",
        slots=5,
        mode=AutoresetMode.DISABLED,
    ),
)
def test_waiting_is_an_action(patch):
    """Steps in which a slot waits for its reply are stored, counted and trained on."""
    patch.setattr(Replies, "add", lambda self, step: None)


@planted(
    None,
    MADE_UP,
    Test(
        f"{LATE}::test_a_rollout_with_late_replies_is_the_one_with_immediate_replies",
        slots=5,
        mode=AutoresetMode.SAME_STEP,
    ),
)
def test_what_a_late_reply_pays_is_lost(patch):
    """The step that brings a reply is not an action, and its reward is nobody's."""
    patch.setattr(Replies, "owed", lambda self, count: None)
