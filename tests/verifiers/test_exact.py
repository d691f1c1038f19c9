import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from verifiers import Exact, Problem


@given(st.text(), st.text(), st.sampled_from(["{1}", " {0}\r\n\t", "{0}.", "{0}{0}", "{0}\x00", "\x1c{0}", "{0}{1}"]))
def test_two_texts_match_where_their_forms_do(answer, other, form):
    def plain(text):
        return unicodedata.normalize("NFC", text.strip(" \t\r\n"))

    completion = form.format(answer, other)
    verdict = Exact().verify(Problem("p", answer), completion)
    assert verdict.reward == float(bool(plain(answer)) and plain(answer) == plain(completion))


def test_a_demonstration_stands_in_the_section_that_is_judged():
    assert Exact(inside="answer").demonstration(Problem("p", "Lima")) == "<answer>Lima</answer>"
