# SPDX-License-Identifier: Apache-2.0
"""Tests that `tf-lossscale run` treats a program as `python` does.

The programs import no TensorFlow. tensorflow1_test has those that do.
"""

import os
import signal
import subprocess
import sys
import sysconfig
import time

import helpers
from legacy_processes import environment
from legacy_processes import plain
from legacy_processes import program
from legacy_processes import run
from legacy_processes import start
import program_choices
import pytest

from tf_compat_lossscale._core import which_keras
from tf_compat_lossscale.cli import main
from tf_compat_lossscale.programs import launch
from tf_compat_lossscale.programs import missing_names
from tf_compat_lossscale.programs import program_files

_TF1 = "import tensorflow as tf\nx = tf.placeholder(tf.float32)\n"


pytestmark = pytest.mark.any_release


SHOW = """
import os, sys, threading
print(sys.argv, __name__, __file__, __spec__ and __spec__.name, __package__)
print(sys.path, sys.flags.optimize, sorted(vars()), os.getcwd())
print([name for name in sys.modules if name.startswith("tensorflow")])
print(sys.modules["__main__"].__dict__ is globals(), threading.active_count())
"""


@pytest.mark.parametrize(
  ("args", "stdin"),
  [
    (("sub/program.py", "--flag=1", "-x", "run", "--tf1", "a b", ""), None),
    (("-m", "pkg.sub", "--a"), None),
    (("-m", "pkg", "-b"), None),
    (("folder",), None),
    (("-c", SHOW.replace("__file__", "0"), "--flag=1", "-c"), None),
    (("-", "x"), "import sys; print(sys.argv)"),
  ],
)
def test_a_program_sees_what_python_would_show_it(args, stdin, tmp_path):
  for name in ("sub/program.py", "pkg/sub.py", "folder/__main__.py"):
    program(tmp_path, SHOW, name)
  program(tmp_path, "", "pkg/__init__.py")
  program(tmp_path, "import pkg.sub, sys; print(sys.argv)", "pkg/__main__.py")
  done = run("--quiet", *args, cwd=tmp_path, stdin=stdin)
  if stdin is None:
    assert done == plain(*args, cwd=tmp_path)
  else:
    assert done[:2] == (0, "['-', 'x']\n")


@pytest.mark.parametrize(
  "text",
  [
    "def f(): raise ValueError('mine')\nf()",
    "print 'Python 2'",
    "import sys; sys.exit(3)",
    "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "raise KeyboardInterrupt",
    "import atexit; atexit.register(print, 'bye'); raise SystemExit",
    "import warnings; warnings.warn('careful')",
  ],
)
def test_ends_as_python_would(text, tmp_path):
  name = program(tmp_path, text)
  assert run("--quiet", name, cwd=tmp_path) == plain(name, cwd=tmp_path)


@pytest.mark.parametrize("args", [("typo.py",), ("-m", "no_such_module")])
def test_a_typo_is_pythons_to_report(args, tmp_path):
  code, out, err = run(*args, cwd=tmp_path)
  assert (code, out, err) == plain(*args, cwd=tmp_path)
  assert code != 0 and len(err.splitlines()) == 1


@pytest.mark.parametrize(
  "args", [(), ("--quiet",), ("-m",), ("-c",), ("--tf3", "x.py")]
)
def test_mistakes_are_one_line(args, tmp_path):
  code, out, err = run(*args, cwd=tmp_path)
  assert code == 2 and not out
  (line,) = err.splitlines()
  assert line.startswith("tf-lossscale")


def test_interpreter_flags_reach_the_program(tmp_path):
  name = program(
    tmp_path, "import sys; print(sys.flags.optimize, sys._xoptions)"
  )
  code, out, _ = run(name, cwd=tmp_path, python=("-O", "-X", "mine=1"))
  assert (code, out) == (0, "1 {'mine': '1'}\n")
  code, out, err = run(name, cwd=helpers.ROOT, python=("-E",))
  assert code == 2 and "-E" in err and len(err.splitlines()) == 1


