"""`tf-lossscale run`: what `python` does, with the legacy names in place."""

import importlib
import os
import pathlib
import signal
import subprocess
import sys
import time

import helpers
import pytest

import tf_compat_lossscale as tfl
from tf_compat_lossscale.legacy import import_hooks
from tf_compat_lossscale.legacy import run as legacy_run
from tf_compat_lossscale.legacy import which_keras

_TF1 = "import tensorflow as tf\nx = tf.placeholder(tf.float32)\n"
_HAS_KERAS_3 = helpers.RELEASE >= (2, 16)


pytestmark = pytest.mark.any_release


def environment(**env):
  clean = {k: v for k, v in os.environ.items() if k != "TF_USE_LEGACY_KERAS"}
  return {**clean, "PYTHONPATH": str(helpers.ROOT), **env}


def start(*args, cwd, python=(), **kwargs):
  return subprocess.Popen(
    [sys.executable, *python, "-m", "tf_compat_lossscale", "run", *args],
    cwd=cwd,
    env=environment(),
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    **kwargs,
  )


def run(*args, cwd, python=(), stdin=None):
  with start(*args, cwd=cwd, python=python, stdin=subprocess.PIPE) as process:
    out, err = process.communicate(stdin, timeout=120)
  # TensorFlow's own lines say nothing here.
  err = "".join(
    line
    for line in err.splitlines(keepends=True)
    if not line.startswith(("WARNING: All log", "I0000", "W0000", "E0000"))
  )
  return process.returncode, out, err


def plain(*args, cwd):
  done = subprocess.run(
    [sys.executable, *args],
    capture_output=True,
    cwd=cwd,
    env=environment(),
    text=True,
    timeout=120,
  )
  return done.returncode, done.stdout, done.stderr


def program(tmp_path, text, name="program.py"):
  path = tmp_path / name
  path.parent.mkdir(exist_ok=True, parents=True)
  path.write_text(text, "utf-8")
  return name


SHOW = """
import os, sys, threading
print(sys.argv, __name__, __file__, __spec__ and __spec__.name, __package__)
print(sys.path, sys.flags.optimize, sorted(vars()), os.getcwd())
print([name for name in sys.modules if name.startswith("tensorflow")])
print(sys.modules["__main__"].__dict__ is globals(), threading.active_count())
"""


def test_a_program_sees_what_python_would_show_it(tmp_path):
  name = program(tmp_path, SHOW, "sub/program.py")
  args = (name, "--flag=1", "-x", "run", "--tf1", "a b", "")
  assert run("--quiet", *args, cwd=tmp_path) == plain(*args, cwd=tmp_path)


def test_a_module_too(tmp_path):
  program(tmp_path, "", "pkg/__init__.py")
  program(tmp_path, SHOW, "pkg/sub.py")
  program(tmp_path, "import pkg.sub, sys; print(sys.argv)", "pkg/__main__.py")
  for args in (("-m", "pkg.sub", "--a"), ("-m", "pkg", "-b")):
    assert run("--quiet", *args, cwd=tmp_path) == plain(*args, cwd=tmp_path)


def test_a_folder_and_standard_input(tmp_path):
  program(tmp_path, "print('folder')", "folder/__main__.py")
  assert run("folder", cwd=tmp_path)[:2] == (0, "folder\n")
  text = "import sys; print(sys.argv)"
  assert run("-", "x", cwd=tmp_path, stdin=text)[:2] == (0, "['-', 'x']\n")


