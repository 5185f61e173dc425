"""The embedded translation task: right German, right English, and nothing of the test set in training."""

import re

import pytest

from kheads.tasks.bpe import train_bpe
from kheads.tasks.made_numbers import (
    HELD_OUT,
    YEARS,
    date,
    english,
    english_year,
    generate,
    german,
    german_year,
    is_held_out,
    time_of_day,
)

NUMBERS = [
    (0, "null", "zero"),
    (1, "eins", "one"),
    (16, "sechzehn", "sixteen"),
    (17, "siebzehn", "seventeen"),
    (21, "einundzwanzig", "twenty-one"),
    (30, "dreißig", "thirty"),
    (100, "einhundert", "one hundred"),
    (101, "einhunderteins", "one hundred and one"),
    (777, "siebenhundertsiebenundsiebzig", "seven hundred and seventy-seven"),
    (1000, "eintausend", "one thousand"),
    (1001, "eintausendeins", "one thousand and one"),
    (21_021, "einundzwanzigtausendeinundzwanzig", "twenty-one thousand and twenty-one"),
    (23_405, "dreiundzwanzigtausendvierhundertfünf", "twenty-three thousand four hundred and five"),
    (101_000, "einhunderteintausend", "one hundred and one thousand"),
    (
        999_999,
        "neunhundertneunundneunzigtausendneunhundertneunundneunzig",
        "nine hundred and ninety-nine thousand nine hundred and ninety-nine",
    ),
]


@pytest.mark.parametrize(("number", "de", "en"), NUMBERS)
def test_numbers(number: int, de: str, en: str) -> None:
    assert german(number) == de and english(number) == en


def test_different_numbers_have_different_words() -> None:
    numbers = [*range(1200), *range(1200, 1_000_000, 997)]
    assert len({german(number) for number in numbers}) == len({english(number) for number in numbers}) == len(numbers)


def test_times_and_dates() -> None:
    assert time_of_day(3, 30).source == "um halb vier" and time_of_day(3, 30).target == "at half past three"
    assert time_of_day(12, 45).source == "um Viertel vor eins" and time_of_day(12, 45).target == "at a quarter to one"
    assert time_of_day(1, 0).source == "um ein Uhr" and time_of_day(1, 0).target == "at one o'clock"
    assert time_of_day(1, 7).source == "um ein Uhr sieben" and time_of_day(1, 7).target == "at seven past one"
    spoken = date(3, 4, 1984)
    assert spoken.source == "am dritten Mai neunzehnhundertvierundachtzig"
    assert spoken.target == "on May the third, nineteen eighty-four"
    assert date(20, 0, 1900).source == "am zwanzigsten Januar neunzehnhundert"
    assert date(20, 0, 1900).target == "on January the twentieth, nineteen hundred"
    assert date(31, 11, 1204).target == "on December the thirty-first, twelve oh four"


def test_no_number_time_or_year_of_the_test_set_is_in_training() -> None:
    """Read back from the texts: quantities, years, and hours with their minutes."""
    train, evaluation = generate("train", 4000), generate("eval", 400)
    for pattern in (r"(\w+)(?: [A-ZÄ]\w+ \w+)?$", r"^.* am \w+ \w+ (\w+)", r" um (\w+ Uhr \w+) \w+ [A-ZÄ]"):
        seen, unseen = (
            {match.group(1) for pair in pairs if (match := re.search(pattern, pair.source))}
            for pairs in (train, evaluation)
        )
        assert len(seen) > 200 and len(unseen) > 50 and not seen & unseen, pattern
    assert len(set(evaluation)) == 400


def test_one_in_five_is_held_out() -> None:
    share = sum(is_held_out(number) for number in range(100, 20_000)) / 19_900
    assert share == pytest.approx(1 / HELD_OUT, abs=0.02)
    assert any(is_held_out(year) for year in YEARS) and not all(is_held_out(year) for year in YEARS)
    assert german_year(1984) == "neunzehnhundertvierundachtzig"


def test_a_seed_decides() -> None:
    assert generate("train", 20, 1) == generate("train", 20, 1) != generate("train", 20, 2)
    assert english_year(1905) == "nineteen oh five"
    with pytest.raises(ValueError, match="`split` must be 'train' or 'eval'; got 'test'"):
        generate("test", 1)


def test_bpe_gives_every_text_back() -> None:
    """Words it never saw, other scripts and signs included; the parts of numbers are pieces of their own."""
    pairs = generate("train", 2000)
    words = train_bpe([text for pair in pairs for text in (pair.source, pair.target)], 500)
    assert len(words) == 500 and (words.pad_token_id, words.bos_token_id, words.eos_token_id) == (0, 1, 2)
    texts = [pair.source for pair in generate("eval", 50)]
    for text in [*texts, "Straße, 12 €!", "naïve ☃ 日本語 🙂", "don't ( stop ) .", "<x> & y"]:
        ids = words(text).input_ids
        assert ids[-1] == words.eos_token_id and words.decode(ids, skip_special_tokens=True) == text
    pieces = [piece for text in texts for piece in words.tokenize(text)]
    assert len(pieces) < 25 * len(texts) and {"hundert", "tausend"} <= set(pieces)
    with pytest.raises(ValueError, match="`vocab_size` must be an integer from 259 up"):
        train_bpe(texts, 100)
