"""Scripted reproduction of the papers' tables and figures."""
