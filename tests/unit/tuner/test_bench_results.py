import json

import pytest

from frontier_tuner.bench.arena import StartLog
from frontier_tuner.bench.results import ResultsError, check_writable, decode, encode, write
from support.plant_tables import small_rows, table_of

LOGS = {
    "mine": {
        1: [StartLog(0, "big", "Complete", [0, 2, 1], 0.25)],
        0: [StartLog(2, "dead", "Infeasible", [], 0.5), StartLog(1, "fast", "Complete", [1], 0.125)],
    }
}


def test_the_record_has_the_stated_form(tmp_path):
    assert encode(LOGS, table_of(tmp_path, small_rows())) == {
        "methods": {
            "mine": [
                {
                    "seed": 0,
                    "starts": [
                        {"engine_id": "dead", "outcome": "Infeasible", "rungs": [], "seconds": 0.5},
                        {"engine_id": "fast", "outcome": "Complete", "rungs": [4], "seconds": 0.125},
                    ],
                },
                {
                    "seed": 1,
                    "starts": [{"engine_id": "big", "outcome": "Complete", "rungs": [1, 16, 4], "seconds": 0.25}],
                },
            ]
        }
    }


def test_the_record_reads_back(tmp_path):
    table = table_of(tmp_path, small_rows())
    assert decode(json.loads(json.dumps(encode(LOGS, table))), table) == LOGS


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([], "another form"),
        ({}, "'methods'"),
        ({"methods": {"m": [{"seed": 0, "starts": [{"engine_id": "x"}]}]}}, "'x'"),
        (
            {
                "methods": {
                    "m": [
                        {"seed": 0, "starts": [{"engine_id": "big", "outcome": "Complete", "rungs": [3], "seconds": 0}]}
                    ]
                }
            },
            "name 3",
        ),
        (
            {
                "methods": {
                    "m": [{"seed": 0, "starts": [{"engine_id": "big", "outcome": "Odd", "rungs": [], "seconds": 0}]}]
                }
            },
            "'Odd' is neither",
        ),
    ],
)
def test_another_record_is_refused(tmp_path, content, words):
    with pytest.raises(ResultsError, match=words):
        decode(content, table_of(tmp_path, small_rows()))


def test_a_record_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "out.json"
    path.write_text("before")
    with pytest.raises(TypeError):
        write(path, {"methods": object()})
    assert path.read_text() == "before"
    write(path, {"methods": {}})
    assert json.loads(path.read_text()) == {"methods": {}}
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_takes_no_file_is_refused_beforehand(tmp_path):
    check_writable(None)
    check_writable(tmp_path / "out.json")
    with pytest.raises(ResultsError, match=r"out.json cannot be written"):
        check_writable(tmp_path / "absent" / "out.json")
