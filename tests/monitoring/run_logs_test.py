# SPDX-License-Identifier: Apache-2.0
"""Tests the reading of logs: both kinds of files, restarts, mistakes."""

import json
import math
import os
import shutil

import helpers
import monitoring_logs as logs
import pytest

from tf_compat_lossscale import monitoring
from tf_compat_lossscale.monitoring import event_files
from tf_compat_lossscale.monitoring import rows
from tf_compat_lossscale.monitoring import run_logs

pytestmark = pytest.mark.any_release

_NAME = "loss_scale.jsonl"


def steps_of(log):
  return [row.step for row in log.rows]


def make_line(step, **changes):
  record = {"step": step, "applied": True, "loss_scale/value": 8.0, "time": 1.5}
  return record | changes


def error_of(path):
  with pytest.raises(monitoring.LogError) as info:
    monitoring.read_run(path)
  assert isinstance(info.value, ValueError)
  return str(info.value)


def test_all_that_lines_say(tmp_path):
  records = logs.make_stuck()
  log = monitoring.read_run(logs.write(tmp_path, records))
  assert log.source == str(tmp_path / _NAME)
  assert log.config["increment_period"] == 500
  assert (log.restarts, log.steps, log.skipped) == (0, 1400, 605)
  assert len(log.rows) == len(records)
  for row, record in zip(log.rows, records):
    assert row.step == record["step"]
    assert row.applied == record["applied"]
    assert row.loss_scale == record["loss_scale/value"]
    assert row.good_steps == record["loss_scale/good_steps"]
    assert row.skipped_total == record["loss_scale/skipped_total"]
    assert row.global_step == record["global_step"]
    assert row.time == record["time"]
    assert row.stuck == record.get("stuck")
    assert (row.blame is not None) == (not row.applied)
  (message,) = [row.stuck for row in log.rows if row.stuck]
  assert message == "200 steps were skipped since step 797"


def test_blame_stays_until_another_or_another_session(tmp_path):
  first = logs.find_blame("a", 3, 2)
  second = logs.find_blame("b", 1) | {"largest": "nan"}
  records = [
    make_line(1, config=logs.CONFIG),
    make_line(2, applied=False, gradients=9, blame=[first]),
    make_line(3, applied=False, gradients=9),
    make_line(4),
    make_line(5, applied=False, gradients=9, blame=[second]),
    make_line(6, applied=False, gradients=9),
    make_line(7, applied=False),
    make_line(8, applied=False, config=logs.CONFIG, gradients=9),
    make_line(9, applied=False, gradients=9, blame=[]),
  ]
  log = monitoring.read_run(logs.write(tmp_path, records))
  found = [row.blame and [b.name for b in row.blame] for row in log.rows]
  assert found[:8] == [None, ["a"], ["a"], None, ["b"], ["b"], None, None]
  assert log.rows[8].blame == ()
  assert log.rows[1].blame == (rows.Blame("a", 3, 2, 1000, 6.1e4),)
  assert math.isnan(log.rows[4].blame[0].largest)
  assert log.restarts == 1


def test_a_session_does_not_know_the_blame_of_the_one_before(tmp_path):
  skipped = {"applied": False, "gradients": 9}
  records = [
    make_line(1, **skipped, blame=[logs.find_blame("a")]),
    make_line(2, **skipped, config=logs.CONFIG),
  ]
  log = monitoring.read_run(logs.write(tmp_path, records))
  assert [row.blame is None for row in log.rows] == [False, True]


def test_numbers_that_are_not_finite_and_underflow(tmp_path):
  underflow = {"zeros": 0.25, "largest": "inf", "gradients": {"a": [1, "nan"]}}
  records = [
    make_line(1, underflow=underflow),
    *(
      make_line(2 + i, **{"loss_scale/value": v})
      for i, v in enumerate(["inf", "-inf", "nan", 10**400, 3])
    ),
  ]
  log = monitoring.read_run(logs.write(tmp_path, records))
  found = log.rows[0].underflow
  assert (found.zeros, found.largest) == (0.25, math.inf)
  assert found.gradients["a"][0] == 1 and math.isnan(found.gradients["a"][1])
  scales = [row.loss_scale for row in log.rows]
  assert scales[:3] == [8.0, math.inf, -math.inf] and math.isnan(scales[3])
  assert scales[4:] == [math.inf, 3.0]


