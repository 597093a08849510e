# SPDX-License-Identifier: Apache-2.0
"""Tests `tf-lossscale plot`: charts, pictures, following a run, mistakes."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from xml.etree import ElementTree

import command_calls
import growth_backoff_oracle as oracle
import helpers
import monitoring_logs as logs
import pseudo_terminals
import pytest

from tf_compat_lossscale import monitoring
from tf_compat_lossscale.cli import plot
from tf_compat_lossscale.monitoring import event_files

pytestmark = pytest.mark.any_release

_STUCK = """\
run/loss_scale.jsonl (DynamicLossScale)
    2^14 │▀▀▀▀▀▀▀▀▀▀▀▀▀▀█▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄
    2^12 │                                       █
    2^10 │                                       █
     2^8 │                                       █
     2^6 │                                       █
     2^4 │                                       █
     2^2 │                                       █
     2^0 │                                       █▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄
 skipped │              x                        xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
    step │1                                 690                            1400
steps 1400, skipped 605 (43.21%), growths 0, backoffs 15, restarts 0
scale first 2^15, last 2^0, lowest 2^0, highest 2^15
step 997: 200 steps were skipped since step 797

gradient at fault                 steps  first  last      inf  NaN       of
softmax_tensor/dense/kernel  605 (100%)    303  1400  2048000    0  2048000
softmax_tensor/dense/bias     513 (85%)    888  1400     1000    0     1000
"""
_NASTY = "\x1b[31m\n<script>&$x_{^ \udcff中" + "n" * 90


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
  monkeypatch.setenv("COLUMNS", "80")
  monkeypatch.chdir(tmp_path)
  return tmp_path


@pytest.fixture
def drawing():
  pytest.importorskip("matplotlib", reason="the extra [plot] is not installed")


def run(capsys, *argv):
  return command_calls.call(capsys, "plot", *argv)


def error_of(capsys, *argv, helps=True):
  """Returns the one line of a mistake, which names the help if it `helps`."""
  status, out, err = run(capsys, *argv)
  assert (status, out) == (2, "")
  (line,) = err.splitlines()
  prefix, suffix = "tf-lossscale plot: ", "; see tf-lossscale plot --help"
  assert line.startswith(prefix) and line.endswith(suffix) == helps
  return line.removeprefix(prefix).removesuffix(suffix)


def write(folder, records):
  logs.write(folder / "run", records)


def test_a_stuck_run(capsys, folder):
  write(folder, logs.make_stuck())
  for path in ("run", "run/loss_scale.jsonl"):
    assert run(capsys, path) == (0, _STUCK, "")


@pytest.mark.parametrize("path", ["model_dir", "model_dir/deep", "."])
def test_the_folder_above_the_log(capsys, folder, path):
  logs.write(folder / "model_dir" / "deep" / "loss_scale", logs.make_stuck())
  with event_files.EventFile(folder / "model_dir") as file:
    file.add_scalars(1, {"loss": 0.5}, 1.0)  # As tf.estimator does.
  (folder / "model_dir" / "deep" / "loss_scale" / "stuck-997").mkdir()
  logs.write(folder / "model_dir" / ".hidden", logs.make_stuck())
  status, out, err = run(capsys, path)
  assert (status, err) == (0, "")
  assert out.splitlines()[1:] == _STUCK.splitlines()[1:]
  assert "deep/loss_scale/loss_scale.jsonl (Dyn" in out.splitlines()[0]


def test_event_files_in_a_folder_below(capsys, folder):
  logs.write_events(folder / "run" / "scale", logs.make_stuck())
  for other in ("run", "run/eval"):
    (folder / other).mkdir(exist_ok=True)
    with event_files.EventFile(folder / other) as file:
      file.add_scalars(1, {"loss": 0.5}, 1.0)
  status, out, err = run(capsys, "run")
  assert (status, err) == (0, "")
  assert out.startswith("run/scale\n") and "skipped 605" in out


def test_a_folder_without_a_log_says_what_it_has(capsys, folder):
  (folder / "run" / "eval").mkdir(parents=True)
  assert "there is no log, but eval: expected" in error_of(capsys, "run")


def _write_three(folder):
  logs.write(folder / "runs" / "a", logs.make_stuck())
  logs.write(
    folder / "runs" / "b" / "loss_scale",
    logs.make_records(logs.make_flags(900, 400), first=501),
  )
  logs.write(folder / "c", logs.make_records(logs.make_flags(2100)))


def test_several_runs_in_one_chart(capsys, folder):
  _write_three(folder)
  status, out, err = run(capsys, "runs", "c")
  assert (status, err) == (0, "")
  lines = out.splitlines()
  names = [line for line in lines if re.match(r"\d: ", line)]
  assert names == [
    "1: runs/a/loss_scale.jsonl (DynamicLossScale)",
    "2: runs/b/loss_scale/loss_scale.jsonl (DynamicLossScale)",
    "3: c/loss_scale.jsonl (DynamicLossScale)",
  ]
  assert out.count("│") == len([x for x in lines if "│" in x])  # One chart.
  assert out.count("    step │1 ") == 1 and " 2100\n" in out
  marks = {n: re.search(rf"{n} skip │(.*)", out)[1] for n in "123"}
  assert marks["1"].count("x") > 20 and not marks["3"]
  # The second run begins at step 501, and its step 900 is skipped.
  assert marks["2"].index("x") == 900 * 69 // 2100
  assert "3" in lines[0] and lines[0].rstrip().endswith("3")  # It grows.
  lowest = next(line for line in lines if line.startswith("     2^0"))
  assert set(lowest[10:]) == {" ", "1"}
  assert "   steps 1400, skipped 605 (43.21%)" in out
  assert "   step 997: 200 steps" in out
  # The same runs by their own names, and in a range.
  assert run(capsys, "runs/a", "runs/b/loss_scale", "c")[1] == out
  status, out, err = run(capsys, "runs", "c", "--steps", "1900:")
  assert status == 0 and err.count("\n") == 2
  assert out.startswith("c/loss_scale.jsonl (Dyn")  # As if it were alone.
  assert "asks for 1900:" in error_of(capsys, "runs", "--steps", "1900:")


def test_a_run_that_begins_later_than_another(capsys, folder):
  logs.write(folder / "a", logs.make_records(logs.make_flags(1000)))
  low = oracle.Rule(2.0**14)
  late = logs.make_records(logs.make_flags(500), low, first=501)
  logs.write(folder / "b", late)
  _, out, _ = run(capsys, "a", "b")
  upper, lower = (line.partition("│")[2] for line in out.splitlines()[:2])
  assert set(upper) == {"1"} and len(upper) == 69
  assert lower == " " * 34 + "2" * 35


def test_several_runs_on_a_terminal(folder):
  _write_three(folder)
  status, _, shown = pseudo_terminals.run("plot", "runs", "c", cwd=folder)
  assert status == 0 and "\x1b[" in shown
  text = re.sub(r"\x1b\[[0-9;]*m", "", shown)
  assert re.search(r"2\^0 │ +1+\s", text) and "3: c/loss_scale" in text


@pytest.mark.parametrize("name", ["a.png", "a.svg", "a.html"])
def test_a_picture_of_several_runs(capsys, folder, drawing, name):
  _write_three(folder)
  status, out, err = run(capsys, "runs", "c", "-o", name)
  assert (status, out, err) == (0, f"{name}: 3 runs\n", "")
  data = (folder / name).read_bytes()
  if name.endswith("png"):
    assert data.startswith(b"\x89PNG")
  else:
    for path in (b"runs/a/", b"runs/b/loss_scale/", b"c/"):
      assert path + b"loss_scale.jsonl" in data
  if name.endswith("html"):
    assert b"stuck at 1 since step 811" in data
    assert not re.search(rb"(src|href)=\"[^#]", data)


def test_more_runs_than_a_chart_has_room_for(capsys, folder):
  for i in range(36):
    logs.write(folder / "runs" / f"{i}", logs.make_records([True] * 3))
  assert "there are 36 runs, but" in error_of(capsys, "runs")
  assert run(capsys, *(f"runs/{i}" for i in range(35)))[0] == 0


def test_following_needs_one_run(capsys, folder):
  _write_three(folder)
  assert "one run" in error_of(capsys, "runs", "--follow")
  assert "one LOGDIR" in error_of(capsys, "runs", "c", "--follow")


def test_a_run_that_is_stuck_says_so_once(capsys, folder, drawing):
  records = logs.make_stuck()
  for record in records:
    if record["step"] in (1100, 1300):
      record["stuck"] = f"many steps were skipped until {record['step']}"
  write(folder, records)
  _, out, _ = run(capsys, "run")
  assert out.count("steps were skipped") == 1
  assert (
    "\nstep 1300: many steps were skipped until 1300 (said 3 times, first at "
    "step 997)\n"
  ) in out
  assert run(capsys, "run", "-o", "a.html")[0] == 0
  page = (folder / "a.html").read_text("utf-8")
  assert page.count("steps were skipped") == 1
  logs.write(folder / "other", logs.make_healthy(500))
  assert run(capsys, "run", "other")[1].count("steps were skipped") == 1
  news = list(plot._list_news(monitoring.read_run("run"), None, None, None))
  assert sum("steps were skipped" in line for line in news) == 1
  assert "step 1300: stuck, as at step 997" in news


def test_event_files(capsys, folder):
  logs.write_events(folder / "run", logs.make_stuck())
  status, out, err = run(capsys, "run")
  assert (status, err) == (0, "")
  # The files do not have the scale before the first step, nor what was at
  # fault.
  assert out.splitlines()[1:13] == _STUCK.splitlines()[1:13]
  assert "gradient" not in out


@pytest.mark.parametrize(
  "range_,steps,scale,names",
  [
    ("800:805", "steps 6, skipped 6", "first 2^11, last 2^5", 1),
    ("101:150", "steps 50, skipped 0", "first 2^15, last 2^15", 0),
    (":302", "steps 302, skipped 0", "first 2^15, last 2^15", 0),
    (":303", "steps 303, skipped 1", "first 2^15, last 2^14", 1),
    ("303:303", "steps 1, skipped 1", "first 2^15, last 2^14", 1),
    ("304:700", "steps 397, skipped 0", "first 2^14, last 2^14", 0),
    ("1399:", "steps 2, skipped 2", "first 2^0, last 2^0", 2),
    ("0:9999999", "steps 1400, skipped 605", "first 2^15, last 2^0", 2),
  ],
)
def test_steps_in_a_range(capsys, folder, range_, steps, scale, names):
  write(folder, logs.make_stuck())
  status, out, _ = run(capsys, "run", "--steps", range_)
  assert status == 0
  assert f"\n{steps} (" in out and f"\nscale {scale}," in out
  assert out.startswith("run/loss_scale.jsonl (DynamicLossScale)\n")
  assert out.count("softmax_tensor") == names


def test_the_scale_before_the_first_step(capsys, folder):
  write(folder, logs.make_records(logs.make_flags(10, 1)))
  _, out, _ = run(capsys, "run")
  assert "backoffs 1" in out and "scale first 2^15, last 2^14" in out


def test_scales_that_cannot_be_drawn(capsys, folder):
  records = logs.make_records(logs.make_flags(80, 20, 60), every=1)
  for record in records[30:50]:
    record["loss_scale/value"] = "nan"
  write(folder, records)
  _, out, _ = run(capsys, "run")
  marks = re.search(r"skipped │(.*)", out)[1]
  assert re.fullmatch(r" +x +\?{17,19} +x", marks)
  assert "\n?: the scale is not finite, or not above 0\n" in out
  for record in records:
    record["loss_scale/value"] = 0
  logs.write(folder / "zero", records)
  _, out, _ = run(capsys, "zero")
  assert "scale 0, which cannot scale a loss" in out and "│" not in out


def test_ends_of_64_bits(capsys, folder, drawing):
  first, last = logs.make_records([True, True], every=1)
  last |= {"step": 9 * 10**18, "loss_scale/value": 1e300}
  write(folder, [first | {"loss_scale/value": 1e-300}, last])
  status, out, _ = run(capsys, "run")
  assert (status, out.count("│")) == (0, 14)
  assert run(capsys, "run", "-o", "x.svg")[0] == 0


def test_restarts(capsys, folder):
  first = logs.make_records(logs.make_flags(400, 150))
  second = logs.make_records(logs.make_flags(300, 100), first=201)
  write(folder, logs.restart(first, 200, second))
  assert ", restarts 1\n" in run(capsys, "run")[1]
  assert ", restarts 0\n" in run(capsys, "run", "--steps", "202:")[1]


def test_a_narrow_terminal_and_ascii(folder):
  write(folder, logs.make_stuck())
  code = "from tf_compat_lossscale.cli.main import main; main(['plot', 'run'])"
  out = helpers.run_python(
    "-c",
    code,
    cwd=folder,
    COLUMNS="20",
    PYTHONIOENCODING="ascii",
    PYTHONPATH=str(helpers.ROOT),
  )
  chart = out.splitlines()[1:11]
  assert max(map(len, chart)) == 20
  assert chart[7] == "     2^0 |     :...."
  assert out.isascii()


def test_a_terminal_shortens_names(folder):
  write(folder, logs.make_noisy(600))
  status, _, shown = pseudo_terminals.run("plot", "run", cwd=folder)
  assert status == 0
  text = re.sub(r"\x1b\[[0-9;]*m", "", shown)
  table = text[text.index("gradient at fault") :].splitlines()
  assert len(table) > 4 and all(len(line) < 80 for line in table)
  assert any("..." in line for line in table)


@pytest.mark.parametrize("name", ["a.png", "a.svg", "a.html", "B.PNG"])
def test_pictures(capsys, folder, drawing, name):
  write(folder, logs.make_stuck())
  status, out, err = run(capsys, "run", "-o", name)
  assert (status, err) == (0, "")
  assert out == f"{name}: {_STUCK.splitlines()[11]}\n"
  data = (folder / name).read_bytes()
  assert sorted(os.listdir(folder)) == sorted([name, "run"])
  umask = os.umask(0)
  os.umask(umask)
  assert (folder / name).stat().st_mode & 0o777 == 0o666 & ~umask
  if name.endswith("svg"):
    ElementTree.fromstring(data)
    assert b"softmax_tensor/dense/kernel" in data
  elif name.endswith("html"):
    assert b"softmax_tensor/dense/bias</td><td>513</td>" in data
    assert b"stuck at 1 since step 811" in data
    assert not re.search(rb"(src|href)=\"[^#]", data)
    links = re.findall(rb"https?://[^\"]+", data)
    assert all(link.startswith(b"http://www.w3.org/") for link in links)
  else:
    assert data.startswith(b"\x89PNG")


def test_the_same_run_gives_the_same_picture(capsys, folder, drawing):
  write(folder, logs.make_noisy(600))
  pictures = []
  for name in ("a.svg", "b.svg"):
    assert run(capsys, "run", "-o", name)[0] == 0
    pictures.append((folder / name).read_bytes())
  assert pictures[0] == pictures[1]


def test_names_that_would_break_a_page(capsys, folder, drawing):
  write(
    folder,
    logs.make_records([False], blame=logs.blame_of(_NASTY, nan=1)),
  )
  for ending in plot.ENDINGS:
    assert run(capsys, "run", "-o", f"a{ending}")[::2] == (0, "")
  page = (folder / "a.html").read_text("utf-8")
  assert "<script" not in page and "&lt;script&gt;&amp;$x_{^" in page
  picture = page[page.index("<svg") : page.index("</svg>") + len("</svg>")]
  ElementTree.fromstring(picture)
  _, out, _ = run(capsys, "run")
  assert "\x1b" not in out and "\\x1b[31m\\n<script>" in out


def test_pictures_of_all_kinds_of_runs(capsys, folder, drawing):
  kinds = {
    **logs.KINDS,
    "one": lambda: logs.make_records([True]),
    "restarted": lambda: logs.restart(
      logs.make_records(logs.make_flags(400, 150)),
      200,
      logs.make_records(logs.make_flags(300, 100), first=201),
    ),
  }
  for kind, make in kinds.items():
    logs.write(folder / kind, make())
    assert run(capsys, kind, "-o", "x.svg")[::2] == (0, "")


def test_a_failed_write_leaves_what_was_there(
  capsys, folder, drawing, monkeypatch
):
  write(folder, logs.make_stuck())
  (folder / "a.png").write_bytes(b"old")

  def fail(*args):
    raise OSError(28, "No space left on device", "a.png")

  monkeypatch.setattr(os, "replace", fail)
  assert error_of(capsys, "run", "-o", "a.png", helps=False) == (
    "a.png: No space left on device"
  )
  assert (folder / "a.png").read_bytes() == b"old"
  assert sorted(os.listdir(folder)) == ["a.png", "run"]


def test_an_error_names_the_picture(capsys, folder, drawing, monkeypatch):
  write(folder, logs.make_stuck())

  made = os.open

  def fail(name, *arguments, **options):
    if ".lossscale-" in str(name):
      raise PermissionError(13, "Permission denied", name)
    return made(name, *arguments, **options)

  monkeypatch.setattr(os, "open", fail)
  message = error_of(capsys, "run", "-o", "a.png")
  assert message == f"{folder / 'a.png'}: Permission denied"


def test_an_interrupt_leaves_no_file(capsys, folder, drawing, monkeypatch):
  write(folder, logs.make_stuck())
  made = os.open

  def interrupt(name, *arguments, **options):
    descriptor = made(name, *arguments, **options)
    if ".lossscale-" in str(name):
      os.close(descriptor)
      raise KeyboardInterrupt
    return descriptor

  monkeypatch.setattr(os, "open", interrupt)
  assert run(capsys, "run", "-o", "a.png")[0] == 130
  assert os.listdir(folder) == ["run"]


def test_a_link_and_a_mode_stay(capsys, folder, drawing):
  write(folder, logs.make_stuck())
  (folder / "real.svg").touch(0o600)
  os.symlink("real.svg", folder / "link.svg")
  assert run(capsys, "run", "-o", "link.svg")[0] == 0
  assert os.path.islink(folder / "link.svg")
  assert (folder / "real.svg").stat().st_mode & 0o777 == 0o600
  assert b"<svg" in (folder / "real.svg").read_bytes()


def test_without_matplotlib(capsys, folder, monkeypatch):
  write(folder, logs.make_stuck())
  monkeypatch.setitem(sys.modules, "matplotlib", None)
  assert error_of(capsys, "run", "-o", "a.png") == (
    "a picture needs matplotlib: pip install 'tf_compat_lossscale[plot]'"
  )


@pytest.mark.parametrize(
  "argv,message",
  [
    (["missing"], "missing: there is no such file or folder"),
    ([""], "'' is no path"),
    (["empty"], "empty: the folder is empty: expected loss_scale.jsonl or"),
    (["zero.jsonl"], "zero.jsonl: there is no step in it yet"),
    (["bad.jsonl"], "bad.jsonl:1: this is no JSON object: 'bad'"),
    (["run", "--steps=2000:"], "run/loss_scale.jsonl: the log has the steps 1"),
    (["run", "--steps=7"], "argument --steps: '7' is no range of steps"),
    (["run", "--steps=:"], "argument --steps: ':' is no range of steps"),
    (["run", "--steps=-1:4"], "argument --steps: '-1:4' is no range"),
    (["run", "--steps=٣:4"], "argument --steps: '٣:4' is no range"),
    (["run", "--steps=9:2"], "argument --steps: '9:2' ends before it begins"),
    (
      ["run", "-o", "x.pdf"],
      "argument -o/--output: 'x.pdf' must end with .png",
    ),
    (["run", "-o", ".svg"], "argument -o/--output: '.svg' must end with"),
    (["run", "-o", "no/x.svg"], "no/x.svg: there is no folder no"),
    (["run", "-o", "dir.svg"], "dir.svg: this is a folder"),
    (["run", "--interval=1"], "--interval goes with --follow"),
    (["run", "-f", "--interval=0"], "argument --interval: '0' is no number"),
    (["run", "-f", "--interval=nan"], "argument --interval: 'nan' is no"),
    (["run", "-f", "--interval=1e9"], "argument --interval: '1e9' is no"),
  ],
)
def test_mistakes(capsys, folder, argv, message):
  write(folder, logs.make_stuck())
  for name in ("empty", "dir.svg"):
    (folder / name).mkdir()
  (folder / "zero.jsonl").touch()
  (folder / "bad.jsonl").write_text("bad\n")
  assert error_of(capsys, *argv).startswith(message)


@contextlib.contextmanager
def start(folder, *argv):
  """Starts `plot --follow` with pipes."""
  with subprocess.Popen(
    [
      *(sys.executable, "-m", "tf_compat_lossscale", "plot", "run"),
      *("--follow", "--interval=0.01", *argv),
    ],
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    cwd=folder,
    env=os.environ | {"PYTHONPATH": str(helpers.ROOT)},
    text=True,
  ) as process:
    try:
      yield process
    finally:
      process.kill()


def interrupt(process):
  """Ends a command as Ctrl-C does."""
  process.send_signal(signal.SIGINT)
  assert process.wait(60) == 130
  assert process.stderr.read().endswith("tf-lossscale: interrupted\n")


def test_following_a_run_into_a_pipe(folder):
  records = logs.make_stuck()
  with start(folder) as process:
    assert process.stderr.readline() == (
      "tf-lossscale plot: run: there is no such file or folder; waiting for "
      "it\n"
    )
    write(folder, records[:5])
    read = process.stdout.readline
    assert read() == "step 1: applied, scale 2^15\n"
    assert read() == (
      "step 303: skipped, scale 2^15 -> 2^14, at fault: "
      "softmax_tensor/dense/kernel\n"
    )
    write(folder, records[5:10])
    assert read().startswith("step 797: skipped, scale 2^14 -> 2^13, at fault:")
    # The restarted run does the steps after 300 again.
    (folder / "new").write_text(
      "".join(f"{json.dumps(record)}\n" for record in records[:3])
    )
    os.replace(folder / "new", folder / "run" / "loss_scale.jsonl")
    # The rows that the log had alike are not told again.
    write(folder, [records[4] | {"step": 310, "time": 1.0}])
    line = read()
    while not line.startswith("step 310: "):
      assert re.fullmatch(r"step \d+: (the run was|skipped).*\n", line), line
      line = read()
    interrupt(process)


def test_following_a_run_into_a_picture(folder, drawing):
  records = logs.make_stuck()
  write(folder, records[:5])
  with start(folder, "-o", "a.svg") as process:
    assert process.stdout.readline().startswith("a.svg: steps 303, skipped 1")
    before = (folder / "a.svg").read_bytes()
    write(folder, records[5:])
    # The log may be read while it is being written.
    while not process.stdout.readline().startswith("a.svg: steps 1400,"):
      pass
    assert (folder / "a.svg").read_bytes() != before
    interrupt(process)
  assert sorted(os.listdir(folder)) == ["a.svg", "run"]


def test_following_steps_that_are_yet_to_come(
  capsys, folder, drawing, monkeypatch
):
  records = logs.make_stuck()
  found = []
  for name, count in (("short", 5), ("long", 600)):
    logs.write(folder / name, records[:count])
    found.append(monitoring.read_run(folder / name))

  def watch(path, interval):
    yield from found
    raise KeyboardInterrupt

  monkeypatch.setattr(plot, "_watch", watch)
  status, out, _ = run(capsys, "run", "-f", "-o", "a.svg", "--steps=1000:1100")
  assert (status, out.count("\n")) == (130, 1)
  assert out.startswith("a.svg: steps 101, skipped 101")


def test_following_a_run_that_goes_wrong(folder):
  write(folder, [{"step": 1}])
  done = subprocess.run(
    [sys.executable, "-m", "tf_compat_lossscale", "plot", "run", "--follow"],
    capture_output=True,
    cwd=folder,
    env=os.environ | {"PYTHONPATH": str(helpers.ROOT)},
    text=True,
    timeout=60,
  )
  assert (done.returncode, done.stdout) == (2, "")
  assert "run/loss_scale.jsonl:1: `loss_scale/value` must be" in done.stderr


def test_following_a_run_on_a_terminal(folder):
  write(folder, logs.make_stuck())
  outer, inner = os.openpty()
  with subprocess.Popen(
    [
      *(sys.executable, "-m", "tf_compat_lossscale", "plot", "run"),
      *("--follow", "--interval=0.01"),
    ],
    stdin=inner,
    stdout=inner,
    stderr=inner,
    cwd=folder,
    env=os.environ | {"PYTHONPATH": str(helpers.ROOT), "TERM": "xterm"},
  ) as process:
    os.close(inner)
    shown = b""
    while b"dense/bias" not in shown:
      shown += os.read(outer, 1 << 16)
    assert shown.startswith(b"\x1b[H\x1b[2J")
    write(folder, [logs.make_records([True], first=1500)[0]])
    while b"steps 1500" not in shown:
      shown += os.read(outer, 1 << 16)
    process.send_signal(signal.SIGINT)
    assert pseudo_terminals.read_all(outer).endswith("interrupted\n")
    assert process.wait(60) == 130


def test_a_reader_that_leaves(folder):
  write(folder, logs.make_noisy())
  with start(folder) as process:
    process.stdout.readline()
    process.stdout.close()
    # The next line finds nobody: that is no error.
    record = logs.make_records([True], first=6000)[0]
    write(folder, [record | {"loss_scale/value": 64.0}])
    assert process.wait(60) == 0
    assert process.stderr.read() == ""


def test_files_of_other_programs_are_no_log(capsys, folder):
  (folder / "run").mkdir()
  with event_files.EventFile(folder / "run") as file:
    file.add_scalars(1, {"loss": 1.0}, 1.0)
  assert "but loss; a run writes it" in error_of(capsys, "run")


def test_no_tensorflow_and_no_matplotlib_without_pictures(folder):
  write(folder, logs.make_stuck())
  program = (
    "import sys\n"
    "sys.modules['tensorflow'] = sys.modules['matplotlib'] = None\n"
    "from tf_compat_lossscale.cli.main import main\n"
    "sys.exit(main(['plot', sys.argv[1]]))"
  )
  out = helpers.run_python("-c", program, str(folder / "run"))
  assert out.splitlines()[1:] == _STUCK.splitlines()[1:]


if __name__ == "__main__":
  helpers.main()