@pytest.mark.parametrize(
  "text",
  [
    "def f(): raise ValueError('mine')\nf()",
    "x = = 1",
    "print 'Python 2'",
    "import sys; sys.exit(3)",
    "import sys; sys.exit('words')",
    "import os; os._exit(4)",
    "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "raise KeyboardInterrupt",
    "import no_such_module",
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


@pytest.mark.parametrize("args", [(), ("--quiet",), ("-m",), ("--tf3", "x.py")])
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


@pytest.mark.parametrize(
  ("command", "flags"),
  [
    (["python", "/bin/tf-lossscale", "run", "-O", "x.py"], []),
    (["python", "-m", "tf_compat_lossscale", "run", "x.py"], []),
    (["python", "-u", "-c", "code", "x"], ["-u"]),
    (
      ["python", "-O", "-X", "dev", "-Werror", "-W", "once", "-m", "x"],
      ["-O", "-X", "dev", "-Werror", "-W", "once"],
    ),
  ],
)
def test_reads_interpreter_flags(command, flags):
  assert legacy_run._find_interpreter_flags(command) == flags


def test_ctrl_c(tmp_path):
  text = "import time\nprint('ready', flush=True)\ntime.sleep(60)\n"
  name = program(tmp_path, text)
  with start(
    "--quiet",
    name,
    cwd=tmp_path,
    start_new_session=True,
    # Whoever runs the tests may have it ignored, which children inherit.
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


def test_tracebacks_through_tensorflow_show_no_frame_of_ours(tmp_path):
  name = program(tmp_path, _TF1 + "def f():\n  tf.Session().run(x)\nf()\n")
  code, _, err = run("--quiet", name, cwd=tmp_path)
  assert code == 1 and "InvalidArgumentError" in err
  assert "tf_compat_lossscale" not in err


@pytest.mark.parametrize(
  ("text", "expected"),
  [
    (_TF1, (1, 2)),
    ("import tensorflow as tf\ntf.train.experimental.LossScale", (2, 2)),
    ("import tensorflow as tf\ntf.function", (2, None)),
    ("import helper", (1, 2)),
    ("print('nothing')", (2, None)),
  ],
)
def test_chooses_by_the_source(text, expected, tmp_path):
  program(tmp_path, _TF1, "helper.py")
  path = str(tmp_path / program(tmp_path, text))
  choice = legacy_run.choose(path, [str(tmp_path)])
  assert (choice.tensorflow, choice.keras) == expected
  choice = legacy_run.choose(path, [str(tmp_path)], tensorflow=2, keras=3)
  assert (choice.tensorflow, choice.keras) == (2, 3)


def test_a_program_is_read_with_its_own_modules(tmp_path):
  for name, text in {
    "main.py": "import a\nfrom pkg import b\nimport numpy",
    "a.py": "import main\nimport c",
    "c.py": "import tensorflow as tf\ntf.Session()",
    "pkg/__init__.py": "",
    "pkg/b.py": "from . import d\nfrom .e import f",
    "pkg/d.py": "x = 1",
    "pkg/e.py": "print 'two'",
    "unrelated.py": "import tensorflow as tf\ntf.Session()",
  }.items():
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
  found = legacy_run.read_program(str(tmp_path / "main.py"), [str(tmp_path)])
  names = [source.path[len(str(tmp_path)) + 1 :] for source in found]
  assert sorted(names) == [
    "a.py",
    "c.py",
    "main.py",
    "pkg/__init__.py",
    "pkg/b.py",
    "pkg/d.py",
  ]


def test_says_its_choice_in_a_line(tmp_path):
  name = program(tmp_path, "if 0:\n  import tensorflow as tf\n  tf.Session()")
  code, _, err = run(name, cwd=tmp_path)
  (line,) = err.splitlines()
  assert code == 0 and "tf.Session, program.py line 3" in line
  assert "--tf1 --keras2" in line
  assert run("--quiet", name, cwd=tmp_path)[2] == ""
  assert run("--tf2", name, cwd=tmp_path)[2] == ""


def test_tensorflow_1_and_all_ways_to_import_it(tmp_path):
  text = """
import tensorflow as tf
import tensorflow
import importlib
assert tensorflow is tf is importlib.import_module("tensorflow")
assert not tf.executing_eagerly() and not tf.resource_variables_enabled()
assert tf.placeholder and tf.train.AdamOptimizer and tf.app.run and tf.flags
assert tf.__version__.startswith("2.") and tf.__file__ and tf.__path__
assert "placeholder" in dir(tf)

import tensorflow.compat.v1 as tf1
assert tf1.placeholder is tf.placeholder
assert tf.compat.v1.placeholder is tf.placeholder
import tensorflow.compat.v2 as tf2
assert tf2.Variable is not tf.Variable
from tensorflow.python.framework import ops
assert tensorflow.python.framework.ops is ops
assert ops.Graph is tf.Graph
from tensorflow.python.training.experimental import loss_scale
assert loss_scale.LossScale is tf.train.experimental.LossScale
from tensorflow.train import AdamOptimizer
assert AdamOptimizer is tf.train.AdamOptimizer
import tensorflow.train
assert tensorflow.train is tf.train and tf.train.AdamOptimizer
from tensorflow import placeholder, layers, contrib
assert layers.dense and tf.layers.dense is layers.dense
from tensorflow.core.framework import graph_pb2
assert tf.GraphDef is graph_pb2.GraphDef
import tensorflow.keras as keras
assert ".engine." in keras.Model.__module__ and tf.keras.Model is keras.Model
from tensorflow.keras.layers import Dense
assert Dense is tf.keras.layers.Dense
import tensorflow.keras.layers
from tensorflow.keras import backend as K
assert K.get_session
import tensorflow.nn
assert tf.nn.rnn_cell.BasicLSTMCell
exec("from tensorflow import *", {})

class Mine(tf.Session):
  pass
tf.Session = Mine
assert tensorflow.Session is Mine

x = tf.placeholder(tf.float32, [2])
w = tf.Variable([1., 2.])
assert w.dtype._is_ref_dtype
opt = tf.train.experimental.MixedPrecisionLossScaleOptimizer(
    tf.train.AdamOptimizer(), "dynamic")
opt.minimize(tf.reduce_sum(w * x))
assert "tf_compat_lossscale" in type(opt).__module__
print("fine")
"""
  name = program(tmp_path, text)
  code, out, err = run("--tf1", name, cwd=tmp_path)
  assert (code, out) == (0, "fine\n"), err


_FIRST_IMPORTS = """
import importlib, os, sys
for name in sys.argv[1:]:
  if os.fork():
    print(name, os.wait()[1], flush=True)
    continue
  importlib.import_module(name)
  if "tensorflow" in sys.modules:
    import tensorflow as tf
    import tf_compat_lossscale as tfl
    assert tf.train.experimental.LossScale is tfl.LossScale
  break
"""


def modules_in(folder):
  """The dotted names of a folder's modules that are no programs."""
  for path in sorted((helpers.ROOT / folder).glob("*.py")):
    if path.stem != "__main__":
      parts = path.relative_to(helpers.ROOT).with_suffix("").parts
      yield ".".join(parts).removesuffix(".__init__")


@pytest.mark.parametrize(
  ("mode", "modules"),
  [
    pytest.param("--tf1", list(modules_in("tf_compat_lossscale")), id="tf1"),
    pytest.param(
      "--tf1",
      list(modules_in("tf_compat_lossscale/checkpoint")),
      id="tf1-checkpoint",
    ),
    pytest.param("--tf2", ["tf_compat_lossscale.gradients"], id="tf2"),
  ],
)
def test_any_module_may_be_what_a_program_imports_first(
  mode, modules, tmp_path
):
  """TensorFlow, whose import brings the legacy names, is then half-way in."""
  name = program(tmp_path, _FIRST_IMPORTS)
  code, out, err = run(mode, "--quiet", name, *modules, cwd=tmp_path)
  assert code == 0 and out.splitlines() == [f"{m} 0" for m in modules], err


def test_a_module_that_fails_after_importing_what_is_awaited(
  tmp_path, monkeypatch
):
  """What waits for TensorFlow does not wait any longer."""
  program(tmp_path, "", "awaited.py")
  program(tmp_path, "import awaited\nraise KeyError('mine')", "failing.py")
  monkeypatch.syspath_prepend(tmp_path)
  monkeypatch.setattr(tfl, "__path__", [*tfl.__path__, str(tmp_path)])
  finders, come = list(sys.meta_path), []
  import_hooks.when_imported("awaited", come.append)
  with pytest.raises(KeyError, match="mine"):
    importlib.import_module("tf_compat_lossscale.failing")
  assert come == [sys.modules["awaited"]] and sys.meta_path == finders


def test_tensorflow_2_is_left_as_it_is(tmp_path):
  text = """
import tensorflow as tf
import sys
assert type(tf) is type(sys) and tf.executing_eagerly()
assert not hasattr(tf, "placeholder")
import tf_compat_lossscale as tfl
assert tf.mixed_precision.experimental.DynamicLossScale is tfl.DynamicLossScale
print(2 if ".engine." in tf.keras.Model.__module__ else 3)
"""
  name = program(tmp_path, text)
  code, out, err = run("--tf2", "--keras2", name, cwd=tmp_path)
  assert (code, out) == (0, "2\n"), err
  code, out, err = run("--tf2", "--keras3", name, cwd=tmp_path)
  if _HAS_KERAS_3:
    assert (code, out) == (0, "3\n"), err
  else:
    assert code == 2 and "TensorFlow 2.16" in err


@pytest.mark.parametrize(
  ("statement", "what"),
  [
    ("tf.contrib.rnn", "tf.compat.v1.nn.rnn_cell"),
    ("from tensorflow.contrib import seq2seq", "tensorflow_addons.seq2seq"),
    ("import tensorflow.contrib.tpu as t", "tf.distribute.TPUStrategy"),
    ("from tensorflow.examples.tutorials.mnist import input_data", "datasets"),
    ("tf.examples", "tf.keras.datasets.mnist"),
    ("tf.no_such", "no attribute 'no_such'"),
  ],
)
def test_what_is_gone_says_so(statement, what, tmp_path):
  name = program(tmp_path, f"import tensorflow as tf\n{statement}\n")
  code, _, err = run("--tf1", name, cwd=tmp_path)
  last = err.splitlines()[-1]
  assert code == 1 and what in last
  assert last.startswith(("ImportError: ", "AttributeError: "))


def test_estimator_says_where_it_went(tmp_path):
  text = "import tensorflow as tf\nprint(tf.estimator.Estimator.__name__)\n"
  code, out, err = run("--tf1", program(tmp_path, text), cwd=tmp_path)
  if _HAS_KERAS_3:
    assert code == 1 and "tf.estimator was removed in TensorFlow 2.16" in err
  else:
    assert code == 0 and out.startswith("Estimator")


def test_children_have_the_names_too(tmp_path):
  child = (
    "import tensorflow as tf; import sys; "
    "print(tf.train.experimental.LossScale.__module__, sys.argv, "
    "tf.executing_eagerly())"
  )
  text = f"""
import os, subprocess, sys
run = lambda *a, **k: print(subprocess.check_output(
    [sys.executable, *a], text=True, **k), end="")
run("-c", {child!r}, "x")
run("-c", "import subprocess, sys; print(subprocess.check_output("
    "[sys.executable, '-c', {child!r}], text=True), end='')")
run("-c", "import sys; print('tensorflow' in sys.modules)")
run("-c", "import sys; print([p for p in sys.path if '_site' in p])")
run("-S", "-c", "print('without site')")
run("-E", "-c", "import os; print('without environment')")
"""
  code, out, err = run("--tf1", program(tmp_path, text), cwd=tmp_path)
  assert code == 0, err
  assert out.splitlines() == [
    "tf_compat_lossscale.loss_scale ['-c', 'x'] False",
    "tf_compat_lossscale.loss_scale ['-c'] False",
    "False",
    "[]",
    "without site",
    "without environment",
  ]


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
  # Once for the launcher, once for the program.
  assert done.stdout.splitlines()[:2] == ["theirs", "theirs"]
  assert done.stdout.splitlines()[2] == f"{tmp_path}/other/sitecustomize.py"


def test_without_keras_2_it_says_what_to_install(tmp_path, monkeypatch):
  monkeypatch.setattr(which_keras, "_find_release", lambda: (2, 99))
  monkeypatch.setattr(sys, "path", [str(tmp_path)])
  with pytest.raises(ImportError, match=r"pip install 'tf_keras==2\.99\.\*'"):
    which_keras.make_environment(2)
  monkeypatch.setattr(which_keras, "_find_release", lambda: (2, 15))
  assert which_keras.make_environment(2) == {}
  with pytest.raises(ImportError, match=r"2\.16"):
    which_keras.make_environment(3)


def test_a_program_that_uses_keras_2_is_not_run_without(tmp_path, monkeypatch):
  def no_keras_2(keras):
    raise ImportError("Keras 2 is not installed: pip install it")

  def execve(*command):
    raise SystemExit(" ".join(command[1]))

  monkeypatch.setattr(which_keras, "make_environment", no_keras_2)
  monkeypatch.setattr(os, "execve", execve)
  with_keras = _TF1 + "tf.layers.dense(x, 1)\n"
  path = str(tmp_path / program(tmp_path, with_keras, "with.py"))
  with pytest.raises(legacy_run.RunError, match="pip install"):
    legacy_run.run([path])
  path = str(tmp_path / program(tmp_path, _TF1, "without.py"))
  with pytest.raises(SystemExit, match="without"):
    legacy_run.run([path])


def test_reads_the_release_off_the_folder():
  assert which_keras._find_release() == helpers.RELEASE


def test_use_keras_2(tmp_path):
  helpers.run_python(
    "-c",
    "import tf_compat_lossscale as tfl; tfl.use_keras_2()\n"
    "import tensorflow as tf; tfl.use_keras_2()\n"
    "assert '.engine.' in tf.keras.Model.__module__",
    cwd=tmp_path,
  )
  late = "import tensorflow, tf_compat_lossscale as t; t.use_keras_2()"
  code, _, err = plain("-c", late, cwd=tmp_path)
  if _HAS_KERAS_3:
    assert code == 1 and "before TensorFlow is imported" in err
  else:
    assert code == 0


def test_start_costs_no_tensorflow():
  site = pathlib.Path(legacy_run.__file__).parent / "_site"
  out = helpers.run_python(
    "-c",
    "import sys; print([m for m in sys.modules if m in ('tensorflow', 'numpy', "
    "'ast', 'absl')])",
    TF_COMPAT_LOSSSCALE_RUN="tf1",
    PYTHONPATH=str(site),
  )
  assert out == "[]\n"


if __name__ == "__main__":
  helpers.main()
