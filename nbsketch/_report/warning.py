"""Warnings that point at the line of the user's code."""

import sys
import warnings
from types import FrameType

_PACKAGE = __name__.partition(".")[0]


def warn(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Warn about the first caller outside the package.

    Parameters
    ----------
    message : str or Warning
        Text, or a warning with its text.
    category : type, default=UserWarning
        Category of a text.
    """
    level = 1
    frame: FrameType | None = sys._getframe()
    while frame and frame.f_globals["__name__"].partition(".")[0] == _PACKAGE:
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)
