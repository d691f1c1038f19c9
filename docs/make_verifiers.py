"""Write docs/appendix/verifiers.md and lint.md: python docs/make_verifiers.py."""

from __future__ import annotations

from pathlib import Path

from rlenv.verifiers import Verifier, list_verifiers
from rlenv.verifiers.dialogues.tools import WithTools
from rlenv.verifiers.lint.attacks import ATTACKS
from rlenv.verifiers.lint.report import RULES
from rlenv.verifiers.plugins.registry import find_verifier, verifier_origin

FOLDER = Path(__file__).resolve().parent
OF_OTHERS = {  # what verifiers that rest on tests, a form, a model, a server, a game or other verifiers do not catch
    "code": "a program that knows the tests",
    "code-feedback": "a program that knows the tests",
    "environment": "what the environment does not catch",
    "gem": "what the environment does not catch",
    "gym": "what the environment does not catch",
    "ifeval": "what a completion says beside its instructions",
    "json_schema": "whatever the schema lets through",
    "openenv": "what the environment does not catch",
    "regex": "whatever the pattern lets through",
    "reward_model": "what its model overlooks",
    "textarena": "what the game does not catch",
    "weighted": "what its verifiers do not catch",
}


def ours() -> list[str]:
    """Return the names of the verifiers of this package."""
    return [name for name in list_verifiers() if verifier_origin(name) == "rlenv"]


def verifiers_table() -> str:
    """Return the verifiers: where problems come from, the extra that each needs, and what each says not to catch."""
    lines = ["| verifier | what it is | problems | extra | does not catch |", "|---|---|---|---|---|"]
    for name in ours():
        found = find_verifier(name)
        summary = _cell((found.__doc__ or "").splitlines()[0])
        extras = ", ".join(f"`{extra}`" for extra in dict.fromkeys(found.execution.needs.values()))
        lines.append(
            f"| `{name}` | {summary} | {_problems(found)} | {extras} | {_cell(OF_OTHERS.get(name) or _holes(found))} |"
        )
    return "\n".join(lines)


def _problems(found: type[Verifier]) -> str:
    if found.__name__ in ("RewardModel", "Weighted"):
        return "of the verifiers in its arguments, or `--problems`"
    makes = found.sample is not Verifier.sample or found.sample_at is not Verifier.sample_at
    return "its own" if makes or issubclass(found, WithTools) else "`--problems`"


def _holes(found: type[Verifier]) -> str:
    """Return the attacks that a verifier does not catch: up to three families by name, more by their number."""
    by_reason: dict[str, list[str]] = {}
    for family, reason in found.does_not_catch.items():
        by_reason.setdefault(reason, []).append(family)
    holes = {
        reason: ", ".join(families) if len(families) <= 3 else f"{len(families)} kinds of attack"
        for reason, families in by_reason.items()
    }
    return "; ".join(f"{families}: {reason}" for reason, families in holes.items()) or "nothing known"


def rules_table() -> str:
    """Return the rules."""
    return "\n".join(
        ["| rule | what it checks |", "|---|---|", *(f"| {name} | {_cell(rule)} |" for name, rule in RULES.items())]
    )


def attacks_table() -> str:
    """Return the attacks."""
    rows = (f"| {name} | {_cell(texts)} |" for name, texts in ATTACKS.items())
    return "\n".join(["| attack | its texts |", "|---|---|", *rows])


TABLES = {
    "appendix/verifiers.md": {"verifiers": verifiers_table},
    "appendix/lint.md": {"rules": rules_table, "attacks": attacks_table},
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
    for path, written in pages().items():
        path.write_text(written, encoding="utf-8", newline="\n")
