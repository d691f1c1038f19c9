import json
from decimal import Decimal

import pytest
from drawn import drawn
from hypothesis import given
from hypothesis import strategies as st

from verifiers import Isolated, JsonSchema, Problem, isolate, make_verifier
from verifiers.builtin.json_schema import DEEPEST, MOST_DIGITS, read_json

BOOK = {
    "type": "object",
    "properties": {"title": {"type": "string", "minLength": 1}, "year": {"type": "integer"}},
    "required": ["title", "year"],
    "additionalProperties": False,
}
EMMA = '{"title": "Emma", "year": 1815}'
PROBLEM = Problem("A book?", EMMA)


COMPLETIONS = {
    f"\n {EMMA}\r\n": 1.0,
    f"~~~ JSON\r\n{EMMA}\r\n~~~": 1.0,
    f"1. So:\n   ```json\n{EMMA}": 1.0,
    '{"year":1815.0,"title":"Émma \\ud83d\\ude00 [{"}': 1.0,
    f"{EMMA}\n```": 0.0,
    f"{EMMA} {EMMA}": 0.0,
    "": 0.0,
    '{"title": "Emma"}': 0.0,
    '{"title": "Emma", "year": 1815,}': 0.0,
    '{"title": "Emma", "year": ١٨١٥}': 0.0,
    f"\ufeff{EMMA}": 0.0,
    EMMA + " " * 100_000: 0.0,
    '{"a":' * 1_500 + "1" + "}" * 1_500: 0.0,
}


@pytest.mark.parametrize("completion", COMPLETIONS)
def test_the_first_block_else_the_whole_text_is_the_document(completion):
    assert JsonSchema(BOOK).verify(PROBLEM, completion).reward == COMPLETIONS[completion]


def test_equal_documents_vote_together():
    verifier = JsonSchema(BOOK)
    one, other = (verifier.extract(PROBLEM, text) for text in (EMMA, '```\n{"year": 1815, "title": "Emma"}\n```'))
    assert one == other
    assert verifier.extract(PROBLEM, "I do not know.") is None


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        (
            {"multipleOf": 0.01},
            ["19.99", "4.35", "0.07", "1234.56", "1e-2", "0", "5"],
            ["19.999", "1e-3", "0.070000001"],
        ),
        ({"exclusiveMinimum": 0.1}, ["0.10000000000000000001"], ["0.1", "1e-1"]),
        ({"const": 0.1}, ["0.1", "1e-1", "0.100"], ["0.10000000000000000001"]),
        ({"enum": [1, 2.5]}, ["1.0", "2.50"], ["true", "2.5000000000000000001"]),
        ({"type": "integer"}, ["3.0", "1e3", "9007199254740993"], ["1.00000000000000000001", "3.5"]),
        ({"uniqueItems": True}, ["[0.1, 0.10000000000000000001]", "[1, 2.0]"], ["[1, 1.0]", "[0.1, 0.10]"]),
    ],
)
def test_numbers_are_compared_exactly(schema, right, wrong):
    verifier = JsonSchema(schema)
    assert [text for text in right if not verifier.verify(PROBLEM, text).reward] == []
    assert [text for text in wrong if verifier.verify(PROBLEM, text).reward] == []


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(st.text(), parts, max_size=4),
    max_leaves=20,
)


@drawn(40)
@given(JSON, st.sampled_from([None, 2]))
def test_every_document_is_read_as_it_was_written(value, indent):
    text = json.dumps(value, indent=indent)
    assert read_json(text) == json.loads(text, parse_float=Decimal)


def test_the_problem_s_own_schema_goes_first():
    problem = Problem("p", "", {"schema": {"type": "integer"}})
    assert JsonSchema(BOOK).verify(problem, "3").reward == 1.0
    assert JsonSchema(BOOK).verify(problem, EMMA).reward == 0.0
    assert JsonSchema().verify(problem, "3").reward == 1.0


def test_a_schema_may_stand_in_a_file(tmp_path):
    path = tmp_path / "book.json"
    path.write_text(json.dumps(BOOK))
    assert JsonSchema(str(path)).verify(PROBLEM, EMMA).reward == 1.0
    assert make_verifier(f"json_schema:{path}").verify(PROBLEM, "{}").reward == 0.0


DRAFTS = ["http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2019-09/schema"]


@pytest.mark.parametrize("draft", DRAFTS)
def test_older_drafts_are_known(draft):
    key = "definitions" if "07" in draft else "$defs"
    schema = {"$schema": draft, "$ref": f"#/{key}/n", key: {"n": {"type": "integer"}}}
    assert JsonSchema(schema).verify(PROBLEM, "3").reward == 1.0
    assert JsonSchema(schema).verify(PROBLEM, '"3"').reward == 0.0


def test_a_schema_may_refer_to_its_own_parts():
    schema = {"type": "array", "items": {"$ref": "#"}, "maxItems": 2}
    assert JsonSchema(schema).verify(PROBLEM, "[[], [[]]]").reward == 1.0
    assert JsonSchema(schema).verify(PROBLEM, "[[], [3]]").reward == 0.0
    assert JsonSchema(schema).verify(PROBLEM, "[" * DEEPEST + "]" * DEEPEST).reward == 1.0


def test_a_schema_without_end_is_an_error_not_a_crash():
    verdict = JsonSchema({"properties": {"a": {"$ref": "#/properties/a"}}}).verify(PROBLEM, '{"a": 1}')
    assert (verdict.reward, verdict.status) == (0.0, "error")
    assert "refers to itself without end" in verdict.reason


def test_a_schema_that_takes_for_ever_ends_at_the_deadline():
    schema, completion = {"pattern": "^(a+)+$"}, json.dumps("a" * 60 + "b")
    by_default = isolate(JsonSchema(schema))
    assert isinstance(by_default, Isolated)  # or the next line would not come back
    verifier = Isolated(JsonSchema(schema), workers=1, timeout=0.3)
    verdict = verifier.verify(Problem("p"), completion)
    verifier.close()
    assert (verdict.reward, verdict.status, verdict.reason) == (0.0, "timeout", "no answer within 0.3 s")


FORMATS = {
    "date": (["2024-02-29"], ["2023-02-29", "24-02-29", "", "2024-02-29\n"]),
    "email": (["jane@example.com"], ["jane"]),
    "ipv4": (["192.0.2.1", "0.0.0.0"], ["256.0.0.1", "1.2.3", "1.2.3.4/8"]),
    "regex": (["("], []),
}


@pytest.mark.parametrize("name", FORMATS)
def test_formats_are_checked(name):
    verifier = JsonSchema({"format": name})
    right, wrong = FORMATS[name]
    assert [text for text in right if not verifier.verify(PROBLEM, json.dumps(text)).reward] == []
    assert [text for text in wrong if verifier.verify(PROBLEM, json.dumps(text)).reward] == []
    assert [verifier.verify(PROBLEM, text).reward for text in ("3", "null", "[]")] == [1.0] * 3  # formats are of text


@pytest.mark.parametrize("number", ["1e308", "-1e308", "1e-320", "9" * MOST_DIGITS, "0", "-0.0"])
@pytest.mark.parametrize("schema", [{"multipleOf": 0.01}, {"multipleOf": 3}, {"multipleOf": 1e-300}, {"maximum": 1.5}])
def test_extreme_numbers_have_a_verdict(number, schema):
    assert JsonSchema(schema).verify(PROBLEM, number).status == "ok"
