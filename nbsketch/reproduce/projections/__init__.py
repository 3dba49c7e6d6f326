"""Rates of algorithms with random projections (Lin and Cevher, JMLR 2020)."""
