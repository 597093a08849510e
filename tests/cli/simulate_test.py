# SPDX-License-Identifier: Apache-2.0
"""Tests `tf-lossscale simulate`: logs, options of policies, charts, JSON."""

import io
import itertools
import json
import re
import shlex
import signal
import subprocess
import sys
import time

import command_calls
import helpers
import pseudo_terminals
import pytest

from tf_compat_lossscale import policies
from tf_compat_lossscale.cli import step_logs

pytestmark = pytest.mark.any_release

_GIVEN = (
  "The overflows are taken as given: a run with another scale has others."
)


@pytest.fixture(autouse=True)
def width(monkeypatch):
  monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def log(tmp_path, monkeypatch):
  """Returns a function that writes a log and returns its name."""
  monkeypatch.chdir(tmp_path)

  def write(text):
    data = text if isinstance(text, bytes) else text.encode()
    (tmp_path / "log").write_bytes(data)
    return "log"

  return write


def run(capsys, *argv):
  return command_calls.call(capsys, "simulate", *argv)


def run_json(capsys, *argv):
  status, out, err = run(capsys, "--format=json", *argv)
  assert (status, err) == (0, "")
  return json.loads(out)


def expand(policy):
  """Returns the scale after each step that JSON tells of."""
  ends = [step for step, _ in policy["scales"][1:]]
  total = policy["summary"]["steps"]
  lengths = [b - a for a, b in itertools.pairwise([1, *ends, total + 1])]
  scales = [scale for _, scale in policy["scales"]]
  return [s for s, length in zip(scales, lengths) for _ in range(length)]


def error_of(capsys, *argv):
  """Returns the one line of a mistake."""
  status, out, err = run(capsys, *argv)
  assert (status, out) == (2, "")
  (line,) = err.splitlines()
  prefix, suffix = (
    "tf-lossscale simulate: ",
    "; see tf-lossscale simulate --help",
  )
  assert line.startswith(prefix) and line.endswith(suffix)
  return line[len(prefix) : -len(suffix)]


def test_a_run_by_hand(capsys):
  found = run_json(
    capsys, "--at=3,4", "--steps=10", "--policy=growth_interval=2"
  )
  (policy,) = found.pop("policies")
  assert found == {
    "first_step": 1,
    "steps": 10,
    "overflows": [3, 4],
    "notes": [_GIVEN],
  }
  assert policy["like"] is None
  assert policy["arguments"]["growth_interval"] == 2
  assert policy["scales"] == [
    [0, 2**15],
    [2, 2**16],
    [3, 2**15],
    [4, 2**14],
    [6, 2**15],
    [8, 2**16],
    [10, 2**17],
  ]
  assert policy["summary"] == {
    "steps": 10,
    "skipped_steps": 2,
    "skipped_share": 0.2,
    "growths": 4,
    "backoffs": 2,
    "first_scale": 2**15,
    "last_scale": 2**17,
    "lowest_scale": 2**14,
    "highest_scale": 2**17,
    "ended_at_step": None,
  }


def test_scales_are_those_of_the_rules(capsys):
  likes = [f"--like={name}" for name in policies.list_names()]
  found = run_json(
    capsys, "--every=13", "--steps=700", "--policy=growth_interval=20", *likes
  )
  finite = [step % 13 != 0 for step in range(1, 701)]
  ended = []
  for name, policy in zip(
    policies.list_names(), found["policies"], strict=True
  ):
    assert policy["like"] == name
    rule = policies.find_rule(name, growth_interval=20)
    assert policy["arguments"] == rule.get_config()
    try:
      scales = rule.simulate(finite)
      assert policy["summary"]["ended_at_step"] is None
    except policies.MinimumReachedError as error:
      scales = error.scales
      assert policy["summary"]["ended_at_step"] == len(scales) + 1
      ended.append(name)
    assert expand(policy) == scales
  assert ended == ["deepspeed", "fairseq"]


def test_the_help_names_all_systems(capsys):
  status, out, _ = run(capsys, "--help")
  assert status == 0 and ", ".join(policies.list_names()) in " ".join(
    out.split()
  )


@pytest.mark.parametrize(
  ("options", "overflows"),
  [
    (["--every=4"], [4, 8, 12]),
    (["--every=13"], []),
    (["--at=1,12"], [1, 12]),
    (["--at=5, 2", "--at=3"], [2, 3, 5]),
    (["--every=6", "--at=7"], [6, 7, 12]),
  ],
)
def test_patterns(options, overflows, capsys):
  found = run_json(capsys, "--steps=12", *options)
  assert (found["overflows"], found["steps"]) == (overflows, 12)


