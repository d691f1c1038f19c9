"""The whole of GRPO (Shao et al. 2024, arXiv:2402.03300) on text, in one file of PyTorch and transformers.

    python examples/grpo.py tiny       # a new Llama of 0.4 million weights imitates solved sums, then learns by reward
    python examples/grpo.py smollm2    # a pretrained chat model with an adapter of rank 16; so does any folder or id

An update draws K answers to each of N / K problems, and takes steps of Adam along the gradient of

    A_i = (R_i - mean(R)) / (std(R) + 1e-4)            over the K answers to a problem
    L = - 1/N Σ_i 1/T_i Σ_t (min(ρ_{i,t} A_i, clip(ρ_{i,t}, 1 ± ε) A_i) - β k3_{i,t})

where ρ = π / π_old is the ratio to the policy that drew the answers, and k3 = π_ref / π - 1 - log(π_ref / π) estimates
the KL to the policy that training began with. `rlenv.agents.GRPO` makes the same update (tests/examples/test_grpo.py)
and adds environments, slots that restart, a faster decoder, shared prompts, checkpoints and other algorithms.
"""

import argparse
import copy
import random
import re
import time
import zlib
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig


@dataclass
class Settings:
    """How an update is made."""

    episodes: int = 256  # N, answers per update
    group_size: int = 4  # K, answers to a problem
    num_epochs: int = 1  # passes over the answers
    num_minibatches: int = 1  # optimizer steps per pass
    micro_batch: int = 256  # answers per forward pass
    learning_rate: float = 3e-4  # falls linearly to zero
    clip_range: float = 0.2  # ε
    kl_coef: float = 0.0  # β
    temperature: float = 1.0
    max_grad_norm: float = 1.0


@dataclass
class Answers:
    """N answers of at most T tokens; prompts have P tokens and are padded on the left, answers on the right."""

    tokens: torch.Tensor  # [N, P + T]
    read: torch.Tensor  # bool [N, P + T], False where a token is padding
    log_probs: torch.Tensor  # [N, T], of the policy that drew them
    ref_log_probs: torch.Tensor | None = None  # [N, T], of the policy that training began with
    advantages: torch.Tensor | None = None  # [N]

    @property
    def mask(self):
        """The tokens of the answers, bool [N, T]."""
        return self.read[:, -self.log_probs.shape[1] :]

    def written(self):
        """Return a list of tokens per answer."""
        steps = self.mask.shape[1]
        return [row[kept].tolist() for row, kept in zip(self.tokens[:, -steps:], self.mask, strict=True)]

    def rows(self, rows):
        """Return some of the answers."""
        return Answers(*(None if field is None else field[rows] for field in vars(self).values()))


def padded(prompts, answers, device):
    """Return prompts and answers, lists of tokens, as tensors; their log-probabilities are 0."""
    left, right = max(map(len, prompts)), max(map(len, answers))
    before, after = [left - len(prompt) for prompt in prompts], [right - len(answer) for answer in answers]
    rows = list(zip(before, prompts, answers, after, strict=True))
    tokens = [[0] * b + prompt + answer + [0] * a for b, prompt, answer, a in rows]
    read = [[False] * b + [True] * len(prompt + answer) + [False] * a for b, prompt, answer, a in rows]
    nothing = torch.zeros(len(rows), right, device=device)
    return Answers(torch.tensor(tokens, device=device), torch.tensor(read, device=device), nothing)


# The policy: drawing answers with a KV cache, and their log-probabilities in one pass.


def forward(model, tokens, read, **more):
    """Return a transformers model's output for tokens [N, M], the last of the context with mask `read` [N, L]."""
    positions = (read.cumsum(1) - 1).clamp(min=0)[:, -tokens.shape[1] :]
    return model(tokens, attention_mask=read.long(), position_ids=positions, **more)


@torch.no_grad()
def sample(model, prompts, copies, most, ends, temperature=1.0, generator=None):
    """Draw `copies` answers to each prompt, of at most `most` tokens or until one of `ends`; the likeliest at 0."""
    begun = padded(prompts, [[]] * len(prompts), model.device)
    out = forward(model, begun.tokens, begun.read, use_cache=True)
    name = "cache" if "cache" in out else "past_key_values"  # as before transformers 5.24
    cache, ends = out[name], torch.tensor(ends, device=model.device)
    cache.batch_repeat_interleave(copies)  # a prompt is read once for all its answers
    tokens, read, logits = (x.repeat_interleave(copies, 0) for x in (begun.tokens, begun.read, out.logits[:, -1]))
    playing, log_probs = read[:, -1], []
    while playing.any() and len(log_probs) < most:
        if log_probs:
            logits = forward(model, tokens[:, -1:], read, use_cache=True, **{name: cache}).logits[:, -1]
        log_softmax = (logits / (temperature or 1)).log_softmax(1)  # [N, V]
        drawn = torch.multinomial(log_softmax.exp(), 1, generator=generator) if temperature else logits.argmax(1, True)
        log_probs.append(log_softmax.gather(1, drawn)[:, 0].where(playing, 0))
        tokens, read = torch.cat([tokens, drawn], 1), torch.cat([read, playing[:, None]], 1)
        playing = playing & ~torch.isin(drawn[:, 0], ends)
    return Answers(tokens, read, torch.stack(log_probs, 1))


