# SPDX-License-Identifier: Apache-2.0
"""Tests the parts of monitoring that know no TensorFlow, by tables of cases."""

import json
import logging
import math
import random
import re

import helpers
import pytest

from tf_compat_lossscale.monitoring import recorder
from tf_compat_lossscale.monitoring import resuming
from tf_compat_lossscale.monitoring import rows
from tf_compat_lossscale.monitoring import stuck
from tf_compat_lossscale.monitoring.steps import Contents
from tf_compat_lossscale.monitoring.steps import State
from tf_compat_lossscale.monitoring.steps import Step

pytestmark = pytest.mark.any_release

_INF = math.inf


@pytest.fixture(autouse=True)
def logged(caplog):
  """Gives each test the logged lines."""
  caplog.set_level(logging.INFO, "absl")
  return caplog


def contents(name="w", infinities=1, nans=0):
  return Contents(name, infinities, nans, 0, 8, 0.5)


class Files:
  """Files that keep the lines of a run in memory."""

  def __init__(self):
    self.lines = []

  def write(self, row):
    self.lines.append(rows.encode(row))

  def close(self):
    pass


def record_run(scale, global_step=0, skipped=0, *, every=100, patience=200):
  """Returns a recorder that has started, and its files."""
  settings = recorder.Settings(None, every, True, "warn", patience)
  own = recorder.Recorder(settings, {"class_name": "DynamicLossScale"})
  own.start(State(scale, 0, global_step, skipped))
  own._files = Files()
  return own, own._files


# Where a restarted run goes on ----


def line(step, scale, good, global_step, skipped, **more):
  entries = {
    "step": step,
    "applied": True,
    "loss_scale/value": scale,
    "loss_scale/good_steps": good,
    "loss_scale/skipped_total": skipped,
    "global_step": global_step,
    **more,
  }
  known = {k: v for k, v in entries.items() if v is not None}
  return json.dumps(known).encode() + b"\n"


# Steps 1 to 5 applied, 6 and 7 skipped, 8 to 12 applied, 12 grows, 20 written.
_LINES = [
  line(1, 8.0, 1, 1, 0),
  line(6, 4.0, 0, 5, 1),
  line(7, 2.0, 0, 5, 2),
  line(12, 4.0, 0, 10, 2),
  line(20, 4.0, 8, 18, 2),
]
# Scale, good steps, global step; then: after how many lines, step, skipped.
_PLACES = {
  "the last line": ((4.0, 8, 18), (5, 20, 2)),
  "beyond the last line": ((4.0, 11, 21), (5, 23, 2)),
  "before the last line": ((4.0, 7, 17), (4, 19, 2)),
  "a change of the scale": ((4.0, 0, 10), (4, 12, 2)),
  "before that change": ((2.0, 4, 9), (3, 11, 2)),
  "the second skipped step": ((2.0, 0, 5), (3, 7, 2)),
  "the first skipped step": ((4.0, 0, 5), (2, 6, 1)),
  "before the skipped steps": ((8.0, 5, 5), (1, 5, 0)),
  "after the first line": ((8.0, 2, 2), (1, 2, 0)),
  "no state of the loss scale": ((64.0, 0, 12), (4, 14, 2)),
  "a checkpoint without loss scale amid skips": ((64.0, 0, 5), (3, 7, 2)),
  "the very beginning": ((8.0, 0, 0), None),
  "another run": ((64.0, 0, 0), None),
  "no good steps": ((4.0, None, 18), (5, 20, 2)),
  "no global step": ((4.0, 7, None), (4, 19, 2)),
  "no global step, amid skips": ((2.0, 3, None), (3, 10, 2)),
  "no global step, another scale": ((64.0, 3, None), (5, 20, 2)),
  "no numbers at all": ((4.0, None, None), (5, 20, 2)),
  "not a number": ((math.nan, 8, 18), (5, 20, 2)),
}


