"""What the library says, in the words of the command line."""

import pytest

from kheads.cli.prune import _not_used
from kheads.cli.wording import in_words_of_the_command_line
from kheads.lab.jobs.job import Job


@pytest.mark.parametrize(
    ("said", "better"),
    [
        ('it is slow; add `parts="all"`.', "it is slow; add `--parts all`."),
        ('take unit="group".', "take `--unit group`."),
        ("`speedup` 3 cannot be reached", "`--speedup` 3 cannot be reached"),
        ("`params` 0.3 cannot be reached", "`--smaller` 70% cannot be reached"),
        ("`flops` 0.25 cannot be reached", "`--flops` 25% cannot be reached"),
        ("`params` 12,000 cannot be reached", "`--smaller` 12,000 cannot be reached"),
        ("`ms` 4.5 cannot be reached", "`--max-ms` 4.5 cannot be reached"),
        ("give a batch that fits, such as `at=(8, 40)`.", "give a batch that fits, such as `--at 8x40`."),
        ("`at` is for `flops`, `speedup` and `ms`", "`--at` is for `--flops`, `--speedup` and `--max-ms`"),
        ("`k` and `at_most` each say how much", "`-k` and `--at-most` each say how much"),
        ("`pooling` must be one of 'mean', 'cls'", "`--pooling` must be one of 'mean', 'cls'"),
        ("`threads` is for times", "`--set threads=...` is for times"),
    ],
)
def test_names_of_fields_and_amounts_become_flags(said: str, better: str) -> None:
    assert in_words_of_the_command_line(said) == better


def test_what_was_said_of_a_training_that_was_not_wanted_is_told() -> None:
    asked = Job("mine", k=4, no_training=True, max_steps=200, lr=1e-4)
    assert _not_used(asked.to_dict()) == ("Nothing was trained, so `--max-steps`, `--lr` had no effect.",)
    assert not _not_used(Job("mine", k=4, no_training=True).to_dict())
    assert not _not_used(Job("mine", k=4, max_steps=200).to_dict())
