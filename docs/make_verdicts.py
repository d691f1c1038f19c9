"""Sample a real model's answers, have verifiers judge them, and count where they and a reader disagree.

python docs/make_verdicts.py                  # write the tables of the pages
python docs/make_verdicts.py judge            # ask the verifiers again about the answers that are kept
python docs/make_verdicts.py sample smollm2   # sample the answers anew: ten minutes of one core, then begin reading

docs/verdicts/ has the problems, the answers, each with the verifiers that paid for it, and what the reader said.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

import rlenv  # noqa: F401 (registers TextGen-v0)
from agents import make_envs, make_policy
from agents.rollouts.collector import Collector
from agents.rollouts.envs.make_envs import with_tokenizer
from verifiers import FunctionVerifier, Problem, Verifier, make_verifier

Row = dict[str, Any]
FOLDER = Path(__file__).resolve().parent
DATA = FOLDER / "verdicts"
NUMBERS = ("numeric", "math")
FAMILIES = {  # of prompts: the verifiers that fit; the first one decides which answers are read
    "numbers": NUMBERS,
    "stories": NUMBERS,
    "units": NUMBERS,
    "percent": NUMBERS,
    "facts": NUMBERS,
    "algebra": ("math",),
    "choices": ("choice",),
    "words": ("choice", "math"),
    "json": ("json_schema",),
    "code": ("code",),
}
SEED, CONTEXT = 0, 224  # tokens of a prompt and its answer
SAMPLES = {"greedy": 1, "0.7": 4, "1.0": 5}  # temperature: answers per problem
LONG, TOKENS = ("json", "code"), (64, 96)  # of an answer, at most: of most families, and of these
READ = 15  # answers per family that are paid for, and as many that are not


def main(command: str = "", model: str = "") -> None:
    """Do what a command says, then write the pages."""
    if command == "sample":
        write("answers", judged(sorted(sample(model), key=lambda row: row["problem"])))
        write("reader", [{"answer": index, "right": None} for index in to_read(read("problems"), read("answers"))])
        return
    if command == "judge":
        write("answers", judged(read("answers")))
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8", newline="\n")


def read(name: str) -> list[Row]:
    """Return the rows of a file of `DATA`."""
    return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text(encoding="utf-8").split("\n") if line]


def write(name: str, rows: Sequence[Row]) -> None:
    """Write rows as a file of `DATA`."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (DATA / f"{name}.jsonl").write_text(text, encoding="utf-8", newline="\n")


def sample(model: str, families: Sequence[str] = tuple(FAMILIES)) -> Iterator[Row]:
    """Yield the answers of a model to all problems, family by family: several per problem at each temperature."""
    torch.set_num_threads(1)
    problems = read("problems")
    policy: Any = None
    for family in families:
        own = [index for index, row in enumerate(problems) if row["family"] == family]
        for temperature, count in SAMPLES.items():
            kwargs = {
                "verifier": FunctionVerifier(lambda prompts, completions: [0.0] * len(prompts)), "chat": True,
                "problems": [{"prompt": problems[index]["prompt"], "answer": str(index)} for index in own],
                "test_fraction": 0.0, "group_size": count,
                "max_prompt_tokens": CONTEXT - TOKENS[family in LONG], "max_new_tokens": TOKENS[family in LONG],
            }  # fmt: skip
            slots = len(own) * count
            envs = make_envs("TextGen-v0", slots, with_tokenizer("TextGen-v0", kwargs, model))
            policy = policy or make_policy(model, envs.single_observation_space, envs.single_action_space)
            for index, text in _answered(envs, policy, slots, count, temperature):
                yield {"problem": index, "temperature": temperature, "text": text}
            envs.close()