def test_ctrl_c(tmp_path):
  text = "import time\nprint('ready', flush=True)\ntime.sleep(60)\n"
  name = program(tmp_path, text)
  with start(
    "--quiet",
    name,
    cwd=tmp_path,
    start_new_session=True,
    # Children inherit an ignored SIGINT from the process that runs the tests.
    preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
  ) as process:
    assert process.stdout.readline() == "ready\n"
    os.killpg(process.pid, signal.SIGINT)
    started = time.monotonic()
    err = process.communicate(timeout=30)[1]
  assert time.monotonic() - started < 20
  assert process.returncode == -signal.SIGINT
  assert err.splitlines()[-1] == "KeyboardInterrupt"
  assert err.count('File "') == 1 and "program.py" in err


@pytest.fixture
def project(tmp_path, monkeypatch):
  """Returns the folder of a project, which is also the current folder."""
  for name in (
    *("train.py", "pkg/__init__.py", "pkg/__main__.py", "pkg/model.py"),
    *("pkg/tests/conftest.py", "pkg/tests/model_test.py", "tests/helper.py"),
    *("tests/test_scale.py", "tests/deep/test_deep.py", "build/test_copy.py"),
    *("plain/sub/train.py", "plain/sub/__main__.py"),
  ):
    program(tmp_path, "", name)
  monkeypatch.chdir(tmp_path)
  return tmp_path


@pytest.mark.parametrize(
  ("words", "expected"),
  [
    ("-m pytest tests", "tests/deep/test_deep.py tests/test_scale.py"),
    ("-m pytest -q tests/test_scale.py::test_it", "tests/test_scale.py"),
    ("-m pytest pkg/tests", "pkg/tests/conftest.py pkg/tests/model_test.py"),
    ("-m unittest tests/test_scale.py -f", "tests/test_scale.py"),
    ("-m unittest tests.test_scale", "tests/test_scale.py"),
    (
      "-m unittest -v pkg.tests.model_test.Case.test_it tests.test_scale.Case",
      "pkg/tests/model_test.py tests/test_scale.py",
    ),
    ("-m unittest pkg.tests", "pkg/tests/conftest.py pkg/tests/model_test.py"),
    ("-m unittest discover -s tests/deep", "tests/deep/test_deep.py"),
    (
      "-m unittest",
      "pkg/tests/conftest.py pkg/tests/model_test.py tests/deep/test_deep.py"
      " tests/test_scale.py",
    ),
    ("-m cProfile -s time -m pkg.model --a", "pkg/model.py"),
    ("-m plain.sub.train --a", "plain/sub/train.py"),  # No `__init__.py`.
    ("-m plain.sub", "plain/sub/__main__.py"),
    ("-m plain.no_such", ""),
    ("-m cProfile -o out train.py --flag", "train.py"),
    ("-m pkg --its=flags", "pkg/__main__.py"),
    ("-m pkg.model train.py tests", "pkg/model.py"),
    ("-m no_such_module", ""),
    ("pkg", "pkg/__main__.py"),
    ("train.py pkg", "train.py"),
    ("no_such.py", ""),
  ],
)
def test_files_that_a_command_starts(words, expected, project):
  read = program_files.read_program(words.split())
  files = [os.path.relpath(each.path) for each in [*read.levels, []][0]]
  assert sorted(files) == expected.split()


@pytest.mark.parametrize(
  "code",
  ["import pkg.model", "if 1:\n  import tensorflow as tf\n  tf.Session()"],
)
def test_code_of_a_command_decides(code, project):
  program(project, _TF1, "pkg/model.py")
  assert program_choices.choose("-c", code, "-x").tensorflow == 1