@pytest.mark.parametrize("name", _PLACES)
def test_places(name):
  state, expected = _PLACES[name]
  if expected is not None:
    count, step, skipped = expected
    expected = (len(b"".join(_LINES[:count])), step, skipped)
  for tail in (
    b"",
    b'{"step": 2',
    b"[1]\n",
    b"\xff\n",
    b"\n\n",
    b'{"step": 9}\n',
  ):
    assert (
      resuming.find_place(b"".join(_LINES) + tail, State(*state)) == expected
    )


@pytest.mark.parametrize(
  "bad",
  [
    b"[" * 100_000 + b"\n",
    b'"text"\n',
    line(True, "x", 1, 1, 0),
    line(1, None, 1, 1, 0),
    line("1", 8.0, 1, 1, 0),
    line(1, 8.0, "1", 1, 0),
    line(1, 8.0, 1, [], 0),
    line(1, 8.0, 1, 1, -1),
    line(1.5, 8.0, 1, 1, 0),
  ],
)
def test_lines_of_no_log(bad):
  assert resuming.find_place(bad, State(8.0, 1, 1)) is None
  good = line(3, 8.0, 2, 2, 1)
  expected = (len(good), 3, 1)
  assert resuming.find_place(good + bad, State(8.0, 2, 2)) == expected


def test_places_by_skipped_steps():
  # In a plateau, steps are skipped and neither scale nor good steps change.
  lines = [line(i, 4.0, 0, 5, i - 5) for i in range(6, 12)]
  data = b"".join(lines)
  for i in range(6):
    place = resuming.find_place(data, State(4.0, 0, 5, i + 1))
    assert place == (len(b"".join(lines[: i + 1])), i + 6, i + 1)
  # A loss scale that counts took the place of one that did not.
  assert resuming.find_place(data, State(4.0, 0, 5, 0)) == (len(data), 11, 6)
  assert resuming.find_place(data, State(4.0, 0, 5)) == (len(data), 11, 6)


def test_infinite_scales():
  data = line(4, "inf", 2, 3, 1)
  assert resuming.find_place(data, State(_INF, 3, 4)) == (len(data), 5, 1)


def simulate(rng, count, period):
  """Yields (applied, scale, good steps, global step) for random steps."""
  scale, good, global_step = 64.0, 0, 0
  for _ in range(count):
    applied = rng.random() < 0.8
    if applied:
      global_step += 1
      good += 1
      if good >= period:
        scale, good = scale * 2, 0
    else:
      scale, good = max(scale / 2, 1.0), 0
    yield applied, scale, good, global_step


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("with_global_step", [True, False])
def test_random_runs_find_their_place(seed, with_global_step):
  rng = random.Random(seed)
  own, files = record_run(64.0, every=rng.choice([1, 3, 100]))
  lines, states, data = [], [], b""
  for step in simulate(rng, 120, rng.choice([2, 5, 30])):
    applied, scale, good, global_step = step
    after = State(scale, good, global_step if with_global_step else None)
    own.observe(Step(applied, after), None)
    states.append((after, own.skipped))
    for line in files.lines:
      lines.append((own.step, len(data)))
      data += json.dumps(line).encode() + b"\n"
    files.lines.clear()
  last = states[lines[-1][0] - 1][0]
  for i, (seen, skipped) in enumerate(states):
    later = [x for x, _ in states[i + 1 :]]
    if seen in later:
      continue  # The last step of equal states is as good as any other.
    if not with_global_step and (
      last.scale == seen.scale and last.good_steps < seen.good_steps
    ):
      continue  # For all that is known, the run was killed later.
    place = resuming.find_place(data, seen)
    assert place is not None
    assert place[1:] == (i + 1, skipped), seen
    # The lines that stay are those up to this step.
    ends = [begin for step, begin in lines if step > i + 1]
    assert place.end == min(ends, default=len(data))


# When a run is stuck ----


