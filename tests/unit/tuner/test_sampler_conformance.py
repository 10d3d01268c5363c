"""Optuna's own conformance tests of samplers, on ours."""

import pytest
from optuna.testing.pytest_samplers import (
    BasicSamplerTestCase,
    MultiObjectiveSamplerTestCase,
    RelativeSamplerTestCase,
)

from frontier_tuner.search.sampler import FrontierSampler


class TestFrontierSampler(BasicSamplerTestCase, RelativeSamplerTestCase, MultiObjectiveSamplerTestCase):
    @pytest.fixture
    def sampler(self):
        return lambda: FrontierSampler(seed=1, n_startup_trials=0)


class TestFrontierSamplerWithItsOwnOpening(BasicSamplerTestCase, RelativeSamplerTestCase):
    @pytest.fixture
    def sampler(self):
        return FrontierSampler
