"""The embedded translation task: German numbers, times and dates, alone and inside clauses, into English.

It needs no download and is small, but not a dictionary: dreiundzwanzig is twenty-three (the parts change places), halb
vier is half past three, a German participle ends its clause and an English one does not, and times and dates move to
the end. The evaluation set has only numbers, times and years that never occur in training, made of parts that do.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

DIGITS = 5
YEARS = range(1100, 2000)
HELD_OUT = 5  # one in so many numbers, times and years is kept for evaluation


@dataclass(frozen=True)
class Pair:
    """A German text and its translation."""

    source: str
    target: str


def generate(split: str, count: int, seed: int = 0) -> list[Pair]:
    """Makes pairs of the "train" or the "eval" split; those of "eval" are all different."""
    if split not in ("train", "eval"):
        raise ValueError(f"`split` must be 'train' or 'eval'; got {split!r}.")
    stream = _pairs(split == "eval", random.Random(f"{split}-{seed}"))
    if split == "train":
        return [next(stream) for _ in range(count)]
    found: dict[Pair, None] = {}
    while len(found) < count:
        found[next(stream)] = None
    return list(found)


def _pairs(unseen: bool, rng: random.Random) -> Iterator[Pair]:
    while True:
        number = _draw_number(unseen, rng)
        kind = rng.randrange(4)
        if kind == 0:
            yield Pair(german(number), english(number))
            continue
        when = Pair("", "")
        if kind == 2:
            when = time_of_day(*_draw_time(unseen, rng))
        elif kind == 3:
            when = date(rng.randrange(1, 32), rng.randrange(12), _draw_year(unseen, rng))
        yield clause(number, when, rng)


# --------------------------------------------------------------------------------------------------- what is held out


def is_held_out(*parts: int) -> bool:
    """Whether a number, a year, or an hour and a minute, are for evaluation only."""
    return zlib.crc32(repr(parts).encode()) % HELD_OUT == 0


def _draw_number(unseen: bool, rng: random.Random) -> int:
    """A number of 1 to 5 digits; unseen ones have at least 3, because all shorter ones are parts of others."""
    while True:
        digits = rng.randrange(3 if unseen else 1, DIGITS + 1)
        number = rng.randrange(max(2, 10 ** (digits - 1)), 10**digits)
        if (number >= 100 and is_held_out(number)) == unseen:
            return number


def _draw_year(unseen: bool, rng: random.Random) -> int:
    while True:
        year = rng.choice(YEARS)
        if is_held_out(year) == unseen:
            return year


def _draw_time(unseen: bool, rng: random.Random) -> tuple[int, int]:
    """An hour and a minute; full hours, halves and quarters are always seen, because there are so few."""
    while True:
        hour, minute = rng.randrange(1, 13), rng.randrange(60)
        if (minute % 15 != 0 and is_held_out(hour, minute)) == unseen:
            return hour, minute


# ------------------------------------------------------------------------------------------------------------ numbers


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_DE_SMALL = _words(
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn "
    "achtzehn neunzehn"
)
_DE_TENS = _words("- - zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig")
_EN_SMALL = _words(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_EN_TENS = _words("- - twenty thirty forty fifty sixty seventy eighty ninety")


def german(number: int) -> str:
    """A number from 0 to 999,999 in German words, which are written together."""
    if number >= 1000:
        rest = german(number % 1000) if number % 1000 else ""
        return f"{_before(number // 1000)}tausend{rest}"
    if number >= 100:
        rest = german(number % 100) if number % 100 else ""
        return f"{_before(number // 100)}hundert{rest}"
    if number < 20:
        return _DE_SMALL[number]
    tens = _DE_TENS[number // 10]
    return f"{_before(number % 10)}und{tens}" if number % 10 else tens


def _before(number: int) -> str:
    """A number in front of another word: eins loses its s."""
    word = german(number)
    return word[:-1] if word.endswith("eins") else word


def english(number: int) -> str:
    """A number from 0 to 999,999 in English words."""
    if number >= 1000:
        rest = number % 1000
        link = " and " if rest < 100 else " "
        return f"{english(number // 1000)} thousand" + (f"{link}{english(rest)}" if rest else "")
    if number >= 100:
        rest = number % 100
        return f"{_EN_SMALL[number // 100]} hundred" + (f" and {english(rest)}" if rest else "")
    if number < 20:
        return _EN_SMALL[number]
    tens = _EN_TENS[number // 10]
    return f"{tens}-{_EN_SMALL[number % 10]}" if number % 10 else tens


# ---------------------------------------------------------------------------------------------------- times and dates

_MONTHS = _words(
    "Januar January Februar February März March April April Mai May Juni June Juli July August August "
    "September September Oktober October November November Dezember December"
)
_DE_ORDINALS = {1: "ersten", 3: "dritten", 7: "siebten", 8: "achten"}
_EN_ORDINALS = {1: "first", 2: "second", 3: "third", 5: "fifth", 8: "eighth", 9: "ninth", 12: "twelfth"}


def time_of_day(hour: int, minute: int) -> Pair:
    """A time on a clock of twelve hours. German half past names the hour to come."""
    following = hour % 12 + 1
    de, en = german(hour), english(hour)
    if minute == 0:
        return Pair(f"um {_before(hour)} Uhr", f"at {en} o'clock")
    if minute == 15:
        return Pair(f"um Viertel nach {de}", f"at a quarter past {en}")
    if minute == 30:
        return Pair(f"um halb {german(following)}", f"at half past {en}")
    if minute == 45:
        return Pair(f"um Viertel vor {german(following)}", f"at a quarter to {english(following)}")
    return Pair(f"um {_before(hour)} Uhr {german(minute)}", f"at {english(minute)} past {en}")


def date(day: int, month: int, year: int) -> Pair:
    """A date; months count from 0."""
    german_month, english_month = _MONTHS[2 * month], _MONTHS[2 * month + 1]
    return Pair(
        f"am {_german_ordinal(day)} {german_month} {german_year(year)}",
        f"on {english_month} the {_english_ordinal(day)}, {english_year(year)}",
    )


def german_year(year: int) -> str:
    """1984 as neunzehnhundertvierundachtzig."""
    return f"{german(year // 100)}hundert{german(year % 100) if year % 100 else ''}"


def english_year(year: int) -> str:
    """1984 as nineteen eighty-four, 1904 as nineteen oh four, 1900 as nineteen hundred."""
    century, rest = english(year // 100), year % 100
    if rest == 0:
        return f"{century} hundred"
    return f"{century} oh {english(rest)}" if rest < 10 else f"{century} {english(rest)}"


def _german_ordinal(day: int) -> str:
    return _DE_ORDINALS.get(day) or german(day) + ("ten" if day < 20 else "sten")


def _english_ordinal(day: int) -> str:
    tens, unit = divmod(day, 10)
    if day > 20 and unit:
        return f"{_EN_TENS[tens]}-{_english_ordinal(unit)}"
    if day in _EN_ORDINALS:
        return _EN_ORDINALS[day]
    word = english(day)
    return f"{word.removesuffix('y')}ieth" if word.endswith("y") else f"{word}th"


# ------------------------------------------------------------------------------------------------------------ clauses

_SUBJECTS = (
    Pair("ich habe", "I have"),
    Pair("wir haben", "we have"),
    Pair("sie haben", "they have"),
    Pair("er hat", "he has"),
    Pair("das Kind hat", "the child has"),
)
_VERBS = (
    Pair("gesehen", "seen"),
    Pair("gekauft", "bought"),
    Pair("gezählt", "counted"),
    Pair("verloren", "lost"),
    Pair("gefunden", "found"),
)
_NOUNS = (
    Pair("Bücher", "books"),
    Pair("Äpfel", "apples"),
    Pair("Vögel", "birds"),
    Pair("Briefe", "letters"),
    Pair("Sterne", "stars"),
)


def clause(number: int, when: Pair, rng: random.Random) -> Pair:
    """Subject, time, number, noun, participle in German; subject, participle, number, noun, time in English."""
    subject, verb, noun = rng.choice(_SUBJECTS), rng.choice(_VERBS), rng.choice(_NOUNS)
    source = [subject.source, when.source, german(number), noun.source, verb.source]
    target = [subject.target, verb.target, english(number), noun.target, when.target]
    return Pair(" ".join(filter(None, source)), " ".join(filter(None, target)))
