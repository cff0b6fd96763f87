"""Sandboxes: graders that execute a solution, or answer from recorded executions."""
