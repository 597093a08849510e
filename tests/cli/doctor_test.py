# SPDX-License-Identifier: Apache-2.0
"""Tests `tf-lossscale doctor` and `plot`: what they read, say and draw."""

import json
import subprocess
import sys

import helpers
import numpy as np
import pseudo_terminals
import pytest
import tensorflow as tf

from tf_compat_lossscale.cli import doctor
from tf_compat_lossscale.cli import main
from tf_compat_lossscale.cli.scalars import Log
from tf_compat_lossscale.cli.scalars import Row

tf1 = tf.compat.v1


def write(folder, rows, suffix="", tag="loss_scale/value"):
  """Writes the rows as the hook does; of another tag, the scale alone."""
  with tf.Graph().as_default():
    writer = tf1.summary.FileWriter(str(folder), filename_suffix=suffix)
  total = 0
  for row in rows:
    total += row.skipped
    summary = tf1.Summary()
    summary.value.add(tag=tag, simple_value=row.scale)
    if tag == "loss_scale/value":
      summary.value.add(tag="loss_scale/skipped_total", simple_value=total)
    writer.add_summary(summary, row.step)
  writer.close()
  return sorted(folder.iterdir())


def fail(capfd, *words):
  """Returns the line that a mistake prints."""
  with pytest.raises(SystemExit) as error:
    main.main(words)
  assert error.value.code == 2
  (line,) = capfd.readouterr().err.splitlines()
  return line


def make(count, is_skipped, scale=2.0**15, period=100):
  """Returns the rows of a run with a DynamicLossScale, one for each step."""
  rows, good = [Row(0, scale, False)], 0
  for step in range(1, count + 1):
    skipped = is_skipped(step)
    good = 0 if skipped else good + 1
    if skipped:
      scale = max(scale / 2, 1.0)
    elif good % period == 0:
      scale *= 2
    rows.append(Row(step, scale, skipped))
  return rows


def fall(count):
  """Returns a run whose scale falls more and more, and does not recover."""
  return make(count, lambda i: i % 150 == 0, period=10**6)


# A run, whether nothing is wrong, and a part of the verdict.
_RUNS = {
  "empty": ([Row(0, 8.0, False)], True, "0 steps tell too little"),
  "never moved": (
    [Row(i, 8.0, False) for i in range(0, 1000, 100)],
    True,
    "is 8 and never moved",
  ),
  "healthy": (make(2000, lambda i: i % 101 == 0), True, "is healthy"),
  "stuck": (
    make(800, lambda i: i > 500),
    False,
    "stuck: all of the last 300 steps, from step 501 on",
  ),
  "stuck from the start": (make(60, lambda i: True), False, "last 60 steps"),
  "stuck above its minimum": (
    [Row(i, 8.0, i > 189) for i in range(201)],
    False,
    "last 11 steps",
  ),
  "several steps a row, as of Keras": (
    [Row(i, 8.0, 0 if i < 500 else 10) for i in range(0, 560, 10)],
    False,
    "all of the last 60 steps, from step 491 on",
  ),
  "skips that end": (
    [Row(i, 8.0 if i < 100 else 4.0, 100 <= i < 110) for i in range(2000)],
    True,
    "is healthy",
  ),
  "falls": (fall(2000), False, "falls and does not recover"),
  "skips often": (
    make(2000, lambda i: i % 11 == 0, period=10),
    False,
    "Too many steps are skipped: 91 of the last 1000 (9.1%)",
  ),
  "too low": (
    make(1000, lambda i: False, scale=1.0),
    False,
    "too low: it rose from 1 to 1024",
  ),
  "a fall between two rows": (
    [Row(0, 1.0, False), Row(350, 64.0, True), Row(1000, 1024.0, False)],
    True,
    "healthy",
  ),
  "NaN": ([Row(0, 8.0, False), Row(1, float("nan"), False)], False, "is nan"),
  "zero": ([Row(0, 8.0, False), Row(9, 0.0, False)], False, "is 0 at step 9"),
}


# The same of logs that have the scale alone.
_SCALES = {
  "all skipped": (
    make(3000, lambda i: True),
    False,
    "fell to 1, its lowest value, at step 15, and did not grow in the 2985",
  ),
  "all skipped, within the default period": (
    make(1500, lambda i: True),
    False,
    "falls and does not recover: from 32768 at step 0 to 1",
  ),
  "no growth in the period that is shown": (
    make(2000, lambda i: 1000 < i < 1030 or (i > 1030 and i % 80 == 0)),
    False,
    "at least one step of 101 was skipped",
  ),
  "growth after the lowest value": (
    make(2000, lambda i: 1000 < i < 1014),
    True,
    "is healthy",
  ),
  "a fall a short while ago": (
    make(3000, lambda i: i == 1500, period=2000),
    True,
    "is healthy",
  ),
  "resumed at 1": (
    make(3000, lambda i: True, 1.0),
    False,
    "was 1 at the first step of the log, 0",
  ),
  "written each 100 steps, skipped from the start": (
    make(3000, lambda i: True)[100::100],
    False,
    "was 1 at the first step of the log, 100",
  ),
  "one step": ([Row(0, 1.0, False)], True, "0 steps tell too little"),
  "at 1 for a short while": (make(1500, lambda i: True, 1.0), True, "is 1 and"),
}


