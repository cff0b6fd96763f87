"""Tiny random policies of LeRobot's own architectures, saved with their processors as its training leaves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

__all__ = ["MEAN", "STD", "tiny_act", "tiny_diffusion", "tiny_smolvla"]

MEAN = np.array([0.5, -0.5, 0.0, 2.0], dtype=np.float32)
"""Of the actions that the policies are said to be trained on; no random model comes near to it by itself."""
STD = np.array([0.1, 0.2, 0.3, 0.4], dtype=np.float32)
_IMAGE, _STATE, _ACTION = "observation.images.top", "observation.state", "action"


def tiny_act(folder: Path, **settings: Any) -> Path:
    """Save an ACT of one layer and a ResNet-18 that plans 6 actions and takes 3 of them."""
    from lerobot.policies.act.configuration_act import ACTConfig
    from lerobot.policies.act.modeling_act import ACTPolicy

    sizes = {"dim_model": 32, "n_heads": 2, "dim_feedforward": 32, "n_encoder_layers": 1, "n_decoder_layers": 1}
    plan = {"chunk_size": 6, "n_action_steps": 3}
    config = ACTConfig(**_features(), pretrained_backbone_weights=None, use_vae=False, **{**sizes, **plan, **settings})
    return _saved(folder, ACTPolicy, config)


def tiny_diffusion(folder: Path, **settings: Any) -> Path:
    """Save a diffusion policy that looks at 2 observations and takes 2 of the 4 actions it plans."""
    from lerobot.policies.diffusion.configuration_diffusion import DiffusionConfig
    from lerobot.policies.diffusion.modeling_diffusion import DiffusionPolicy

    config = DiffusionConfig(
        **_features(),
        **{"n_obs_steps": 2, "horizon": 4, "n_action_steps": 2, "num_inference_steps": 2, **settings},
        crop_shape=None,
        down_dims=(16, 32),
        n_groups=4,
        spatial_softmax_num_keypoints=4,
        diffusion_step_embed_dim=16,
    )
    return _saved(folder, DiffusionPolicy, config)


def tiny_smolvla(folder: Path, backbone: Path, **settings: Any) -> Path:
    """Save a SmolVLA of two layers that plans 5 actions and takes 2 of them, and its backbone's configuration."""
    from lerobot.policies.smolvla.configuration_smolvla import SmolVLAConfig
    from lerobot.policies.smolvla.modeling_smolvla import SmolVLAPolicy

    config = SmolVLAConfig(
        **_features(),
        vlm_model_name=str(_smolvlm(backbone)),
        **{"chunk_size": 5, "n_action_steps": 2, "num_steps": 2, **settings},
        num_vlm_layers=2,
        resize_imgs_with_padding=(32, 32),
        max_state_dim=8,
        max_action_dim=8,
    )
    return _saved(folder, SmolVLAPolicy, config)


def _features() -> dict[str, Any]:
    from lerobot.configs.types import FeatureType, PolicyFeature

    return {
        "input_features": {
            _IMAGE: PolicyFeature(type=FeatureType.VISUAL, shape=(3, 32, 32)),
            _STATE: PolicyFeature(type=FeatureType.STATE, shape=(4,)),
        },
        "output_features": {_ACTION: PolicyFeature(type=FeatureType.ACTION, shape=(4,))},
        "device": "cpu",
    }


def _saved(folder: Path, kind: Any, config: Any) -> Path:
    from lerobot.policies.factory import make_pre_post_processors

    torch.manual_seed(0)
    policy = kind(config)
    statistics = {
        _IMAGE: {"mean": torch.full((3, 1, 1), 0.5), "std": torch.full((3, 1, 1), 0.25)},
        _STATE: {"mean": torch.zeros(4), "std": torch.ones(4)},
        _ACTION: {"mean": torch.from_numpy(MEAN), "std": torch.from_numpy(STD)},
    }
    for values in statistics.values():
        values["min"], values["max"] = values["mean"] - 2 * values["std"], values["mean"] + 2 * values["std"]
    policy.save_pretrained(folder)
    for processor in make_pre_post_processors(config, dataset_stats=statistics):
        processor.save_pretrained(folder)
    return folder


def _smolvlm(folder: Path) -> Path:
    """Save what SmolVLA reads of its backbone: the configuration, and a processor with a byte-level tokenizer."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import (
        PreTrainedTokenizerFast,
        SmolVLMConfig,
        SmolVLMImageProcessor,
        SmolVLMProcessor,
        SmolVLMVideoProcessor,
    )

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        ["open the drawer"], trainers.BpeTrainer(initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    )
    special = {
        "image_token": "<image>",
        "fake_image_token": "<fake_token_around_image>",
        "global_image_token": "<global-img>",
        "end_of_utterance_token": "<end_of_utterance>",
    }
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", bos_token="<s>", extra_special_tokens=special
    )
    processor = SmolVLMProcessor(
        SmolVLMImageProcessor(), fast, SmolVLMVideoProcessor(), image_seq_len=4, chat_template="-"
    )
    processor.save_pretrained(folder)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = SmolVLMConfig(
        vision_config={**sizes, "image_size": 32, "patch_size": 8},
        text_config={**sizes, "model_type": "llama", "vocab_size": len(fast), "num_key_value_heads": 2, "head_dim": 8},
        image_token_id=fast.convert_tokens_to_ids("<image>"),
        scale_factor=2,
    )
    config.save_pretrained(folder)
    return folder
