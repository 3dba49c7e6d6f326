"""The steps of a fit; knows no estimator."""
