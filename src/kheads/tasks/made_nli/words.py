"""The vocabulary of the made inference task: content words of training, and others of evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple


class Verb(NamedTuple):
    """The base and the past of a verb; all verbs here have a participle equal to the past, if it is used."""

    base: str
    past: str


class Scale(NamedTuple):
    """An adjective, its comparative and the comparative of its opposite."""

    adjective: str
    more: str
    less: str


@dataclass(frozen=True)
class Words:
    """The content words of one split."""

    nouns: tuple[str, ...]
    names: tuple[str, ...]
    verbs: tuple[Verb, ...]
    acts: tuple[Verb, ...]
    scales: tuple[Scale, ...]
    adjectives: tuple[str, ...]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _verbs(text: str) -> tuple[Verb, ...]:
    """Reads entries like "thank" (regular) and "feed/fed"."""
    return tuple(_verb(*entry.split("/")) for entry in text.split())


def _verb(base: str, past: str = "") -> Verb:
    return Verb(base, past or (base + "d" if base.endswith("e") else base + "ed"))


def _scales(text: str) -> tuple[Scale, ...]:
    return tuple(Scale(*entry.split("/")) for entry in text.split())


# No noun includes another; no verb implies, excludes or reverses another of its split.
WORDS: Mapping[str, Words] = MappingProxyType(
    {
        "train": Words(
            nouns=_words(
                "baker pilot nurse lawyer farmer waiter driver painter judge soldier writer banker plumber tailor "
                "sailor butcher doctor actor clerk guard hunter miller"
            ),
            names=_words(
                "Anna Peter Laura Daniel Maria Thomas Julia Simon Helen Martin Emma David Alice Paul Rosa Kevin"
            ),
            verbs=_verbs(
                "thank visit invite follow warn pay/paid interview photograph help phone feed/fed find/found blame pull"
            ),
            acts=_verbs("dance sleep/slept laugh sing/sang leave/left cry/cried jump pray argue resign"),
            scales=_scales("tall/taller/shorter old/older/younger rich/richer/poorer loud/louder/quieter"),
            adjectives=_words("French German Spanish tired hungry famous"),
        ),
        "eval": Words(
            nouns=_words(
                "chef gardener dentist engineer poet priest barber carpenter mechanic surgeon editor trainer "
                "journalist senator miner"
            ),
            names=_words("Clara Oscar Nina Felix Diana Victor Irene Hugo Marta Leon Sofia Brian"),
            verbs=_verbs("praise hire greet chase interrupt push sketch rescue bribe arrest defend tease"),
            acts=_verbs("swim/swam vote wait smile travel/traveled work shout kneel/knelt complain"),
            scales=_scales("strong/stronger/weaker fast/faster/slower heavy/heavier/lighter"),
            adjectives=_words("Italian Dutch Greek busy lucky angry"),
        ),
    }
)
