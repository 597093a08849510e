# SPDX-License-Identifier: Apache-2.0
"""Tests `tf-lossscale scan`."""

import json

import helpers
import pytest

from tf_compat_lossscale.cli import main as cli
from tf_compat_lossscale.legacy import scan

pytestmark = pytest.mark.any_release

_OLD = "import tensorflow as tf\nx = tf.train.experimental.LossScale\n"


def test_code_without_legacy_names_is_none_of_its_business(tmp_path):
  path = tmp_path / "model.py"
  path.write_text("import tensorflow as tf\nx = tf.placeholder(1)\n")
  assert not scan.read_paths([str(tmp_path)]).touched
  assert cli.main(["scan", str(path)]) == 0


def test_scan_prints_and_exits(tmp_path, capsys):
  path = tmp_path / "old.py"
  path.write_text(_OLD)
  assert cli.main(["scan", str(tmp_path)]) == 1
  (line,) = capsys.readouterr().out.splitlines()
  assert line.startswith(f"{path}:2:5: tf.train.experimental.LossScale -> tfl.")
  assert cli.main(["scan", "--format=json", str(path)]) == 1
  (found,) = json.loads(capsys.readouterr().out)["findings"]
  assert found["now"] == "tf_compat_lossscale.LossScale"
  assert (found["line"], found["column"]) == (2, 5)
  path.write_text("x = 1\n")
  assert cli.main(["scan", str(path)]) == 0


_SETS = 'os.environ["TF_ENABLE_AUTO_MIXED_PRECISION"] = "1"\n'


def test_environment_variables_of_nvidia(tmp_path, capsys):
  program, launcher = tmp_path / "a.py", tmp_path / "b.py"
  program.write_text(f"import os\nimport tensorflow as tf\nif x:\n  {_SETS}")
  launcher.write_text(f"import os\n{_SETS}")
  assert cli.main(["scan", str(tmp_path)]) == 1
  first, second = capsys.readouterr().out.splitlines()
  what = "TF_ENABLE_AUTO_MIXED_PRECISION -> "
  assert first.startswith(f"{program}:4:14: {what}tfl.honor_environment()")
  assert second.startswith(f"{launcher}:2:12: {what}by hand, where")
  launcher.write_text(f'"""Sets {_SETS}."""\n')
  program.write_text(f"import tensorflow as tf\nhonor_environment()\n{_SETS}")
  assert cli.main(["scan", str(tmp_path)]) == 0


def test_what_is_skipped(tmp_path):
  for name in (".git/a.py", "env/lib/a.py", "x/site-packages/a.py", "a.txt"):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_OLD)
  (tmp_path / "env" / "pyvenv.cfg").write_text("")
  assert not scan.read_paths([str(tmp_path)]).sources
  assert scan.read_paths([str(tmp_path / "a.txt")]).sources


def test_what_cannot_be_read_is_reported(tmp_path, capsys):
  good, bad = tmp_path / "good.py", tmp_path / "bad.py"
  good.write_text(_OLD)
  bad.write_text("print 'Python 2'\n")
  assert cli.main(["scan", "--format=json", str(tmp_path)]) == 1
  (unreadable,) = json.loads(capsys.readouterr().out)["unreadable"]
  assert "bad.py:1: cannot be parsed" in unreadable
  good.unlink()
  assert cli.main(["scan", str(tmp_path)]) == 2
  assert "bad.py:1: cannot be parsed" in capsys.readouterr().err


def test_a_star_import(tmp_path, capsys):
  path = tmp_path / "old.py"
  path.write_text("from tensorflow.contrib.mixed_precision import *\n")
  assert cli.main(["scan", "--format=json", str(path)]) == 1
  found = json.loads(capsys.readouterr().out)["findings"]
  assert "from tf_compat_lossscale.contrib import *" in [
    finding["edit"] for finding in found
  ]


if __name__ == "__main__":
  helpers.main()