@pytest.mark.parametrize(
  "code",
  [
    "submit(run='plain.sub.model.loop')",
    "import importlib\nimportlib.import_module('hidden')",
    "import_module(f'plain.sub.{name}')",
    "import pkg.names",
  ],
)
def test_modules_that_strings_name_decide_last(code, project):
  program(project, "import plain.sub.deep", "plain/sub/model.py")
  program(project, _TF1, "plain/sub/deep.py")
  program(project, _TF1, "hidden.py")
  program(project, "MODULES = {'a': 'plain.sub.model'}", "pkg/names.py")
  choose = program_choices.choose
  assert choose("-c", code).tensorflow == 1
  new = "import tensorflow as tf\ntf.function(f)\n"
  assert choose("-c", new + code).tensorflow == 2
  for other in ("call('hidden.py')", "import_module(name)", "'plain.sub.py'"):
    assert choose("-c", other).decision is None, other


def test_an_installed_program_is_read(project, monkeypatch):
  installed = project / "lib" / "site-packages"
  for name, text in {
    "segnet/__init__.py": "",
    "segnet/__main__.py": "from segnet import cli\ncli.main()\n",
    "segnet/cli.py": "from segnet import model\nimport keras_lib\n",
    "segnet/model.py": _TF1,
    "keras_lib/__init__.py": "import tensorflow as tf\ntf.function(f)\n",
  }.items():
    program(installed, text, name)
  program(
    project,
    "#!/usr/bin/python\nimport re, sys\nfrom segnet.cli import main\nmain()",
    "bin/segnet-train",
  )
  monkeypatch.setattr(sys, "path", [*sys.path, str(installed)])
  monkeypatch.setattr(sysconfig, "get_path", lambda name: str(project / "bin"))
  for words in (["bin/segnet-train"], ["-m", "segnet"]):
    assert program_files.read_program(words).packages == ["segnet"]
    choice = program_choices.choose(*words)
    assert "tf.placeholder, model.py line 2" in choice.describe()


_EXPLAINED = """\
train.py --x: run with --tf1 --keras2
TensorFlow 1: by
  train.py:5: tf.Session (TensorFlow 1)
  train.py:6: tf.function (TensorFlow 2)
Keras 2: tf.train.experimental.LossScale, train.py line 4
tf.keras.optimizers: the legacy classes
put back: tf.contrib.crf, tf.train.experimental.LossScale
missing: no_such: pip install no_such (train.py:3)
missing: TensorFlow 2 has no tf.contrib.gan: """


def test_explain(project, monkeypatch, capsys):
  monkeypatch.setitem(missing_names.COMPANIONS, "no_such", "")
  text = """import tensorflow as tf
import helper
import no_such
tf.train.experimental.LossScale
tf.Session()
tf.function(f)
"""
  program(project, text, "train.py")
  program(project, "import tensorflow as tf\ntf.contrib.crf", "helper.py")
  with open("helper.py", "a") as file:
    file.write("\ntf.contrib.gan.x")
  assert main.main(["run", "--explain", "train.py", "--x"]) == 0
  assert capsys.readouterr().out.startswith(_EXPLAINED)
  assert main.main(["run", "--explain", "--tf2", "-m", "pkg"]) == 0
  lines = capsys.readouterr().out.splitlines()
  assert lines[1].startswith("TensorFlow 2: an option")


@pytest.mark.parametrize(
  ("words", "says"),
  [
    (["nope.py"], "nope.py: No such file"),
    (["-m", "nosuch"], "there is no module 'nosuch'"),
    (["old.py"], "old.py:1: cannot be parsed"),
    (["-c", "print 1"], "cannot be parsed"),
  ],
)
def test_what_cannot_be_read_is_not_explained(
  words, says, tmp_path, capsys, monkeypatch
):
  program(tmp_path, "print 'Python 2'", "old.py")
  monkeypatch.chdir(tmp_path)
  with pytest.raises(SystemExit) as stopped:
    main.main(["run", "--explain", *words])
  assert stopped.value.code == 2
  out, err = capsys.readouterr()
  assert out == "" and err.count("\n") == 1 and says in err, err


