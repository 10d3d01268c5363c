import gzip

import numpy as np
import pytest

from frontier_tuner.bench.tables import COLUMNS, TableError, read_table
from support.plant_tables import row, small_rows, table_of, write_table


def test_a_table_becomes_engines_with_their_curves(tmp_path):
    table = table_of(tmp_path, small_rows())
    assert table.engine_ids == ("big", "fast", "dead")
    assert list(table.batches) == [1, 4, 16]
    assert table.truth.throughput[0].tolist() == [30, 90, 200]
    assert table.truth.ttft[0].tolist() == [0.1, 0.2, 0.9]
    assert table.truth.itl[1, 0] == pytest.approx(1 / 120)
    assert np.isnan(table.truth.user_speed[1, 2])
    assert table.cache_full.tolist() == [[False] * 3, [False, False, True], [False] * 3]
    assert table.dead.tolist() == [False, False, True]
    assert np.isnan(table.concurrency[2, 2])
    assert table.gpus.tolist() == [4, 2, 1]


def test_an_engine_without_any_level_that_it_serves_is_dead(tmp_path):
    table = table_of(tmp_path, [row("a", 1), row("b", 1, status="kv_oom", tp=1)])
    assert table.dead.tolist() == [False, True]


def test_an_empty_cell_means_that_the_knob_does_not_exist(tmp_path):
    table = table_of(tmp_path, [row("a", 1), row("b", 1, mode="disagg", p_tp=2)])
    one, other = table.configurations
    assert "p_tp" not in one
    assert one["ctx_tokens"] == 2048
    assert "ctx_tokens" not in other
    assert other["p_tp"] == 2
    assert "moe" not in one
    assert "gpus" not in one


def test_candidates_carry_knobs_with_groups_and_order(tmp_path):
    rows = [row("a", 2, gemm="fp8"), row("b", 2, tp=8), row("c", 2, mode="disagg", p_tp=4, concurrency=6)]
    candidates = table_of(tmp_path, rows).candidates()
    found = {knob.name: (knob.group, knob.ordered) for knob in candidates.knobs}
    assert found["tp"] == ("layout", True)
    assert found["gemm"] == ("precision", False)
    assert found["mode"] == ("", False)
    assert found["ctx_tokens"] == ("batching", True)
    assert found["p_tp"] == ("prefill", True)
    assert found["d_workers"] == ("pools", True)
    names = [knob.name for knob in candidates.knobs]
    assert candidates.levels[:, names.index("tp")].tolist() == [0, 1, 0]
    assert candidates.scale[:, names.index("tp")].tolist() == [1, 3, 1]
    assert candidates.levels[:, names.index("p_tp")].tolist() == [-1, -1, 0]
    assert candidates.ranks.tolist() == [1, 1, 3]
    assert candidates.concurrency.tolist() == [[2], [2], [6]]


def test_rows_without_data_are_dropped(tmp_path):
    table = table_of(tmp_path, [row("a", 1), row("a", 2, status="nodata"), row("b", 1, status="nodata", tp=1)])
    assert table.engine_ids == ("a",)
    assert list(table.batches) == [1]


def test_a_compressed_table_reads_the_same(tmp_path):
    plain = write_table(tmp_path / "plant.csv", small_rows())
    packed = tmp_path / "plant.csv.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    one, other = read_table(plain), read_table(packed)
    assert one.configurations == other.configurations
    assert np.array_equal(one.truth.ttft, other.truth.ttft, equal_nan=True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"status": "fine"}, "row 3, column status: 'fine' is not one of ok, oom, kv_oom, nodata"),
        ({"batch": "x"}, "row 3, column batch: 'x' is not a whole number of at least 1"),
        ({"batch": 0}, "row 3, column batch: '0' is not a whole number"),
        ({"tp": 1.5}, "row 3, column tp: '1.5' is not a whole number"),
        ({"ttft_ms": ""}, "row 3, column ttft_ms: '' is not a number above 0"),
        ({"tok_s_gpu": "inf"}, "row 3, column tok_s_gpu: 'inf' is not a number above 0"),
        ({"tpot_ms": -1}, "row 3, column tpot_ms: '-1' is not a number above 0"),
        ({"engine_id": ""}, "row 3, column engine_id: is empty"),
        ({"batch": 1}, "row 3, column batch: a has batch 1 in row 2 already"),
        ({"tp": 4}, "row 3, column engine_id: a had other knobs or GPUs in row 2"),
        ({"gpus": 4}, "row 3, column engine_id: a had other knobs or GPUs in row 2"),
    ],
)
def test_a_bad_cell_is_named_with_file_row_and_column(tmp_path, change, words):
    path = write_table(tmp_path / "plant.csv", [row("a", 1), row("a", 2) | change])
    with pytest.raises(TableError, match=r"plant\.csv, row 3") as error:
        read_table(path)
    assert words in str(error.value)


def test_missing_columns_are_all_named(tmp_path):
    path = write_table(tmp_path / "plant.csv", [row("a", 1)], [c for c in COLUMNS if c not in ("tp", "status")])
    with pytest.raises(TableError, match="lacks the columns tp, status;"):
        read_table(path)


def test_a_row_that_ends_early_is_named(tmp_path):
    path = write_table(tmp_path / "plant.csv", [row("a", 1)])
    path.write_text(path.read_text() + "a,2\r\n")
    with pytest.raises(TableError, match="row 3, column"):
        read_table(path)


@pytest.mark.parametrize("name", ["absent.csv", "absent.csv.gz"])
def test_a_table_that_is_not_there_is_named(tmp_path, name):
    with pytest.raises(TableError, match=f"{name} cannot be read"):
        read_table(tmp_path / name)


def test_a_file_that_is_not_compressed_as_it_says_is_refused(tmp_path):
    path = tmp_path / "plant.csv.gz"
    path.write_text("mode\n")
    with pytest.raises(TableError, match="cannot be read as a table"):
        read_table(path)


def test_a_table_without_data_is_refused(tmp_path):
    with pytest.raises(TableError, match="has no rows with data"):
        table_of(tmp_path, [row("a", 1, status="nodata")])
