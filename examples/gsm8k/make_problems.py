"""Writes GSM8K as one file of problems: `python make_problems.py train.jsonl test.jsonl gsm8k.jsonl`.

The two files are those of https://github.com/openai/grade-school-math (grade_school_math/data, MIT licence). Of each
solution the calculator's marks `<<48/2=24>>` are removed, so that a model imitates the text and not the marks; it still
ends with `#### NUMBER`, which is the reference answer.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

PROMPT = "{question}\nReason step by step. Write the answer in the last line, after ####."


def rows(path: Path, split: str) -> list[dict[str, str]]:
    """Return the problems of a file of GSM8K, without the calculator's marks."""
    lines = path.read_text(encoding="utf-8").splitlines()
    problems = [json.loads(line) for line in lines if line.strip()]
    return [
        {
            "prompt": PROMPT.format(question=problem["question"].strip()),
            "answer": re.sub(r"<<[^<>]*>>", "", problem["answer"]).strip(),
            "split": split,
        }
        for problem in problems
    ]


def main() -> None:
    """Join the two files."""
    if len(sys.argv) != 4:
        raise SystemExit("python make_problems.py train.jsonl test.jsonl gsm8k.jsonl")
    train, test, out = map(Path, sys.argv[1:])
    problems = rows(train, "train") + rows(test, "test")
    out.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in problems), encoding="utf-8")
    print(f"{len(problems)} problems in {out}")


if __name__ == "__main__":
    main()
