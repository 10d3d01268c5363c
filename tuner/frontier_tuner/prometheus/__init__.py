"""Measurement through Prometheus: queries, windows and the values read from them."""

from frontier_tuner.prometheus.live import measure_live
from frontier_tuner.prometheus.rung import Scope, evaluation_time, measure_rung
from frontier_tuner.prometheus.source import Answer, Empty, MetricsSource, NotANumber, PrometheusSource, Sample, Value
from frontier_tuner.prometheus.validity import Limits

__all__ = [
    "Answer",
    "Empty",
    "Limits",
    "MetricsSource",
    "NotANumber",
    "PrometheusSource",
    "Sample",
    "Scope",
    "Value",
    "evaluation_time",
    "measure_live",
    "measure_rung",
]
