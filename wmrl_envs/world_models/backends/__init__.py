"""Where a language model runs, behind one protocol.

* ``transformers:PATH``: in this process (`wmrl_envs.world_models.backends.transformers.TransformersBackend`).
* ``vllm:PATH``: an offline engine in this process (`wmrl_envs.world_models.backends.vllm.VLLMBackend`).
* ``openai:URL#MODEL``: any OpenAI-compatible server (`wmrl_envs.world_models.backends.openai.OpenAIBackend`).
"""

from __future__ import annotations

from wmrl_envs.world_models.backends.protocol import Backend, Conversation, Generation, Message, Schema
from wmrl_envs.world_models.backends.registry import BACKENDS, resolve_backend

__all__ = ["BACKENDS", "Backend", "Conversation", "Generation", "Message", "Schema", "resolve_backend"]
