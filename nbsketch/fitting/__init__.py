"""The steps of a fit; they know no estimator.

checked data -> objective -> sketched rows -> solution: see `nbsketch.fitting.methods`.
"""
