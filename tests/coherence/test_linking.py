"""Which proposition a question is about, and when that is left open."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from analysis.coherence.claims.linking import MIN_SCORE, Texts, words

CUP = {
    "a": "Ajax wins the 2030 cup",
    "b": "Benfica wins the 2030 cup",
    "c": "a club other than Ajax or Benfica wins the 2030 cup",
}
RAIN = {
    "low": "rainfall in May is below 40 mm",
    "mid": "rainfall in May is between 40 and 60 mm",
    "high": "rainfall in May is above 60 mm",
}


def meant(question: str, texts: dict[str, str]) -> str | None:
    link = Texts(texts).meant(question)
    return link.proposition if link.reason is None else None


def reason(question: str, texts: dict[str, str]) -> str | None:
    return Texts(texts).meant(question).reason


def test_a_question_in_other_words_is_linked_by_what_tells_the_propositions_apart() -> None:
    assert meant("Will Benfica take the trophy in 2030?", CUP) == "b"
    assert meant("What is the probability that Ajax will be the winner of the 2030 cup?", CUP) == "a"
    assert meant("Given the fixtures, estimate the likelihood of Ajax winning. Consider that Benfica lost twice.", CUP) == "a"
    assert meant("What is the probability that May sees rainfall between 40 and 60 mm?", RAIN) == "mid"


def test_what_is_named_only_to_say_that_it_is_not_meant_counts_for_nothing() -> None:
    assert meant("What is the probability that Benfica wins the cup, rather than Ajax?", CUP) == "b"
    assert meant("Will Benfica win (and not Ajax or another club)?", CUP) == "b"
    assert meant("What is the probability that a club other than Ajax or Benfica wins?", CUP) == "c"
    assert meant("Will another club win the cup, not Ajax and not Benfica?", CUP) == "c"


def test_a_question_about_several_propositions_is_about_none() -> None:
    several = "asks for several propositions at once"
    assert reason("What is the probability distribution over Ajax, Benfica and another club?", CUP) == several
    assert reason("Who wins: (a) Ajax, (b) Benfica, (c) another club?", CUP) == several
    assert reason("Will Ajax win? Will Benfica win?", CUP) == several
    assert reason("What is the probability of Ajax vs Benfica vs another club?", CUP) == several


def test_a_denial_a_condition_and_another_number_change_the_meaning() -> None:
    assert reason("What is the probability that Ajax does not win the cup?", CUP) == "denied in one of the two texts"
    assert reason("What is the probability that Ajax wins, assuming that the cup is played?", CUP) == "asked under a condition"
    assert reason("What is the probability that Ajax wins the 2031 cup?", CUP) == "speaks of another number"
    assert reason("What is the probability that rainfall is above 75 mm?", RAIN) is not None


def test_numbers_keep_their_sign_and_lose_their_zeros() -> None:
    assert words("between -5.0% and +5%") == {"between", "-5", "+5"}
    assert words("1,000 units") == {"1000", "unit"}


def test_what_is_nearest_is_named_beside_the_reason() -> None:
    link = Texts(CUP).meant("What is the probability that Ajax does not win the cup?")
    assert (link.proposition, link.score) == ("a", 1.0)
    assert Texts(CUP).meant("Will it snow?") == (None, 0.0, "no word in common with a proposition")
    assert Texts({}).meant("Will Ajax win?") == (None, 0.0, "no word in common with a proposition")


def test_chinese_texts_are_compared_by_pairs_of_characters() -> None:
    texts = {"a": "登录页面修好了", "b": "支付页面修好了", "c": "搜索页面修好了"}
    assert meant("支付页面修好了的概率是多少", texts) == "b"
    assert meant("天气好的概率是多少", texts) is None


@given(st.text(max_size=300), st.dictionaries(st.sampled_from("abcd"), st.text(max_size=60), max_size=4))
def test_whatever_is_linked_is_one_of_the_propositions_and_surely_enough(question: str, texts: dict[str, str]) -> None:
    link = Texts(texts).meant(question)
    assert link == Texts(dict(reversed(texts.items()))).meant(question)
    assert link.proposition in {None, *texts}
    assert 0 <= link.score <= 1
    assert link.reason is not None or link.score >= MIN_SCORE


@given(st.permutations(list(CUP)))
def test_equally_near_propositions_are_never_told_apart_by_their_order(order: list[str]) -> None:
    twins = dict.fromkeys(order, "the cup is won") | {"d": "the cup is lost"}
    assert Texts(twins).meant("Is the cup won?") == ("a", 1.0, "the second best proposition is as near")
