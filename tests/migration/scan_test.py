# SPDX-License-Identifier: Apache-2.0
"""Tests which files `scan` reads, and how it groups them into projects."""

import ast
import gc
import json
import textwrap

import helpers
import pytest
import source_trees

from tf_compat_lossscale._core import whole_files
from tf_compat_lossscale.cli import main as cli
from tf_compat_lossscale.migration import checker
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import migrator
from tf_compat_lossscale.migration import scanner
from tf_compat_lossscale.migration import trees
from tf_compat_lossscale.programs import source_facts

pytestmark = pytest.mark.any_release

_OLD = "import tensorflow as tf\nx = tf.train.experimental.LossScale()\n"
_OLD_1 = f"{_OLD}tf.Session()\n"
_KERAS = (
  "import tensorflow as tf\ntf.keras.mixed_precision.experimental.Policy\n"
)


def write(folder, files=(), **others):
  """Writes files, each by its name without ".py"."""
  texts = {**dict(files), **others}
  texts = {f"{name}.py": textwrap.dedent(texts[name]) for name in texts}
  source_trees.write_tree(folder, texts)


def scanned(*paths, **options):
  """Returns {project's folder: {file: codes}} for the files with findings."""
  report = scanner.scan([str(p) for p in paths], scanner.Options(**options))
  assert not report.errors
  found = {}
  for project in report.projects:
    files = found.setdefault(project.path, {})
    for finding in project.findings:
      files.setdefault(finding.path, []).append(finding.code)
  return {
    folder: {path.rpartition("/")[2]: sorted(c) for path, c in files.items()}
    for folder, files in found.items()
  }


def migrated(folder):
  """Migrates a folder; returns {file: text}."""
  for change in scanner.scan([str(folder)], check=migrator.check).changes:
    whole_files.replace_file(change.path, change.after)
  (again,) = scanner.scan([str(folder)]).projects
  assert not [f for f in again.findings if f.state == findings.APPLIED]
  return {
    path.relative_to(folder).as_posix(): path.read_text()
    for path in folder.rglob("*.py")
  }


def test_migrate_reads_a_file_once(tmp_path, monkeypatch):
  write(tmp_path, **{f"m{i}": "import tensorflow as tf\n" for i in range(49)})
  imports = "".join(f"import m{i}\n" for i in range(49))
  write(tmp_path, main=imports + _OLD)
  paths, parse = [], source_facts.parse
  monkeypatch.setattr(
    source_facts,
    "parse",
    lambda path, text: paths.append(path) or parse(path, text),
  )
  checks, check = [], checker.check
  monkeypatch.setattr(
    checker, "check", lambda *args: checks.append(args) or check(*args)
  )
  report = scanner.scan(
    [str(tmp_path)], scanner.Options(jobs=1), check=migrator.check
  )
  assert [change.left for change in report.changes] == [()]
  # The edited file is read again, and its project checked again.
  assert (len(paths), len(checks)) == (51, 2)


@pytest.mark.parametrize("check", [checker.check, migrator.check])
def test_trees_need_no_garbage_collector(tmp_path, check):
  old = f"{_OLD_1}class A:\n  def f(self): return lambda x: x\n"
  write(tmp_path, main=f"import model, two\n{_OLD_1}", model=old, two="print 1")
  gc.collect()
  gc.disable()
  try:
    known = {id(each) for each in gc.get_objects()}
    scanner.scan([str(tmp_path)], scanner.Options(jobs=1), check=check)
    new = [each for each in gc.get_objects() if id(each) not in known]
  finally:
    gc.enable()
  assert not [each for each in new if isinstance(each, ast.AST)]


def test_code_without_legacy_names_is_none_of_its_business(tmp_path):
  write(tmp_path, model="import tensorflow as tf\nx = tf.placeholder(1)\n")
  (project,) = scanner.scan([str(tmp_path)]).projects
  assert not project.uses_loss_scaling and not project.findings
  assert cli.main(["scan", str(tmp_path)]) == 0


def test_what_is_skipped(tmp_path):
  names = (".git/a.py", "env/lib/a.py", "x/site-packages/a.py", "a.txt")
  source_trees.write_tree(tmp_path, dict.fromkeys(names, _OLD))
  (tmp_path / "env" / "pyvenv.cfg").write_text("")
  with pytest.raises(findings.ScanError, match="no Python file"):
    scanner.scan([str(tmp_path)])