def find_stuck(steps, patience, minimum=1.0, start=8.0):
  """Returns the steps at which a run was found stuck, and the messages."""
  rule = stuck.Rule(patience, minimum)
  rule.start(0, start)
  found = {}
  for i, (applied, scale) in enumerate(steps):
    message = rule.count(rows.Row(i + 1, applied, scale, 0, global_step=7))
    if message is not None:
      found[i + 1] = message
  return found


_GOOD, _BAD = True, False


@pytest.mark.parametrize(
  "steps, patience, expected",
  [
    ([(_BAD, 8.0)] * 40, 5, [5, 10, 20, 40]),  # The distance doubles.
    ([(_BAD, 8.0)] * 4, 5, []),
    ([(_BAD, 8.0)] * 4 + [(_GOOD, 8.0)] + [(_BAD, 8.0)] * 4, 5, []),
    ([(_BAD, 8.0)] * 5 + [(_GOOD, 8.0)] + [(_BAD, 8.0)] * 5, 5, [5, 11]),
    ([(_BAD, 1.0), (_GOOD, 1.0)] * 20, 5, [7, 13, 23]),
    ([(_GOOD, 1.0)] * 100, 5, []),
    # The first skipped step brings the scale to its minimum.
    ([(_BAD, 1.0), *[(_BAD, 1.0), *[(_GOOD, 1.0)] * 9] * 3], 5, [22]),
    # Few steps are lost there: 2 of 350, and 1 in 25.
    ([(_BAD, 1.0)] * 3 + [(_GOOD, 1.0)] * 346 + [(_BAD, 1.0)], 200, []),
    ([*[(_GOOD, 1.0)] * 24, (_BAD, 1.0)] * 40, 200, []),
    ([*[(_GOOD, 1.0)] * 14, (_BAD, 1.0)] * 40, 200, [225, 420]),
    ([(_GOOD, 1.0)] * 99 + [(_BAD, 1.0)], 5, []),
    ([(_BAD, 1.0), (_GOOD, 2.0)] * 20, 5, []),
    ([(_BAD, 8.0)], 1, [1]),
    ([(_GOOD, 8.0), (_BAD, 4.0)] * 20, 3, []),
  ],
)
def test_stuck_runs(steps, patience, expected):
  assert list(find_stuck(steps, patience)) == expected


def test_a_healthy_run_at_the_minimum_is_not_stuck():
  assert find_stuck([(_GOOD, 1.0)] * 1000, 5, start=1.0) == {}
  single = [(_GOOD, 1.0)] * 9 + [(_BAD, 1.0)] + [(_GOOD, 1.0)] * 9
  assert list(find_stuck(single, 5, start=1.0)) == []
  assert list(find_stuck([*single, (_BAD, 1.0)], 5, start=1.0)) == []
  bad = [*single, (_BAD, 1.0), (_BAD, 1.0)]
  assert list(find_stuck(bad, 5, start=1.0)) == [21]
  # The doctor, too, takes an unknown minimum for that of most rules.
  assert list(find_stuck(bad, 5, minimum=None, start=1.0)) == [21]
  assert list(find_stuck(bad, 5, minimum=0.5, start=1.0)) == []
  assert list(find_stuck([*bad[:10], (_GOOD, 2.0), *bad], 13, start=1.0)) == []


def test_losses_long_ago_hide_no_later_ones():
  rare = [*[(_GOOD, 1.0)] * 999, (_BAD, 1.0)] * 20
  assert list(find_stuck(rare, 200)) == []
  ill = [(_GOOD, 1.0), (_BAD, 1.0)] * 200
  found = list(find_stuck([*rare, *ill], 200))
  assert found and 20000 < found[0] <= 20000 + 200
  # After a recovery, the patience is that of the begin.
  again = [*rare, *ill, *rare, *ill]
  assert len([step for step in find_stuck(again, 200) if step > 40400]) >= 1


