"""Environments whose real reward is expensive, trained on predicted rewards that a thin stream of real ones corrects."""

__version__ = "0.1.0"
