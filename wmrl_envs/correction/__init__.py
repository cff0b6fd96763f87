"""The method alone: calibration, fusion, anchors, advantages and the ledger. Needs numpy and scipy, nothing else."""