def test_positions_count_characters(tmp_path):
  text = "import tensorflow as tf\nx = 'ünï'; tf.train.experimental.LossScale\n"
  (tmp_path / "model.py").write_text(text, "utf-8")
  report = scanner.scan([str(tmp_path)])
  (found,) = (f for f in report.findings if f.code == "LS101")
  assert (found.line, found.column, found.end_column) == (2, 12, 43)


def test_paths_that_overlap(tmp_path):
  write(tmp_path / "a", model=_OLD)
  folder = str(tmp_path / "a")
  once = scanner.scan([folder]).findings
  assert once and scanner.scan([str(tmp_path), folder]).findings == once


def test_a_file_that_is_no_python(tmp_path, capsys):
  path = tmp_path / "README.md"
  path.write_text("# LossScale\n")
  assert cli.main(["scan", str(path)]) == 2
  out, err = capsys.readouterr()
  assert "neither Python" in err and not out and len(err.splitlines()) == 1


@pytest.mark.parametrize("data", [b"\0", b"\xff"])
def test_standard_input_that_is_no_program(data):
  report = scanner.scan_text(data, "-")
  assert not report.projects and len(report.errors) == 1


def test_projects_are_folders_with_entry_points_of_their_own(tmp_path):
  main = "import model\nif __name__ == '__main__': model.f()\n"
  write(
    tmp_path,
    {
      "a/main": main,
      "a/model": f"{_OLD}def f(): tf.Session()\n",
      "a/utils/old": "import tensorflow as tf\n",
      "b/main": main,
      "b/model": "import tensorflow as tf\ndef f(): tf.Session()\n",
    },
    tool="import tensorflow as tf\nif __name__ == '__main__': tf.Session()\n",
  )
  report = scanner.scan([str(tmp_path)])
  paths = [project.path for project in report.projects]
  assert paths == [str(tmp_path / name) for name in ("a", "b", "tool.py")]
  used = [p.path for p in report.projects if p.uses_loss_scaling]
  assert used == [str(tmp_path / "a")]
  assert {f.path for f in report.findings} == {
    str(tmp_path / "a" / name) for name in ("main.py", "model.py")
  }


def test_entry_points_choose_keras_2(tmp_path):
  write(
    tmp_path,
    {"lib/__init__": "", "lib/model": _KERAS},
    main="import tensorflow as tf\nfrom lib import model\n"
    "if __name__ == '__main__': model.f()\n",
  )
  files = migrated(tmp_path)
  assert files["main.py"].startswith(
    "import tf_compat_lossscale as tfl\ntfl.use_keras_2()"
  )
  assert "use_keras_2" not in files["lib/model.py"]


def test_console_scripts_are_entry_points(tmp_path):
  (tmp_path / "setup.py").write_text(
    "from setuptools import setup\nsetup(entry_points="
    "{'console_scripts': ['train = lib.command:main']})\n"
  )
  write(
    tmp_path,
    {
      "src/lib/__init__": "from lib import model\n",
      "src/lib/command": "from . import model\ndef main(): model.f()\n",
      "src/lib/model": _KERAS,
    },
  )
  files = migrated(tmp_path)
  # The package imports TensorFlow before its module does.
  for file in ("__init__", "command"):
    assert "use_keras_2()" in files[f"src/lib/{file}.py"]
  assert "use_keras_2" not in files["src/lib/model.py"]


def test_a_library_is_left_to_the_user(tmp_path):
  files = {"lib/__init__": "from lib import model\n", "lib/model": _KERAS}
  write(tmp_path, files)
  files = migrated(tmp_path)
  assert not any("use_keras_2" in text for text in files.values())
  (project,) = scanner.scan([str(tmp_path)]).projects
  assert {(f.code, f.state) for f in project.findings} == {
    ("LS202", findings.BY_HAND)
  }


def test_programs_in_one_folder_mean_what_each_means(tmp_path):
  write(
    tmp_path,
    one=f"{_OLD}with tf.Session() as s: s.run(tf.placeholder(tf.float32))\n",
    two=f"{_OLD}def dead(): tf.Session()\n@tf.function\ndef f(): pass\nf()\n",
  )
  files = migrated(tmp_path)
  assert "disable_v2_behavior" in files["one.py"]
  assert "compat.v1" not in files["two.py"]


