"""Defaults of nbsketch against boosted trees and other kernel methods."""
