"""Comparison of nbsketch's defaults with boosted trees and other methods."""