def test_messages_of_stuck_runs():
  scales = [8.0, 8.0, 4.0, 2.0, 1.0, *[1.0] * 6]
  steps = [(i < 2, scale) for i, scale in enumerate(scales)]
  found = find_stuck(steps, 4)
  assert list(found) == [6, 10]
  assert found[6] == (
    "The loss scale is stuck: the last 4 steps were skipped, from step 3 to "
    "step 6; the global step is 7. The first bad step was step 3, with "
    "the loss scale 8; it is 1 since step 5."
  )
  alternating = find_stuck([(_BAD, 1.0), (_GOOD, 1.0)] * 5, 5)
  assert (
    "steps are skipped at its minimum since step 3, the last one is step 7"
    in alternating[7]
  )


def test_advice():
  nan, infinite = rows.Blame("v", 1, 1, 8, 0.5), rows.Blame("w", 1, 0, 8, 0.5)
  hopeless = "What to try: The model itself makes"
  for blame, scale, expected in (
    ([nan], 8.0, True),
    ([nan, infinite], 8.0, False),
    ([infinite], 8.0, False),
    ([infinite], 1.0, True),
    ([], 1.0, True),
    ([], 8.0, False),
  ):
    row = rows.Row(1, False, scale, blame=tuple(blame))
    assert stuck.advise(row).startswith(hopeless) == expected


def test_a_stuck_run_names_gradients():
  rule = stuck.Rule(1, None)
  rule.start(4, 8.0)
  bad = [contents(f"w{i}", nans=i) for i in range(7)]
  good = [contents(f"v{i}", infinities=0) for i in range(5)]
  step = Step(False, State(8.0), given=[*bad, *good])
  blame = step.find_blame()
  row = rows.Row(5, False, 8.0, blame=blame, gradients=step.total)
  message = rule.count(row)
  assert "Not finite at step 5: 7 of 12 gradients: w0: 1 inf, 0 NaN" in message
  assert "w4: 1 inf, 4 NaN of 8, largest finite 0.5; and 2 more" in message
  assert "global step" not in message


# What is logged and written ----


def observe(own, applied, scale, gradients=()):
  own.observe(Step(applied, State(scale), given=gradients), None)


def test_which_steps_have_a_line():
  own, files = record_run(8.0, every=10, patience=6)
  steps = [(True, 8.0)] * 12 + [(False, 8.0), (True, 8.0), (True, 16.0)]
  steps += [(True, 16.0)] * 3
  for step in steps:
    observe(own, *step)
  assert [x["step"] for x in files.lines] == [1, 10, 13, 15]
  own.close()
  own.close()
  assert [x["step"] for x in files.lines] == [1, 10, 13, 15, 18]


def test_a_run_that_goes_on():
  own, files = record_run(8.0, 35, 3, every=10)
  observe(own, True, 8.0)
  observe(own, True, 8.0)
  first, second = files.lines
  assert (first["step"], first["loss_scale/skipped_total"]) == (39, 3)
  assert first["loss_scale/skipped_rate"] == 3 / 39
  assert first["config"] == {"class_name": "DynamicLossScale"}
  assert second["step"] == 40 and "config" not in second
  own.start(State(8.0, 0, 5))
  observe(own, True, 8.0)
  assert files.lines[2]["step"] == 6


@pytest.mark.parametrize(
  "name", ["initial_loss_scale", "init_loss_scale", "loss_scale_value"]
)
def test_a_new_run_goes_on_with_no_log(tmp_path, name):
  settings = recorder.Settings(tmp_path, 1, True, "warn", 200)
  for scale in (8.0, 4.0, 8.0):  # The second run goes on with the first.
    own = recorder.Recorder(settings, {name: 8.0})
    own.start(State(scale))
    observe(own, True, 4.0)
    own.close()
  assert own.step == 1
  lines = (tmp_path / "loss_scale.1.jsonl").read_text().splitlines()
  assert [json.loads(line)["step"] for line in lines] == [1, 2]


def test_blame_is_written_when_it_changes():
  own, files = record_run(8.0)
  a, b = contents("a"), contents("b", 2)
  steps = [[a], [a], [a, b], [a, b], [b._replace(nan=1)], [b], [], [a]]
  for blame in steps:
    observe(own, not blame, 8.0, blame)
  lines = {line["step"]: line for line in files.lines}
  found = [lines.get(i + 1, {}).get("blame") for i in range(len(steps))]
  assert [x and [y["name"] for y in x] for x in found] == [
    *(["a"], None, ["a", "b"], None, ["b"], ["b"], None, ["a"])
  ]


