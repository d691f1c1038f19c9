"""Writes the data of docs/pipeline.md: words to say backwards, and pairs of a right and a wrong answer to them.

python examples/pipeline_data.py FOLDER [LENGTH]
"""

import itertools
import json
import random
import string
import sys
from pathlib import Path

LETTERS = {2: "abcdefghijklmnop", 3: "abcdefgh"}  # by the length of words
PAIRS = 16  # per word


def wrong(word: str, rng: random.Random) -> str:
    """Return an answer that is not the word backwards, as a model that is still learning would give it."""
    right, length, letters = word[::-1], len(word), LETTERS[len(word)]
    place = rng.randrange(length)
    stray, times = rng.choice(string.printable), rng.randint(1, 8)  # a policy finds whatever no pair speaks against
    kinds = [
        right[:place] + rng.choice(letters) + right[place + 1 :],  # one letter is another one
        right[:place] + right[place + 1 :],  # one is missing
        right + rng.choice(letters) * times,  # too many
        right[:place] + stray * times + right[rng.randint(0, length) :],  # something else in it
        "".join(rng.sample(right, length)),  # in another order
        "".join(rng.choices(letters, k=length)),
    ]
    return next(answer for answer in [*rng.sample(kinds, len(kinds)), right[1:]] if answer != right)


def main(folder: Path, length: int) -> None:
    """Write problems.jsonl and pairs.jsonl; a quarter of the words is held out in both."""
    rng = random.Random(0)
    words = ["".join(letters) for letters in itertools.product(LETTERS[length], repeat=length)]
    splits = {word: rng.choice(["train", "train", "train", "test"]) for word in words}
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "problems.jsonl").open("w", encoding="utf-8") as file:
        for word in words:
            file.write(json.dumps({"prompt": f"{word}>", "answer": word[::-1], "split": splits[word]}) + "\n")
    with (folder / "pairs.jsonl").open("w", encoding="utf-8") as file:
        for word in words * PAIRS:
            pair = {"prompt": f"{word}>", "chosen": word[::-1], "rejected": wrong(word, rng), "split": splits[word]}
            file.write(json.dumps(pair) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."), int(sys.argv[2]) if len(sys.argv) > 2 else 2)
