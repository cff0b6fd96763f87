"""The documentation: every block of code runs, every command exists, the site builds, and names what is public."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from documentation import PAGES, ROOT, Block, blocks, command_lines, inline_commands, run_page
from language_models import tiny_chat_model
from wmrl_envs.cli import app

STAND_INS: dict[str, dict[str, str]] = {
    "language_agents.md": {
        "transformers:PATH": "transformers:tiny",
        "max_tokens=1024": "max_tokens=16",
        "Qwen/Qwen3-4B": "tiny",
        "max_steps=100": "max_steps=1",
        "per_device_train_batch_size=32": "per_device_train_batch_size=16",
        "max_completion_length=4096": "max_completion_length=48",
        "learning_rate=1e-6": "learning_rate=1e-6, use_cpu=True, bf16=False",
    },
    "quick_start.md": {"--steps 40": "--steps 2", "--steps 45": "--steps 3", "128 * 10": "128 * 2"},
}
"""Page -> what is too large for a test -> what stands in for it."""
PUBLIC = (
    "wmrl_envs",
    "wmrl_envs.agents",
    "wmrl_envs.correction",
    "wmrl_envs.errors",
    "wmrl_envs.report",
    "wmrl_envs.world_models",
    "wmrl_envs.wrappers",
    "wmrl_envs.wrappers.vector",
)
"""Modules whose every public name is in the API reference."""
ALL_BLOCKS = [block for page in PAGES for block in blocks(page)]


def named(value: Path | Block) -> str:
    if isinstance(value, Block):
        return f"{Path(value.page).relative_to(ROOT)}:{value.line}"
    return str(value.relative_to(ROOT))


@pytest.mark.parametrize("page", [p for p in PAGES if any(b.runs for b in blocks(p))], ids=named)
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path) -> None:
    stand_ins = dict(STAND_INS.get(page.name, {}))
    if "tiny" in stand_ins.values():
        tiny_chat_model(tmp_path / "tiny")
    followed = run_page(page, tmp_path, stand_ins)
    assert followed.returncode == 0, f"{followed.stdout[-3000:]}\n{followed.stderr[-6000:]}"


def unknown(words: list[str]) -> str:
    """Return what is wrong with a command, or nothing."""
    if words[0] == "wmrl":
        asked = CliRunner().invoke(app, [*words[1:], "--help"])
        return "" if asked.exit_code == 0 else asked.output
    if words[0] == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        return "" if words[1] in targets else f"no target {words[1]}"
    for script in [word for word in words if re.match(r"(examples|benchmarks)/.*\.py$", word)]:
        source = (ROOT / script).read_text()
        for flag in [word for word in words[words.index(script) :] if word.startswith("--")]:
            field = flag[2:].replace("-", "_")
            if f'"{flag}"' not in source and not re.search(rf"^    {field}: ", source, re.MULTILINE):
                return f"{script} has no {flag}"
    return ""


@pytest.mark.parametrize("block", [b for b in ALL_BLOCKS if list(command_lines(b))], ids=named)
def test_the_commands_of_a_block_exist(block: Block) -> None:
    assert {" ".join(words): problem for words in command_lines(block) if (problem := unknown(words))} == {}


@pytest.mark.parametrize("page", [page for page in PAGES if inline_commands(page)], ids=named)
def test_the_commands_in_sentences_exist(page: Path) -> None:
    found = {" ".join(words): unknown(words) for words in inline_commands(page) if len(words) > 1}
    assert {command: problem for command, problem in found.items() if problem} == {}


def test_a_command_that_does_not_exist_is_noticed() -> None:
    for words in (
        ["wmrl", "train", "--nothing"],
        ["wmrl", "nothing"],
        ["make", "nothing"],
        ["python", "benchmarks/sandbox.py", "--nothing"],
    ):
        assert unknown(words), words


def test_few_blocks_are_excused() -> None:
    excused = [block for block in ALL_BLOCKS if block.language == "python" and not block.runs]
    assert len(excused) <= 3, [named(block) for block in excused]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site strictly, without a warning."""
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0 and "WARNING" not in built.stderr, built.stderr
    return folder


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    loaded = re.compile(
        r"<(?:script|img|iframe|source|video)[^>]*src=[\"']?(?:https?:)?//[^>]*|<link[^>]*href=[\"']?https?://[^>]*"
    )
    for page in site.rglob("*.html"):
        found = [tag for tag in loaded.findall(page.read_text()) if 'rel="canonical"' not in tag]
        assert not found, (page, found)
    for style in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?https?:|@import", style.read_text()), style


def test_the_reference_has_every_public_name(site: Path) -> None:
    anchors = set(re.findall(r' id="([\w.]+)"', "".join(p.read_text() for p in (site / "api").glob("*.html"))))
    missing = []
    for module in map(importlib.import_module, PUBLIC):
        for name in module.__all__:
            value = getattr(module, name)
            home = f"{getattr(value, '__module__', '')}.{name}"
            if f"{module.__name__}.{name}" not in anchors and home not in anchors:
                missing.append(f"{module.__name__}.{name}")
    assert missing == []


def test_the_reference_of_the_command_line_has_every_command(site: Path) -> None:
    from typer.main import get_command

    def names(command: object, name: str) -> list[str]:
        children = getattr(command, "commands", {})
        return [name, *(found for key, child in children.items() for found in names(child, f"{name} {key}"))]

    page = (site / "command_line.html").read_text()
    for name in names(get_command(app), "wmrl")[1:]:
        assert f'id="{name.replace(" ", "-")}"' in page, name


def test_the_diagrams_are_drawn_from_the_recording(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(ROOT / "docs/tools/pictures.py"), str(tmp_path)], check=True)
    kept = ROOT / "docs/images"
    drawn = sorted(path.name for path in tmp_path.glob("*.svg"))
    assert drawn == sorted(path.name for path in kept.glob("*.svg"))
    assert (tmp_path / "loop.svg").read_text() == (kept / "loop.svg").read_text()  # the others hold measured numbers
