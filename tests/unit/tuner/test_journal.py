import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontier_tuner import journal
from frontier_tuner.configuration import Configuration
from frontier_tuner.errors import JournalError
from frontier_tuner.measurement import Ending, Estimate, Load, Measurement, Validity, Window
from frontier_tuner.trial import Failure, TrialRecord
from support.tuner_builders import make_configuration, make_record, make_space

numbers = st.floats(allow_nan=False, allow_infinity=False)
counts = st.integers(0, 10**6)
estimates = st.builds(Estimate, numbers, numbers, numbers, counts, st.text())
metrics = st.dictionaries(st.sampled_from(["TTFT/95", "ITL/50", "OutputTokensPerSecond", "Cost"]), estimates)
times = st.datetimes(datetime(2020, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - the strategy adds the zone
windows = st.builds(lambda start, s: Window(start, start + timedelta(seconds=s)), times, st.floats(0, 1e5))
loads = st.builds(Load, st.sampled_from(["Concurrency", "RequestRate"]), st.floats(0.001, 1e4))
validity = st.builds(Validity, st.booleans(), st.text(), st.text(), st.text())
endings = st.builds(Ending, st.sampled_from(["Tight", "TimeUp"]), st.lists(st.text()).map(tuple), st.text())
measurements = st.builds(Measurement, loads, windows, counts, counts, counts, metrics, validity, st.none() | endings)
configurations = st.fixed_dictionaries(
    {},
    optional={
        "variant": st.text(),
        "tensorParallelSize": st.integers(1, 64),
        "enableExpertParallel": st.booleans(),
        "kvCacheDtype": st.sampled_from(["auto", "fp8"]),
        "numSpeculativeTokens": st.integers(0, 9),
        "gpuMemoryUtilizationPercent": st.integers(10, 99),
    },
).map(Configuration.of)
records = st.builds(
    TrialRecord,
    number=counts,
    configuration=configurations,
    purpose=st.sampled_from(["Baseline", "Search", "Confirmation"]),
    outcome=st.sampled_from(["Complete", "Infeasible", "Failed", "Pruned"]),
    gpus=counts,
    measurements=st.lists(measurements, max_size=2).map(tuple),
    failure=st.none() | st.builds(Failure, st.sampled_from(["EngineDied", "PodLost"]), st.text()),
    gpu_seconds=st.floats(0, 1e9),
    engine_start_seconds=st.none() | st.floats(0, 1e5),
    reason=st.text(),
    expected_gain=st.none() | st.floats(-1, 1e6),
)


@given(records)
def test_a_trial_reads_back_as_it_was_through_real_json(record):
    assert journal.decode(json.loads(json.dumps(journal.encode(record)))) == record


@given(numbers)
def test_numbers_are_exact_decimals_without_an_exponent(number):
    text = journal.decimal(number)
    assert float(text) == number
    assert "e" not in text.lower()


def test_a_rung_says_which_rule_it_violates_and_why_its_window_ended():
    rung = replace(
        make_record(3, make_configuration(maxNumSeqs=16)).measurements[0],
        validity=Validity(False, "WindowInvalid", "m", "WarmCache"),
        ended=Ending("TimeUp", ("TTFT/95",), "the time is up"),
    )
    document = journal.encode_measurement(rung)
    assert document["check"] == "WarmCache"
    assert document["ended"] == {"reason": "TimeUp", "open": ["TTFT/95"], "message": "the time is up"}
    assert {"check", "ended"}.isdisjoint(journal.encode_measurement(replace(rung, validity=Validity(True), ended=None)))


def test_the_document_has_the_shape_of_a_resource():
    document = journal.encode(make_record(3, make_configuration(enablePrefixCaching=True, maxNumSeqs=16)))
    assert document["configuration"] == {"enablePrefixCaching": "true", "maxNumSeqs": "16"}
    rung = document["measurements"][0]
    assert rung["load"] == {"kind": "Concurrency", "value": "8"}
    assert rung["window"] == {"start": "2026-01-01T00:00:00.000000Z", "end": "2026-01-01T00:01:00.000000Z"}
    ttft = next(metric for metric in rung["metrics"] if metric["name"] == "TTFT")
    assert ttft == {
        "name": "TTFT",
        "percentile": 95,
        "value": "0.5",
        "low": "0.45",
        "high": "0.55",
        "n": 100,
        "query": "up",
    }
    assert (rung["valid"], document["gpuSeconds"]) == (True, "600")


def test_a_space_gives_the_types_that_the_catalogue_lacks():
    document = {"tensorParallelSize": "2", "maxNumSeqs": "16", "enablePrefixCaching": "false"}
    configuration = journal.decode_configuration(document, make_space())
    assert configuration == journal.decode_configuration(document)
    assert dict(journal.decode_configuration({"own": "1"})) == {"own": "1"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"number": None}, "cannot be read"),
        ({"configuration": {"maxNumSeqs": "many"}}, "maxNumSeqs must be a whole number"),
        ({"configuration": {"enablePrefixCaching": "perhaps"}}, "true or false"),
        ({"measurements": [{}]}, "load is missing"),
    ],
)
def test_a_broken_document_is_refused_with_its_reason(change, words):
    with pytest.raises(JournalError, match=words):
        journal.decode(journal.encode(make_record()) | change)


def test_a_time_without_a_zone_is_refused():
    with pytest.raises(ValueError, match="no zone"):
        journal.decode_time("2026-01-01T00:00:00")


def test_a_file_gives_back_what_was_appended(tmp_path):
    path = tmp_path / "journal.jsonl"
    assert journal.read(path) == ()
    for number in range(3):
        journal.append(path, make_record(number))
    assert journal.read(path) == tuple(make_record(number) for number in range(3))


def test_trials_of_another_study_are_refused_and_never_mixed(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal.append(path, make_record(0), "one")
    journal.append(path, make_record(1))
    assert len(journal.read(path)) == len(journal.read(path, study="one")) == 2
    with pytest.raises(JournalError, match=r"line 1 was measured for another model.*--journal"):
        journal.read(path, study="other")


def test_a_journal_that_cannot_be_written_is_said_before_anything_is_measured(tmp_path):
    with pytest.raises(JournalError, match="cannot be written: No such file"):
        journal.check_writable(tmp_path / "absent" / "journal.jsonl")
    journal.check_writable(tmp_path / "journal.jsonl")
    assert journal.read(tmp_path / "journal.jsonl") == ()


def test_an_interrupted_write_loses_only_its_own_line(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal.append(path, make_record(0))
    whole = path.read_bytes()
    journal.append(path, make_record(1))
    full = path.read_bytes()
    for cut in range(len(whole), len(full), 37):
        path.write_bytes(full[:cut])
        assert journal.read(path) == (make_record(0),)
        journal.append(path, make_record(2))
        assert journal.read(path) == (make_record(0), make_record(2))
    path.write_bytes(full[:-1])
    journal.append(path, make_record(2))
    assert [record.number for record in journal.read(path)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{broken", "line 1 is not JSON"),
        ('{"version": 99}', "version 99"),
        ('{"version": 1}', "line 1: a trial cannot"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(tmp_path, line, words):
    path = tmp_path / "journal.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(JournalError, match=words):
        journal.read(path)
