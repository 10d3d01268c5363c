"""The search: which configuration to start next and which loads to put on it.

The valid space is small enough to enumerate, so every candidate is scored: the residual of a prior is learnt over whole
load curves, and the next start is the one whose curve should add most for the user's target and to the frontier.
"""
