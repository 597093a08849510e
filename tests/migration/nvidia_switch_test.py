# SPDX-License-Identifier: Apache-2.0
"""Tests NVIDIA's switch: where `migrate` adds `tfl.honor_environment()`."""

import helpers
import pytest
from source_trees import write_tree

from tf_compat_lossscale._core import whole_files
from tf_compat_lossscale.cli import main as cli
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import scanner

pytestmark = pytest.mark.any_release

_NAME = "TF_ENABLE_AUTO_MIXED_PRECISION"
_OPTIONS = scanner.Options(target=(2, 15))
_SWITCHED = _OPTIONS._replace(nvidia_switch=True)
_MAIN = """\
import tensorflow as tf

def main():
    opt = tf.train.AdamOptimizer(0.1)
    print(tf.placeholder(tf.float32), opt)

if __name__ == '__main__':
    main()
"""
_NO_TENSORFLOW = """\
import os
os.environ['CUDA_VISIBLE_DEVICES'] = ''
from pkg import train
if __name__ == '__main__':
    train.main()
"""
_ENTRY = (
  "import tensorflow as tf\nopt = tf.train.AdamOptimizer()\ntf.Session()\n"
)


def find(folder, options=_OPTIONS):
  """Returns (place, name, state, message) of the findings of the switch."""
  report = scanner.scan([str(folder)], options)
  assert not report.errors
  return [
    (
      f.place.replace(f"{folder}/", ""),
      f.name,
      f.state,
      f.message,
    )
    for f in report.findings
    if f.code == "LS205"
  ]


def migrate(folder, options=_OPTIONS):
  """Migrates a folder; returns the findings of the switch that are left."""
  edited = options._replace(edited=(findings.MIGRATE,))
  report = scanner.scan([str(folder)], edited)
  for change in report.changes:
    whole_files.replace_file(change.path, change.after)
  return find(folder, options)


def test_a_program_that_does_not_import_tensorflow(tmp_path):
  write_tree(tmp_path, {"main.py": _NO_TENSORFLOW, "pkg/train.py": _MAIN})
  assert migrate(tmp_path, _SWITCHED) == []
  assert (tmp_path / "main.py").read_text().splitlines() == [
    "import os",
    "os.environ['CUDA_VISIBLE_DEVICES'] = ''",
    "import tensorflow.compat.v1 as tf",
    "tf.disable_v2_behavior()",
    "import tf_compat_lossscale as tfl",
    "tfl.honor_environment()",
    *_NO_TENSORFLOW.splitlines()[2:],
  ]


def test_a_module_that_sets_the_switch_for_its_programs(tmp_path):
  files = {
    "pkg/amp.py": f"import os\nos.environ.update({{'{_NAME}': '1'}})\n",
    "pkg/__init__.py": "",
    "main.py": f"from pkg import amp\n{_MAIN}",
    "launch.py": "import subprocess\nsubprocess.call(['python', 'main.py'], "
    f"env={{'{_NAME}': '1'}})\n",
  }
  write_tree(tmp_path, files)
  found = {place: state for place, _, state, _ in find(tmp_path)}
  assert found["pkg/amp.py:2:20"] == findings.MIGRATE
  left = migrate(tmp_path)
  assert not left
  assert "honor_environment()" in (tmp_path / "main.py").read_text()


def test_the_option_alone(tmp_path, capsys):
  write_tree(
    tmp_path, {"main.py": _MAIN, "lib/x.py": "import tensorflow as tf\n"}
  )
  assert find(tmp_path) == []
  assert migrate(tmp_path, _SWITCHED) == []
  text = (tmp_path / "main.py").read_text()
  assert text.count("tfl.honor_environment()\n") == 1
  assert text.index("disable_v2") < text.index("honor_") < text.index("Adam")
  assert cli.main(["scan", "--nvidia-switch", str(tmp_path)]) == 0
  assert cli.main(["scan", str(tmp_path)]) == 0
  capsys.readouterr()


def test_each_program_has_its_own_switch(tmp_path):
  switch = f"import os\nos.environ['{_NAME}'] = '1'\n"
  files = {"one/train.py": switch + _ENTRY, "two/train.py": _ENTRY}
  write_tree(tmp_path, files)
  assert migrate(tmp_path) == []
  assert "honor_" in (tmp_path / "one/train.py").read_text()
  assert "honor_" not in (tmp_path / "two/train.py").read_text()


if __name__ == "__main__":
  helpers.main()
