# SPDX-License-Identifier: Apache-2.0
"""Tests `tf-lossscale migrate`."""

import os
import stat
import subprocess
import sys
import textwrap

import helpers
import pytest

from tf_compat_lossscale import legacy
from tf_compat_lossscale.cli import main as cli
from tf_compat_lossscale.legacy import migrate
from tf_compat_lossscale.legacy import scan

pytestmark = pytest.mark.any_release


def edited(tmp_path, text, name="program.py"):
  """Migrates a text; checks that a second migration changes nothing."""
  path = tmp_path / name
  path.write_text(textwrap.dedent(text), "utf-8")
  code = scan.read_paths([str(tmp_path)])
  for source in code.touched:
    before, after = migrate.edit_source(source, code.needs_keras_2)
    assert before != after
    migrate.replace_file(source.path, after)
  again = scan.read_paths([str(tmp_path)])
  for source in again.touched:  # The names left over are in strings.
    before, after = migrate.edit_source(source, again.needs_keras_2)
    assert before == after
  return path.read_text("utf-8")


@pytest.mark.parametrize(
  ("before", "after"),
  [
    (
      """\
      import tensorflow as tf
      import os

      os.environ["TF_ENABLE_AUTO_MIXED_PRECISION"] = "1"
      opt = tf.train.AdamOptimizer()
      """,
      """\
      import tf_compat_lossscale as tfl
      import tensorflow.compat.v1 as tf
      tf.disable_v2_behavior()
      tfl.honor_environment()
      import os

      os.environ["TF_ENABLE_AUTO_MIXED_PRECISION"] = "1"
      opt = tf.train.AdamOptimizer()
      """,
    ),
    (
      """\
      import tensorflow.compat.v1 as tf
      tf.disable_v2_behavior()
      import tf_compat_lossscale as ls
      os.environ["TF_ENABLE_AUTO_MIXED_PRECISION"] = "1"
      """,
      """\
      import tensorflow.compat.v1 as tf
      tf.disable_v2_behavior()
      import tf_compat_lossscale as ls
      ls.honor_environment()
      os.environ["TF_ENABLE_AUTO_MIXED_PRECISION"] = "1"
      """,
    ),
    (
      """\
      import tensorflow.compat.v1 as tf
      opt = tf.train.experimental.MixedPrecisionLossScaleOptimizer(  # why
          opt,   'dynamic')
      """,
      """\
      import tf_compat_lossscale as tfl
      import tensorflow.compat.v1 as tf
      opt = tfl.MixedPrecisionLossScaleOptimizer(  # why
          opt,   'dynamic')
      """,
    ),
    (
      '''\
      #!/usr/bin/env python
      # Copyright.
      """Doc."""

      from __future__ import print_function
      import os, tensorflow as tf; import sys

      with tf.Session() as s: x = tf.train.experimental.FixedLossScale(8)
      ''',
      '''\
      #!/usr/bin/env python
      # Copyright.
      """Doc."""

      from __future__ import print_function
      import tf_compat_lossscale as tfl
      import os, tensorflow.compat.v1 as tf
      tf.disable_v2_behavior()
      import sys

      with tf.Session() as s: x = tfl.FixedLossScale(8)
      ''',
    ),
    (
      """\
      from tensorflow.keras.mixed_precision import experimental as mp
      mp.set_policy('mixed_float16')
      """,
      """\
      import tf_compat_lossscale as tfl
      tfl.use_keras_2()  # Before TensorFlow is imported.
      from tf_compat_lossscale import keras as mp
      mp.set_policy('mixed_float16')
      """,
    ),
    (
      """\
      def f(tfl):
        import tensorflow as tf
        return tf.train.experimental.LossScale, tfl
      """,
      """\
      import tf_compat_lossscale
      def f(tfl):
        import tensorflow as tf
        return tf_compat_lossscale.LossScale, tfl
      """,
    ),
    (
      """\
      import tensorflow as tf
      import tf_compat_lossscale as ls
      a = ls.get(1), (tf.train
                      .experimental.LossScale)
      """,
      """\
      import tensorflow as tf
      import tf_compat_lossscale as ls
      a = ls.get(1), (ls.LossScale)
      """,
    ),
    (
      """\
      from tensorflow.compat.v1 import mixed_precision, train
      if True: from tensorflow.train.experimental import LossScale, PythonState
      mixed_precision.FixedLossScale(1)
      """,
      """\
      from tensorflow.compat.v1 import train
      import tf_compat_lossscale as mixed_precision
      if True: from tensorflow.train.experimental import PythonState; """
      """from tf_compat_lossscale import LossScale
      mixed_precision.FixedLossScale(1)
      """,
    ),
    (
      """\
      import tensorflow.contrib.mixed_precision
      tensorflow.contrib.mixed_precision.FixedLossScaleManager(1.)
      """,
      """\
      import tf_compat_lossscale as tfl
      import tensorflow
      tfl.contrib.FixedLossScaleManager(1.)
      """,
    ),
    (
      """\
      from tensorflow.python.training.experimental import mixed_precision as m
      m.enable_mixed_precision_graph_rewrite_v1(opt)
      m.enable_mixed_precision_graph_rewrite(opt)
      """,
      """\
      import tf_compat_lossscale as tfl
      from tf_compat_lossscale import graph_rewrite as m
      tfl.enable_mixed_precision_graph_rewrite(opt)
      m.enable_mixed_precision_graph_rewrite(opt)
      """,
    ),
    (
      """\
      from tensorflow.train.experimental import (
          LossScale as Base,
          DynamicLossScale,
      )
      """,
      """\
      from tf_compat_lossscale import LossScale as Base, DynamicLossScale
      """,
    ),
  ],
)
def test_rewrites(before, after, tmp_path):
  assert edited(tmp_path, before) == textwrap.dedent(after)


