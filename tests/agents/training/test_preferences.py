"""A reward model from preferences: its loss, its rewards, what it learns, and where its trunk comes from."""

import math

import pytest
import torch
from tiny_models import tiny_model

from agents.estimators.losses import bradley_terry
from agents.training.reward_model import (
    Preferences,
    make_reward_model,
    preference_figures,
    rewards_of,
    train_reward_model,
)

PAD = 0


def preferences(count, seed=0):
    """Return pairs of texts of 3 to 6 tokens, of which the chosen one ends in 7 and the other in 8."""
    generator = torch.Generator().manual_seed(seed)
    starts = [torch.randint(2, 7, (2 + n % 4,), generator=generator).tolist() for n in range(count)]
    return Preferences([[*start, 7] for start in starts], [[*start, 8] for start in starts], PAD)


def train(model, pairs, steps=40, seed=0, **settings):
    return train_reward_model(model, pairs, steps, 16, 3e-3, torch.Generator().manual_seed(seed), **settings)


def test_the_loss_is_that_of_bradley_and_terry():
    chosen = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64, requires_grad=True)
    rejected = torch.tensor([0.0, 1.0, 0.5], dtype=torch.float64)
    loss = bradley_terry(chosen, rejected)
    probabilities = [1 / (1 + math.exp(-gap)) for gap in (1.0, -3.0, 0.0)]
    assert loss.tolist() == pytest.approx([-math.log(p) for p in probabilities], abs=1e-12)
    loss.sum().backward()
    assert chosen.grad.tolist() == pytest.approx([p - 1 for p in probabilities], abs=1e-12)
    assert torch.allclose(bradley_terry(chosen + 9, rejected + 9), loss, atol=1e-12), "the level does not matter"
    assert bradley_terry(torch.tensor(-1e4), torch.tensor(1e4)).item() == 2e4, "finite far away"


def test_a_reward_depends_neither_on_padding_nor_on_the_other_rows():
    model = make_reward_model("tiny", 10, 16, PAD).double()
    texts = preferences(5).chosen
    alone = torch.cat([rewards_of(model, [text], PAD) for text in texts])
    assert torch.allclose(rewards_of(model, texts, PAD), alone, atol=1e-6)
    assert len(set(alone.tolist())) == 5


def test_it_learns_what_is_preferred_and_that_holds_for_new_texts():
    model, new = make_reward_model("tiny", 10, 16, PAD), preferences(64, seed=1)
    before = preference_figures(model, new)
    losses = train(model, preferences(64), 25)
    after = preference_figures(model, new)
    assert len(losses) == 25
    assert (before["accuracy"], after["accuracy"]) == (pytest.approx(0.5, abs=0.5), 1.0)
    assert after["loss"] < 0.2 < before["loss"]
    assert abs(after["mean_chosen"] + after["mean_rejected"]) < 0.5, "rewards stay around 0"


def test_equal_rewards_are_half_right():
    model = make_reward_model("tiny", 10, 16, PAD)
    torch.nn.init.zeros_(model.score.weight)
    assert preference_figures(model, preferences(6))["accuracy"] == 0.5


def test_the_same_seed_gives_the_same_model_and_the_global_generator_stays():
    state = torch.get_rng_state()
    models = [make_reward_model("tiny", 10, 16, PAD, seed) for seed in (3, 3, 4)]
    losses = [train(model, preferences(32), 3) for model in models]
    assert losses[0] == losses[1] != losses[2]
    assert torch.equal(torch.get_rng_state(), state)


def test_every_pair_is_seen_once_before_any_again():
    seen = []
    pairs = preferences(20)

    class Spy(Preferences):
        def select(self, rows):
            seen.append(sorted(rows.tolist()))
            return super().select(rows)

    train(make_reward_model("tiny", 10, 16, PAD), Spy(pairs.chosen, pairs.rejected, PAD), 4)
    assert [len(batch) for batch in seen] == [16, 4, 16, 4]
    assert sorted(seen[0] + seen[1]) == sorted(seen[2] + seen[3]) == list(range(20))


def test_a_callback_ends_the_training():
    assert len(train(make_reward_model("tiny", 10, 16, PAD), preferences(8), on_step=lambda step, loss: step < 1)) == 2


def test_the_trunk_is_that_of_the_language_model(tmp_path):
    language = tiny_model("llama")
    language.save_pretrained(tmp_path / "model")
    made = make_reward_model(tmp_path / "model", language.config.vocab_size, 16, PAD)
    for name, weight in language.model.state_dict().items():
        assert torch.equal(made.model.state_dict()[name], weight), name
    assert made.config.num_labels == 1
    with pytest.raises(ValueError, match=r"the tokenizer's vocabulary \(999\) does not fit the model's"):
        make_reward_model(tmp_path / "model", 999, 16, PAD)
    with pytest.raises(ValueError, match="model 'nowhere' cannot be made a reward model: "):
        make_reward_model("nowhere", 10, 16, PAD)
