# SPDX-License-Identifier: Apache-2.0
"""Tests what `scan` and `migrate` say of projects, loss scaling or not."""

import importlib.util
import json
import sys

import pytest
from source_trees import write_tree

from tf_compat_lossscale.cli import main as cli
from tf_compat_lossscale.migration import absences
from tf_compat_lossscale.migration import scanner

pytestmark = pytest.mark.any_release

_MAIN = "if __name__ == '__main__':\n  main()\n"
_TF = "import tensorflow as tf\n"
_GRAPH = f"{_TF}def main():\n  tf.Session().run(tf.placeholder(tf.int32))\n"
_RUN = "`tf-lossscale run` runs it"
_UNUSED = f"does not use loss scaling: {_RUN}"
_STOPS = f"{_UNUSED.removesuffix('runs it')}stops where the program uses"


def summaries(folder, capsys, *options, command="scan"):
  """Returns the lines of the projects, without the folder."""
  cli.main([command, *options, str(folder)])
  out, err = capsys.readouterr()
  lines = (out if command == "scan" else err).splitlines()
  return [line.replace(str(folder), "P") for line in lines]


@pytest.mark.parametrize(
  ("files", "expected"),
  [
    (
      {"main.py": _GRAPH + _MAIN, "data/x.py": "import os\n"},
      f"P: 2 files, TensorFlow 1 (tf.Session, main.py line 3), {_UNUSED}",
    ),
    # A module alone is part of programs that are elsewhere.
    (
      {"nets.py": _GRAPH},
      "P/nets.py: 1 file, TensorFlow 1 (tf.Session, nets.py line 3), "
      "does not use loss scaling: `tf-lossscale run` runs the programs that "
      "import it",
    ),
    # TensorFlow 1's names in today's place, after TensorFlow 1.15.
    (
      {"main.py": _GRAPH.replace("tensorflow", "tensorflow.compat.v1") + _MAIN},
      "P/main.py: 1 file, TensorFlow 1 (tf.Session without "
      f"tf.disable_v2_behavior(), main.py line 3), {_UNUSED}",
    ),
    # The decision is the same if a module imports TensorFlow in one line.
    (
      {"main.py": "try: import tensorflow as tf\nfinally: pass\ntf.Session()"},
      "P/main.py: 1 file, TensorFlow 1 (tf.Session, main.py line 3), "
      f"{_UNUSED}",
    ),
    # The main program decides, not a module that none reaches.
    (
      {"a_old.py": f"{_TF}def f(): tf.Session()\n", "main.py": _TF + _MAIN},
      "P: 2 files, TensorFlow 2, does not use loss scaling",
    ),
    (
      {"main.py": f"{_TF}tf.contrib.quantize.create_eval_graph()\n"},
      "P/main.py: 1 file, TensorFlow 1 (tf.contrib.quantize.create_eval_graph, "
      f"main.py line 2), {_STOPS} "
      "tf.contrib.quantize.create_eval_graph (main.py line 2): nothing puts it "
      "back",
    ),
    (
      {"main.py": f"{_TF}tf.contrib.gan.a()\ntf.contrib.gan.b()\n"},
      "P/main.py: 1 file, TensorFlow 1 (tf.contrib.gan.a, main.py line 2), "
      f"{_STOPS} tf.contrib.gan (main.py line 2): nothing puts it back",
    ),
    # A program has a loss scale of its own, or that of a later TensorFlow.
    (
      {"main.py": f"loss_scale = 8\n{_GRAPH}{_MAIN}"},
      "P/main.py: 1 file, TensorFlow 1 (tf.Session, main.py line 4), does "
      f"not use TensorFlow's legacy loss scaling: {_RUN}",
    ),
    (
      {"main.py": "import torch\n"},
      "P/main.py: 1 file, no TensorFlow, does not use loss scaling",
    ),
    # TensorFlow 2.16 has no tf.estimator: `python` does not run this.
    (
      {"main.py": f"{_TF}tf.function(tf.estimator.RunConfig)\n"},
      f"P/main.py: 1 file, TensorFlow 2 (no name in it tells; --tf1 if it is "
      f"older), {_UNUSED}",
    ),
    (
      {
        "main.ipynb": json.dumps(
          {
            "cells": [
              {
                "cell_type": "code",
                "source": [_TF, "tf.Session()"],
                "metadata": {},
              }
            ],
            "metadata": {},
            "nbformat": 4,
            "nbformat_minor": 2,
          }
        )
      },
      "P/main.ipynb: 1 file, TensorFlow 1 (tf.Session, main.ipynb line 2), "
      "does not use loss scaling: `tf-lossscale run --tf1 -m jupyter notebook` "
      "runs it",
    ),
  ],
)
@pytest.mark.usefixtures("all_packages")
def test_projects_without_loss_scaling(tmp_path, capsys, files, expected):
  write_tree(tmp_path, files)
  assert summaries(tmp_path, capsys, "--target=2.21") == [expected]
  found = summaries(tmp_path, capsys, "--target=2.21", command="migrate")
  assert found == [expected]


