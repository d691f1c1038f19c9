"""The tables of docs/models.md are those that its command writes where everything holds that the tests assert."""

from pathlib import Path

from architectures import ARCHITECTURES, CHECKS, run_checks
from loaded import loaded

ROOT = Path(__file__).parents[2]


def test_the_page_of_the_models_is_what_its_command_writes():
    command = loaded("docs/make_models.py")
    held = dict.fromkeys(CHECKS, True)  # tests/agents/test_architectures.py asserts it
    results = {each.name: held if each.refused is None else run_checks(each) for each in ARCHITECTURES}
    text = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    assert text == command.page(results), "run python docs/make_models.py"
    assert text.count("| yes |") >= 16 and "| NO |" not in text