def as_flags(first, finite):
  return step_logs.Steps(first, [mark == "." for mark in finite])


@pytest.mark.parametrize(
  ("text", "expected"),
  [
    ("1 1 0 1 0 1", as_flags(1, "..x.x.")),
    ("1\n1\n0\n\n1 0\r\n1", as_flags(1, "..x.x.")),
    ("True true FALSE", as_flags(1, "..x")),
    ("finite\noverflow\n", as_flags(1, ".x")),
    ("finite overflow finite", as_flags(1, ".x.")),
    ("overflow", as_flags(1, "x")),
    ("\ufefffinite", as_flags(1, ".")),
    ('{"finite": true}\n{"finite": false}\n', as_flags(1, ".x")),
    ('\n{"skipped": 1, "loss": NaN}\n{"skipped": 0}', as_flags(1, "x.")),
    ('{"overflow": true, "skipped": true}', as_flags(1, "x")),
    ('{"step": 7, "applied": true}', as_flags(7, ".")),
    (
      '{"step": 3, "finite": false}\n{"step": 6.0, "finite": false}\n'
      '{"step": "8", "finite": true}',
      as_flags(3, "x..x.."),
    ),
    ("finite\n1\n0\n", as_flags(1, ".x")),
    ("overflow\nFalse\nTrue\n", as_flags(1, ".x")),
    ("skipped\n0\n1\n", as_flags(1, ".x")),
    ("Step, Applied ,loss\n5,true,1\n8,False,2\n", as_flags(5, "...x")),
    ('"step","finite"\r\n"0","1"\r\n"1","0"\r\n', as_flags(0, ".x")),
    ("value\n8\n4\n4\n8\n2\n", as_flags(1, ".x..x")),
    ("step,value,skipped\n1,8,0\n2,4,0\n3,2,1\n", as_flags(1, "..x")),
    (
      "Wall time,Step,Value\r\n1.7e9,4,65536.0\r\n1.7e9,5,32768.0\r\n",
      as_flags(4, ".x"),
    ),
  ],
)
def test_logs(text, expected, log):
  assert step_logs.read(log(text)) == expected


def test_rows_that_are_apart(log, capsys):
  text = "Wall time,Step,Value\n1,10,8\n1,20,4\n1,25,4\n1,28,2\n"
  found = run_json(capsys, log(text))
  assert (found["first_step"], found["steps"]) == (10, 19)
  assert found["overflows"] == [20, 28]
  assert "up to 10 steps apart" in found["notes"][0]


@pytest.mark.parametrize(
  ("text", "words"),
  [
    ("", "log: there is no step"),
    ("\n \n", "log: there is no step"),
    ("step,skipped\n", "log: there is no step"),
    (b"finite\n\xff\n", "log:2: this is no UTF-8 text"),
    ("1 0 1".encode("utf-16"), "log:1: this is no UTF-8 text"),
    (b"\x7fELF\x02\0\0", "log:1: this is no UTF-8 text"),
    ("hello", "log:1: 'hello' is none of 1, 0, true, false, finite, overflow"),
    ("1 0\n1 2", "log:2: '2' is neither 1 nor 0"),
    ("1\nfalse", "log:2: 'false' is neither 1 nor 0"),
    ("x" * 1000, f"log:1: '{'x' * 55}... is none of"),
    ("[true]", "log:1: this is a JSON list"),
    ('{"finite": true}\n{"fin', "log:2: '{\"fin' is no whole JSON object"),
    ('{"finite": true}\n[]', "log:2: '[]' is no whole JSON object"),
    ('{"finite":' + "[" * 10**5, 'log:1: \'{"finite":['),
    ('{"step": ' + "1" * 5000 + "}", 'log:1: \'{"step": 111'),
    ('{"step": 1}', "none of the keys finite, applied, skipped, overflow"),
    ('{"finite": null}', "log:1: finite must be true or false, or 1 or 0"),
    ('{"finite": 0.5}', "but is 0.5"),
    ('{"finite": true, "skipped": true}', "log:1: the line contradicts itself"),
    ('{"finite": 1, "step": -1}', "log:1: step must be a whole number"),
    ('{"finite": 1, "step": 1.5}', "but is 1.5"),
    ('{"finite": 1, "step": true}', "but is True"),
    ('{"finite": 1, "step": 1e400}', "but is inf"),
    ('{"finite": 1, "step": [1]}', "but is [1]"),
    ('{"finite": 1, "step": 1}\n{"finite": 1}', "log:2: either every line"),
    ('{"finite": 1}\n{"finite": 1, "step": 1}', "log:2: either every line"),
    (
      '{"finite": 1, "step": 0}\n{"finite": 1, "step": 10000000}',
      "log:2: there are more than 10000000 steps from step 0 to",
    ),
    ("step,loss\n1,2\n", "log:1: the header has none of the columns finite,"),
    ("step,skipped\n1,0\n2\n", "log:3: expected 2 columns"),
    ("step,skipped\n1,0\n\n2,no\n", "log:4: skipped must be true or false"),
    ("step,skipped\nx,0\n", "log:2: step must be a whole number"),
    ('step,skipped\n1,"0\n', "log:2: this is no CSV"),
    ("Wall time,Step,Value\n1,1,8\n1,2,NaN\n", "log:3: value must be a loss"),
    ("Wall time,Step,Value\n1,1,-8\n", "but is '-8'"),
  ],
)
def test_wrong_logs(text, words, log, capsys):
  assert words in error_of(capsys, log(text))


