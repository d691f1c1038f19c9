"""The agents of other libraries in docs/bring-your-agent.md learn through the endpoint, by the page's own commands.

`make test-neighbours` installs openai-agents 0.24.0 and verifiers 0.4.0, each in an environment of its own.
"""

import csv
from importlib import metadata
from pathlib import Path

import pytest
from inprocess import done
from pages import ROOT, blocks, commands

pytestmark = [pytest.mark.neighbours, pytest.mark.filterwarnings("ignore")]  # of the libraries


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("library", "version", "program"),
    [("openai-agents", "0.24.0", "openai_agent.py"), ("verifiers", "0.4.0", "reverse_text.py")],
)
def test_the_agent_of_the_page_learns(library, version, program, tmp_path, monkeypatch):
    if version not in [each.version for each in metadata.distributions(name=library)]:
        pytest.skip(f"needs {library} {version}")
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    page = blocks((ROOT / "docs" / "bring-your-agent.md").read_text(encoding="utf-8"))
    for block in page:
        if "file" in block.directives:
            Path(block.directives["file"]).write_text(block.text, encoding="utf-8")
        elif block.language == "python" and ".jsonl" in block.text:
            exec(block.text, scope)
    (words,) = [words for block in page for words in commands(block) if f"program:{program}:solve" in words]
    done(*words[1:])
    run = Path(words[words.index("--log-dir") + 1])
    with (run / "progress.csv").open() as lines:
        before, *_, after = [float(row["eval/mean_reward"]) for row in csv.DictReader(lines) if row["eval/mean_reward"]]
    assert after > before + 0.15, (before, after)
