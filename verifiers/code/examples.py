"""Examples of `code`: prompts, a right program for each, and tests."""

from __future__ import annotations

from typing import Any

# Prompt, program, tests.
EXAMPLES: list[tuple[str, str, dict[str, Any]]] = [
    (
        'def clamp(value, low, high):\n    """Return value, but at least low and at most high."""\n',
        "def clamp(value, low, high):\n    return max(low, min(value, high))\n",
        {"tests": ["assert clamp(-3, 0, 10) == 0", "assert clamp(3, low=0, high=1) == 1"]},
    ),
    (
        'def is_palindrome(text):\n    """Tell whether a text reads the same backwards, whatever the case."""\n',
        "def is_palindrome(text):\n    return text.lower() == text.lower()[::-1]\n",
        {"tests": ["assert is_palindrome('Level') is True", "assert is_palindrome('lever') is False"]},
    ),
    (
        'def divisors(n):\n    """Return the set of the positive divisors of a positive whole number."""\n',
        "def divisors(n):\n    return {d for d in range(1, n + 1) if n % d == 0}\n",
        {"tests": ["assert divisors(12) == {1, 2, 3, 4, 6, 12}", "assert divisors(1) == {1}"]},
    ),
    (
        "Write a program that reads whole numbers, one a line, and prints their sum.\n",
        "import sys\n\nprint(sum(int(line) for line in sys.stdin if line.strip()))\n",
        {"cases": [{"input": "1\n2\n3\n", "output": "6"}, {"input": "", "output": "0"}]},
    ),
    (
        'def runs(text):\n    """Return the runs of equal characters in a text as a list of (character, length)."""\n',
        "import itertools\n\n\ndef runs(text):\n"
            "    return [(sign, len(list(each))) for sign, each in itertools.groupby(text)]\n",
        {"tests": ["assert runs('aab') == [('a', 2), ('b', 1)]", "assert runs('') == []"]},
    ),
    (
        'def shifted(text, by):\n    """Return a text with its letters a to z moved on in the alphabet, z to a."""\n',
        'def shifted(text, by):\n    return "".join(\n'
            '        chr((ord(c) - 97 + by) % 26 + 97) if "a" <= c <= "z" else c for c in text\n    )\n',
        {"tests": ["assert shifted('xyz, A!', 3) == 'abc, A!'", "assert shifted('b', -27) == 'a'"]},
    ),
    (
        'def primes_below(n):\n    """Return the primes below n in order."""\n',
        "def primes_below(n):\n    return [p for p in range(2, n) if all(p % d for d in range(2, p))]\n",
        {"tests": ["assert primes_below(20) == [2, 3, 5, 7, 11, 13, 17, 19]", "assert primes_below(2) == []"]},
    ),
    (
        'def flat(items):\n    """Return what a list and the lists in it hold, at any depth, in one list."""\n',
        "def flat(items):\n    found = []\n    for item in items:\n"
            "        found += flat(item) if isinstance(item, list) else [item]\n    return found\n",
        {"tests": ["assert flat([1, [2, [3, []]], 4]) == [1, 2, 3, 4]", "assert flat(items=[]) == []"]},
    ),
    (
        "Write a program that reads lines and prints them in the opposite order.\n",
        'import sys\n\nfor line in reversed(sys.stdin.read().splitlines()):\n    print(line)\n',
        {"cases": [{"input": "one\ntwo\n three\n", "output": " three\ntwo\none\n"}]},
    ),
]  # fmt: skip
