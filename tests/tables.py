"""Small tables with what only large ones have: a base, and several leaves."""

from contextlib import ExitStack
from unittest import mock

from nbsketch.tabular import fit, members


def small_leaves(alone=50, leaf_rows=300):
    """Return a context with a base above `alone` rows, and leaves of so few rows."""
    context = ExitStack()
    context.enter_context(mock.patch.object(fit, "ALONE", alone))
    for file, name in (
        (members, "LEAF_ROWS"),
        (fit, "TREE_ROWS"),
        (fit, "ENLARGED_ROWS"),
    ):
        context.enter_context(mock.patch.object(file, name, leaf_rows))
    return context
