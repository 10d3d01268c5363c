from pathlib import Path

import numpy as np
import pytest
import yaml

from frontier_tuner.plants.setup import read_spec
from frontier_tuner.study import ladder_of, prior_of, space_of

EXAMPLES = Path(__file__).parents[3] / "examples"


def deployments():
    for path in sorted(EXAMPLES.glob("*.yaml")):
        kinds = [document.get("kind") for document in yaml.safe_load_all(path.read_text()) if document]
        if "InferenceDeployment" in kinds:
            yield path


@pytest.mark.parametrize("path", list(deployments()), ids=lambda path: path.name)
def test_an_example_has_something_to_search_on_a_ladder(path):
    spec = read_spec(path)
    space = space_of(spec)
    assert space.size > 1
    assert not space.violations(space.baseline)
    loads = ladder_of(spec)
    assert list(loads) == sorted(set(loads))
    if (prior := prior_of(spec)) is not None:
        said = prior.predict([space.baseline], np.array([[load.value for load in loads]]))
        assert (said.throughput > 0).all()
