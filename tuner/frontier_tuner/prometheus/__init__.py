"""Measurement through Prometheus: questions, windows, and the values and verdicts read from them."""

from frontier_tuner.prometheus.answers import Answer, Empty, MetricsSource, NotANumber, Sample, Series, Stale, Value
from frontier_tuner.prometheus.evidence import Limits
from frontier_tuner.prometheus.live import measure_live
from frontier_tuner.prometheus.precision import Enough, Precision, SLOVerdict, enough, slo_verdict
from frontier_tuner.prometheus.rung import Scope, evaluation_time, measure_rung
from frontier_tuner.prometheus.source import PrometheusSource

__all__ = [
    "Answer",
    "Empty",
    "Enough",
    "Limits",
    "MetricsSource",
    "NotANumber",
    "Precision",
    "PrometheusSource",
    "SLOVerdict",
    "Sample",
    "Scope",
    "Series",
    "Stale",
    "Value",
    "enough",
    "evaluation_time",
    "measure_live",
    "measure_rung",
    "slo_verdict",
]