@pytest.mark.parametrize("size", [10, 5000])
def test_a_killed_run_leaves_a_part_of_a_line(tmp_path, size):
  records = [make_line(step) for step in range(1, size)]
  logs.write(tmp_path, records)
  path = tmp_path / _NAME
  whole = path.read_bytes()
  last = json.dumps(make_line(size)).encode()
  for count in range(len(last)):
    path.write_bytes(whole + last[:count])
    if size == 10 or count % 20 == 5:
      assert steps_of(monitoring.read_run(path))[-1] == size - 1
  path.write_bytes(whole + last)  # An editor leaves off the last end of line.
  assert steps_of(monitoring.read_run(path))[-1] == size


@pytest.mark.parametrize(
  "line,reason",
  [
    ("nonsense", "no JSON object"),
    ("[1]", "no JSON object"),
    ('{"step": 3}{"step": 4}', "no JSON object"),
    (
      ",".join(json.dumps(make_line(step)) for step in (3, 4)),
      "no JSON object",
    ),
    ("[" * 100000, "no JSON object"),
    ("\udcff", "no UTF-8"),
    ({"applied": True, "loss_scale/value": 1.0}, "`step` must be a whole"),
    (make_line(True), "`step` must be a whole"),
    (make_line(2.5), "`step` must be a whole"),
    (make_line(-1), "`step` must be a whole"),
    (make_line(2), "step 2 comes after step 2;"),
    (make_line(1), "step 1 comes after step 2;"),
    (make_line(3, applied=1), "`applied` must be"),
    ({"step": 3, "applied": True}, "`loss_scale/value` must be a number"),
    (make_line(3, **{"loss_scale/value": "big"}), "`loss_scale/value` must"),
    (make_line(3, **{"loss_scale/value": True}), "`loss_scale/value` must"),
    (make_line(3, **{"loss_scale/good_steps": 0.5}), "`loss_scale/good_steps`"),
    (make_line(3, **{"loss_scale/skipped_total": "1"}), "`loss_scale/skipped"),
    (make_line(3, global_step=[]), "`global_step` must be"),
    (make_line(3, time="now"), "`time` must be"),
    (make_line(3, config=[]), "`config` must be"),
    (make_line(3, stuck=1), "`stuck` must be"),
    (make_line(3, applied=False, blame=3), "`blame` must be"),
    (make_line(3, applied=False, blame=[{}]), "`name` must be"),
    (make_line(3, applied=False, blame=[{"name": "a", "inf": "x"}]), "`inf`"),
    (make_line(3, underflow=[]), "`underflow` must be"),
    (make_line(3, underflow={"gradients": {"a": 1}}), "`underflow` must be"),
    (make_line(3, underflow={"largest": 1}), "`zeros` must be"),
  ],
)
@pytest.mark.parametrize("after", [0, 3000])
def test_a_wrong_line(tmp_path, line, reason, after):
  path = tmp_path / _NAME
  text = line if isinstance(line, str) else json.dumps(line)
  later = [json.dumps(make_line(step)) for step in range(10, 10 + after)]
  lines = [json.dumps(make_line(1)), "", json.dumps(make_line(2)), text, *later]
  path.write_text("\n".join([*lines, ""]), "utf-8", errors="surrogateescape")
  message = error_of(tmp_path)
  assert message.startswith(f"{path}:4: ") and reason in message
  assert len(message) < len(str(path)) + 300


def test_two_wrong_lines_that_are_right_if_joined(tmp_path):
  first, second = (json.dumps(make_line(step)) for step in (1, 2))
  path = tmp_path / _NAME
  path.write_text(f'{first[:-1]}\n"x": 1}},{second}\n', "utf-8")
  assert error_of(tmp_path).startswith(f"{path}:1: ")


def test_a_binary_file_and_an_endless_line(tmp_path):
  path = tmp_path / "data.bin"
  path.write_bytes(os.urandom(5000).replace(b"{", b"") + b"\n")
  assert error_of(path).startswith(f"{path}:1: ")
  path.write_bytes(b"x" * (1 << 25))
  assert f"{path}:1: the line has more than" in error_of(path)


def test_what_there_is_instead_of_a_log(tmp_path):
  missing = tmp_path / "missing"
  assert error_of(missing) == f"{missing}: there is no such file or folder"
  assert "the folder is empty: expected loss_scale.jsonl" in error_of(tmp_path)
  for name in "gfedcba":
    (tmp_path / name).touch()
  message = error_of(tmp_path)
  assert "there is no log, but a, b, c, d, e and 2 more: expected" in message
  assert "output_dir" in message
  logs.write(tmp_path / "run", [make_line(1)])
  assert error_of(tmp_path).endswith(f"but in {tmp_path / 'run'}")
  os.mkfifo(tmp_path / "pipe")
  assert "neither a file nor a folder" in error_of(tmp_path / "pipe")


