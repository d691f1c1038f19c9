"""Ways to write a right program in a completion."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

WAYS_TO_WRITE: tuple[Callable[[str], str], ...] = (
    lambda program: f"Here it is:\n```python\n{program}```\n",
    lambda program: f"```py\n{program}```",
    lambda program: f"```Python\n{program}```\nIt takes linear time.",
    lambda program: f"``` python3\n{program}```\n",
    lambda program: f"So:\n\n```\n{program}```\n",
    lambda program: f"1. As asked:\n\n{textwrap.indent(f'```python{chr(10)}{program}```', '    ')}\n",
    lambda program: f"- {textwrap.indent(f'```py{chr(10)}{program}```', '  ').lstrip()}\n",
    lambda program: f"The program:\n```python\n{program}",
    lambda program: f"```\n{program}",
    lambda program: f"~~~python\n{program}~~~\n",
    lambda program: f'````python title="solution.py"\n{program}````\n',
    lambda program: f"```python\n{program}```\n".replace("\n", "\r\n"),
    lambda program: f"First:\n```python\nraise NotImplementedError\n```\nBetter:\n```python\n\n{program}\n```\n",
    lambda program: f"```python\n{program}```\nIt prints:\n```\n3\n```\nand in a shell:\n```bash\npython x.py\n```\n",
)
