"""Twenty rows for each task of `rlenv.tasks`, written here with the columns and types of its data set, by split."""

SPLITS = dict.fromkeys(("gsm8k", "math", "mbpp"), ("train", "test"))
SPLITS |= dict.fromkeys(("dapo-math", "aime", "countdown", "ifeval"), ("train",))
SPLITS |= dict.fromkeys(("math500", "aime25", "humaneval"), ("test",))


def row_of(name, n):
    """Return a row of a task."""
    bought, half = 4 * (n + 2), f"\\frac{{{2 * n + 1}}}{{2}}"
    steps = f"There are {n + 2} * 4 = <<{n + 2}*4={bought}>>{bought} nuts.\n{bought} - 3 = <<{bought}-3={bought - 3}>>"
    remainder, left = f"Find the remainder of ${7 * n}$ divided by 5.", str(7 * n % 5)
    math = {"problem": f"Solve $2x = {2 * n + 1}$.", "solution": f"Half of each side is $x = \\boxed{{{half}}}$."}
    every = dict.fromkeys(("num_words", "relation", "keywords", "num_bullets"))  # each row names all arguments
    return {
        "gsm8k": {
            "question": f"Ann has {n + 2} bags of 4 nuts and eats 3 nuts. How many nuts are left?",
            "answer": f"{steps}{bought - 3} are left.\n#### {bought - 3}",
        },
        "math": math | {"level": "Level ?" if n == 3 else f"Level {1 + n % 5}", "type": "Algebra"},  # as two rows of it
        "math500": math
        | {"answer": half, "subject": "Algebra", "level": 1 + n % 5, "unique_id": f"test/algebra/{n}.json"},
        "dapo-math": {
            "prompt": remainder,
            "solution": left,
            "data_source": "math_dapo",
            "source_prompt": [{"content": f"Solve step by step.\n\n{remainder}", "role": "user"}],
            "ability": "MATH",
            "reward_model": {"ground_truth": left, "style": "rule-lighteval/MATH_v2"},
            "extra_info": {"index": f"row-{n}"},
        },
        "aime": {"ID": f"1900-I-{n}", "Problem": f"Evaluate ${n}^2$.", "Solution": f"It is {n * n}.", "Answer": n * n},
        "aime25": {"problem": f"Evaluate ${n}^2 + 1$.", "answer": str(n * n + 1), "id": str(n)},
        "countdown": {"target": 3 * n + 21, "nums": [n + 3, n + 7, n + 11]},
        "ifeval": {
            "key": 1000 + n,
            "prompt": f"Describe the number {n} in at least {n % 3 + 1} words, without commas.",
            "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words"],
            "kwargs": [every, every | {"num_words": n % 3 + 1, "relation": "at least"}],
        },
        "mbpp": {
            "task_id": n,
            "text": f"Write a function add that adds {n} to a number.",
            "code": f"def add(x):\r\n  return x + {n}",
            "test_list": [f"assert add({each}) == {each + n}" for each in (1, 5, -2)],
            "test_setup_code": "",
            "challenge_test_list": [],
        },
        "humaneval": {
            "task_id": f"HumanEval/{n}",
            "prompt": f'def add{n}(x):\n    """Return x + {n}."""\n',
            "canonical_solution": f"    return x + {n}\n",
            "test": f"METADATA = {{}}\n\n\ndef check(candidate):\n    assert candidate(1) == {n + 1}\n",
            "entry_point": f"add{n}",
        },
    }[name]


def rows_of(name):
    """Return the rows of a task, by split; the last five are its test split, if it has several."""
    splits, rows = SPLITS[name], [row_of(name, n) for n in range(20)]
    return {splits[0]: rows} if len(splits) == 1 else {"train": rows[:15], "test": rows[15:]}
