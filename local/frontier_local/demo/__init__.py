"""The demo: the main job, end to end, on an embedded cluster, told step by step."""