def test_logged_lines(logged):
  own, _ = record_run(8.0, 3, 1)
  a, b = contents("a"), contents("b")
  for applied, scale, blame in (
    (True, 8.0, []),
    (False, 4.0, [a]),
    (False, 4.0, [a]),  # Nothing new.
    (False, 4.0, [b]),
    (True, 4.0, []),
    (True, 4.0, []),
    (True, 8.0, []),
    (False, 8.0, []),
  ):
    observe(own, applied, scale, blame)
  found = [
    re.sub(r"gradients: (\w):.*", r"\1", x.getMessage()) for x in logged.records
  ]
  assert found == [
    "DynamicLossScale: the loss scale is 8 after 4 steps, of which 1 were "
    "skipped.",
    "Step 6 was skipped; loss scale 8 -> 4; 1 of 1 a",
    "Step 8 was skipped; loss scale 4; 1 of 1 b",
    "Step 9 was applied, after 3 skipped; loss scale 4.",
    "Step 11: loss scale 4 -> 8.",
    "Step 12 was skipped; loss scale 8; the gradients are not finite.",
  ]


@pytest.mark.parametrize("seed", range(30))
def test_uneventful_steps_change_no_line(logged, monkeypatch, seed):
  """A recorder that may pass steps over writes and logs the same."""
  random_ = random.Random(seed)
  monkeypatch.setattr(recorder.time, "time", lambda: 5.0)
  every, patience = random_.choice((1, 3, 100)), random_.choice((2, 4, 9))
  growth, length = random_.choice((0, 0.05)), random_.choice((5, 30))
  steps, scale = [], 4.0
  for number in range(900):
    # Quiet stretches and bad ones; the minimum, and nearly the minimum.
    bad = random_.random() < (0.9 if number % 150 < length else 0.004)
    if bad:
      scale = max(scale / 2, 1.0)
    elif random_.random() < growth:
      scale *= 2
    measured = bad or random_.random() < 0.05
    given = [contents(infinities=random_.choice((0, 3)))] if measured else ()
    state = State(scale, number % 7, number)
    steps.append(Step(not bad, state, given=given))
  results, passed = [], 0
  for may_pass in False, True:
    own, files = record_run(4.0, every=every, patience=patience)
    logged.clear()
    for step in steps:
      plain = step.applied and not step.given
      scale = step.after.scale if plain else math.nan
      if may_pass and own.pass_uneventful(scale, lambda step=step: step):
        passed += 1
      else:
        own.observe(step, lambda *args: None)
    seen = own.step, own.skipped
    own.close()
    results.append((files.lines, logged.messages[:], seen))
  assert results[0] == results[1]
  assert bool(passed) == (every > 1) or "stuck" in logged.text


def test_a_bypass_that_is_known_late_is_in_the_last_line():
  known = []
  settings = recorder.Settings(None, 100, True, "warn", 200)
  own = recorder.Recorder(settings, {}, lambda: bool(known))
  own.start(State(8.0, 0, 0, 0))
  own._files = files = Files()
  observe(own, True, 8.0)
  known.append(1)
  assert own.pass_uneventful(8.0, lambda: Step(True, State(8.0, 2, 2)))
  own.close()
  found = [(line["step"], line.get("bypassed")) for line in files.lines]
  assert found == [(1, None), (2, True)]


def test_numbers_that_json_lacks():
  own, files = record_run(1e38)
  large = contents(infinities=0)._replace(largest=1e300)
  observe(own, True, _INF, [large])
  (line,) = files.lines
  assert line["loss_scale/value"] == "inf"
  assert line["underflow"]["largest"] == "inf"
  json.dumps(line, allow_nan=False)


if __name__ == "__main__":
  helpers.main()
