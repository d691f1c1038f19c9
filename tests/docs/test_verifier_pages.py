"""The tables of the pages about verifiers are those of the code."""

from loaded import loaded


def test_the_tables_are_those_of_the_code():
    for path, text in loaded("docs/make_verifiers.py").pages().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run python docs/make_verifiers.py"