def test_runs_below_a_folder(tmp_path, monkeypatch):
  assert run_logs.find_runs(tmp_path) == [str(tmp_path)]
  for name in ("b", "a/deep"):
    logs.write(tmp_path / name, [make_line(1)])
  logs.write(tmp_path / "b" / "inner", [make_line(1)])  # Of another run.
  runs = [str(tmp_path / "a" / "deep"), str(tmp_path / "b")]
  assert run_logs.find_runs(tmp_path) == runs
  assert run_logs.find_runs(tmp_path / "b" / _NAME) == [
    str(tmp_path / "b" / _NAME)
  ]
  monkeypatch.setattr(run_logs, "_MOST_FOLDERS", 2)
  with pytest.raises(monitoring.LogError, match="more than 2 folders"):
    run_logs.find_runs(tmp_path)


def test_an_empty_log_has_no_rows(tmp_path):
  (tmp_path / _NAME).touch()
  log = monitoring.read_run(tmp_path)
  assert (log.rows, log.steps, log.skipped) == ((), 0, 0)


def test_event_files_say_the_same_as_lines(tmp_path):
  records = logs.make_noisy(1000)
  expected = monitoring.read_run(logs.write(tmp_path / "lines", records))
  path = logs.write_events(tmp_path / "events", records)
  for place in (tmp_path / "events", path):
    log = monitoring.read_run(place)
    assert log.source == str(place)
    for row, other in zip(log.rows, expected.rows):
      assert row == other._replace(
        global_step=None, blame=None, config=None, stuck=None, gradients=None
      )
    assert len(log.rows) == len(expected.rows)
  (tmp_path / "events" / "other").touch()
  logs.write(tmp_path / "events", [make_line(1)])
  assert steps_of(monitoring.read_run(tmp_path / "events")) == [1]


def test_event_files_of_a_restarted_run(tmp_path):
  first = logs.make_records(logs.make_flags(400, 150, 250, 350))
  second = logs.make_records(logs.make_flags(300, 100), first=201)
  for record in second:
    record["loss_scale/skipped_total"] += 1
  logs.write_events(tmp_path, first)
  logs.write_events(tmp_path, second, start=201)
  log = monitoring.read_run(tmp_path)
  expected = [r["step"] for r in first if r["step"] < 201]
  assert steps_of(log) == expected + [r["step"] for r in second]
  assert log.restarts == 1
  lost = [row.step for row in log.rows if row.applied is False]
  assert lost == [150, 300]


def test_a_start_drops_its_own_step(tmp_path):
  records = logs.make_records(logs.make_flags(400))
  logs.write_events(tmp_path, records)
  logs.write_events(tmp_path, records[-1:], start=200)
  assert steps_of(monitoring.read_run(tmp_path)) == [1, 100, 400]


def test_a_start_in_a_file_of_another_program_drops_nothing(tmp_path):
  logs.write_events(tmp_path, logs.make_records(logs.make_flags(400)))
  with event_files.EventFile(tmp_path) as file:
    file.add_start(0, 1.0)
    file.add_scalars(1, {"loss": 0.5}, 1.0)
  log = monitoring.read_run(tmp_path)
  assert (log.steps, log.restarts) == (400, 0)


def test_event_files_without_a_loss_scale(tmp_path):
  with event_files.EventFile(tmp_path) as file:
    assert "no scalars at all" in error_of(tmp_path)
    file.add_scalars(1, {"loss": 0.5, "accuracy": 1.0}, 1.0)
  message = error_of(tmp_path)
  assert "no scalar loss_scale/value" in message
  assert "but accuracy, loss; a run writes it with" in message


def test_damaged_event_files(tmp_path):
  path = logs.write_events(tmp_path, logs.make_records(logs.make_flags(400)))
  with open(path, "r+b") as file:
    file.seek(100)
    file.write(b"\xff\xff")
  assert f"{path}: the record at byte" in error_of(tmp_path)


@pytest.mark.parametrize(
  "totals,applied",
  [
    ([0, 0, 1, 1, 2], [True, True, False, True, False]),
    ([1, 2, 2], [False, False, True]),
    ([None, None], [None, None]),
    ([math.nan, 1], [None, None]),
  ],
)
def test_skipped_steps_are_differences_of_totals(tmp_path, totals, applied):
  with event_files.EventFile(tmp_path) as file:
    for step, total in enumerate(totals, 1):
      scalars = {"loss_scale/value": 2.0}
      if total is not None:
        scalars["loss_scale/skipped_total"] = total
      file.add_scalars(step, scalars, 1.0)
  log = monitoring.read_run(tmp_path)
  assert [row.applied for row in log.rows] == applied