def test_a_notebook_is_not_run(project):
  code, _, err = run("old.ipynb", cwd=project)
  (line,) = err.splitlines()
  assert code == 2 and "migrate --write old.ipynb" in line
  assert "-m nbconvert" in line


def test_says_its_choice_in_a_line(tmp_path):
  name = program(tmp_path, "if 0:\n  import tensorflow as tf\n  tf.Session()")
  code, _, err = run(name, cwd=tmp_path)
  (line,) = err.splitlines()
  assert code == 0 and "tf.Session, program.py line 3" in line
  assert "--tf1 --keras2" in line
  assert run("--quiet", name, cwd=tmp_path)[2] == ""
  assert run("--tf2", name, cwd=tmp_path)[2] == ""


def test_nvidias_switch_has_no_effect_on_tensorflow_2(tmp_path, monkeypatch):
  text = "import tensorflow as tf\nopt = tf.compat.v1.train.AdamOptimizer()\n"
  text += "assert '_loss_scale_by_environment' not in vars(opt)\n"
  name = program(tmp_path, text)
  monkeypatch.setenv("TF_ENABLE_AUTO_MIXED_PRECISION", "1")
  code, _, err = run("--tf2", name, cwd=tmp_path)
  (line,) = [x for x in err.splitlines() if x.startswith("tf-lossscale: TF_")]
  assert code == 0 and "=1 has no effect" in line and "--tf1" in line
  assert run("--tf2", "--quiet", name, cwd=tmp_path)[2].count("TF_EN") == 0


def test_python_2_is_named(project, capsys):
  program(project, "import tensorflow as tf\nprint 'x'\n", "old.py")
  program(project, "import tensorflow as tf\nimport old\n", "new.py")
  _, _, err = run("old.py", cwd=project)
  first, *_ = err.splitlines()
  assert first.startswith("tf-lossscale: old.py:2: ") and "run 2to3" in first
  assert "SyntaxError" in err
  assert main.main(["run", "--explain", "new.py"]) == 0
  assert "old.py:2: cannot be parsed" in capsys.readouterr().out


def test_quiet_drops_what_tensorflow_writes_at_its_start(tmp_path, monkeypatch):
  monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
  name = program(tmp_path, "import tensorflow as tf\nx = tf.constant(1.0)\n")
  done = plain(
    *("-m", "tf_compat_lossscale", "run", "--quiet", "--tf1", name),
    cwd=tmp_path,
  )
  assert done == (0, "", "")
  program(tmp_path, "import tensorflow as tf\nx = 1 / 0\n")
  assert "ZeroDivisionError" in run("--quiet", "--tf2", name, cwd=tmp_path)[2]


_LAUNCHER = """
import os, subprocess, sys
for words in (["one.py"], ["-m", "one"], ["tw" + "o.py"]):
  subprocess.check_call([sys.executable] + words)
os.system(f'"{sys.executable}" nest' + 'ed.py')
"""
# It shows how it would run, and does without TensorFlow.
_CHILD = """
import os, sys
print(os.environ["TF_COMPAT_LOSSSCALE_RUN"], flush=True)
if len(sys.argv) > 9:
  import tensorflow as tf
"""


def test_children_of_a_program_without_tensorflow_decide_themselves(tmp_path):
  program(tmp_path, _LAUNCHER)
  program(tmp_path, _CHILD + "  tf.Session()\n", "one.py")
  program(tmp_path, _CHILD + "  tf.function(print)\n", "two.py")
  nested = "import os, sys\nos.system(f'\"{sys.executable}\" on' + 'e.py')\n"
  program(tmp_path, nested, "nested.py")
  code, out, err = run("program.py", cwd=tmp_path)
  assert (code, out.split()) == (0, ["tf1", "tf1", "tf2", "tf1"]), err
  lines = [line.split(" is ")[0] for line in err.splitlines()]
  names = ("one.py", "-m one", "two.py", "one.py")
  assert lines == [f"tf-lossscale: {name}" for name in names]
  code, out, err = run("--quiet", "program.py", cwd=tmp_path)
  assert (code, len(out.split()), err) == (0, 4, "")
  assert run("--tf2", "program.py", cwd=tmp_path)[1].split() == ["tf2"] * 4


