"""Robometer: a published vision-language model of task progress.

- ``Robometer`` - scores videos with a checkpoint in Robometer-4B's layout, through transformers alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wmrl_envs.errors import CheckpointError, ConfigurationError, MissingExtraError, ProgressModelError
from wmrl_envs.robotics.progress import Progress, Video, check_videos, spaced_frames

if TYPE_CHECKING:
    from wmrl_envs.robotics._robometer_inputs import InputProcessor
    from wmrl_envs.robotics._robometer_network import RobometerNetwork

__all__ = ["Robometer"]


class Robometer:
    """A Robometer, which reads a clip of a few frames at once and judges each of them.

    Every frame of a video gets a score. Up to ``max_frames`` frames are read as they are. Of a longer video the model
    reads ``max_frames`` frames, evenly spaced from the first to the last, and the frames between two of them get scores
    on the straight line between theirs. So it was trained, on whole trajectories thinned out to 8 frames: progress is
    told against the first frame, which a window from the middle of a video would not show, and a video costs one
    forward pass, not one per frame. A change that is over within two neighbouring frames of those is not seen; give a
    shorter video, or more ``max_frames`` than the model was trained with, to look closer. The model looks back only, so
    that the score of a frame it reads does not depend on later frames.

    Progress is the mean of the bins' centres under the softmax of the progress head at the last hidden state of the
    token that follows a frame; success the sigmoid of the success head there (arXiv 2603.02115). The preference head
    is loaded with the rest and not asked: how two videos are laid out for it is not part of the checkpoint.

    Frames are brought to whole image tokens, multiples of 32 pixels in Robometer-4B, and otherwise not resized.

    Example:
        >>> from wmrl_envs.robotics.progress import score_videos
        >>> model = Robometer.load(Path("Robometer-4B"))  # doctest: +SKIP
        >>> score_videos(model, [video], ["open the drawer"])[0].progress  # doctest: +SKIP

    Args:
        network: The network, with its weights.
        inputs: What turns clips into its inputs.
        batch_size: Videos of one forward pass.
        max_frames: The most frames of one video that the model reads.

    Raises:
        ConfigurationError: If a number is too small.
    """

    def __init__(
        self, network: RobometerNetwork, inputs: InputProcessor, *, batch_size: int = 8, max_frames: int = 8
    ) -> None:
        _check_number("batch_size", batch_size, 1)
        _check_number("max_frames", max_frames, 2)
        self.batch_size = batch_size
        self.max_frames = max_frames
        self._network = network
        self._inputs = inputs

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        device: str = "auto",
        dtype: str = "auto",
        batch_size: int = 8,
        max_frames: int = 8,
        prompt: str | None = None,
        processor: str | Path | None = None,
    ) -> Robometer:
        """Load a checkpoint in Robometer-4B's layout, LeRobot's or its authors'.

        The weights are read tensor by tensor, so that they are in memory once.

        Args:
            folder: config.json, and model.safetensors or its shards with model.safetensors.index.json.
            device: ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or ``"mps"``; ``"auto"`` is the best there is.
            dtype: ``"float32"``, ``"bfloat16"`` or ``"float16"``; ``"auto"`` is float32 on a CPU, else bfloat16.
            batch_size: Videos of one forward pass.
            max_frames: The most frames of one video that the model reads; Robometer-4B was trained with 8.
            prompt: What to ask, with ``{task}`` where the instruction goes. By default the text of
                ``robometer_prompt.txt`` in the folder, where one can put the wording that the checkpoint was trained
                with; without that file, words of this package's own.
            processor: Folder of the tokenizer's and the image processor's files, those of Qwen/Qwen3-VL-4B-Instruct; by
                default the checkpoint's. LeRobot's checkpoint comes without them.

        Raises:
            CheckpointError: If the folder is missing, incomplete, damaged, or another model's; it names the keys.
            ConfigurationError: If an argument cannot work.
            MissingExtraError: If transformers or Pillow is not installed.
        """
        _check_number("batch_size", batch_size, 1)
        _check_number("max_frames", max_frames, 2)
        folder, files = Path(folder).expanduser(), Path(processor or folder).expanduser()
        for place in (folder, files):
            if not place.is_dir():
                raise CheckpointError(f"there is no folder {place}; name the one with the checkpoint's files")
        try:
            network, inputs = _load(folder, files, device, dtype, prompt)
        except ImportError as error:
            raise MissingExtraError(
                f"Robometer needs {error.name or error}, which is not installed: pip install 'wmrl-envs[robotics,llm]'"
            ) from error
        return cls(network, inputs, batch_size=batch_size, max_frames=max_frames)

    def score(self, videos: Sequence[Video], instructions: Sequence[str]) -> list[Progress | None]:
        """Score n videos, frame by frame.

        Args:
            videos: n arrays uint8 [T, H, W, 3]; their T, H and W may differ.
            instructions: n sentences, what the robot was told to do.

        Returns:
            One ``Progress`` per video, with progress and success probability of its T frames.

        Raises:
            ConfigurationError: If a video or an instruction cannot be scored.
            ProgressModelError: If the device runs out of memory.
        """
        check_videos(videos, instructions)
        self._inputs.check(instructions)
        read = [self._frames_read(len(video)) for video in videos]
        scores: list[Progress | None] = [None] * len(videos)
        # Clips of a like size in a batch need little padding.
        order = sorted(range(len(videos)), key=lambda i: len(read[i]) * videos[i][0].size)
        for start in range(0, len(order), self.batch_size):
            batch = order[start : start + self.batch_size]
            judged = self._judge([videos[i][read[i]] for i in batch], [instructions[i] for i in batch])
            for i, (progress, success) in zip(batch, judged, strict=True):
                frames = np.arange(len(videos[i]))
                scores[i] = Progress(
                    np.interp(frames, read[i], progress).astype(np.float32),
                    np.interp(frames, read[i], success).astype(np.float32),
                )
        return scores

    def _frames_read(self, length: int) -> Any:
        return np.arange(length) if length <= self.max_frames else spaced_frames(length, self.max_frames)

    def _judge(self, clips: Sequence[Video], instructions: Sequence[str]) -> list[tuple[Any, Any]]:
        import torch

        device = next(self._network.parameters()).device
        inputs = {name: value.to(device) for name, value in self._inputs(clips, instructions).items()}
        try:
            with torch.inference_mode():
                found = self._network(inputs, self._inputs.progress_token)
        except torch.OutOfMemoryError as error:
            raise ProgressModelError(
                f"{device} has too little memory for {len(clips)} videos at once; take a batch_size below "
                f"{self.batch_size}, or smaller frames"
            ) from error
        ends = np.cumsum([len(clip) for clip in clips])[:-1]
        progress, success = (np.split(values.cpu().numpy(), ends) for values in found)
        return list(zip(progress, success, strict=True))


def _load(
    folder: Path, files: Path, device: str, dtype: str, prompt: str | None
) -> tuple[RobometerNetwork, InputProcessor]:
    import torch

    from wmrl_envs.robotics import _robometer_checkpoint as checkpoint
    from wmrl_envs.robotics._robometer_inputs import InputProcessor, read_prompt
    from wmrl_envs.robotics._robometer_network import RobometerNetwork, compute_tables
    from wmrl_envs.world_models.backends._loading import read_device, read_dtype

    where = read_device(None if device == "auto" else device)
    kind = read_dtype(None if dtype == "auto" else dtype, where)
    asked = read_prompt(folder, prompt)
    backbone, bins = checkpoint.read_backbone(folder)
    text = backbone["text_config"]
    tied = backbone.get("tie_word_embeddings") or text.get("tie_word_embeddings")
    found = checkpoint.stored_tensors(folder, tied=bool(tied))
    if checkpoint.EMBEDDING in found:
        # It was resized for the tokens that Robometer adds; settings may still tell the size before.
        backbone["text_config"] = {**text, "vocab_size": found[checkpoint.EMBEDDING].shape[0]}
    with torch.device("meta"):
        network = RobometerNetwork(backbone, bins).requires_grad_(False)
    checkpoint.check_layout(folder, found, network.state_dict())
    inputs = InputProcessor(files, asked, network.config)
    checkpoint.load_weights(network, found, where, kind)
    compute_tables(network, where)
    return network.eval(), inputs


def _check_number(name: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigurationError(f"{name} must be a whole number of at least {least}, got {value!r}")