def test_a_code_base_becomes_tensorflow_2_as_a_whole(tmp_path):
  (tmp_path / "model.py").write_text(
    "import tensorflow as tf\nx = tf.placeholder(1)\ntf.layers.dense(x, 1)\n"
  )
  (tmp_path / "other.py").write_text(
    "import tensorflow as tf\ntf.function(f)\n"
  )
  main = edited(
    tmp_path, "import tensorflow as tf\ntf.train.experimental.LossScale\n"
  )
  assert main.splitlines()[1].startswith("tfl.use_keras_2()")
  assert (tmp_path / "model.py").read_text().splitlines()[2:4] == [
    "import tensorflow.compat.v1 as tf",
    "tf.disable_v2_behavior()",
  ]
  assert "tfl" not in (tmp_path / "other.py").read_text()


@pytest.mark.parametrize(
  "text",
  [
    b"import tensorflow as tf\r\n"
    b"x = tf.train.experimental.LossScale  # \xc3\xbc\r\n",
    b"# -*- coding: latin-1 -*-\nimport tensorflow as tf\n"
    b"x = '\xfc', tf.train.experimental.LossScale\n",
    b"\xef\xbb\xbfimport tensorflow as tf\ntf.train.experimental.LossScale\n",
    b"import tensorflow as tf\nif 1:\n\tx = tf.train.experimental.LossScale",
    b"import tensorflow as tf\n\x0c\nx = tf.train.experimental.LossScale\n",
  ],
)
def test_bytes_are_kept(text, tmp_path):
  path = tmp_path / "program.py"
  path.write_bytes(text)
  assert cli.main(["migrate", "--write", str(path)]) == 0
  data = path.read_bytes()
  end = b"\r\n" if b"\r\n" in text else b"\n"
  assert (
    data.replace(b"import tf_compat_lossscale as tfl" + end, b"").replace(
      b"tfl.LossScale", b"tf.train.experimental.LossScale"
    )
    == text
  )
  compile(data, "program.py", "exec")


_OLD = "import tensorflow as tf\nx = tf.train.experimental.LossScale\n"


