"""The load generator: sends requests, streams answers, exports what a client sees."""