def log_probs_of(model, answers, temperature=1.0):
    """Return log π of each token of the answers, differentiable [N, T]."""
    steps = answers.mask.shape[1]
    logits = forward(model, answers.tokens, answers.read, logits_to_keep=steps + 1).logits[:, :-1]  # [N, T, V]
    log_softmax = (logits / temperature).log_softmax(2)
    return log_softmax.gather(2, answers.tokens[:, -steps:, None])[..., 0].where(answers.mask, 0)


class LoRA(nn.Module):
    """A linear layer with an adapter: y = W x + 2 B A x, where W is frozen and B begins at zero (arXiv:2106.09685)."""

    def __init__(self, layer, rank):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.A = nn.Parameter(torch.randn(rank, layer.in_features).to(layer.weight) / layer.in_features**0.5)
        self.B = nn.Parameter(torch.zeros(layer.out_features, rank).to(layer.weight))

    def forward(self, x):  # noqa: D102
        return self.layer(x) + 2 * functional.linear(functional.linear(x, self.A), self.B)


def add_adapters(model, rank):
    """Freeze a model, and give each linear layer but the head an adapter."""
    for block in list(model.requires_grad_(False).model.modules()):
        for name, layer in list(block.named_children()):
            if isinstance(layer, nn.Linear):
                setattr(block, name, LoRA(layer, rank))


# The algorithm.


def advantages_of(rewards, group_size):
    """Return A [N], given R [N]; the answers to a problem are neighbours."""
    groups = rewards.view(-1, group_size)
    return ((groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)).flatten()


def loss_of(log_probs, answers, settings):
    """Return the sum of the losses of some answers, given log π of their tokens [N, T]; the mean of all is L."""
    ratio, advantages, epsilon = (log_probs - answers.log_probs).exp(), answers.advantages[:, None], settings.clip_range
    terms = torch.min(ratio * advantages, ratio.clamp(1 - epsilon, 1 + epsilon) * advantages)
    if settings.kl_coef:
        above = answers.ref_log_probs - log_probs
        terms = terms - settings.kl_coef * (above.expm1() - above)
    return -((terms * answers.mask).sum(1) / answers.mask.sum(1)).sum()


