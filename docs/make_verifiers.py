"""Lint the verifiers and write the tables of docs/verifiers.md and docs/verifiers-lint.md.

python docs/make_verifiers.py [NAME ...] lints all verifiers, or those of these names.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from verifiers import Verifier, list_verifiers, make_verifier
from verifiers.lint.attacks import FAMILIES
from verifiers.lint.report import lint
from verifiers.lint.rules import RULES
from verifiers.plugins.registry import find_verifier, verifier_origin

FOLDER = Path(__file__).resolve().parent
RESULTS = FOLDER / "verifiers.json"
WITH_ARGUMENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "environment": ("environment:my_env.py:Environment", {}),
    "gem": ("gem:game:GuessTheNumber-v0-easy", {}),
    "gym": ("gym:my_module:MyEnv-v0", {}),
    "reasoning_gym": ("reasoning_gym:leg_counting", {}),
    "textarena": ("textarena:GuessTheNumber-v0", {}),
    "weighted": ("weighted (countdown, length)", {"parts": {"countdown": 1, "length": {"weight": 0.1, "maximum": 12}}}),
}
COUNTED = ("problems", "attacks", "false_accepts", "declared", "honest", "false_rejects", "passed")
OF_OTHERS = {  # what verifiers that rest on a model, a server, a game or other verifiers do not catch
    "environment": "what the environment does not catch",
    "gem": "what the environment does not catch",
    "gym": "what the environment does not catch",
    "openenv": "what the environment does not catch",
    "reward_model": "what its model overlooks",
    "textarena": "what the game does not catch",
    "weighted": "what its verifiers do not catch",
}

WORLDS = ("environment", "gem", "gym", "textarena")  # which judge by the rewards of somebody else's environment


def main(names: list[str]) -> None:
    """Lint the verifiers of these names, or all of ours, and write the pages from all counts that are kept."""
    kept = {name: result for name, result in results().items() if name in linted()}
    for name in names or linted():
        kept[name] = counts(name)
        print(f"{name}: {kept[name]}", flush=True)
    text = json.dumps(dict(sorted(kept.items())), indent=1)
    RESULTS.write_text(text + "\n", encoding="utf-8", newline="\n")
    for path, written in pages().items():
        path.write_text(written, encoding="utf-8", newline="\n")


def ours() -> list[str]:
    """Return the names of the verifiers of this package."""
    return [name for name in list_verifiers() if verifier_origin(name) == "rlenv"]


def linted() -> list[str]:
    """Return what is linted: every verifier by its name, with the arguments that it cannot do without."""
    return [WITH_ARGUMENTS[name][0] if name in WITH_ARGUMENTS else name for name in ours()]


def make(name: str) -> Verifier:
    """Return a verifier of `linted`."""
    kwargs = next((kwargs for shown, kwargs in WITH_ARGUMENTS.values() if shown == name), {})
    return make_verifier(name.partition(" ")[0], **kwargs)


def results() -> dict[str, dict[str, Any]]:
    """Return the counts that were kept."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}


def counts(name: str) -> dict[str, Any]:
    """Return what lint counts for a verifier, or why it cannot be made here."""
    if name.partition(":")[0] in WORLDS:
        return {"skipped": "its rewards are those of another library's environment"}
    try:
        report = lint(make(name), name=name)
    except ValueError as error:
        return {"skipped": str(error)}
    return {key: getattr(report, key) for key in COUNTED}


def verifiers_table() -> str:
    """Return the verifiers: where problems come from, the extra that each needs, and what each says not to catch."""
    lines = ["| verifier | what it is | problems | extra | does not catch |", "|---|---|---|---|---|"]
    for name in ours():
        found = find_verifier(name)
        summary = _cell((found.__doc__ or "").splitlines()[0])
        extras = ", ".join(f"`{extra}`" for extra in dict.fromkeys(found.needs.values()))
        lines.append(
            f"| `{name}` | {summary} | {_problems(found)} | {extras} | {_cell(OF_OTHERS.get(name) or _holes(found))} |"
        )
    return "\n".join(lines)


def _problems(found: type[Verifier]) -> str:
    if "makes_problems" in vars(found):
        return "of the verifiers in its arguments, or `--problems`"
    return "its own" if found.sample is not Verifier.sample else "`--problems`"


def _holes(found: type[Verifier]) -> str:
    """Return what a verifier does not catch: up to three families by name, more by their number."""
    by_reason: dict[str, list[str]] = {}
    for family, reason in found.does_not_catch.items():
        by_reason.setdefault(reason, []).append(family)
    holes = {
        reason: ", ".join(families) if len(families) <= 3 else f"{len(families)} kinds of attack"
        for reason, families in by_reason.items()
    }
    return "; ".join(f"{families}: {reason}" for reason, families in holes.items()) or "nothing known"


def lint_table() -> str:
    """Return what lint counted."""
    lines = [
        "| verifier | attacks | paid for | of these declared | right answers | rejected |",
        "|---|---|---|---|---|---|",
    ]
    totals = [0] * 5
    for name, result in results().items():
        if "skipped" in result:
            lines.append(f"| `{name}` | not linted: {_cell(result['skipped'])} | | | | |")
            continue
        declared = sum(result["declared"].values())
        row = [result["attacks"], result["false_accepts"], declared, result["honest"], result["false_rejects"]]
        totals = [total + count for total, count in zip(totals, row, strict=True)]
        lines.append(f"| `{name}` | {' | '.join(f'{count:,}' for count in row)} |")
    return "\n".join([*lines, f"| all | {' | '.join(f'{count:,}' for count in totals)} |"])


def rules_table() -> str:
    """Return the rules."""
    return "\n".join(
        ["| rule | what it checks |", "|---|---|", *(f"| {name} | {_cell(rule)} |" for name, rule in RULES.items())]
    )


def attacks_table() -> str:
    """Return the families of attacks."""
    rows = (f"| {name} | {_cell(texts)} |" for name, texts in FAMILIES.items())
    return "\n".join(["| family | its texts |", "|---|---|", *rows])


TABLES = {
    "verifiers.md": {"verifiers": verifiers_table},
    "verifiers-lint.md": {"rules": rules_table, "attacks": attacks_table, "counts": lint_table},
}


def pages() -> dict[Path, str]:
    """Return the pages with their tables as they are now."""
    made = {}
    for page, tables in TABLES.items():
        text = (FOLDER / page).read_text(encoding="utf-8")
        for name, table in tables.items():
            before, start, rest = text.partition(f"<!-- {name} -->\n")
            _, end, after = rest.partition(f"<!-- end of {name} -->")
            assert start and end, f"{page} has no place for the table of {name}"
            text = f"{before}{start}{table()}\n{end}{after}"
        made[FOLDER / page] = text
    return made


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "∣")


if __name__ == "__main__":
    main(sys.argv[1:])