def test_a_star_import(tmp_path):
  path = tmp_path / "old.py"
  path.write_text("from tensorflow.contrib.mixed_precision import *\n")
  assert cli.main(["migrate", "--write", str(path)]) == 0
  assert "from tf_compat_lossscale.contrib import *\n" in path.read_text()


def test_what_cannot_be_read_is_reported(tmp_path, capsys):
  good, bad = tmp_path / "good.py", tmp_path / "bad.py"
  good.write_text(_OLD)
  bad.write_text("print 'Python 2'\n")
  assert cli.main(["migrate", "--write", str(tmp_path)]) == 2
  assert "bad.py:1: cannot be parsed" in capsys.readouterr().err
  assert bad.read_text() == "print 'Python 2'\n"
  assert "tfl.LossScale" in good.read_text()
  assert cli.main(["scan", str(tmp_path)]) == 2


def test_a_diff_that_patch_understands(tmp_path, capsys):
  path = tmp_path / "old.py"
  path.write_text(_OLD.rstrip("\n"))
  assert cli.main(["migrate", str(path)]) == 0
  assert path.read_text() == _OLD.rstrip("\n")
  shown = capsys.readouterr().out
  subprocess.run(
    ["git", "apply", "--unsafe-paths", "-p1", "--directory=/", "-"],
    input=shown.encode(),
    cwd=tmp_path,
    check=True,
  )
  assert "tfl.LossScale" in path.read_text()


def test_names_in_strings_are_left_to_the_user(tmp_path, capsys):
  path = tmp_path / "old.py"
  text = "import tensorflow as tf\n"
  text += "getattr(tf.train.experimental, 'LossScale')\n"
  path.write_text(text)
  assert cli.main(["migrate", "--write", str(path)]) == 0
  assert path.read_text() == text
  assert "by hand" in capsys.readouterr().err


def test_modes_and_links_are_kept_and_nothing_else_written(tmp_path):
  real, link = tmp_path / "real.py", tmp_path / "link.py"
  real.write_text(_OLD)
  real.chmod(0o755)
  link.symlink_to(real)
  assert cli.main(["migrate", "--write", str(link)]) == 0
  assert link.is_symlink() and "tfl" in real.read_text()
  assert stat.S_IMODE(real.stat().st_mode) == 0o755
  assert sorted(os.listdir(tmp_path)) == ["link.py", "real.py"]


def test_a_write_that_fails_leaves_the_file(tmp_path, monkeypatch, capsys):
  path = tmp_path / "old.py"
  path.write_text(_OLD)

  def full(*args):
    raise OSError(28, "No space left on device")

  monkeypatch.setattr(os, "fsync", full)
  with pytest.raises(SystemExit) as exit_:
    cli.main(["migrate", "--write", str(path)])
  assert exit_.value.code == 2
  assert "No space left" in capsys.readouterr().err
  assert path.read_text() == _OLD and os.listdir(tmp_path) == ["old.py"]


@pytest.mark.parametrize("command", ["scan", "migrate"])
def test_mistakes_are_one_line(command, tmp_path, capsys):
  for argv in ([command], [command, str(tmp_path / "typo.py")]):
    with pytest.raises(SystemExit) as exit_:
      cli.main(argv)
    assert exit_.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"tf-lossscale {command}: ")


def test_without_libcst_it_says_what_to_install(tmp_path, monkeypatch, capsys):
  path = tmp_path / "old.py"
  path.write_text(_OLD)
  monkeypatch.setitem(sys.modules, "libcst", None)
  name = "tf_compat_lossscale.legacy.rewriter"
  monkeypatch.delitem(sys.modules, name, raising=False)
  monkeypatch.delattr(legacy, "rewriter", raising=False)
  with pytest.raises(SystemExit) as exit_:
    cli.main(["migrate", str(path)])
  assert exit_.value.code == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert "pip install libcst" in line


if __name__ == "__main__":
  helpers.main()