def test_a_file_of_such_a_project(tmp_path, capsys):
  write_tree(
    tmp_path, {"main.py": _GRAPH + _MAIN, "b.py": "import main\n" + _TF}
  )
  (line,) = summaries(tmp_path / "b.py", capsys)
  assert line.startswith("P: 1 file, TensorFlow 1 (tf.Session, main.py ")
  assert line.endswith(_UNUSED)


def test_the_user_decides(tmp_path, capsys):
  write_tree(tmp_path, {"main.py": f"{_TF}tf.ones\n{_MAIN}"})
  assert summaries(tmp_path, capsys, "--tf1") == [
    f"P/main.py: 1 file, TensorFlow 1, {_UNUSED}"
  ]


@pytest.fixture
def no_packages(monkeypatch):
  find_spec = importlib.util.find_spec
  gone = ("tf_slim", "tensorflow_estimator", "tf_keras")
  monkeypatch.setattr(
    importlib.util,
    "find_spec",
    lambda name: None if name in gone else find_spec(name),
  )
  for name in gone:  # Another test may have imported it.
    monkeypatch.delitem(sys.modules, name, raising=False)
  absences.find_absence.cache_clear()
  yield
  absences.find_absence.cache_clear()


@pytest.mark.usefixtures("no_packages")
def test_packages_that_are_not_installed(tmp_path, capsys):
  files = {
    "main.py": f"{_TF}import b\ntf.estimator.RunConfig\n{_MAIN}",
    "b.py": f"{_TF}tf.contrib.slim.conv2d\n",
    "c.py": f"{_TF}tf.contrib.slim.conv2d\n",
  }
  write_tree(tmp_path, files)
  (line,) = summaries(tmp_path, capsys, "--target=2.21")
  assert line.partition(_RUN)[2] == (
    "; first: pip install tf_slim; first: pip install "
    "'tensorflow-estimator==2.15.*'; first: pip install 'tf_keras==2.21.*'"
  )


