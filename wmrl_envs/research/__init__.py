"""AutoResearch: machine-learning tasks whose reward is the execution of a submitted solution."""
