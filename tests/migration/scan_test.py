# SPDX-License-Identifier: Apache-2.0
"""Tests which files `scan` reads, what each means, and what starts programs."""

import random
import textwrap
import weakref

import helpers
import pytest
import source_trees

from tf_compat_lossscale import _releases
from tf_compat_lossscale._core import which_keras
from tf_compat_lossscale._core import whole_files
from tf_compat_lossscale.cli import main as cli
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import scanner
from tf_compat_lossscale.programs import missing_names
from tf_compat_lossscale.programs import sources

pytestmark = pytest.mark.any_release

_TF = "import tensorflow as tf\n"
_NEWEST = _releases.show(_releases.NEWEST)
_OLD = f"{_TF}x = tf.train.experimental.LossScale()\n"
_OLD_1 = f"{_OLD}tf.Session()\n"
_KERAS = f"{_TF}tf.keras.mixed_precision.experimental.Policy\n"
_MAIN = "if __name__ == '__main__': main()\n"


def write(folder, files=(), **others):
  """Writes files, each by its name without ".py"."""
  texts = {**dict(files), **others}
  texts = {f"{name}.py": textwrap.dedent(texts[name]) for name in texts}
  source_trees.write_tree(folder, texts)


def scanned(*paths, **options):
  """Returns {file: codes} for the files with findings."""
  report = scanner.scan([str(p) for p in paths], scanner.ScanOptions(**options))
  assert not report.errors
  found = {}
  for finding in report.findings:
    found.setdefault(finding.path.rpartition("/")[2], []).append(finding.code)
  return {path: sorted(codes) for path, codes in found.items()}


def migrated(folder, **options):
  """Migrates a folder; returns {file: text}."""
  asked = scanner.ScanOptions(**options, edited=(findings.MIGRATE,))
  for change in scanner.scan([str(folder)], asked).changes:
    whole_files.replace_file(change.path, change.after)
  again = scanner.scan([str(folder)], asked)
  assert not [f for f in again.findings if f.state == findings.MIGRATE]
  return {
    path.relative_to(folder).as_posix(): path.read_text()
    for path in folder.rglob("*.py")
  }


def test_what_is_skipped(tmp_path):
  names = (".git/a.py", "env/lib/a.py", "x/site-packages/a.py", "a.txt")
  source_trees.write_tree(tmp_path, dict.fromkeys(names, _OLD))
  (tmp_path / "env" / "pyvenv.cfg").write_text("")
  with pytest.raises(findings.ScanError, match="no Python file"):
    scanner.scan([str(tmp_path)])
  with pytest.raises(findings.ScanError, match="is not there"):
    scanner.scan([str(tmp_path / "typo.py")])