def update(model, optimizer, answers, settings, order=None):
    """Take the optimizer steps of an update; the generator `order` deals the answers to the steps of a pass."""
    for _ in range(settings.num_epochs):
        for step in torch.randperm(len(answers.tokens), generator=order).tensor_split(settings.num_minibatches):
            optimizer.zero_grad()
            for rows in step.split(settings.micro_batch):
                part = answers.rows(rows)
                loss = loss_of(log_probs_of(model, part, settings.temperature), part, settings)
                (loss / len(step)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
            optimizer.step()


def train(model, sums, settings, updates, most, seed=0):
    """Train a model on sums, with answers of at most `most` tokens; return the mean reward of each update."""
    draws, order = torch.Generator(model.device).manual_seed(seed), torch.Generator().manual_seed(seed)
    reference = copy.deepcopy(model) if settings.kl_coef else None
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.Adam(trained, settings.learning_rate, betas=(0.9, 0.95), eps=1e-5)
    means = []
    for number in range(updates):
        began = time.perf_counter()
        optimizer.param_groups[0]["lr"] = settings.learning_rate * (1 - number / updates)
        pairs = sums.draw(settings.episodes // settings.group_size)
        prompts = [sums.prompt(*pair) for pair in pairs]
        answers = sample(model, prompts, settings.group_size, most, sums.ends, settings.temperature, draws)
        asked = [pair for pair in pairs for _ in range(settings.group_size)]
        paid = [sums.reward(*pair, sums.text(each)) for pair, each in zip(asked, answers.written(), strict=True)]
        rewards = torch.tensor(paid, device=model.device)
        answers.advantages = advantages_of(rewards, settings.group_size)
        if reference is not None:
            parts = torch.arange(len(rewards)).split(settings.micro_batch)
            with torch.no_grad():
                found = [log_probs_of(reference, answers.rows(part), settings.temperature) for part in parts]
            answers.ref_log_probs = torch.cat(found)
        update(model, optimizer, answers, settings, order)
        means.append(rewards.mean().item())
        if number % 10 == 9:
            print(f"update {number + 1:4d}   reward {means[-1]:.3f}   {time.perf_counter() - began:.2f} s")
    return means


# The problems: sums, in characters for a new model and in words for one that chats.


class Sums:
    """Sums of two numbers from 2 to `most`, for a tokenizer with a chat template, or None for characters: 12+34=46."""

    letters = "0123456789+="  # the thirteenth token ends an answer

    def __init__(self, tokenizer=None, most=99, seed=0):
        self.tokenizer, self.most, self.rng = tokenizer, most, random.Random(seed)
        self.ends = [len(self.letters)] if tokenizer is None else [tokenizer.eos_token_id]

    def draw(self, count, held_out=False):
        """Return some problems, for training or of the held-out fifth: always the same; 1+2 goes where 2+1 goes."""
        rng, drawn = random.Random(1) if held_out else self.rng, []
        while len(drawn) < count:
            pair = rng.randint(2, self.most), rng.randint(2, self.most)
            if (zlib.crc32(repr(sorted(pair)).encode()) % 5 == 0) == held_out:
                drawn.append(pair)
        return drawn

    def prompt(self, a, b):
        """Return the tokens of a question."""
        if self.tokenizer is None:
            return [self.letters.index(letter) for letter in f"{a}+{b}="]
        messages = [{"role": "user", "content": f"What is {a} plus {b}? Answer with a number."}]
        return self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)

    def text(self, tokens):
        """Return the text of an answer."""
        if self.tokenizer is None:
            return "".join(self.letters[token] for token in tokens if token not in self.ends)
        return self.tokenizer.decode(tokens, skip_special_tokens=True)

    def reward(self, a, b, text):
        """Return 1 if the last number is right, or, without a tokenizer, if the text is exactly the sum; else 0."""
        return float(text == str(a + b) if self.tokenizer is None else re.findall(r"\d+", text)[-1:] == [str(a + b)])


def imitate(model, sums, steps=500, examples=650, learning_rate=2e-3):
    """Train a new model on solved sums of characters; it would never draw a right answer otherwise."""
    optimizer, pairs = torch.optim.Adam(model.parameters(), learning_rate), sums.draw(examples)
    prompts = [sums.prompt(*pair) for pair in pairs]
    right = [[sums.letters.index(letter) for letter in str(a + b)] + sums.ends for a, b in pairs]
    solved = padded(prompts, right, model.device)
    for step in range(steps):
        part = solved.rows(torch.arange(128 * step, 128 * (step + 1)) % examples)
        optimizer.param_groups[0]["lr"] = learning_rate * (1 - 0.9 * step / steps)
        optimizer.zero_grad()
        (-log_probs_of(model, part).sum() / part.mask.sum()).backward()
        optimizer.step()


def evaluate(model, sums, most, count=200):
    """Print the share of held-out sums with a right greedy answer, and the first answer; return the share."""
    pairs = sums.draw(count, held_out=True)
    answers = sample(model, [sums.prompt(*pair) for pair in pairs], 1, most, sums.ends, temperature=0)
    texts = [sums.text(each) for each in answers.written()]
    share = sum(sums.reward(*pair, text) for pair, text in zip(pairs, texts, strict=True)) / count
    print(f"success {share:.3f}; {pairs[0][0]} + {pairs[0][1]}: {texts[0]!r}")
    return share


def tiny():
    """Return a new Llama over the characters of sums."""
    shape = {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 2, "num_attention_heads": 4}
    return AutoModelForCausalLM.from_config(LlamaConfig(vocab_size=13, tie_word_embeddings=True, **shape))


def main(model, updates, seed):
    """Train a model, and print its success before and after."""
    torch.manual_seed(seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if model == "tiny":
        policy, sums, most, settings = tiny().to(device), Sums(seed=seed), 4, Settings()
        imitate(policy, sums)
    else:
        if model == "smollm2":  # comes in a package, which rlenv reads
            from rlenv.agents.language.loading import model_folder

            model = model_folder(model)
        policy = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).to(device)
        sums, most = Sums(AutoTokenizer.from_pretrained(model), 40, seed), 16
        settings = Settings(episodes=64, micro_batch=16, learning_rate=5e-4)
        add_adapters(policy, 16)
    policy.eval()  # no dropout: the ratio compares the same function of the weights
    evaluate(policy, sums, most)
    train(policy, sums, settings, updates, most, seed)
    evaluate(policy, sums, most)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("model", nargs="?", default="tiny", help="tiny, smollm2, or a folder or id of a chat model")
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
