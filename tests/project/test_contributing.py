"""The examples of CONTRIBUTING.md run."""

import re
from pathlib import Path

TEXT = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_its_example_runs():
    [example] = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    assert "assert" in example
    exec(compile(example, "CONTRIBUTING.md", "exec"), {})