@pytest.mark.parametrize(
  ("pattern", "excluded"),
  [
    ("build", True),
    ("rebuild", False),
    ("*_pb2.py", True),
    ("./src/build/", True),
    ("src/*.py", True),
    ("/src", False),
    ("b/model_pb2.py", False),
  ],
)
def test_excluded_paths(pattern, excluded, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  write(tmp_path, {"src/build/model_pb2": _OLD, "main": _OLD})
  options = scanner.ScanOptions(exclude=("unused", pattern))
  if not excluded:
    assert scanner.scan(["src", "main.py"], options).files == 2
    return
  with pytest.raises(findings.ScanError, match="that is not excluded"):
    scanner.scan(["src"], options)


def test_positions_count_characters(tmp_path):
  text = f"{_TF}x = 'ünï'; tf.train.experimental.LossScale\n"
  (tmp_path / "model.py").write_text(text, "utf-8")
  report = scanner.scan([str(tmp_path)])
  (found,) = (f for f in report.findings if f.code == "LS101")
  assert (found.line, found.column, found.end_column) == (2, 12, 43)


def test_a_file_by_several_names_is_edited_once(tmp_path, capsys):
  write(tmp_path / "a", model=_OLD)
  (tmp_path / "link.py").symlink_to(tmp_path / "a" / "model.py")
  (tmp_path / "a" / "again.py").symlink_to("model.py")
  paths = [str(tmp_path), str(tmp_path / "link.py"), str(tmp_path / "a")]
  report = scanner.scan(paths)
  assert report.files == 1
  assert [f.path for f in report.findings] == [f"{tmp_path}/a/model.py"]
  assert cli.main(["migrate", "--write", *paths]) == 0
  assert capsys.readouterr().out.count("rewritten") == 1
  assert (tmp_path / "link.py").is_symlink()
  assert (tmp_path / "link.py").read_text().count("tf_compat_lossscale") == 1


# Which TensorFlow.


def test_a_file_follows_its_own_names_or_most_of_the_others(tmp_path):
  helper = f"{_TF}def f(): return tf.Variable(1.0)\n"
  write(
    tmp_path,
    one=f"{_OLD}def f(): tf.placeholder(tf.float32)\n",
    two=f"{_TF}@tf.function\ndef f(): return tf.summary.flush()\n",
    none=helper,
  )
  files = migrated(tmp_path)
  assert "import tensorflow.compat.v1 as tf" in files["one.py"]
  assert files["two.py"].startswith(_TF)
  assert files["none.py"] == helper  # A tie is TensorFlow 2.
  write(tmp_path, three=f"{_TF}def f(): tf.Session()\n")
  files = migrated(tmp_path)
  assert files["none.py"].startswith("import tensorflow.compat.v1 as tf")
  assert files["two.py"].startswith(_TF)


def test_a_file_with_names_of_both_is_left_by_hand(tmp_path):
  both = f"{_TF}def f(): tf.Session()\ndef g(): tf.summary.flush()\n"
  write(tmp_path, utils=both, main=f"import utils\n{_OLD_1}")
  report = scanner.scan([str(tmp_path)])
  (found,) = [f for f in report.findings if f.path.endswith("utils.py")]
  assert (found.code, found.state) == ("LS201", findings.BY_HAND)
  one, two = "tf.Session, utils.py line 2", "tf.summary.flush, utils.py line 3"
  assert found.note == f"{one} is of 1, {two} of 2"
  assert "LS201" in scanned(tmp_path)["main.py"]
  assert "LS201" not in str(scanned(tmp_path, tensorflow=2))  # He overrules.
  assert migrated(tmp_path)["utils.py"] == both
  assert "compat.v1" in migrated(tmp_path, tensorflow=1)["utils.py"]


def test_a_second_migrate_takes_no_other_tensorflow(tmp_path):
  write(
    tmp_path,
    one=f"{_OLD_1}def f(): tf.placeholder(1)\n",
    two=f"{_TF}def f(): tf.get_variable('x')\n",
    policy=f"{_KERAS}def f(): return tf.Variable(1.0)\n",
    logs=f"{_KERAS}def f(): tf.logging.info('x')\n",
    mp="from tensorflow.keras.mixed_precision import experimental as m\n",
    none=f"{_TF}def f(): return tf.Variable(1.0)\n",
    start=f"import none\nimport one\n{_MAIN}",
  )
  files = migrated(tmp_path)
  assert _TF in files["policy.py"] and files["none.py"].startswith(_TF)
  assert migrated(tmp_path) == files
  # Its signs are edited away, too.
  write(tmp_path, three=f"{_TF}def f(): tf.Session()\n")
  assert _TF in migrated(tmp_path)["policy.py"]


@pytest.mark.parametrize("seed", range(12))
def test_random_files_are_migrated_once(seed, tmp_path):
  """Migrates random files of the programs here: a part, all, all again."""
  choice = random.Random(seed)
  roots = [helpers.TESTS / "programs" / n for n in ("legacy", "projects")]
  every = [path for root in roots for path in sorted(root.rglob("*.py"))]
  paths = []
  for path in choice.sample(every, 12):
    paths.append(tmp_path / path.relative_to(helpers.ROOT))
    paths[-1].parent.mkdir(parents=True, exist_ok=True)
    paths[-1].write_bytes(path.read_bytes())
  names = list(map(str, paths))
  options = scanner.ScanOptions(edited=(findings.MIGRATE,))
  by_hand = []
  for part in (names[:1], names, names):
    choice.shuffle(part)
    report = scanner.scan(part, options)
    by_hand.append("LS206" in {f.code for f in report.findings})
    for change in report.changes:
      whole_files.replace_file(change.path, change.after)
  assert not report.changes
  assert by_hand[1] == by_hand[2]


# What starts programs, and what it gets.


@pytest.mark.parametrize(
  "start",
  [
    "if __name__ == '__main__':\n  model.f()\n",
    "from absl import app\napp.run(model.f)\n",
    "import tensorflow.compat.v1 as tf\ntf.app.run()\n",
    "model.f()\n",
  ],
)
def test_start_files_get_the_calls(start, tmp_path):
  write(
    tmp_path,
    {"lib/__init__": "", "lib/model": f"{_KERAS}def f(): tf.Session()\n"},
    main=f"{_TF}from lib import model\n{start}",
  )
  files = migrated(tmp_path)
  assert files["main.py"].startswith(
    "import tf_compat_lossscale as tfl\ntfl.use_keras_2()"
  )
  assert "disable_v2_behavior()" in files["main.py"]
  assert "use_keras_2" not in files["lib/model.py"]
  assert "disable_v2_behavior" not in files["lib/model.py"]


def test_a_start_file_without_tensorflow_gets_the_calls(tmp_path):
  graph = f"{_OLD}g = tf.placeholder(tf.float32)\n"
  for end in (_MAIN, "graph.f()\n"):
    text = f"from lib import graph\n{end}"
    write(tmp_path, {"lib/graph": graph}, main=text)
    main = migrated(tmp_path)["main.py"]
    assert main.startswith("import tensorflow.compat.v1 as tf\ntf.disable_v2_")
    assert main.index("disable_v2") < main.index("from lib")


_MAIN_TF = f"{_TF}import model\n{_MAIN}"
_USE = "import tf_compat_lossscale as tfl\ntfl.use_keras_2()\n"
_CHOOSE = "import os\nos.environ['TF_USE_LEGACY_KERAS'] = '1'\n"
_SWITCH = "TF_ENABLE_AUTO_MIXED_PRECISION"
_ADAM = f"{_TF}opt = tf.train.AdamOptimizer()\ntf.Session()\n"
_PORTED = (
  f"{_TF}import tf_compat_lossscale as tfl\n"
  "opt = tfl.keras.LossScaleOptimizer(tf.keras.optimizers.Adam(), 'dynamic')\n"
)


@pytest.mark.parametrize(
  ("files", "has", "lacks"),
  [
    pytest.param(
      {
        "old": f"{_OLD_1}{_MAIN}",
        "new": f"{_TF}import model\n@tf.function\ndef f(): pass\n{_MAIN}",
        "model": _KERAS,
        "plain": f"{_TF}@tf.function\ndef f(): pass\n{_MAIN}",
      },
      [("new", "use_keras_2"), ("old", "disable_v2_behavior")],
      [("plain", "use_keras_2"), ("new", "disable_v2_behavior")],
      id="what its own files need",
    ),
    pytest.param(
      {
        "lib/__init__": "from lib import model\n",
        "lib/__main__": "from . import model\nmodel.f()\n",
        "lib/model": _KERAS,
      },
      [("lib/__init__", "use_keras_2()"), ("lib/__main__", "use_keras_2()")],
      [("lib/model", "use_keras_2")],
      id="a package that runs, before its modules",
    ),
    pytest.param(
      {
        "main": f"{_TF}import lib\n{_MAIN}",
        "lib/__init__": _TF,
        "lib/train": f"{_KERAS}{_MAIN}",
      },
      [("main", "use_keras_2()"), ("lib/__init__", "use_keras_2()")],
      [],
      id="who imports a package that chooses, before it",
    ),
    pytest.param(
      {
        "a/main": _MAIN_TF,
        "a/model": _KERAS,
        "b/main": _MAIN_TF,
        "b/model": _TF,
      },
      [("a/main", "use_keras_2")],
      [("b/main", "use_keras_2")],
      id="the nearest module of a name",
    ),
    pytest.param(
      {
        "main": "import tensorflow.compat.v1 as tf\n"
        "tf.enable_eager_execution()\nimport lib\nlib.f()\n",
        "lib": "import tensorflow.compat.v1 as tf\n"
        "tf.train.experimental.LossScale\n"
        "if __name__ == '__main__': tf.Session().run(tf.placeholder(1))\n",
      },
      [("lib", 'if __name__ == "__main__":\n  tf.disable_v2_behavior()\n')],
      [],
      id="eager mode of those that import a start file",
    ),
    pytest.param(
      {
        "old": "from tensorflow.python.keras import backend\n"
        f"from tensorflow.python.training import checkpointable\n{_OLD_1}"
      },
      [("old", "# For tensorflow.python.keras and tensorflow.python.\n")],
      [],
      id="private modules",
    ),
    pytest.param(
      {"old": f"{_CHOOSE}{_KERAS}"},
      [],
      [("old", "use_keras_2")],
      id="the environment variable",
    ),
    pytest.param(
      {"old": f"{_KERAS}model.compile(loss='mse', optimizer='adam')\n"},
      [("old", 'install(keras_optimizers="legacy")')],
      [],
      id="Keras's optimizers by their names",
    ),
    pytest.param(
      {"old": f"{_KERAS}import re\nre.compile('adam')\n"},
      [],
      [("old", "install")],
      id="a name of another thing",
    ),
    pytest.param(
      {
        "ported": f"{_USE}{_PORTED}",
        "other": f"{_CHOOSE}{_PORTED}",
        "third": _PORTED,
      },
      [],
      [(name, "install") for name in ("ported", "other", "third")],
      id="ported programs",
    ),
    pytest.param(
      {
        "one/train": f"import os\nos.environ['{_SWITCH}'] = '1'\n{_ADAM}",
        "two/train": _ADAM,
      },
      [("one/train", "tfl.honor_environment()")],
      [("two/train", "honor_")],
      id="NVIDIA's switch, each program its own",
    ),
    pytest.param(
      {
        "pkg/amp": f"import os\nos.environ.update({{'{_SWITCH}': '1'}})\n",
        "pkg/__init__": "",
        "main": f"from pkg import amp\n{_ADAM}{_MAIN}",
        "start": f"import subprocess\nsubprocess.call(['python', 'main.py'], "
        f"env={{'{_SWITCH}': '1'}})\n",
      },
      [("main", "tfl.honor_environment()")],
      [],
      id="NVIDIA's switch, in a module",
    ),
    pytest.param(
      {"old": f"import keras\n{_OLD_1}", "new": f"import keras\n{_OLD}"},
      [
        ("old", f"{_USE[:-1]}  # Before TensorFlow is imported.\n"),
        ("old", "\ntfl.install()  # For keras.\nimport keras\n"),
        ("new", "tfl.use_keras_2"),
      ],
      [],
      id="keras by itself",
    ),
  ],
)
def test_calls_that_programs_get(files, has, lacks, tmp_path):
  write(tmp_path, files)
  after = migrated(tmp_path)
  for name, words in has:
    assert words in after[f"{name}.py"], name
  for name, words in lacks:
    assert words not in after[f"{name}.py"], name


def test_the_option_for_nvidias_switch(tmp_path):
  program = "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = ''\n"
  rest = f"from pkg import train\n{_MAIN}"
  write(tmp_path, {"main": program + rest, "pkg/train": f"{_ADAM}{_MAIN}"})
  assert not scanned(tmp_path)
  files = migrated(tmp_path, nvidia_switch=True)
  # Before the first import of a module of its own.
  assert files["main.py"] == (
    f"{program}import tensorflow.compat.v1 as tf\ntf.disable_v2_behavior()\n"
    f"import tf_compat_lossscale as tfl\ntfl.honor_environment()\n{rest}"
  )
  text = files["pkg/train.py"]
  assert text.count("tfl.honor_environment()\n") == 1
  assert text.index("disable_v2") < text.index("honor_") < text.index("Adam")
  assert cli.main(["scan", "--nvidia-switch", str(tmp_path)]) == 0


def test_without_a_start_file_one_line_says_what_to_add(tmp_path):
  text = f"{_KERAS}def f(): tf.Session(), tf.contrib.layers.flatten\n"
  write(
    tmp_path, {"lib/__init__": "from lib import model\n", "lib/model": text}
  )
  files = migrated(tmp_path)
  assert not any("use_keras_2" in text for text in files.values())
  (found,) = scanner.scan([str(tmp_path)]).findings
  assert (found.code, found.state) == ("LS206", findings.BY_HAND)
  assert found.path.endswith("lib/model.py")
  assert found.message == (
    "add `import tf_compat_lossscale as tfl; tfl.use_keras_2(); tfl.install(); "
    "import tensorflow.compat.v1 as tf; tf.disable_v2_behavior()` at the top "
    "of the file that starts it: none of these files does"
  )
  for _ in range(2):  # It is not done by then.
    (left,) = scanner.scan([str(tmp_path)]).findings
    assert left.message == found.message
    migrated(tmp_path)
  write(tmp_path, main=f"import lib.model\n{_MAIN}")
  assert "LS206" not in str(scanned(tmp_path))


def test_what_stops_a_program_is_listed_after_migrate_too(tmp_path):
  text = f"{_OLD_1}tf.contrib.layers.flatten(x)\ntf.contrib.quantize.f(x)\n"
  write(tmp_path, old=f"{text}import npu_bridge\n")
  assert {"LS301", "LS302", "LS203"} <= {*scanned(tmp_path)["old.py"]}
  assert "tfl.install()" in migrated(tmp_path)["old.py"]
  assert scanned(tmp_path) == {"old.py": ["LS302", "LS302"]}
  assert cli.main(["scan", str(tmp_path)]) == 1


@pytest.mark.parametrize(
  "text",
  [
    "try:\n  tf.contrib.f()\nexcept AttributeError:\n  pass\n",
    "if hasattr(tf, 'contrib'):\n  tf.contrib.f()\n",
    "if tf.__version__ < '2':\n  tf.contrib.f()\n",
    "if hasattr(tf, 'Session'): tf.Session()\n",
  ],
)
def test_names_that_are_tried_out_stop_nothing(text, tmp_path):
  write(tmp_path, old=f"{_OLD}{text}")
  assert scanned(tmp_path) == {"old.py": ["LS101"]}


def test_a_ported_program_keeps_its_behavior(tmp_path):
  start = "import tensorflow.compat.v1 as tf\nimport tf_compat_lossscale\n"
  new = f"{start}opt = tf.train.AdamOptimizer()\n"
  keras_3 = f"{_TF}from tf_compat_lossscale import keras\n"
  keras_3 += (
    "opt = keras.Keras3LossScaleOptimizer(tf.keras.optimizers.Adam())\n"
  )
  write(tmp_path, new=new, keras_3=keras_3, old=_OLD_1, other=_OLD_1)
  write(tmp_path, ported=f"import keras\n{_TF}import tf_compat_lossscale\n")
  assert "ported.py" not in scanned(tmp_path)
  files = migrated(tmp_path)
  assert (files["new.py"], files["keras_3.py"]) == (new, keras_3)


def test_a_library_that_was_migrated_alone_needs_the_calls(tmp_path):
  names = "tf.train.AdamOptimizer(), tf.train.experimental.LossScale"
  model = f"{_TF}def f(): return {names}\n"
  write(tmp_path, {"lib/__init__": "", "lib/model": model})
  assert "compat.v1" in migrated(tmp_path)["lib/model.py"]
  write(tmp_path, main=f"from lib import model\n{_MAIN}")
  assert "disable_v2_behavior" in migrated(tmp_path)["main.py"]


def test_a_missing_package_has_one_line(tmp_path, monkeypatch):
  monkeypatch.setattr(which_keras, "is_missing", lambda release: True)
  monkeypatch.setattr(
    missing_names, "is_missing", lambda name: name == "tensorboard"
  )
  callback = "tf.keras.callbacks.TensorBoard('logs')\n"
  write(tmp_path, a=f"{_KERAS}{_MAIN}", b=f"{_KERAS}{callback}{_MAIN}")
  options = scanner.ScanOptions(target=_releases.NEWEST)
  report = scanner.scan([str(tmp_path)], options)
  found = [f for f in report.findings if f.code == "LS303"]
  install = f"pip install '{{}}=={_NEWEST}.*'"
  assert [(f.name, f.message, f.note) for f in found] == [
    ("Keras 2", install.format("tf_keras"), "for 1 more file, too"),
    ("tf.keras.callbacks.TensorBoard", install.format("tensorboard"), ""),
  ]


@pytest.mark.parametrize(
  ("select", "ignore", "selected"),
  [
    (("LS2", "LS101"), (), True),
    (("LS1",), ("LS101",), False),
    (("LS101",), ("LS1",), True),
    (("LS101",), ("LS101",), False),
  ],
)
def test_the_longest_word_decides(select, ignore, selected, tmp_path):
  write(tmp_path, old=_OLD)
  assert bool(scanned(tmp_path, select=select, ignore=ignore)) == selected


def test_memory_does_not_grow_with_the_tree(tmp_path, monkeypatch):
  sources_in_memory, most, done = weakref.WeakSet(), [], []
  collect = sources._collect

  def count(source):
    sources_in_memory.add(source)
    most.append(len(sources_in_memory))
    collect(source)

  monkeypatch.setattr(sources, "_collect", count)
  write(tmp_path, {f"old{i}": _OLD_1 for i in range(20)})
  edited = scanner.ScanOptions(edited=(findings.MIGRATE,))
  show = lambda *args: done.append(args)  # noqa: E731
  assert len(scanner.scan([str(tmp_path)], edited, show).changes) == 20
  assert len(most) >= 40 and max(most) <= 2
  assert done == sorted(done) and {total for _, total in done} == {20}


# Python 2.

_PORT = ": if this is Python 2, run 2to3 first"


@pytest.mark.parametrize(
  "text",
  [
    "print 'Python 2'",
    "try:\n  pass\nexcept E, e:\n  pass",
    "if x:\n        y\n\tz",
  ],
)
def test_python_2(text, tmp_path, capsys):
  write(tmp_path, old=f"{_OLD}{text}\n", main=_OLD)
  report = scanner.scan([str(tmp_path)])
  assert report.files == 1
  assert {f.path.rpartition("/")[2] for f in report.findings} == {"main.py"}
  (error,) = report.errors
  assert "old.py:" in error and ": cannot be parsed: " in error
  assert error.endswith(_PORT)
  before = (tmp_path / "old.py").read_text()
  assert cli.main(["migrate", "--write", str(tmp_path)]) == 2
  assert (tmp_path / "old.py").read_text() == before
  assert "lossscale" in (tmp_path / "main.py").read_text()
  (line,) = capsys.readouterr().err.splitlines()
  assert line.endswith(error)
