"""What an example may test, with what makes its premise and its hypothesis, and how often it is drawn."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from kheads.tasks.made_nli import comparatives, events, quantities
from kheads.tasks.made_nli.language import Cast, Statement

Builder = Callable[[Cast, random.Random], Statement]


class Phenomenon(NamedTuple):
    """How premises and hypotheses are made, and how often, compared with other phenomena."""

    premise: Builder
    hypothesis: Builder
    share: int


PHENOMENA: Mapping[str, Phenomenon] = MappingProxyType(
    {
        "negation": Phenomenon(events.negation, events.fact_hypothesis, 6),
        "frequency": Phenomenon(quantities.frequency, quantities.frequency_hypothesis, 6),
        "quantifiers": Phenomenon(quantities.quantifiers, quantities.quantifiers, 6),
        "quantifiers+passive": Phenomenon(quantities.quantified_agents, quantities.quantified_agents, 6),
        "adjectives": Phenomenon(quantities.adjectives, quantities.adjectives_hypothesis, 6),
        "passive": Phenomenon(events.passives, events.passives_hypothesis, 4),
        "implicatives": Phenomenon(events.implicatives, events.fact_hypothesis, 4),
        "quantifiers+negation": Phenomenon(quantities.quantifiers_negation, quantities.quantifiers, 2),
        "roles": Phenomenon(events.roles, events.fact_hypothesis, 1),
        "coordination": Phenomenon(events.coordination, events.fact_hypothesis, 1),
        "only": Phenomenon(events.only, events.fact_hypothesis, 1),
        "only+passive": Phenomenon(events.only_passive, events.voiced_hypothesis, 1),
        "while": Phenomenon(events.meanwhile, events.fact_hypothesis, 1),
        "relative": Phenomenon(events.relative, events.fact_hypothesis, 1),
        "relative+passive": Phenomenon(events.relative_passive, events.voiced_hypothesis, 1),
        "relative+implicatives": Phenomenon(events.relative_implicatives, events.fact_hypothesis, 1),
        "while+quantifiers": Phenomenon(quantities.while_quantifiers, quantities.quantifiers, 1),
        "comparatives": Phenomenon(comparatives.comparatives, comparatives.comparatives_hypothesis, 1),
        "comparatives+negation": Phenomenon(
            comparatives.comparatives_negation, comparatives.comparatives_negation_hypothesis, 1
        ),
        "transitivity": Phenomenon(comparatives.transitivity, comparatives.comparatives_hypothesis, 1),
    }
)