def _answered(envs: Any, policy: Any, episodes: int, count: int, temperature: str) -> Iterator[tuple[int, str]]:
    """Yield the number of each problem with a completion."""
    greedy = temperature == "greedy"
    policy.temperature = 1.0 if greedy else float(temperature)
    collector = Collector(envs, torch.device("cpu"))
    collector.seed(SEED)
    rollout = collector.collect(policy, episodes, torch.Generator().manual_seed(SEED), greedy)
    assert rollout is not None
    task = envs.unwrapped.task
    actions = [ids[:length] for ids, length in zip(rollout.actions.tolist(), rollout.lengths.tolist(), strict=True)]
    for place, text in enumerate(task.texts(actions)):
        yield int(task.stream[place // count].answer), text


def judged(answers: Sequence[Row]) -> list[Row]:
    """Return answers, each with whether the verifiers of its family pay for it: "paid", and "then" if they did not."""
    problems = read("problems")
    made: dict[str, Verifier] = {name: make_verifier(name) for names in FAMILIES.values() for name in names}
    rows = []
    for answer in answers:
        row = problems[answer["problem"]]
        paid = {name: pays(made[name], row, answer["text"]) for name in FAMILIES[row["family"]]}
        first = answer.get("paid", {}) | answer.get("then", {})
        then = {name: was for name, was in first.items() if was != paid[name]}
        rows.append({key: answer[key] for key in ("problem", "temperature", "text")} | {"paid": paid})
        rows[-1] |= {"then": then} if then else {}
    return rows


def pays(verifier: Verifier, row: Row, text: str) -> bool:
    """Tell whether a verifier pays for a text as an answer to a problem of problems.jsonl."""
    in_words = row["family"] == "words" and type(verifier).__name__ == "Math"
    reference = f"\\text{{{row['answer']}}}" if in_words else row["answer"]
    verdict = verifier.verify(Problem(row["prompt"], reference, row.get("metadata", {})), text)
    assert verdict.status == "ok", (row, verdict)
    return verifier.is_success(verdict)


def to_read(problems: Sequence[Row], answers: Sequence[Row]) -> list[int]:
    """Return the answers for a reader, drawn at random: of each family as many that are paid for as refused.

    Answers that are alike are read once. They come in an order that does not tell what the verifiers say.
    """
    first = {(row["problem"], row["text"]): index for index, row in reversed(list(enumerate(answers)))}
    chosen: list[int] = []
    for family, (main, *_) in FAMILIES.items():
        own = [index for index in sorted(first.values()) if problems[answers[index]["problem"]]["family"] == family]
        rng = random.Random(f"{SEED} {family}")
        rng.shuffle(own)
        halves = [[index for index in own if answers[index]["paid"][main] is paid] for paid in (True, False)]
        least = min(READ, *map(len, halves))
        taken = [index for half in halves for index in half[: 2 * READ - least if len(half) > least else least]]
        chosen += rng.sample(taken, len(taken))
    return chosen


class Count:
    """How often a verifier and the reader disagree.

    Attributes:
        right, wrong: answers, as the reader says.
        refused: right ones that the verifier refuses.
        paid: wrong ones that it pays for.
    """

    def __init__(self) -> None:
        self.right = self.wrong = self.refused = self.paid = 0

    def add(self, right: bool, paid: bool) -> None:
        """Count a verdict."""
        self.right += right
        self.wrong += not right
        self.refused += right and not paid
        self.paid += paid and not right


def counts(then: bool) -> dict[tuple[str, str], Count]:
    """Return the counts of each family and verifier, and of all families as "all".

    Args:
        then: take the verdicts from when the answers were read, before mistakes were mended.
    """
    problems, answers = read("problems"), read("answers")
    found: dict[tuple[str, str], Count] = {}
    for row in read("reader"):
        answer = answers[row["answer"]]
        family = problems[answer["problem"]]["family"]
        paid = answer["paid"] | (answer.get("then", {}) if then else {})
        for name in FAMILIES[family]:
            for key in ((family, name), ("all", name)):
                found.setdefault(key, Count()).add(row["right"], paid[name])
    return found


def table(of_families: bool) -> str:
    """Return the disagreements of each verifier, in each family or in all of them."""
    then, now = counts(then=True), counts(then=False)
    names = "| family | verifier " if of_families else "| verifier "
    lines = [f"{names}| right answers | refused | now | wrong answers | paid for | now |"]
    lines.append("|---" * lines[0].count(" | ") + "|---|")
    for family in FAMILIES if of_families else ("all",):
        for (own, name), one in then.items():
            if own == family:
                cells = [one.right, one.refused, now[own, name].refused, one.wrong, one.paid, now[own, name].paid]
                titles = [family, f"`{name}`"] if of_families else [f"`{name}`"]
                lines.append(f"| {' | '.join([*titles, *map(str, cells)])} |")
    return "\n".join(lines)


def pages() -> dict[Path, str]:
    """Return the pages with their tables."""
    made = {}
    for page, of_families in (("verifiers.md", False), ("verifiers-answers.md", True)):
        before, start, rest = (FOLDER / page).read_text(encoding="utf-8").partition("<!-- disagreements -->\n")
        _, end, after = rest.partition("<!-- end of disagreements -->")
        assert start and end, f"{page} has no place for the table"
        made[FOLDER / page] = f"{before}{start}{table(of_families)}\n{end}{after}"
    return made


if __name__ == "__main__":
    main(*sys.argv[1:])
