"""The steps of a fit, independent of the estimators.

checked data -> objective -> sketched rows -> solution: see `nbsketch.fitting.steps`.
"""
