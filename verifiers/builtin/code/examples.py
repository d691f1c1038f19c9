"""Examples of `code`: prompts, three right programs for each, and tests."""

from __future__ import annotations

from typing import Any

# Prompt, right programs (the first one is the reference), tests.
EXAMPLES: list[tuple[str, tuple[str, str, str], dict[str, Any]]] = [
    (
        'def clamp(value, low, high):\n    """Return value, but at least low and at most high."""\n',
        (
            "def clamp(value, low, high):\n    return max(low, min(value, high))\n",
            "def clamp(value, low, high):\n    return sorted((value, low, high))[1]\n",
            "clamp = lambda value, low, high: low if value < low else high if value > high else value\n",
        ),
        {
            "tests": [
                "assert clamp(5, 0, 10) == 5",
                "assert clamp(-3, 0, 10) == 0",
                "assert clamp(2.5, low=0, high=1) == 1",
            ]
        },
    ),
    (
        'def is_palindrome(text):\n    """Tell whether a text reads the same backwards, whatever the case."""\n',
        (
            "def is_palindrome(text):\n    return text.lower() == text.lower()[::-1]\n",
            "def is_palindrome(text):\n    low = text.lower()\n"
            "    return all(low[i] == low[-1 - i] for i in range(len(low) // 2))\n",
            "from collections import deque\n\n\ndef is_palindrome(text: str) -> bool:\n"
            "    left = deque(text.casefold())\n"
            "    while len(left) > 1:\n        if left.popleft() != left.pop():\n            return False\n"
            "    return True\n",
        ),
        {
            "tests": [
                "assert is_palindrome('Level') is True",
                "assert is_palindrome('lever') is False",
                "assert is_palindrome('') is True",
            ]
        },
    ),
    (
        'def count_words(text):\n    """Return a dict with the number of times each word of a text occurs."""\n',
        (
            "from collections import Counter\n\n\ndef count_words(text):\n    return dict(Counter(text.split()))\n",
            "def count_words(text):\n    words = text.split()\n"
            "    return {word: words.count(word) for word in words}\n",
            "def count_words(text):\n    counts = {}\n    for word in text.split():\n"
            "        counts[word] = counts.get(word, 0) + 1\n    return counts\n",
        ),
        {
            "tests": [
                "assert count_words('a b a') == {'a': 2, 'b': 1}",
                "assert count_words('') == {}",
                "assert count_words('one  two\\none') == {'two': 1, 'one': 2}",
            ]
        },
    ),
    (
        'def divisors(n):\n    """Return the set of the positive divisors of a positive whole number."""\n',
        (
            "def divisors(n):\n    return {d for d in range(1, n + 1) if n % d == 0}\n",
            "import math\n\n\ndef divisors(n):\n    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]\n"
            "    return {*small, *(n // d for d in small)}\n",
            "def divisors(n):\n    return set(filter(lambda d: not n % d, range(1, n + 1)))\n",
        ),
        {
            "tests": [
                "assert divisors(12) == {1, 2, 3, 4, 6, 12}",
                "assert divisors(1) == {1}",
                "assert divisors(7) == {1, 7}",
            ]
        },
    ),
    (
        "Write a program that reads whole numbers, one a line, and prints their sum.\n",
        (
            "import sys\n\nprint(sum(int(line) for line in sys.stdin if line.strip()))\n",
            "total = 0\nwhile True:\n    try:\n        total += int(input())\n    except EOFError:\n        break\n"
            "print(total)\n",
            "def main():\n    with open(0) as lines:\n        print(sum(map(int, lines.read().split())))\n\n\n"
            'if __name__ == "__main__":\n    main()\n',
        ),
        {
            "cases": [
                {"input": "1\n2\n3\n", "output": "6"},
                {"input": "-5\n", "output": "-5"},
                {"input": "", "output": "0"},
            ]
        },
    ),
    (
        'def runs(text):\n    """Return the runs of equal characters in a text as a list of (character, length)."""\n',
        (
            "import itertools\n\n\ndef runs(text):\n"
            "    return [(sign, len(list(each))) for sign, each in itertools.groupby(text)]\n",
            "def runs(text):\n    found = []\n    for sign in text:\n        if found and found[-1][0] == sign:\n"
            "            found[-1] = sign, found[-1][1] + 1\n        else:\n            found.append((sign, 1))\n"
            "    return found\n",
            "import re\n\n\ndef runs(text):\n"
            '    return [(m[1], len(m[0])) for m in re.finditer(r"(?s)(.)\\1*", text)]\n',
        ),
        {"tests": ["assert runs('aab') == [('a', 2), ('b', 1)]", "assert runs('') == []"]},
    ),
    (
        'def transposed(rows):\n    """Return the columns of a table, a list of lists of one length, as lists."""\n',
        (
            "def transposed(rows):\n    return [list(column) for column in zip(*rows)]\n",
            "def transposed(rows):\n    return list(map(list, zip(*rows, strict=True)))\n",
            "def transposed(rows):\n    if not rows:\n        return []\n"
            "    return [[row[i] for row in rows] for i in range(len(rows[0]))]\n",
        ),
        {"tests": ["assert transposed([[1, 2], [3, 4]]) == [[1, 3], [2, 4]]", "assert transposed([]) == []"]},
    ),
    (
        'def shifted(text, by):\n    """Return a text with its letters a to z moved on in the alphabet, z to a."""\n',
        (
            'def shifted(text, by):\n    return "".join(\n'
            '        chr((ord(c) - 97 + by) % 26 + 97) if "a" <= c <= "z" else c for c in text\n    )\n',
            "from string import ascii_lowercase as abc\n\n\ndef shifted(text, by):\n    by %= 26\n"
            "    return text.translate(str.maketrans(abc, abc[by:] + abc[:by]))\n",
            'def shifted(text, by):\n    """Return a moved text.\n\n    ```\n    shifted("abc", 1)\n    ```\n    """\n'
            '    abc = "abcdefghijklmnopqrstuvwxyz"\n    out = ""\n    for c in text:\n'
            "        out += abc[(abc.index(c) + by) % 26] if c in abc else c\n    return out\n",
        ),
        {"tests": ["assert shifted('xyz, A!', 3) == 'abc, A!'", "assert shifted('b', -27) == 'a'"]},
    ),
    (
        'def primes_below(n):\n    """Return the primes below n in order."""\n',
        (
            "def primes_below(n):\n    return [p for p in range(2, n) if all(p % d for d in range(2, p))]\n",
            "def primes_below(n):\n    sieve = [True] * n\n    for p in range(2, n):\n        if sieve[p]:\n"
            "            sieve[p * p :: p] = [False] * len(sieve[p * p :: p])\n"
            "    return [p for p in range(2, n) if sieve[p]]\n",
            "def primes_below(n):\n    found = []\n    for p in range(2, n):\n"
            "        for q in found:\n            if p % q == 0:\n                break\n"
            "        else:\n            found.append(p)\n    return found\n",
        ),
        {"tests": ["assert primes_below(20) == [2, 3, 5, 7, 11, 13, 17, 19]", "assert primes_below(2) == []"]},
    ),
    (
        'def flat(items):\n    """Return what a list and the lists in it hold, at any depth, in one list."""\n',
        (
            "def flat(items):\n    found = []\n    for item in items:\n"
            "        found += flat(item) if isinstance(item, list) else [item]\n    return found\n",
            "def _walk(items):\n    for item in items:\n        if isinstance(item, list):\n"
            "            yield from _walk(item)\n        else:\n            yield item\n\n\n"
            "def flat(items):\n    return list(_walk(items))\n",
            "def flat(items):\n    stack, found = list(items), []\n    while stack:\n        item = stack.pop()\n"
            "        if isinstance(item, list):\n            stack.extend(item)\n        else:\n"
            "            found.append(item)\n    return found[::-1]\n",
        ),
        {"tests": ["assert flat([1, [2, [3, []]], 4]) == [1, 2, 3, 4]", "assert flat(items=[]) == []"]},
    ),
    (
        "Write a program that reads lines and prints them in the opposite order.\n",
        (
            'import sys\n\nfor line in reversed(sys.stdin.read().splitlines()):\n    print(line)\n',
            'import sys\n\nlines = [line.rstrip("\\n") for line in sys.stdin]\nprint("\\n".join(lines[::-1]))\n',
            "lines = []\ntry:\n    while True:\n        lines.append(input())\nexcept EOFError:\n    pass\n"
            "while lines:\n    print(lines.pop())\n",
        ),
        {"cases": [{"input": "one\ntwo\n three\n", "output": " three\ntwo\none\n"}]},
    ),
    (
        'def mean_and_spread(numbers):\n    """Return the mean of numbers, and the largest less the smallest."""\n',
        (
            "def mean_and_spread(numbers):\n"
            "    return sum(numbers) / len(numbers), max(numbers) - min(numbers)\n",
            "from statistics import fmean\n\n\ndef mean_and_spread(numbers):\n    ordered = sorted(numbers)\n"
            "    return (fmean(ordered), ordered[-1] - ordered[0])\n",
            "def mean_and_spread(numbers):\n    total, low, high = 0, numbers[0], numbers[0]\n    for n in numbers:\n"
            "        total, low, high = total + n, min(low, n), max(high, n)\n"
            "    return total / len(numbers), high - low\n",
        ),
        {"tests": ["assert mean_and_spread([1, 2, 6]) == (3, 5)", "assert mean_and_spread([0.5]) == (0.5, 0)"]},
    ),
]  # fmt: skip
