"""Benchmarks of search methods on tables of measured or computed truth; a method sees only what it has measured."""
