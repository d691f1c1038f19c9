"""Products that a small model cannot compute: `python examples/real_model/products.py > products.jsonl`.

Each problem shows how a call of the tool `calculator` is written, as models of the Hermes and Qwen families write it.
"""

import json
import random


def problems(count: int = 400, seed: int = 0) -> list[dict[str, object]]:
    """Return products of three by two digits, with the turns that a warm start imitates."""
    rng, made = random.Random(seed), []
    for _ in range(count):
        a, b = rng.randint(100, 999), rng.randint(11, 99)
        question = {"role": "user", "content": f"What is {a} * {b}? Answer with a number."}
        call = json.dumps({"name": "calc", "arguments": {"expression": f"{a} * {b}"}})
        turns = [f"<tool_call>{call}</tool_call>", str(a * b)]
        made.append({"prompt": [question], "answer": str(a * b), "turns": turns})
    return made


if __name__ == "__main__":
    for problem in problems():
        print(json.dumps(problem))