def test_files_that_cannot_be_read(tmp_path, capsys):
  assert error_of(capsys, str(tmp_path)).endswith(": Is a directory")
  missing = str(tmp_path / "missing")
  assert error_of(capsys, missing) == f"{missing}: No such file or directory"


_RESTARTED = "step,skipped\n1,0\n2,1\n3,1\n4,1\n3,0\n4,0\n4,1\n5,0\n"


def test_steps_that_fall_or_repeat(log, capsys):
  path = log(_RESTARTED)
  assert "log:6: step 3 comes after step 4" in error_of(capsys, path)
  assert "--restarted" in error_of(capsys, log("step,skipped\n1,0\n1,1\n"))
  found = run_json(capsys, log(_RESTARTED), "--restarted")
  assert (found["first_step"], found["steps"]) == (1, 5)
  assert found["overflows"] == [2, 4]
  assert found["notes"][0] == "Restarts: 2; lines that do not count: 3."


def test_a_restart_compares_with_the_row_that_counts(log):
  # The second value of step 6 is below that of step 7, but not of step 5.
  text = "step,value\n5,8\n6,16\n7,32\n6,8\n7,8\n"
  assert step_logs.read(log(text), restarted=True).finite == [True] * 3


def test_standard_input(monkeypatch, capsys):
  stream = io.TextIOWrapper(io.BytesIO(b"1 0"))
  monkeypatch.setattr(sys, "stdin", stream)
  assert run_json(capsys, "-")["overflows"] == [2]
  monkeypatch.setattr(sys, "stdin", None)
  assert error_of(capsys, "-") == "standard input is closed"


class Endless(io.RawIOBase):
  """A stream that never ends."""

  def __init__(self, line):
    self._line = line

  def readline(self, size=-1):
    return self._line if size < 0 else self._line[:size]


@pytest.mark.parametrize(
  ("line", "words"),
  [
    (b"1\n", "-:101: there are more than 100 steps"),
    (b'{"finite": 1}\n', "-:101: there are more than 100 steps"),
    (b"x" * 10**4, "-:1: the line has more than 1000 bytes"),
  ],
)
def test_a_log_without_an_end(line, words, monkeypatch, capsys):
  monkeypatch.setattr(step_logs, "MOST_STEPS", 100)
  monkeypatch.setattr(step_logs, "_LONGEST_LINE", 1000)
  stream = io.TextIOWrapper(io.BytesIO())
  monkeypatch.setattr(sys, "stdin", stream)
  monkeypatch.setattr(
    step_logs.selection, "open_standard_input", lambda: Endless(line)
  )
  assert words in error_of(capsys, "-")


