import os
import sys
from pathlib import Path

import pytest

from frontier_tuner.errors import TunerError
from frontier_tuner.failures import classify_exit
from frontier_tuner.plants.processes import Process
from frontier_tuner.plants.setup import process_settings, read_spec
from frontier_tuner.study import space_of

EXAMPLE = Path(__file__).parents[3] / "examples" / "tune-vllm-cpu.yaml"

CORE = "ValueError: 2.0 GiB KV cache is needed, which is larger than the available KV cache memory (1.0 GiB)"
SERVER = "RuntimeError: Engine core initialization failed. See root cause above."
DYING = f"import sys; print({CORE!r}); print('  File at /some/path, line 1\\n' * 300); print({SERVER!r}); sys.exit(1)"


def model_of(tmp_path, **where):
    spec = read_spec(EXAMPLE)
    settings = process_settings(spec, tmp_path, "engine", **where)
    command = settings.command_line(space_of(spec).baseline, "127.0.0.1", 8000)
    return command[command.index("--model") + 1]


def test_the_files_of_a_claim_are_below_the_directory_of_models(tmp_path, monkeypatch):
    assert model_of(tmp_path) == "/models/tiny"
    monkeypatch.chdir(tmp_path)
    assert model_of(tmp_path, models=Path("here")) == str(tmp_path / "here" / "tiny")


def test_the_engine_gets_the_variables_of_the_spec(tmp_path):
    environment = process_settings(read_spec(EXAMPLE), tmp_path, "engine").environment
    assert environment["VLLM_CPU_OMP_THREADS_BIND"] == "0|1"


def test_a_directory_that_takes_no_files_is_named_before_an_engine_starts(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TunerError, match=r"file/logs cannot hold the logs: Not a directory; name a directory that"):
        process_settings(read_spec(EXAMPLE), tmp_path / "file" / "logs", "engine")
    process_settings(read_spec(EXAMPLE), tmp_path / "new" / "logs", "engine")
    assert (tmp_path / "new" / "logs").is_dir()


def test_a_cause_that_stands_far_above_the_end_of_an_engines_words_is_found(tmp_path):
    process = Process([sys.executable, "-c", DYING], os.environ, tmp_path / "log")
    code = process.wait(30)
    assert len((tmp_path / "log").read_text().rpartition(CORE)[2]) > 8000
    assert classify_exit(code, process.last_words(), was_ready=False).reason == "EngineOutOfMemory"
