"""Competitions that benchmarks prepared, opened as tasks where they lie: mle-bench, MLE-Dojo, DSBench.

`wmrl_envs.research.task.load_task` opens them by name: ``"mle-bench:DIR/ID"``, ``"mle-dojo:DIR/ID"``,
``"dsbench:DIR/ID"``. Each is scored by the benchmark's own code, in a process of its own that alone reads the answers
(`wmrl_envs.research.benchmarks.process`). They have no halves: a score on all answers is both the training score and
the reported one.
"""
