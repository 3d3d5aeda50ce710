"""Images of README.md; `make pictures` solves and draws them again.

python docs/extensions/pictures.py FOLDER
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PICTURES = {"panda_reach": "panda_reach", "anymal_trot": "anymal_trot"}
"""File -> configuration."""
WIDTH = 700  # [pixels]
COLORS = 128
"""Number of palette colors; gives files of some ten kilobytes."""


def draw(folder: Path) -> list[Path]:
    """Solve the configurations and write the images; return their paths."""
    from PIL import Image

    from trajopt.view.files import palette

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, config in PICTURES.items():
        with tempfile.TemporaryDirectory() as place:
            command = [sys.executable, "-m", "experiments.cli.main"]
            path = ROOT / "problems" / "configs" / f"{config}.toml"
            options = ["--out", place, "--set", "output.plots=false", "--verbosity", "0"]
            subprocess.run([*command, "solve", str(path), *options], cwd=ROOT, check=True)
            shot = Path(place) / "poses.png"
            subprocess.run([*command, "view", f"{place}/solution.npz", "--screenshot", str(shot)], cwd=ROOT, check=True)
            picture = Image.open(shot).convert("RGB")
            small = picture.resize((WIDTH, round(WIDTH * picture.height / picture.width)), Image.Resampling.LANCZOS)
            written.append(folder / f"{name}.png")
            small.quantize(palette=palette([small], COLORS), dither=Image.Dither.NONE).save(written[-1], optimize=True)
    return written


if __name__ == "__main__":
    for path in draw(Path(sys.argv[1])):
        print(f"{path}: {path.stat().st_size / 1024:.0f} KiB")