@pytest.mark.any_release
@pytest.mark.parametrize("name", [*_RUNS, *_SCALES])
def test_verdicts(name):
  rows, is_healthy, part = {**_RUNS, **_SCALES}[name]
  if name in _SCALES:
    pairs = zip(rows, [rows[0], *rows])
    rows = [Row(x.step, x.scale, x.scale < old.scale) for x, old in pairs]
  verdict, sentence, *advice = doctor.judge(Log("", rows, name in _RUNS))
  assert part in sentence
  assert (verdict in doctor._HEALTHY) == is_healthy
  assert advice or is_healthy


def test_a_stuck_run(tmp_path, capfd):
  write(tmp_path, make(800, lambda i: i > 500))
  assert main.main(["doctor", str(tmp_path)]) == 1
  out, err = capfd.readouterr()
  first, second, *others = out.splitlines()
  assert first.startswith(f"{tmp_path}: The run is stuck: ")
  assert second == (
    "Steps 0 to 800, 300 of them skipped (37.50%). The loss scale was 1 to "
    "1.04858e+06, and is 1."
  )
  assert len(others) == 3 and all(x.startswith("Try: ") for x in others)
  assert not err
  # Lines end at blanks.
  _, _, shown = pseudo_terminals.run("doctor", ".", cwd=tmp_path, COLUMNS="60")
  assert shown.split()[1:] == out.split()[1:]
  assert max(map(len, shown.splitlines())) <= 60
  assert main.main(["doctor", str(tmp_path), "--format=json"]) == 1
  result = json.loads(capfd.readouterr().out)
  assert result["verdict"] == "stuck" and not result["healthy"]
  assert result["steps"] == [0, 800]
  assert result["skipped"] == {"count": 300, "share": 0.375, "at_least": False}
  assert result["scales"] == {"lowest": 1, "highest": 2**20, "last": 1}
  assert len(result["advice"]) == 3 and not result["notes"]


def test_several_files_of_one_run(tmp_path, capfd):
  rows = make(400, lambda i: i in (150, 350))
  write(tmp_path, rows[:301], ".1")
  *_, path = write(tmp_path, [x for x in rows if x.step >= 200], ".2")
  # The second session began at step 200, and its last record is not finished.
  path.write_bytes(path.read_bytes()[:-9])
  assert main.main(["doctor", str(tmp_path)]) == 0
  out = capfd.readouterr().out
  assert "Steps 0 to 399, 2 of them skipped" in out
  assert main.main(["doctor", str(path)]) == 0
  assert "Steps 200 to 399, 1 of them skipped" in capfd.readouterr().out


def test_a_tag_of_the_users_own(tmp_path, capfd):
  rows = make(300, lambda i: i == 150)
  write(tmp_path / "v1", rows, tag="my/scale")
  with tf.Graph().as_default():
    writer = tf1.summary.FileWriter(str(tmp_path / "v2"))
  for row in rows:  # As tf.summary.scalar and tf.summary.text write.
    summary = tf1.Summary()
    for tag, value in (("my/scale", np.float32(row.scale)), ("text", b"a")):
      tensor = tf.make_tensor_proto(value)
      summary.value.add(tag=tag).tensor.CopyFrom(tensor)
    writer.add_summary(summary, row.step)
  writer.close()
  for name in "v1", "v2":
    folder = str(tmp_path / name)
    assert main.main(["doctor", folder, "--tag=my/scale"]) == 0
    out = capfd.readouterr().out
    assert "Steps 0 to 300, at least 1 of them skipped (0.33%)" in out
    assert fail(capfd, "doctor", folder).endswith(
      "no scalar loss_scale/value; choose one by --tag, of: my/scale; see "
      "tf-lossscale doctor --help"
    )