@pytest.mark.parametrize("word", ["LossScale", "Session"])
def test_a_file_that_cannot_be_read(tmp_path, capsys, word):
  write_tree(tmp_path, {"main.py": f"{_TF}tf.{word}(\n"})
  for command in ("scan", "migrate"):
    assert cli.main([command, str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and "main.py:2: cannot be" in err
  write_tree(tmp_path, {"a.py": "import torch\n"})
  if word == "LossScale":
    (line,) = summaries(tmp_path, capsys)
    assert line == "P: 2 files, 1 cannot be read, no TensorFlow"


def test_a_program_of_which_a_part_cannot_be_read(tmp_path, capsys):
  files = {"main.py": _GRAPH + _MAIN + "import b\n", "b.py": f"{_TF}print 1\n"}
  write_tree(tmp_path, files)
  assert cli.main(["scan", str(tmp_path)]) == 2
  out, err = capsys.readouterr()
  assert out.endswith(
    ": 2 files, 1 cannot be read, TensorFlow 1 (tf.Session, main.py line 3)\n"
  )
  assert "b.py:2: cannot be parsed: " in err and err.count("\n") == 1


def test_the_reason_is_that_of_the_decision(tmp_path):
  files = {
    "a.py": f"{_TF}tf.GradientTape()\ntf.compat.v1.Session\n{_MAIN}",
    "b.py": f"{_TF}tf.train.experimental.LossScale\ntf.Session()\n{_MAIN}",
    "c.py": "import a, b\n",
  }
  write_tree(tmp_path, files)
  (project,) = scanner.scan([str(tmp_path)]).projects
  assert (project.tensorflow, project.reason) == (1, "tf.Session, b.py line 3")
  assert project.notes == ()


_SLIM = {
  "slim/setup.py": "",
  "slim/nets/__init__.py": "",
  "slim/nets/inception.py": f"{_TF}def net(): tf.get_variable('w', [])\n",
  "slim/train.py": f"{_TF}from nets import inception\n{_MAIN}tf.Session()\n",
  "od/setup.py": "",
  "od/main.py": f"{_TF}from nets import inception\ntf.Session()\n",
}
_USES = "tf.train.experimental.LossScale\n"


def test_a_project_that_one_with_loss_scaling_imports(tmp_path, capsys):
  main = _SLIM["od/main.py"] + _USES
  write_tree(tmp_path, {**_SLIM, "od/main.py": main})
  (line,) = (
    line for line in summaries(tmp_path, capsys) if line.startswith("P/slim: ")
  )
  assert line.endswith(
    f"{_UNUSED}; P/od imports nets.inception from it: run that by "
    "`tf-lossscale run` even after `migrate`"
  )
  cli.main(["migrate", "--write", str(tmp_path)])
  assert "even after `migrate`" in capsys.readouterr().err
  assert (tmp_path / "slim/train.py").read_text() == _SLIM["slim/train.py"]


@pytest.mark.parametrize(
  "files",
  [
    _SLIM,  # It does not use loss scaling, so `migrate` leaves both alone.
    # Two projects have the module.
    {
      **_SLIM,
      "od/main.py": _SLIM["od/main.py"] + _USES,
      "copy/setup.py": "",
      "copy/nets/inception.py": _SLIM["slim/nets/inception.py"],
    },
    # The module is another one.
    {**_SLIM, "od/main.py": f"{_TF}import nets_v2\ntf.Session()\n{_USES}"},
  ],
)
def test_projects_that_none_with_loss_scaling_imports(tmp_path, capsys, files):
  write_tree(tmp_path, files)
  assert "even after" not in "".join(summaries(tmp_path, capsys))


@pytest.mark.usefixtures("no_packages")
def test_a_package_is_one_line_of_each_project(tmp_path, capsys):
  layers = f"{_TF}tf.contrib.layers.flatten(0)\ntf.estimator.RunConfig()\n"
  names = ("a.py", "b.py", "c.py", "two.py")
  for folder in ("one", "two"):
    files = {
      **dict.fromkeys(names, layers),
      "main.py": "import a, b, c, two\n" + _USES.replace("tf", _TF + "tf"),
    }
    write_tree(tmp_path / folder, files)
    write_tree(tmp_path / folder, {"eval.py": files["main.py"] + _MAIN})
  options = ("--target=2.21", "--select=LS303")
  lines = summaries(tmp_path, capsys, *options)
  commands = [
    (line.split(":")[0], line.partition(" LS303 ")[2]) for line in lines
  ]
  estimator = "pip install 'tensorflow-estimator==2.15.*'"
  for folder in ("one", "two"):
    found = [text for path, text in commands if path.startswith(f"P/{folder}/")]
    assert sorted(found) == [
      "Keras 2: pip install 'tf_keras==2.21.*' [by hand]",
      "tf.contrib.layers.flatten: pip install tf_slim (for 3 more files, too) "
      "[by hand]",
      f"tf.estimator: {estimator} (for 3 more files, too) [by hand]",
    ]
  # The line is at the file that is given.
  lines = summaries(tmp_path / "one" / "b.py", capsys, *options)
  assert [line.count("pip install") for line in lines] == [1, 1, 0]


@pytest.mark.usefixtures("no_packages")
def test_errors_give_the_advice_of_scan():
  from tf_compat_lossscale.programs import contrib_hints
  from tf_compat_lossscale.programs import estimator

  command = absences.find_absence("tensorflow.contrib.slim", 1, (2, 21)).command
  assert (contrib_hints.explain_missing_package("slim") or "").endswith(command)
  command = absences.find_absence("tensorflow.estimator", 1, (2, 21)).command
  assert (estimator.explain_absence() or "").endswith(command)


def test_json_says_what_runs_a_project(tmp_path, capsys):
  write_tree(tmp_path, {"main.py": _GRAPH + _MAIN})
  assert cli.main(["scan", "--format=json", str(tmp_path)]) == 0
  (project,) = json.loads(capsys.readouterr().out)["projects"]
  assert project["notes"] == [_RUN] and project["tensorflow"] == 1


@pytest.mark.parametrize("name", ["main.py", "main.ipynb"])
def test_all_names_that_nothing_puts_back(tmp_path, capsys, name):
  text = f"{_TF}tf.contrib.gan.a()\ntf.contrib.cudnn_rnn.CudnnLSTM()\n"
  text += "tf.contrib.gan.b()\ntf.contrib.quantize.create_eval_graph()\n"
  if name.endswith(".ipynb"):
    cell = {"cell_type": "code", "source": text}
    text = json.dumps({"cells": [cell], "nbformat": 4, "metadata": {}})
  write_tree(tmp_path, {name: text})
  (line,) = summaries(tmp_path, capsys)
  assert line.endswith(
    f" stops where the program uses tf.contrib.gan ({name} line 2) or 2 other "
    "names: nothing puts them back"
  )
  assert "runs it" not in line
  assert cli.main(["scan", "--format=json", str(tmp_path)]) == 0
  (project,) = json.loads(capsys.readouterr().out)["projects"]
  assert project["missing"] == [
    f"tf.contrib.gan ({name} line 2)",
    f"tf.contrib.cudnn_rnn.CudnnLSTM ({name} line 3)",
    f"tf.contrib.quantize.create_eval_graph ({name} line 5)",
  ]


def test_a_file_gives_the_reason_itself(tmp_path, capsys):
  write_tree(tmp_path, {"a.py": _GRAPH + _MAIN, "b.py": "import a\n" + _GRAPH})
  (line,) = summaries(tmp_path / "b.py", capsys)
  assert "TensorFlow 1 (tf.Session, b.py line 4)" in line
