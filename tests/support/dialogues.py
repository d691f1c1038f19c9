"""Verifiers with dialogues whose replies, rewards and ends are hashes of all that was said."""

from __future__ import annotations

import random
import zlib
from typing import Any

from rlenv.verifiers import Dialogue, Problem, Reply, Turns, Verdict, Verifier

LETTERS = "abcd"


def number_of(*values: Any) -> int:
    return zlib.crc32(repr(values).encode())


class Hashing(Dialogue):
    """Ends about every fourth turn, pays for about every second one."""

    def __init__(self, problem: Problem, longest: int = 3) -> None:
        self.said, self.longest = [problem.text], longest

    def reply(self, turn: str) -> Reply:
        self.said.append(turn)
        chance = number_of(self.said)
        reward = chance // 8 % 64 / 64 if chance % 2 else 0.0
        if chance // 4 % 4 == 0:
            return Reply(reward=reward, verdict=Verdict(chance % 16 / 16, {"said": len(self.said)}))
        words = "".join(LETTERS[chance // 5**place % 4] for place in range(chance // 16 % (self.longest + 1)))
        self.said.append(words)
        return Reply(words, reward)

    def out_of_budget(self) -> Verdict:
        return Verdict(number_of(self.said, "budget") % 8 / 64)


class Echoing(Verifier):
    """Prompts of one to five letters; with `alone`, every problem that begins with an "a" has no dialogue."""

    alphabet = LETTERS
    prompt_length, answer_length, turns = 5, 4, Turns(4, reply_length=3)
    reward_range = (0.0, 100.0)  # of many turns

    def __init__(self, alone: bool = False, longest: int = 3) -> None:
        self.alone, self.longest = alone, longest

    def sample(self, rng: random.Random) -> Problem:
        return Problem("".join(rng.choice(LETTERS) for _ in range(rng.randint(1, 5))), "b")

    def dialogue(self, problem: Problem) -> Dialogue | None:
        return None if self.alone and problem.text.startswith("a") else Hashing(problem, self.longest)

    def verify(self, problem: Problem, completion: str) -> Verdict:
        return Verdict(number_of(problem.text, completion) % 64 / 64)


class Talker(Verifier):
    """Echoes every turn twice; over after the turn "d". Its demonstrated turns are given."""

    alphabet, prompt_length, answer_length, turns = LETTERS, 3, 3, Turns(4, reply_length=6)

    def __init__(self, *turns: str) -> None:
        self.shown = turns

    def sample(self, rng: random.Random) -> Problem:
        return Problem("".join(rng.choice("ab") for _ in range(rng.randint(1, 3))), "d")

    def dialogue(self, problem: Problem) -> Dialogue:
        return Twice()

    def demonstration_turns(self, problem: Problem, rng: random.Random) -> Any:
        return self.shown


class Twice(Dialogue):
    def reply(self, turn: str) -> Reply:
        return Reply(verdict=Verdict(1.0)) if turn == "d" else Reply(turn + turn)


def talking(slots: int = 6, mode: Any = "Disabled", **kwargs: Any) -> Any:
    """Return TextGen-v0 in which some problems have a dialogue, others one turn."""
    return _made(slots, {"verifier": Echoing(alone=True), "max_turns": 4, "autoreset_mode": mode, **kwargs})


def look(where: str) -> str:
    """Look somewhere."""
    if where == "c":
        raise ValueError("nothing there")
    return where * (number_of(where) % 3 + 1)


def calling(slots: int = 6, **kwargs: Any) -> Any:
    """Return TextGen-v0 with a tool: three of ten tokens are calls, which end the turn."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    from rlenv.verifiers.dialogues.tools import WithTools

    words = ["<pad>", "<eos>", "\n", *LETTERS, "look(a)", "look(b)", "look(c)"]
    backend = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<pad>"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"look\(.\)|[\s\S]"), "isolated")
    backend.decoder = decoders.Fuse()
    ends = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<pad>", "clean_up_tokenization_spaces": False}
    settings = {
        "verifier": WithTools(Echoing(alone=True), [look], failed="dd"),
        "tokenizer": PreTrainedTokenizerFast(tokenizer_object=backend, padding_side="left", **ends),
        "max_reply_tokens": 5,
        "stop_strings": ")",
        "max_turns": 6,
    }
    return _made(slots, settings | kwargs)


def _made(slots: int, settings: dict[str, Any]) -> Any:
    import gymnasium as gym  # not in worker processes, which import the verifier from here

    settings = {"max_new_tokens": 4, **settings}
    if slots:
        return gym.make_vec("rlenv:TextGen-v0", slots, **settings)
    settings.pop("autoreset_mode", None)
    return gym.make("rlenv:TextGen-v0", disable_env_checker=True, **settings)


def check_played(row: Any, make: Any) -> None:
    """Check that a collected episode [1, T] is what its actions make of the unbatched environment.

    Args:
        row: a rollout of one episode.
        make: `talking` or `calling`.
    """
    start, final = int(row.observations["length"][0]), row.observations["tokens"][0]
    prompt = make().metadata["tokenizer"].decode(final[:start])
    env = make(0, problems=[prompt], test_fraction=0.0, verifier_workers=0)
    read, over = final[:start].tolist(), False
    seen, _ = env.reset(seed=0)
    for step, column in enumerate(row.columns[0, : row.lengths[0]].tolist()):
        assert not over
        read += final[len(read) : column].tolist()  # a reply
        assert seen["tokens"][: seen["length"]].tolist() == read
        read.append(row.actions[0, step].item())
        seen, reward, over, _, _ = env.step(read[-1])
        assert reward == row.rewards[0, step]
    assert over
