"""Small tables with what only large ones have: a base, and several leaves."""

from contextlib import ExitStack
from unittest import mock

from nbsketch.tabular import fit, scales


def small_leaves(alone=50, leaf_rows=300):
    """Return a context with a base above `alone` rows, and leaves of so few rows."""
    context = ExitStack()
    for file in (fit, scales):
        context.enter_context(mock.patch.object(file, "ALONE", alone))
    for name in "TREE_ROWS", "LARGER_ROWS":
        context.enter_context(mock.patch.object(fit, name, leaf_rows))
    return context
