"""What the README says can be done."""

import re

import helpers
import pytest

_README = (helpers.ROOT / "README.md").read_text("utf-8")
_BLOCKS = re.findall(
  r"^```(\w+)\n(.*?)^```$", _README, re.DOTALL | re.MULTILINE
)
_PYTHON = [code for language, code in _BLOCKS if language == "python"]
_SHELL = [code for language, code in _BLOCKS if language == "sh"]


@pytest.mark.parametrize("code", _PYTHON, ids=range(len(_PYTHON)))
def test_python_blocks_run(code, tmp_path):
  (tmp_path / "block.py").write_text(code, "utf-8")
  helpers.run_python("block.py", cwd=tmp_path)


def test_every_block_is_checked():
  assert len(_PYTHON) >= 4
  assert len(_PYTHON) + len(_SHELL) == len(_BLOCKS)


def test_shell_blocks_name_what_there_is():
  makefile = (helpers.ROOT / "Makefile").read_text("utf-8")
  targets = set(re.findall(r"^(\w+):", makefile, re.MULTILINE))
  commands = [
    line.split("#")[0].split() for s in _SHELL for line in s.splitlines()
  ]
  ours = {"run", "scan", "migrate", "inspect", "convert"}
  assert {c[0] for c in commands} == {"make", "tf-lossscale"}
  for program, what, *_ in commands:
    assert what in (targets if program == "make" else ours), what
  printed = helpers.run_python("-m", "tf_compat_lossscale", "--help")
  assert all(f"    {name} " in printed for name in ours)


@pytest.mark.any_release
def test_the_two_commands_come_first():
  assert _BLOCKS[0][1].startswith("make demo")
  assert _README.index("make test") < _README.index("\n\n", 60)


@pytest.mark.any_release
def test_links_lead_somewhere():
  for link in re.findall(r"\]\(([^)#:]+)\)", _README):
    assert (helpers.ROOT / link).exists(), link


if __name__ == "__main__":
  helpers.main()
