"""Twenty rows for each task of `rlenv.tasks`, written here with the columns and types of its data set, by split."""


def _gsm8k(n):
    question = f"Ann has {n + 2} bags of 4 nuts and eats 3 nuts. How many nuts are left?"
    bought, left = 4 * (n + 2), 4 * (n + 2) - 3
    steps = f"There are {n + 2} * 4 = <<{n + 2}*4={bought}>>{bought} nuts.\n{bought} - 3 = <<{bought}-3={left}>>{left}"
    return {"question": question, "answer": f"{steps} are left.\n#### {left}"}


def _math(n):
    level = "Level ?" if n == 3 else f"Level {1 + n % 5}"  # as two rows of the data set
    solution = f"Half of each side is $x = \\boxed{{\\frac{{{2 * n + 1}}}{{2}}}}$."
    return {"problem": f"Solve $2x = {2 * n + 1}$.", "level": level, "type": "Algebra", "solution": solution}


def _math500(n):
    row = _math(n)
    names = {"subject": row["type"], "level": 1 + n % 5, "unique_id": f"test/algebra/{n}.json"}
    return {"problem": row["problem"], "solution": row["solution"], "answer": f"\\frac{{{2 * n + 1}}}{{2}}", **names}


def _dapo(n):
    prompt, answer = f"Find the remainder of ${7 * n}$ divided by 5.", str(7 * n % 5)
    return {
        "prompt": prompt,
        "solution": answer,
        "data_source": "math_dapo",
        "source_prompt": [{"content": f"Solve step by step.\n\n{prompt}", "role": "user"}],
        "ability": "MATH",
        "reward_model": {"ground_truth": answer, "style": "rule-lighteval/MATH_v2"},
        "extra_info": {"index": f"row-{n}"},
    }


def _aime(n):
    return {"ID": f"1900-I-{n}", "Problem": f"Evaluate ${n}^2$.", "Solution": f"It is {n * n}.", "Answer": n * n}


def _aime25(n):
    return {"problem": f"Evaluate ${n}^2 + 1$.", "answer": str(n * n + 1), "id": str(n)}


def _countdown(n):
    return {"target": 3 * n + 21, "nums": [n + 3, n + 7, n + 11]}


def _ifeval(n):
    prompt = f"Describe the number {n} in at least {n % 3 + 1} words, without commas."
    every = dict.fromkeys(("num_words", "relation", "keywords", "num_bullets"))  # each row names all arguments
    asked = [every, every | {"num_words": n % 3 + 1, "relation": "at least"}]
    names = ["punctuation:no_comma", "length_constraints:number_words"]
    return {"key": 1000 + n, "prompt": prompt, "instruction_id_list": names, "kwargs": asked}


def _mbpp(n):
    return {
        "task_id": n,
        "text": f"Write a function add that adds {n} to a number.",
        "code": f"def add(x):\r\n  return x + {n}",
        "test_list": [f"assert add({each}) == {each + n}" for each in (1, 5, -2)],
        "test_setup_code": "",
        "challenge_test_list": [],
    }


def _humaneval(n):
    return {
        "task_id": f"HumanEval/{n}",
        "prompt": f'def add{n}(x):\n    """Return x + {n}."""\n',
        "canonical_solution": f"    return x + {n}\n",
        "test": f"METADATA = {{}}\n\n\ndef check(candidate):\n    assert candidate(1) == {n + 1}\n",
        "entry_point": f"add{n}",
    }


_MAKERS = {
    "gsm8k": (_gsm8k, ("train", "test")),
    "math": (_math, ("train", "test")),
    "math500": (_math500, ("test",)),
    "dapo-math": (_dapo, ("train",)),
    "aime": (_aime, ("train",)),
    "aime25": (_aime25, ("test",)),
    "countdown": (_countdown, ("train",)),
    "ifeval": (_ifeval, ("train",)),
    "mbpp": (_mbpp, ("train", "test")),
    "humaneval": (_humaneval, ("test",)),
}


def rows_of(name):
    """Return the rows of a task, by split; the last five are its test split, if it has several."""
    make, splits = _MAKERS[name]
    rows = [make(n) for n in range(20)]
    return {splits[0]: rows} if len(splits) == 1 else {"train": rows[:15], "test": rows[15:]}