@pytest.mark.parametrize(
  ("argv", "words"),
  [
    ([], "name a LOG, or give a pattern"),
    (["--steps=5"], "name a LOG, or give a pattern"),
    (["log", "--every=3"], "give LOG or --every, but not both"),
    (["log", "--at=3"], "give LOG or --at, but not both"),
    (["log", "--steps=3"], "give LOG or --steps, but not both"),
    (["--every=3", "--restarted"], "--restarted goes with LOG"),
    (["--every=0"], "--every: '0' is no number from 1 on"),
    (["--at=3,x"], "--at: 'x' is no number from 1 on"),
    (["--at=3,0"], "--at: '0' is no number from 1 on"),
    (["--at=10001"], "--at names step 10001, but the run has 10000 steps"),
    (["--every=3", "--steps=99999999"], "at most 10000000 steps"),
    (["--every=3", "--format=yaml"], "'yaml'"),
    (["--every=3", "--like=tf"], "'tf': the names are apex, contrib"),
    (["--every=3", "--policy=x"], "--policy: 'x' is not of the form"),
    (["--every=3", "--policy=x=1"], "no argument 'x': the arguments are at_"),
    (["--every=3", "--like=jmp,x=1"], "no argument 'x': the arguments are at_"),
    (["--every=3", "--like=torch,"], "--like=torch: '' is not of the form"),
    (
      ["--every=3", "--like=torch", "--policy=consecutive_hysteresis=true"],
      "'torch' has no argument 'consecutive_hysteresis'",
    ),
    (
      ["--every=3", "--like=deepspeed,consecutive_hysteresis=1"],
      "consecutive_hysteresis must be true or false, but got '1'",
    ),
    (
      ["--every=3", "--policy=hysteresis=2", "--policy=hysteresis=3"],
      "--policy sets hysteresis twice: 2 and 3",
    ),
    (["--every=3", "--policy=hysteresis=two"], "at least 1, but got 'two'"),
    (["--every=3", "--policy=hysteresis=1.5"], "at least 1, but got 1.5"),
    (["--every=3", "--policy=hysteresis=true"], "at least 1, but got 'true'"),
    (["--every=3", "--policy=hysteresis=None"], "at least 1, but got None"),
    (["--every=3", "--policy=growth_factor=2**9999"], "but got '2**9999'"),
    (
      ["--every=3", "--policy=refill=growth+x"],
      "'growth', 'backoff', 'finite'",
    ),
    (["--every=3", "--policy=at_minimum=stop"], "'stay' or 'raise'"),
    (["--every=3", "--policy=min_loss_scale=2^16"], "min_loss_scale=65536"),
  ],
)
def test_wrong_options(argv, words, capsys):
  assert words in error_of(capsys, *argv)


@pytest.mark.parametrize(
  ("text", "name", "value"),
  [
    ("initial_loss_scale=1024", "initial_loss_scale", 1024.0),
    ("initial_loss_scale=2**16", "initial_loss_scale", 65536.0),
    ("initial_loss_scale=2^16", "initial_loss_scale", 65536.0),
    ("min_loss_scale=1e-4", "min_loss_scale", 1e-4),
    ("min_loss_scale=2**-3", "min_loss_scale", 0.125),
    ("min_loss_scale=None", "min_loss_scale", None),
    ("growth_interval=2**10", "growth_interval", 1024),
    ("growth_factor=1.5", "growth_factor", 1.5),
    ("at_minimum=raise", "at_minimum", "raise"),
    ("refill=growth+backoff", "refill", ["growth", "backoff"]),
    ("refill=finite", "refill", ["finite"]),
    ("refill=none", "refill", []),
    ("overflow_reset=none", "overflow_reset", []),
    ("hysteresis=3, refill=backoff", "hysteresis", 3),
  ],
)
def test_values_of_arguments(text, name, value, capsys):
  (policy,) = run_json(capsys, "--every=3", "--policy", text)["policies"]
  assert policy["arguments"][name] == value


def test_arguments_of_one_policy_and_of_all(capsys):
  found = run_json(
    capsys,
    "--every=3",
    "--like=default",
    "--like=deepspeed, hysteresis=5,consecutive_hysteresis=true",
    "--like=megatron,growth_interval=7",
    "--policy=growth_interval=9",
    "--policy=at_minimum=stay",
  )["policies"]
  assert [policy["like"] for policy in found] == [None, "deepspeed", "megatron"]
  chosen = [policy["arguments"] for policy in found]
  assert [config["growth_interval"] for config in chosen][::2] == [9, 7]
  assert [config["hysteresis"] for config in chosen] == [1, 5, 2]
  assert chosen[1]["refill"] == ["finite"]
  assert {config["at_minimum"] for config in chosen} == {"stay"}