def test_folders_below(tmp_path, capfd):
  rows = make(3000, lambda i: True)
  write(tmp_path / "run" / "a" / "scale", rows, tag="s")
  write(tmp_path / "run" / "train", rows, tag="loss")
  assert main.main(["doctor", f"{tmp_path}/run/", "--tag=s"]) == 1
  out = capfd.readouterr().out
  assert out.startswith(f"{tmp_path}/run/a/scale: The run is stuck")
  assert "at least 15 of them skipped (0.50%)" in out
  write(tmp_path / "run" / "2", rows, tag="s")
  line = fail(capfd, "doctor", str(tmp_path / "run"), "--tag=s")
  assert f"of: {tmp_path}/run/2, {tmp_path}/run/a/scale" in line
  write(tmp_path / "run", make(200, lambda i: i == 9), tag="s")
  assert main.main(["doctor", str(tmp_path / "run"), "--tag=s"]) == 0
  out = capfd.readouterr().out
  assert "loss scales, too: " in out and f"{tmp_path}/run/a/scale." in out


def test_a_damaged_record(tmp_path, capfd):
  (path,) = write(tmp_path / "run", make(400, lambda i: i == 300))
  whole = path.read_bytes()
  begin = 0
  for _ in range(201):  # The first record has no step.
    begin += 16 + int.from_bytes(whole[begin : begin + 8], "little")
  for place, end, note in (
    (begin + 40, 400, "a damaged record was left out"),
    (begin + 1, 199, "what follows a damaged record was not read"),
  ):
    data = bytearray(whole)
    data[place] ^= 1
    path.write_bytes(data)
    assert main.main(["doctor", str(path)]) == 0
    out = capfd.readouterr().out
    assert f"Steps 0 to {end}, {int(end > 300)} of them skipped" in out
    assert out.endswith(f"{path}: {note}.\n")


def test_tensorboard_reads_without_tensorflow(tmp_path):
  pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
  write(tmp_path, make(800, lambda i: i > 500))
  code = (
    "import sys; from tf_compat_lossscale.cli import main; "
    f"code = main.main(['doctor', {str(tmp_path)!r}]); "
    "sys.exit(code * 10 + ('tensorflow' in sys.modules))"
  )
  done = subprocess.run([sys.executable, "-c", code], cwd=helpers.ROOT)
  assert done.returncode == 10


def test_mistakes(tmp_path, capfd):
  write(tmp_path / "other", make(9, lambda i: False), tag="a")
  (tmp_path / "empty").mkdir()
  (tmp_path / "bad").mkdir()
  (tmp_path / "bad" / "x.tfevents").write_text("This is no event file.")
  for name, message in (
    ("none", "there is no such file or folder"),
    ("empty", "there is no event file"),
    ("other", "choose one by --tag, of: a;"),
    ("bad", "of: none. " + str(tmp_path / "bad" / "x.tfevents")),
  ):
    line = fail(capfd, "doctor", str(tmp_path / name))
    assert line.startswith("tf-lossscale doctor: ") and message in line


@pytest.mark.thorough
def test_tensorflow_says_nothing(tmp_path):
  write(tmp_path, make(200, lambda i: i == 9))
  code = "import sys; from tf_compat_lossscale.cli import main; main.main()"
  command = [sys.executable, "-c", code, "doctor", str(tmp_path)]
  done = subprocess.run(
    command, cwd=helpers.ROOT, capture_output=True, text=True, timeout=300
  )
  assert done.returncode == 0 and not done.stderr
  assert len(done.stdout.splitlines()) == 2


@pytest.fixture
def folder(tmp_path, monkeypatch):
  """Returns the folder of a run; the current folder is the one above."""
  rows = [Row(i, x, False) for i, x in enumerate((8.0, 8.0, 4.0, 8.0))]
  write(tmp_path / "run", rows)
  monkeypatch.chdir(tmp_path)
  return tmp_path


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
  if ending == "png":
    from matplotlib import image

    assert image.imread(path).shape[:2] == (600, 1200)


def test_mistakes_of_plot(folder, capfd, monkeypatch):
  pytest.importorskip("matplotlib", reason="the extra [plot] is not installed")
  assert "must end in .png, .svg, .pdf" in fail(
    capfd, "plot", "run", "-o", "a.txt"
  )
  assert "no such file or folder" in fail(capfd, "plot", "walk", "-o", "a.png")
  assert "No such file" in fail(capfd, "plot", "run", "-o", "none/a.png")
  (folder / "a.png").write_text("old")

  def full(*args):
    raise OSError(28, "the disk is full")

  monkeypatch.setattr("os.replace", full)
  assert "disk is full" in fail(capfd, "plot", "run", "-o", "a.png")
  assert (folder / "a.png").read_text() == "old"
  assert sorted(x.name for x in folder.iterdir()) == ["a.png", "run"]


def test_without_matplotlib(folder, capfd, monkeypatch):
  monkeypatch.setitem(sys.modules, "matplotlib", None)
  monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
  line = fail(capfd, "plot", "run")
  assert "a picture needs matplotlib: pip install matplotlib" in line
  assert [x.name for x in folder.iterdir()] == ["run"]