def test_the_programs_are_named_if_a_file_cannot_decide_for_all(tmp_path):
  main = "import tensorflow as tf\nimport lib_test\ntf.Session()\n"
  write(
    tmp_path,
    lib_test=f"{_OLD_1}def f(): pass\n",
    one=main,
    two=f"{main}tf.enable_v2_behavior()\n",
  )
  (found,) = [
    f
    for f in scanner.scan([str(tmp_path)]).findings
    if (f.code, f.state) == ("LS204", findings.BY_HAND)
  ]
  assert found.path.endswith("lib_test.py") and "two.py imports" in found.note
  assert "disable_v2_behavior() in one.py: " in found.message


@pytest.mark.parametrize("tensorflow", [1, 2])
def test_the_user_overrules(tensorflow, tmp_path):
  write(tmp_path, old=_OLD_1)
  (found,) = scanned(tmp_path, tensorflow=tensorflow).values()
  assert ("LS201" in found["old.py"]) == (tensorflow == 1)


def test_all_files_of_a_tensorflow_1_program_become_that(tmp_path):
  write(
    tmp_path,
    main=f"import layers\n{_OLD_1}layers.f()\n",
    layers="import tensorflow as tf\ndef f(): return tf.Variable(1.0)\n",
  )
  files = migrated(tmp_path)
  assert "import tensorflow.compat.v1 as tf" in files["layers.py"]
  # A module that is imported later must not switch behavior.
  assert "disable_v2_behavior" not in files["layers.py"]
  # `layers` may build its graph when it is imported.
  main = files["main.py"]
  assert main.index("disable_v2_behavior()") < main.index("import layers")


def test_a_single_file_is_read_as_part_of_its_project(tmp_path):
  (tmp_path / "setup.py").write_text("")
  main = "import tensorflow as tf\nimport model\nmodel.f()\n"
  write(tmp_path, main=main, model=_KERAS)
  path = tmp_path / "model.py"
  (found,) = scanned(path).values()
  assert found == {"model.py": ["LS101"]}
  (found,) = scanned(tmp_path / "main.py").values()
  assert found == {"main.py": ["LS202"]}


def test_a_home_folder_is_no_project(tmp_path, monkeypatch):
  (tmp_path / ".git").mkdir()
  monkeypatch.setenv("HOME", str(tmp_path))
  write(
    tmp_path, {"other/main": "import model\nmodel.f()\n", "a/model": _KERAS}
  )
  assert trees.find_root(str(tmp_path / "a" / "model.py")) == str(
    tmp_path / "a"
  )
  monkeypatch.setenv("HOME", str(tmp_path / "other"))
  assert trees.find_root(str(tmp_path / "a" / "model.py")) == str(tmp_path)


_PORT = ": if this is Python 2, run 2to3 first"


def test_python_2_after_a_magic(tmp_path):
  sources = [_OLD, "%matplotlib inline\nprint 'x'"]
  cells = [{"cell_type": "code", "source": source} for source in sources]
  (tmp_path / "x.ipynb").write_text(json.dumps({"cells": cells}))
  report = scanner.scan([str(tmp_path)])
  assert "LS101" in {each.code for each in report.findings}
  (error,) = report.errors
  assert ":cell 2: cannot be parsed: line 2: Missing paren" in error
  assert error.endswith(_PORT)


@pytest.mark.parametrize(
  "text",
  [
    "print 'Python 2'",
    "exec 'x = 1'",
    "try:\n  pass\nexcept E, e:\n  pass",
    "x = 0777",
    "if x:\n        y\n\tz",
  ],
)
def test_python_2(text, tmp_path, capsys):
  write(tmp_path, old=f"{_OLD}{text}\n", main=_OLD)
  report = scanner.scan([str(tmp_path)])
  (project,) = report.projects
  assert project.unreadable == 1
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


def test_broken_code_is_not_python_2(tmp_path):
  write(tmp_path, old=f"{_OLD}x = (\n")
  (error,) = scanner.scan([str(tmp_path)]).errors
  assert "2to3" not in error