def test_the_sitecustomize_that_was_there_still_runs(tmp_path):
  program(tmp_path, "print('theirs')", "other/sitecustomize.py")
  name = program(
    tmp_path, "import sitecustomize; print(sitecustomize.__file__)"
  )
  done = subprocess.run(
    [sys.executable, "-m", "tf_compat_lossscale", "run", "--tf1", name],
    capture_output=True,
    cwd=tmp_path,
    env=environment(PYTHONPATH=f"{helpers.ROOT}{os.pathsep}{tmp_path}/other"),
    text=True,
    timeout=60,
  )
  assert done.returncode == 0, done.stderr
  # The launcher's process prints once, and the program's process once.
  assert done.stdout.splitlines()[:2] == ["theirs", "theirs"]
  assert done.stdout.splitlines()[2] == f"{tmp_path}/other/sitecustomize.py"


def test_a_program_that_uses_keras_2_is_not_run_without(tmp_path, monkeypatch):
  def no_keras_2(keras):
    raise ImportError("Keras 2 is not installed: pip install it")

  def execve(*command):
    raise SystemExit(" ".join(command[1]))

  monkeypatch.setattr(which_keras, "make_environment", no_keras_2)
  monkeypatch.setattr(os, "execve", execve)
  with_keras = _TF1 + "tf.layers.dense(x, 1)\n"
  path = str(tmp_path / program(tmp_path, with_keras, "with.py"))
  with pytest.raises(launch.RunError, match="pip install"):
    launch.run([path], launch.Choice())
  path = str(tmp_path / program(tmp_path, _TF1, "without.py"))
  with pytest.raises(SystemExit, match="without"):
    launch.run([path], launch.Choice())


def test_waits_for_the_program_if_it_cannot_replace_this_process(tmp_path):
  """Checks the way of systems without `exec`, such as Windows."""
  name = program(tmp_path, "import sys; print(sys.argv); sys.exit(7)")
  code = f"""if True:
    from tf_compat_lossscale.programs import launch
    launch._CAN_REPLACE_PROCESS = False
    launch.run([{name!r}, "x"], launch.Choice(), quiet=True)
  """
  expected = (7, f"[{name!r}, 'x']\n", "")
  assert plain("-c", code, cwd=tmp_path) == expected


def test_needs_no_installation(tmp_path):
  """Checks a package that is on no path but that of its folder `_site`."""
  (tmp_path / "tensorflow.py").write_text("name = 'stub'")
  code = """if True:
    import os
    import sys
    hook = sys.meta_path[0]
    assert type(hook).__module__ == "tf_compat_lossscale.programs.import_hooks"
    assert not {*sys.argv[1:]} & {*map(os.path.realpath, sys.path)}, sys.path
    watchers = [w for w in hook.watchers if vars(w).get("_then")]
    (watcher,) = [w for w in watchers if w._name == "tensorflow"]
    watcher._then = lambda module: print(module.name)
    import tensorflow
  """
  folders = [os.path.realpath(path) for path in (launch._SITE, helpers.ROOT)]
  done = subprocess.run(
    [sys._base_executable, "-c", code, *folders],
    capture_output=True,
    cwd=tmp_path,
    env={
      "PYTHONPATH": os.pathsep.join([launch._SITE, str(tmp_path)]),
      "TF_COMPAT_LOSSSCALE_RUN": "tf1",
    },
    text=True,
  )
  assert (done.returncode, done.stdout) == (0, "stub\n"), done.stderr
