import os
import subprocess

import pytest

from frontier_tuner.configuration import Configuration
from frontier_tuner.engines.vllm import CATALOGUE, command_line

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]


def test_vllm_knows_every_argument_of_the_catalogue(vllm_image):
    # A wrong flag makes the parser print its whole usage, which its help does in parts only.
    command = [*vllm_image.entrypoint, "--no-such-flag"]
    environment = {**os.environ, **vllm_image.environment}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    flags = {parameter.argument for parameter in CATALOGUE if parameter.argument}

    assert len(flags) >= 8
    assert "unrecognized arguments: --no-such-flag" in done.stderr
    assert {flag for flag in flags if f"{flag} " not in done.stderr.replace("]", " ")} == set()


def test_every_flag_that_is_rendered_is_one_of_the_catalogue():
    everything = Configuration.of({parameter.name: parameter.values[-1] for parameter in CATALOGUE if parameter.values})
    known = {parameter.argument for parameter in CATALOGUE}

    rendered = {word for word in command_line(everything) if word.startswith("--")}

    assert {flag for flag in rendered if flag not in known and flag.replace("--no-", "--") not in known} == set()
