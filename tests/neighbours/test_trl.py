"""TRL's GRPOTrainer and ours: the same environment class on both sides, and our verifiers in TRL's trainer.

The model's turns are written by a fixed rule, a function of the whole context. So both sides play the same episodes
as long as they show the model the same texts, and then they must pay the same.
"""

import copy
import random
import re
import zlib
from importlib import resources

import pytest
import torch
from chat_families import byte_level
from environment_classes import Numbers, by_guesses
from transformers import LlamaConfig, LlamaForCausalLM

from rlenv import trl as ours
from rlenv.textgen import TextGenEnv

trl = pytest.importorskip("trl")
datasets = pytest.importorskip("datasets")

pytestmark = [
    pytest.mark.neighbours,
    pytest.mark.filterwarnings("ignore:.*is an experimental feature:UserWarning"),
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*experimental.*"),
]
K, ROWS, CALLS = 4, 6, 4
END = "<|im_end|>"


@pytest.fixture(scope="module")
def tokenizer():
    template = resources.files("trl").joinpath("chat_templates/qwen3.jinja").read_text(encoding="utf-8")
    return byte_level(template, f"<|endoftext|> <|im_start|> {END}", END, "<|endoftext|>")


def model_of(tokenizer):
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=4096, **shape))


class Played(Numbers):
    """Keeps what each episode was about, how it was played and what it paid."""

    said = []

    def get_reward(self):
        paid = super().get_reward()
        self.said.append((self.number, self.guesses, paid))
        return paid


def turn_after(context):
    """Return a turn that is a function of the context: guesses by chance, and an answer at the end or before."""
    rng = random.Random(zlib.crc32(context.encode()))
    results = re.findall(r"<tool_response>\n(.*?)\n</tool_response>", context, re.DOTALL)
    if len(results) >= CALLS or (results and (results[-1] == "right" or rng.random() < 0.1)):
        return "done"
    guess = f'{{"name": "guess", "arguments": {{"number": {rng.randint(1, 9)}}}}}'
    return f"<tool_call>\n{guess}\n</tool_call>"


class ByRule(trl.GRPOTrainer):
    """Writes turns by the rule instead of sampling them."""

    turn_after = staticmethod(turn_after)

    def _generate_single_turn(self, prompt_ids, *rest, **options):
        contexts = [self.processing_class.decode(ids) for ids in prompt_ids]
        return [self.processing_class(self.turn_after(each) + END)["input_ids"] for each in contexts], None


def trained(cls, tokenizer, folder, steps=3, **kwargs):
    """Let TRL train for some steps; return its log."""
    config = trl.GRPOConfig(
        output_dir=str(folder), use_cpu=True, bf16=False, report_to="none", disable_tqdm=True, save_strategy="no",
        logging_steps=1, shuffle_dataset=False, num_generations=K, per_device_train_batch_size=K * 2, beta=0.0,
        max_steps=steps, max_completion_length=600, dataloader_pin_memory=False, activation_checkpointing=False,
    )  # fmt: skip
    trainer = cls(model=model_of(tokenizer), args=config, processing_class=copy.deepcopy(tokenizer), **kwargs)
    trainer.train()
    return [entry for entry in trainer.state.log_history if "reward" in entry]


def play(tokenizer, cls, problems, functions=()):
    """Play every problem by the rule in our environment; return the rewards."""
    rewards = []
    for problem in problems:
        env = TextGenEnv(
            verifier=[cls, *functions], problems=[problem], test_fraction=0.0, tokenizer=tokenizer,
            max_new_tokens=100, max_reply_tokens=64,
        )  # fmt: skip
        obs, _ = env.reset(seed=0)
        paid, over = 0.0, False
        while not over:
            context = tokenizer.decode(obs["tokens"][: obs["length"]])
            for token in tokenizer(turn_after(context) + END)["input_ids"]:
                obs, reward, over, _, _ = env.step(token)
                paid += reward
        rewards.append(paid)
    return rewards


def test_the_same_class_pays_the_same_episode_by_episode(tokenizer, tmp_path):
    problems = [
        {"prompt": [{"role": "user", "content": f"Game {number}: "}], "target": 1 + number} for number in range(ROWS)
    ]
    Played.said = []
    data = datasets.Dataset.from_list(problems)
    log = trained(ByRule, tokenizer, tmp_path, environment_factory=Played, train_dataset=data)
    theirs = sorted(Played.said[::K])
    assert len(Played.said) == ROWS * K and len({guesses for _, guesses, _ in theirs}) > 1
    assert log[0]["reward"] == pytest.approx(sum(paid for _, _, paid in Played.said[: 2 * K]) / (2 * K))
    Played.said = []
    rewards = play(tokenizer, Played, problems)
    assert sorted(Played.said) == theirs and 0 < sum(rewards) < ROWS
    assert sorted(rewards) == pytest.approx(sorted(paid for _, _, paid in theirs))


def test_reward_functions_see_the_environments_on_both_sides(tokenizer, tmp_path):
    problems = [{"prompt": [{"role": "user", "content": "Play: "}], "target": target} for target in (2, 7)]
    data = datasets.Dataset.from_list(problems)
    kwargs = {"environment_factory": Numbers, "reward_funcs": [by_guesses], "train_dataset": data}
    (log,) = trained(ByRule, tokenizer, tmp_path, steps=1, **kwargs)
    rewards = play(tokenizer, Numbers, problems, [by_guesses])
    assert log["reward"] == pytest.approx(sum(rewards) / 2) and sum(rewards) > 2


def bisecting(context):
    """Return a turn of guess by bisection, as a call of `say`."""
    low, high = map(int, re.search(r"user\n(\d+)-(\d+):", context).groups())
    for result in re.findall(r"<tool_response>\n(.*?)\n</tool_response>", context, re.DOTALL):
        if "over" in result:
            return "done"
        middle = (low + high) // 2
        low, high = (middle + 1, high) if result.startswith(">") else (low, middle - 1)
    call = f'{{"name": "say", "arguments": {{"text": "{(low + high) // 2}"}}}}'
    return f"<tool_call>\n{call}\n</tool_call>"


class Bisecting(ByRule):
    turn_after = staticmethod(bisecting)


def test_grpo_trainer_plays_a_dialogue_of_ours(tokenizer, tmp_path):
    data = datasets.Dataset.from_list(ours.rows("guess", 2 * 3))
    kwargs = {"environment_factory": ours.environment("guess"), "train_dataset": data}
    log = trained(Bisecting, tokenizer, tmp_path, **kwargs)
    assert [entry["reward"] for entry in log] == [1.0] * 3
    assert log[-1]["tools/call_frequency"] > 2 and log[-1]["tools/failure_frequency"] == 0


def test_grpo_trainer_takes_a_verifier_of_ours(tokenizer, tmp_path):
    data = datasets.Dataset.from_list(ours.rows("arith", 2 * 3))
    reward = ours.reward_function("arith")
    log = trained(trl.GRPOTrainer, tokenizer, tmp_path, reward_funcs=[reward], train_dataset=data)
    assert len(log) == 3 and all(entry["rewards/arith/mean"] == entry["arith/success"] for entry in log)
