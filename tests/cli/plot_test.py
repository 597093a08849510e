# SPDX-License-Identifier: Apache-2.0
"""Tests `tf-lossscale plot`."""

import sys

import helpers
import pytest
import tensorflow as tf

from tf_compat_lossscale.cli import main

tf1 = tf.compat.v1


@pytest.fixture
def folder(tmp_path, monkeypatch):
  """Returns the folder of a run; the current folder is the one above."""
  with tf.Graph().as_default():
    writer = tf1.summary.FileWriter(str(tmp_path / "run"))
  for step, scale in enumerate((8.0, 8.0, 4.0, 8.0)):
    summary = tf1.Summary()
    summary.value.add(tag="loss_scale/value", simple_value=scale)
    writer.add_summary(summary, step)
  writer.close()
  monkeypatch.chdir(tmp_path)
  return tmp_path


def fail(capfd, *words):
  """Returns the line that a mistake prints."""
  with pytest.raises(SystemExit) as error:
    main.main(["plot", *words])
  assert error.value.code == 2
  (line,) = capfd.readouterr().err.splitlines()
  return line


@pytest.mark.parametrize(
  "ending, begin", [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
)
def test_pictures(folder, capfd, ending, begin):
  pytest.importorskip("matplotlib", reason="the extra [plot] is not installed")
  path = folder / f"a.{ending}"
  path.write_text("old")
  assert main.main(["plot", "run", "-o", str(path)]) == 0
  assert path.read_bytes().startswith(begin)
  assert capfd.readouterr() == (f"{path}\n", "")
  if ending == "svg":
    assert "skipped step" in path.read_text() or "<path" in path.read_text()


def test_the_size_of_a_picture(folder):
  pytest.importorskip("matplotlib", reason="the extra [plot] is not installed")
  from matplotlib import image

  assert main.main(["plot", "run"]) == 0
  assert image.imread("scale.png").shape[:2] == (600, 1200)


def test_mistakes(folder, capfd, monkeypatch):
  pytest.importorskip("matplotlib", reason="the extra [plot] is not installed")
  assert "must end in .png, .svg, .pdf" in fail(capfd, "run", "-o", "a.txt")
  assert "no such file or folder" in fail(capfd, "walk", "-o", "a.png")
  assert "No such file" in fail(capfd, "run", "-o", "none/a.png")
  (folder / "a.png").write_text("old")
  monkeypatch.setattr("os.replace", _fail)
  assert "disk is full" in fail(capfd, "run", "-o", "a.png")
  assert (folder / "a.png").read_text() == "old"
  assert sorted(x.name for x in folder.iterdir()) == ["a.png", "run"]


def _fail(*args):
  raise OSError(28, "the disk is full")


def test_without_matplotlib(folder, capfd, monkeypatch):
  monkeypatch.setitem(sys.modules, "matplotlib", None)
  monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
  line = fail(capfd, "run")
  assert "a picture needs matplotlib: pip install matplotlib" in line
  assert [x.name for x in folder.iterdir()] == ["run"]


if __name__ == "__main__":
  helpers.main()