def test_what_stops_a_program_is_listed_after_migrate_too(tmp_path):
  text = f"{_OLD_1}tf.contrib.layers.flatten(x)\ntf.contrib.quantize.f(x)\n"
  text += "import npu_bridge\n"
  write(tmp_path, old=text)
  (found,) = scanned(tmp_path).values()
  assert {"LS301", "LS302", "LS203"} <= {*found["old.py"]}
  files = migrated(tmp_path)
  assert "tfl.install()" in files["old.py"]
  (found,) = scanned(tmp_path).values()
  assert found == {"old.py": ["LS302", "LS302"]}
  assert cli.main(["scan", str(tmp_path)]) == 1


def test_the_call_that_restores_private_modules_says_which(tmp_path):
  imports = (
    "from tensorflow.python.keras import backend\n"
    "from tensorflow.python.training import checkpointable\n"
  )
  write(tmp_path, old=imports + _OLD_1)
  text = migrated(tmp_path)["old.py"]
  assert "# For tensorflow.python.keras and tensorflow.python.\n" in text


@pytest.mark.parametrize(
  "text",
  [
    "try:\n  tf.contrib.f()\nexcept AttributeError:\n  pass\n",
    "if hasattr(tf, 'contrib'):\n  tf.contrib.f()\n",
    "if tf.__version__ < '2':\n  tf.contrib.f()\n",
  ],
)
def test_names_that_are_tried_out_stop_nothing(text, tmp_path):
  write(tmp_path, old=f"{_OLD}{text}")
  (found,) = scanned(tmp_path).values()
  assert found == {"old.py": ["LS101"]}


def test_the_environment_variable_chooses_keras_2(tmp_path):
  write(
    tmp_path,
    old=f"import os\nos.environ['TF_USE_LEGACY_KERAS'] = '1'\n{_KERAS}",
  )
  assert "use_keras_2" not in migrated(tmp_path)["old.py"]


def test_keras_finds_optimizers_by_their_names(tmp_path):
  text = f"{_KERAS}model.compile(loss='mse', optimizer='adam')\n"
  write(tmp_path, old=text)
  files = migrated(tmp_path)
  assert 'install(keras_optimizers="legacy")' in files["old.py"]
  write(tmp_path, old=_KERAS + "import re\nre.compile('adam')\n")
  assert "install" not in migrated(tmp_path)["old.py"]


def test_a_script_that_others_import_leaves_eager_mode_to_them(tmp_path):
  start = "import tensorflow.compat.v1 as tf\n"
  write(
    tmp_path,
    main=f"{start}tf.enable_eager_execution()\nimport lib\nlib.f()\n",
    lib=f"{start}tf.train.experimental.LossScale\n"
    "if __name__ == '__main__': tf.Session().run(tf.placeholder(tf.int8))\n",
  )
  files = migrated(tmp_path)
  call = 'if __name__ == "__main__":\n  tf.disable_v2_behavior()\n'
  assert call in files["lib.py"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_ends_of_lines(end, tmp_path):
  path = tmp_path / "old.py"
  path.write_bytes(_KERAS.replace("\n", end).encode() + b"f()")
  migrated(tmp_path)
  first = f"import tf_compat_lossscale as tfl{end}tfl.use_keras_2()"
  assert path.read_bytes().decode().startswith(first)


def test_codes_are_selected_and_ignored(tmp_path):
  write(tmp_path, old=f"{_OLD_1}y = tf.train.experimental.LossScale")
  (found,) = scanned(tmp_path, select=("LS1",)).values()
  assert found == {"old.py": ["LS101", "LS101"]}
  (found,) = scanned(tmp_path, ignore=("LS1", "LS204")).values()
  assert found == {"old.py": ["LS201"]}


def test_a_loop_of_links_ends(tmp_path):
  write(tmp_path, old=_OLD)
  (tmp_path / "loop").symlink_to(tmp_path)
  (tmp_path / "self.py").symlink_to(tmp_path / "self.py")
  report = scanner.scan([str(tmp_path)])
  (error,) = report.errors
  assert "self.py" in error
  assert [f.code for f in report.findings] == ["LS101"]


if __name__ == "__main__":
  helpers.main()
