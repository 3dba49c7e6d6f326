"""Parts that the experiments share: rows, settings, statistics, figures."""