# log2 of the scale is 15 before the steps, and 15, 16, 15, 14, 14, 15, 15, 16,
# 16, 17 after each of them. A column has the scale before its step, too.
_CHART = """\
GrowthBackoff, growth_interval=2
    2^17 │         ▄
    2^16 │ ▄▄    ▄▄█
    2^15 │▄██▄ ▄▄█
    2^14 │   █▄█
overflow │  xx
    step │1    6  10
steps 10, skipped 2 (20.00%), growths 4, backoffs 2
scale first 2^15, last 2^17, lowest 2^14, highest 2^17

"""
_BY_HAND = ("--at=3,4", "--steps=10", "--policy=growth_interval=2")


def test_a_chart_by_hand(capsys):
  expected = f"{_CHART}{_GIVEN}\n"
  assert run(capsys, *_BY_HAND) == (0, expected, "")


def test_half_rows_and_a_policy_that_ends_the_run(capsys):
  status, out, _ = run(
    capsys,
    "--at=2,4,6",
    "--steps=8",
    "--policy=initial_loss_scale=8,backoff_factor=0.71",
    "--like=default",
    "--like=default,at_minimum=raise,min_loss_scale=5",
  )
  assert status == 0
  _, first, second = re.split(r"^GrowthBackoff.*\n", out, flags=re.MULTILINE)
  # log2: 3, 2.506, 2.012, 1.518; then 3, 2.506, 2.322 (the minimum).
  assert first.splitlines()[:7] == [
    "     2^3 │▄▄",
    "     2^2 │ ▀▀█▄▄",
    "     2^1 │     ▀▀▀",
    "overflow │ x x x",
    "    step │1   5  8",
    "steps 8, skipped 3 (37.50%), growths 0, backoffs 3",
    "scale first 2^3, last 2.86329, lowest 2.86329, highest 2^3",
  ]
  assert second.splitlines()[:8] == [
    "     2^3 │▄▄",
    "     2^2 │ ▀▀█▄",
    "     2^1 │",
    "overflow │ x x !",
    "    step │1   5  8",
    "steps 5, skipped 2 (40.00%), growths 0, backoffs 2",
    "scale first 2^3, last 5, lowest 5, highest 2^3",
    "The run ends at step 6 (!): the step is not finite, and the scale is at "
    "its minimum, 5.",
  ]


def test_a_policy_that_ends_the_run_at_once(capsys):
  status, out, _ = run(
    capsys, "--every=1", "--like=deepspeed,initial_loss_scale=1,hysteresis=1"
  )
  lines = out.splitlines()[1:4]
  assert status == 0 and "ends at step 1 (!)" in out
  assert lines[:2] == ["     2^0 │▄", "overflow │!"]


# The halves that a character of a chart fills, counted from above.
_HALVES = {" ": (), "▀": (0,), "▄": (1,), "█": (0, 1)}


@pytest.mark.parametrize("columns", ["1", "21", "40", "79", "80", "300"])
@pytest.mark.parametrize("steps", ["1", "2", "59", "68", "69", "70", "5000"])
def test_charts_fit_the_terminal(columns, steps, monkeypatch, capsys):
  monkeypatch.setenv("COLUMNS", columns)
  status, out, _ = run(
    capsys, f"--steps={steps}", "--every=7", "--like=fairseq", "--like=torch"
  )
  rows = [line for line in out.splitlines() if "│" in line]
  cells = min(max(int(columns) - 11, 10), int(steps))
  assert status == 0 and len(rows) >= 6
  for row in rows:
    assert len(row) <= 10 + max(cells, len("1 to 59")), row
  (torch,) = re.findall(r"^like torch\n(.*?)^overflow", out, re.DOTALL | re.M)
  drawn = [line.ljust(10 + cells)[10:] for line in torch.splitlines()]
  halves = [
    {
      2 * row + half
      for row, cell in enumerate(column)
      for half in _HALVES[cell]
    }
    for column in zip(*drawn, strict=True)
  ]
  # A column begins with the scale at the end of the column before.
  for left, right in itertools.pairwise(halves):
    assert left & right
  assert len(halves) == cells and halves[0]


