import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontier_tuner.errors import InvalidSpaceError
from frontier_tuner.space import Restriction, Rule, restrict
from support.tuner_builders import make_configuration, make_space

NO_BIG_BATCH_ON_ONE = Rule(
    ("tensorParallelSize", "maxNumSeqs"),
    lambda c: "64 sequences need two GPUs" if c["tensorParallelSize"] == 1 and c["maxNumSeqs"] == 64 else None,
)


def test_all_and_only_valid_configurations_are_enumerated_in_a_stable_order():
    space = make_space(NO_BIG_BATCH_ON_ONE)
    found = space.configurations()
    assert (len(found), space.size, space.pruned) == (10, 10, 2)
    assert all(space.violations(configuration) == () for configuration in found)
    assert found == make_space(NO_BIG_BATCH_ON_ONE).configurations()


def test_every_problem_of_a_configuration_is_named():
    space = make_space(NO_BIG_BATCH_ON_ONE)
    bad = make_configuration(tensorParallelSize=1, maxNumSeqs=64, colour="red")
    messages = [violation.message for violation in space.violations(bad)]
    assert len(messages) == 3
    assert "colour" in messages[0]
    assert "enablePrefixCaching has no value" in messages[1]
    assert "two GPUs" in messages[2]


def test_the_baseline_is_the_nearest_valid_to_the_defaults():
    assert dict(make_space(NO_BIG_BATCH_ON_ONE).baseline) == {
        "tensorParallelSize": 1, "maxNumSeqs": 16, "enablePrefixCaching": True,
    }  # fmt: skip


@given(st.data())
def test_encoding_for_the_sampler_reads_back(data):
    space = make_space()
    configuration = data.draw(st.sampled_from(space.configurations()))
    encoded = space.encode(configuration)
    distributions = space.to_distributions()
    assert encoded.keys() == distributions.keys()
    assert all(distributions[k]._contains(distributions[k].to_internal_repr(v)) for k, v in encoded.items())
    assert space.decode(encoded) == configuration


def test_equal_ends_of_a_range_are_a_constant():
    space = restrict(make_space(), [Restriction("maxNumSeqs", minimum=256, maximum=256)])
    assert {configuration["maxNumSeqs"] for configuration in space.configurations()} == {256}
    assert "maxNumSeqs" not in space.to_distributions()


@pytest.mark.parametrize(
    ("entry", "want"),
    [
        (Restriction("maxNumSeqs", minimum=32), (32, 64)),
        (Restriction("maxNumSeqs", maximum=32), (16, 32)),
        (Restriction("maxNumSeqs", values=("64", 8, 8)), (8, 64)),
        (Restriction("maxNumSeqs", value=7), (7,)),
        (Restriction("enablePrefixCaching", value="true"), (True,)),
    ],
)
def test_restrictions_narrow_one_parameter(entry, want):
    space = restrict(make_space(), [entry])
    assert next(p.values for p in space.parameters if p.name == entry.name) == want


def test_all_problems_of_all_restrictions_are_reported_together():
    entries = [
        Restriction("maxNumSeqs", minimum=512, maximum=256),
        Restriction("colour", value="red"),
        Restriction("enablePrefixCaching", value="maybe"),
        Restriction("enablePrefixCaching", value=True),
        Restriction("tensorParallelSize", values=(0, 65)),
    ]
    with pytest.raises(InvalidSpaceError) as caught:
        restrict(make_space(), entries)
    text = "\n".join(caught.value.problems)
    assert len(caught.value.problems) == 6
    assert "inverted range: min 512 is above max 256" in text
    assert "colour is unknown" in text
    assert "enablePrefixCaching cannot be maybe" in text
    assert "given twice" in text
    assert "whole numbers from 1 to 64" in text


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (Restriction("maxNumSeqs"), "exactly one"),
        (Restriction("maxNumSeqs", value=1, minimum=1), "exactly one"),
        (Restriction("maxNumSeqs", values=()), "empty list"),
        (Restriction("enablePrefixCaching", minimum=0), "no order"),
        (Restriction("maxNumSeqs", minimum=0), "cannot be 0"),
    ],
)
def test_a_restriction_that_says_nothing_usable_is_refused(entry, words):
    with pytest.raises(InvalidSpaceError, match=words):
        restrict(make_space(), [entry])


def test_values_that_no_valid_configuration_has_are_dropped():
    never = Rule(("tensorParallelSize",), lambda c: "no" if c["tensorParallelSize"] == 4 else None)
    assert make_space(never).without_dead_values().parameters[0].values == (1, 2)
    with pytest.raises(InvalidSpaceError, match="not here"):
        make_space(Rule((), lambda _: "not here")).without_dead_values()


def test_the_digest_follows_the_values_only():
    space = make_space()
    assert space.digest == make_space(NO_BIG_BATCH_ON_ONE).digest
    assert space.digest != restrict(space, [Restriction("maxNumSeqs", value=16)]).digest