def test_a_fall_shows_a_skipped_step(tmp_path):
  with event_files.EventFile(tmp_path) as file:
    for step, scale in enumerate([8.0, 4.0, 8.0], 1):
      file.add_scalars(step, {"loss_scale/value": scale}, 1.0)
  log = monitoring.read_run(tmp_path)
  assert [row.applied for row in log.rows] == [None, False, None]


def test_scalars_of_a_step_may_come_one_by_one(tmp_path):
  with event_files.EventFile(tmp_path) as file:
    file.add_scalars(1, {"loss_scale/value": 4.0}, 1.0)
    file.add_scalars(1, {"loss_scale/good_steps": 7.0}, 1.0)
    file.add_scalars(2, {"loss_scale/good_steps": 8.0}, 1.0)
  (row,) = monitoring.read_run(tmp_path).rows
  assert (row.step, row.loss_scale, row.good_steps) == (1, 4.0, 7)


def test_following_lines(tmp_path):
  folder = tmp_path / "run"
  follower = run_logs.Follower(folder)
  with pytest.raises(rows.MissingLogError):
    follower.update()
  logs.write(folder, [make_line(1, config=logs.CONFIG), make_line(2)])
  assert follower.update() and steps_of(follower.log) == [1, 2]
  assert not follower.update()
  path = folder / _NAME
  with open(path, "ab") as file:
    file.write(b'{"step": 3, "applied": true')
    file.flush()
    assert not follower.update() and steps_of(follower.log) == [1, 2]
    file.write(b', "loss_scale/value": 4.0}\n')
  assert follower.update() and steps_of(follower.log) == [1, 2, 3]
  # A restart cuts the file, and may have written more by the next look.
  lines = path.read_bytes().splitlines(keepends=True)
  path.write_bytes(lines[0])
  assert follower.update() and steps_of(follower.log) == [1]
  logs.write(folder, [make_line(5), make_line(6)])
  assert follower.update() and steps_of(follower.log) == [1, 5, 6]
  path.write_bytes(lines[0])
  logs.write(folder, [make_line(step) for step in range(40, 60)])
  assert follower.update()
  assert steps_of(follower.log) == [1, *range(40, 60)]


def test_following_event_files(tmp_path):
  follower = run_logs.Follower(tmp_path)
  with event_files.EventFile(tmp_path) as file:
    with pytest.raises(rows.MissingLogError):
      follower.update()
    for step in (1, 2):
      file.add_scalars(step, {"loss_scale/value": 4.0}, 1.0)
      assert follower.update() and follower.log.rows[-1].step == step
    assert not follower.update()
  with event_files.EventFile(tmp_path) as file:
    file.add_start(2, 1.0)
    file.add_scalars(2, {"loss_scale/value": 2.0}, 1.0)
  assert follower.update() and len(follower.log.rows) == 2
  assert follower.log.rows[1].loss_scale == 2.0
  for path in event_files.list_files(tmp_path):
    os.unlink(path)
  with event_files.EventFile(tmp_path) as file:
    file.add_scalars(9, {"loss_scale/value": 1.0}, 1.0)
  assert follower.update() and steps_of(follower.log) == [9]
  # Lines have more to say.
  logs.write(tmp_path, [make_line(1)])
  assert follower.update() and steps_of(follower.log) == [1]


def test_following_an_event_file_that_becomes_shorter(tmp_path):
  long, short = (
    logs.write_events(tmp_path / name, logs.make_records([True] * steps))
    for name, steps in (("long", 400), ("short", 150))
  )
  path = tmp_path / "tfevents"
  follower = run_logs.Follower(path)
  shutil.copy(long, path)
  assert follower.update() and follower.log.rows[-1].step == 400
  shutil.copy(short, path)
  assert follower.update() and steps_of(follower.log) == [1, 100, 150]
  os.unlink(path)
  with pytest.raises(rows.MissingLogError):
    follower.update()


def test_steps_in_a_range(tmp_path):
  log = monitoring.read_run(logs.write(tmp_path, logs.make_stuck()))
  part = log.select(100, 300)
  assert steps_of(part) == [100, 200, 300]
  assert part.config == log.config
  assert log.select(None, None).rows == list(log.rows)


def test_no_tensorflow_is_imported(tmp_path):
  logs.write(tmp_path, logs.make_stuck())
  program = (
    "import sys\n"
    "sys.modules['tensorflow'] = None\n"
    "from tf_compat_lossscale import monitoring\n"
    "print(monitoring.judge(monitoring.read_run(sys.argv[1])).kind)"
  )
  assert helpers.run_python("-c", program, str(tmp_path)) == "stuck\n"


if __name__ == "__main__":
  helpers.main()
