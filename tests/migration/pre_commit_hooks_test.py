# SPDX-License-Identifier: Apache-2.0
"""Tests the hooks that other repositories may use with pre-commit."""

import re

import helpers
import pytest

from tf_compat_lossscale.cli import main as cli

pytestmark = pytest.mark.any_release

_OLD = "import tensorflow as tf\nx = tf.train.experimental.LossScale\n"


def read_hooks():
  """Returns id -> the hook's keys and values."""
  text = (helpers.ROOT / ".pre-commit-hooks.yaml").read_text("utf-8")
  hooks = [
    dict(re.findall(r"^(?:- |  )(\w+): (.+?)(?: #.*)?$", part, re.MULTILINE))
    for part in re.split(r"^(?=- )", text, flags=re.MULTILINE)[1:]
  ]
  return {hook["id"]: hook for hook in hooks}


def test_there_is_a_hook_for_each_command():
  hooks = read_hooks()
  assert list(hooks) == ["tf-lossscale-scan", "tf-lossscale-migrate"]
  for hook in hooks.values():
    assert hook["language"] == "python"
    assert hook["types_or"] == "[python, jupyter]"
    assert hook["require_serial"] == "true"
    assert hook["entry"].startswith("tf-lossscale ")


@pytest.mark.parametrize("name", ["tf-lossscale-scan", "tf-lossscale-migrate"])
def test_a_hook_runs_on_the_files_that_pre_commit_gives(name, tmp_path):
  old, other = tmp_path / "old.py", tmp_path / "other.py"
  old.write_text(_OLD)
  other.write_text("x = 1\n")
  _, *words = read_hooks()[name]["entry"].split()
  status = cli.main([*words, str(old), str(other)])
  # pre-commit fails if the status is not 0, or if a file has changed.
  assert status == (1 if words == ["scan"] else 0)
  assert (old.read_text() != _OLD) == (words != ["scan"])
  assert other.read_text() == "x = 1\n"


if __name__ == "__main__":
  helpers.main()