def test_large_scales_fit_a_few_rows(capsys):
  argv = ["--every=100", "--like=torch,initial_loss_scale=2**127"]
  status, out, _ = run(capsys, *argv, "--steps=30000")
  rows = re.findall(r"^ *2\^(-?\d+) │(.*)$", out, re.MULTILINE)
  assert status == 0 and "lowest 2^-126, highest 2^127" in out
  assert len(rows) <= 14
  (octaves,) = {int(a) - int(b) for (a, _), (b, _) in itertools.pairwise(rows)}
  assert all(int(exponent) % octaves == 0 for exponent, _ in rows)
  assert rows[0][1].startswith(("▄", "▀", "█")) and rows[-1][1]


def test_output_without_block_characters():
  printed = helpers.run_python(
    "-m",
    "tf_compat_lossscale",
    "simulate",
    *_BY_HAND,
    PYTHONIOENCODING="ascii",
  )
  table = str.maketrans("▄▀█│", ".':|")
  assert printed == f"{_CHART}{_GIVEN}\n".translate(table)


def test_a_terminal(tmp_path):
  argv = ("simulate", *_BY_HAND)
  status, _, shown = pseudo_terminals.run(*argv, cwd=tmp_path, COLUMNS="80")
  plain = re.sub(r"\x1b\[[\d;]*m", "", shown)
  assert status == 0 and plain == f"{_CHART}{_GIVEN}\n" != shown
  _, _, shown = pseudo_terminals.run(
    *argv, cwd=tmp_path, COLUMNS="80", NO_COLOR="1"
  )
  assert shown == f"{_CHART}{_GIVEN}\n"


_WITHOUT = """if True:
  import sys
  sys.modules["tensorflow"] = None
  from tf_compat_lossscale.cli import main
  assert "numpy" not in sys.modules and "csv" not in sys.modules
  assert main.main(["simulate", "--every=300", "--like=torch"]) == 0
  ours = [name for name in sys.modules if name.startswith("tf_compat_")]
  unwanted = ("checkpoint", "programs")
  assert not [name for name in ours if any(x in name for x in unwanted)]
"""


def test_no_tensorflow():
  assert "like torch" in helpers.run_python("-c", _WITHOUT)


def test_a_reader_that_leaves_early():
  command = (
    f"{shlex.quote(sys.executable)} -m tf_compat_lossscale simulate --every=2"
  )
  for options in ("--steps=50000 --format=json", "--steps=100"):
    done = subprocess.run(
      ["bash", "-c", f"set -o pipefail; {command} {options} | head -c 5"],
      capture_output=True,
      cwd=helpers.ROOT,
      timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(done.stdout) == 5


def test_closed_streams():
  command = (
    f"{shlex.quote(sys.executable)} -m tf_compat_lossscale simulate --every=2"
  )
  done = subprocess.run(
    ["bash", "-c", f"{command} >&-"],
    capture_output=True,
    cwd=helpers.ROOT,
    timeout=60,
  )
  assert (done.returncode, done.stderr) == (0, b"")


_READS = """if True:
  import sys
  from tf_compat_lossscale.cli import main, selection
  open_standard_input = selection.open_standard_input
  def tell():
    print("reading", flush=True)
    return open_standard_input()
  selection.open_standard_input = tell
  sys.exit(main.main(["simulate", "-"]))
"""


def test_ctrl_c():
  with subprocess.Popen(
    [sys.executable, "-c", _READS],
    cwd=helpers.ROOT,
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  ) as process:
    assert process.stdout.readline() == "reading\n"
    process.send_signal(signal.SIGINT)
    # The pipe stays open until the process ends.
    assert process.wait(60) == 130
    _, err = process.communicate()
  assert err == "tf-lossscale: interrupted\n"


@pytest.mark.thorough
def test_a_million_steps(tmp_path, capsys):
  path = tmp_path / "log"
  with open(path, "w") as file:
    for step in range(10**6):
      file.write(f'{{"step": {step}, "loss": 0.5, "skipped": false}}\n')
  start = time.process_time()
  found = run_json(capsys, str(path))
  assert found["policies"][0]["summary"]["growths"] == 112
  assert time.process_time() - start < 60


def test_the_page_shows_what_the_command_prints(capsys):
  page = (helpers.ROOT / "docs/api/command-line.md").read_text("utf-8")
  (command,) = re.findall(r"tf-lossscale simulate (.*?)\n```", page, re.DOTALL)
  (shown,) = re.findall(r"```text\n(like .*?)```", page, re.DOTALL)
  argv = command.replace("\\\n", " ").split()
  assert run(capsys, *argv) == (0, shown, "")


if __name__ == "__main__":
  helpers.main()
