# SPDX-License-Identifier: Apache-2.0
"""Tests flags whose choices are one text."""

import legacy_processes
import pytest

pytestmark = pytest.mark.any_release

_PROGRAM = """
from absl import app, flags
flags.DEFINE_enum(name="fp16_implementation", default="keras",
                  enum_values=("keras', 'graph_rewrite"), help="By what.")
flags.DEFINE_enum("size", "small", ["small", "large"], "How large.")
def main(_):
  print(flags.FLAGS.fp16_implementation, flags.FLAGS.size)
app.run(main)
"""


def run(tmp_path, *arguments):
  name = legacy_processes.program(tmp_path, _PROGRAM)
  return legacy_processes.run(name, *arguments, cwd=tmp_path)


def test_run_accepts_the_text(tmp_path):
  status, out, err = run(tmp_path, "--fp16_implementation=graph_rewrite")
  assert (status, out) == (0, "graph_rewrite small\n"), err
  assert run(tmp_path)[1] == "keras small\n"


@pytest.mark.parametrize("flag", ["fp16_implementation=rewrite", "size=tiny"])
def test_other_values_are_refused(tmp_path, flag):
  status, _, err = run(tmp_path, f"--{flag}")
  assert status == 1 and "value should be one of" in err
