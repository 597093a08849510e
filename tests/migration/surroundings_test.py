# SPDX-License-Identifier: Apache-2.0
"""Tests that a part of a project gets the findings that the whole gives it."""

import pathlib
import shutil

import pytest
from source_trees import write_tree

from tf_compat_lossscale.cli import main as cli
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import scanner
from tf_compat_lossscale.migration import surroundings

pytestmark = [
  pytest.mark.any_release,
  pytest.mark.usefixtures("all_packages"),
]

_PROJECTS = pathlib.Path(__file__).parents[1] / "legacy_projects"
_OPTIONS = scanner.Options(jobs=1, target=(2, 21))
_TF = "import tensorflow as tf\n"
_USES = "tf.train.experimental.LossScale\n"
_MAIN = "if __name__ == '__main__':\n  tf.Session()\n"
_LOWER = f"{_TF}tf.contrib.training.HParams()\ntf.get_variable('x')\n"


def find(path):
  """Returns path -> its findings without the path."""
  found = {}
  for finding in scanner.scan([str(path)], _OPTIONS).findings:
    own = found.setdefault(finding.path, [])
    own.append(finding._replace(path="", edits=()))
  return found


def check_files(folder):
  """Checks each file and folder alone; returns the whole folder's findings."""
  whole = find(folder)
  for path in filter(pathlib.Path.is_dir, folder.rglob("*")):
    if any(path.rglob("*.py")):
      own = {p: f for p, f in whole.items() if p.startswith(f"{path}/")}
      assert find(path) == own, path
  for path in folder.rglob("*"):
    if path.suffix in (".py", ".ipynb"):
      alone = find(path) if path.stat().st_size else {}
      assert alone.get(str(path), []) == whole.get(str(path), []), path
  return whole


@pytest.mark.parametrize(
  "name", sorted(each.name for each in _PROJECTS.iterdir() if each.is_dir())
)
def test_files_of_projects(tmp_path, name):
  shutil.copytree(_PROJECTS / name, tmp_path / "p")
  assert check_files(tmp_path / "p")


@pytest.mark.parametrize(
  "files",
  [
    {  # A package below the program.
      "main.py": f"{_TF}from nets import a\n{_USES}{_MAIN}",
      "nets/__init__.py": "",
      "nets/a.py": _LOWER,
    },
    {  # Folders that are no packages, one below the other.
      "main.py": f"{_TF}from nets.deep.er import a\n{_USES}{_MAIN}",
      "nets/deep/er/a.py": _LOWER,
    },
    {  # Only a module in another folder imports the file.
      "main.py": f"{_TF}from utils import run\n{_USES}{_MAIN}",
      "utils/run.py": f"{_TF}from nets import a\n",
      "nets/a.py": _LOWER,
    },
    {  # The file imports what is above it, and the name of a module is setup.
      "scripts/train.py": f"{_TF}import common\nfrom utils import setup\n"
      f"{_USES}{_MAIN}",
      "common.py": _LOWER,
      "utils/setup.py": _LOWER,
    },
    {  # Several programs start with the file.
      "a.py": f"{_TF}import lib\n{_USES}{_MAIN}",
      "b.py": f"{_TF}import lib\n{_MAIN}",
      "lib.py": _LOWER,
    },
    {  # NVIDIA's switch in a module.
      "main.py": f"import switch\n{_TF}{_MAIN}",
      "switch.py": "import os\n"
      "os.environ['TF_ENABLE_AUTO_MIXED_PRECISION'] = '1'\n",
    },
    {  # No file starts the program.
      "lib/__init__.py": f"{_TF}from lib import b\n",
      "lib/b.py": f"{_LOWER}{_USES}",
    },
  ],
)
def test_files_alone(tmp_path, files):
  write_tree(tmp_path / "p", files)
  assert check_files(tmp_path / "p")


def test_where_a_project_ends(tmp_path):
  write_tree(
    tmp_path,
    {
      "other.py": "import torch\n",
      "one/a/x.py": _TF,
      "one/main.py": "from a import x\n",
      "two/a/x.py": _TF,
      "three/setup.py": "from setuptools import setup\n",
      "three/main.py": "import lib\n",
      "three/lib/x.py": _TF,
    },
  )
  for file, root in (
    ("one/a/x.py", "one"),
    ("one/main.py", "one"),
    ("two/a/x.py", "two/a"),
    ("three/lib/x.py", "three"),
    ("three/lib", "three"),
    ("one/a", "one"),
    ("two/a", "two/a"),
    ("", ""),
    ("other.py", ""),
  ):
    found = surroundings.find_root(str(tmp_path / file))
    assert found == str(tmp_path / root), file


def test_a_project_around_is_looked_for_once(tmp_path, monkeypatch):
  files = {f"one/{i}.py": _TF for i in range(20)}
  write_tree(tmp_path, files)
  found, real = [], surroundings.find_root
  monkeypatch.setattr(
    surroundings, "find_root", lambda path: found.append(path) or real(path)
  )
  scanner.scan([str(tmp_path / file) for file in files], _OPTIONS)
  assert len(found) == 1


def test_a_folder_of_very_many_programs_is_no_project(tmp_path, monkeypatch):
  write_tree(tmp_path, {"logger.py": _TF, "one/x.py": "import logger\n"})
  one, around = str(tmp_path / "one"), str(tmp_path)
  assert surroundings.find_root(one) == around
  monkeypatch.setattr(surroundings, "_MOST_PROGRAMS", 4)
  write_tree(tmp_path, {f"others/{i}/x.py": _TF for i in range(2)})
  assert surroundings.find_root(one) == around
  write_tree(tmp_path, {"others/2/x.py": _TF})
  assert surroundings.find_root(one) == one
  write_tree(tmp_path, {"setup.cfg": ""})  # A marker tells more than a number.
  assert surroundings.find_root(one) == around


def test_a_folder_of_a_project(tmp_path, capsys, monkeypatch):
  monkeypatch.chdir(tmp_path)
  files = {
    "setup.py": "import setuptools\n",
    "src/train.py": f"{_TF}from nets import lenet\n{_USES}{_MAIN}",
    "src/nets/lenet.py": _LOWER,
    "src/nets/more.py": "",
  }
  write_tree(tmp_path, files)
  assert cli.main(["scan", "src/nets"]) == 1
  out = capsys.readouterr().out
  assert out.count("src/nets/lenet.py:") == out.count("\n") - 1 == 2
  assert "\nsrc/nets: 2 files, TensorFlow 1 (" in out
  assert cli.main(["migrate", "--check", "src/"]) == 1
  out = capsys.readouterr().out
  assert out.count(": would change\n") == 2
  assert cli.main(["migrate", "--write", "src"]) == 0
  assert find(tmp_path) == {}


def test_what_a_file_alone_leaves(tmp_path, capsys):
  files = {
    "main.py": f"{_TF}import lib\n{_USES}{_MAIN}",
    "lib.py": f"{_TF}tf.contrib.training.HParams()\n",
  }
  write_tree(tmp_path, files)
  assert cli.main(["migrate", "--write", str(tmp_path / "lib.py")]) == 0
  err = capsys.readouterr().err
  assert "LS301 tf.contrib.training.HParams -> " in err
  assert err.endswith(
    "main.py has to call that [not made]\n"
    "tf-lossscale: 1 more file of this project needs edits: migrate the folder "
    f"{tmp_path}\n"
  )
  assert cli.main(["migrate", "--write", str(tmp_path / "main.py")]) == 0
  assert capsys.readouterr().err == ""
  assert find(tmp_path) == {}


def test_what_a_program_alone_leaves(tmp_path, capsys, monkeypatch):
  monkeypatch.chdir(tmp_path)
  files = {
    "setup.py": "import setuptools\n",
    "net/main.py": f"{_TF}import data, layers, rest\n{_USES}{_MAIN}",
    "net/data.py": "import numpy as np\nx = np.int\n",
    "net/layers.py": _LOWER,
    "net/rest.py": "",
  }
  write_tree(tmp_path, files)
  # Edits are counted that are wanted: LS4 has that of data.py.
  for ignored, line in (
    ("--ignore=LS4", "1 more file of this project needs edits"),
    ("--ignore=LS404", "2 more files of this project need edits"),
  ):
    assert cli.main(["migrate", ignored, "net/main.py"]) == 0
    err = capsys.readouterr().err
    assert err == f"tf-lossscale: {line}: migrate the folder net\n"
  assert cli.main(["migrate", "--write", "net/main.py"]) == 0
  assert ": migrate the folder net\n" in capsys.readouterr().err
  assert cli.main(["migrate", "--write", "net"]) == 0
  assert capsys.readouterr().err == ""
  assert cli.main(["migrate", "--write", "net/main.py"]) == 0
  assert "migrate the folder" not in capsys.readouterr().err


def test_what_is_excluded_is_no_part_of_the_project(tmp_path):
  files = {"main.py": f"{_TF}import lib\n{_MAIN}", "lib.py": f"{_TF}{_USES}"}
  write_tree(tmp_path, {**files, "setup.py": "", "old/x.py": "import main\n"})
  options = _OPTIONS._replace(exclude=("lib.py",))
  for path in (tmp_path, tmp_path / "main.py"):
    (project, *_) = scanner.scan([str(path)], options).projects
    assert not project.uses_loss_scaling


def test_the_file_to_edit_is_named(tmp_path):
  write_tree(
    tmp_path,
    {
      "lib/__init__.py": "",
      "lib/b.py": f"{_TF}tf.contrib.training.HParams()\n{_USES}",
      "lib/sub/__init__.py": "",
      "lib/sub/c.py": f"from lib import b\n{_TF}"
      "tf.keras.mixed_precision.experimental.Policy\n",
    },
  )
  found = find(tmp_path)
  by_hand = [
    (path, f.code, f.message)
    for path, own in found.items()
    for f in own
    if f.state == findings.BY_HAND
  ]
  tail = "c.py, or of the program that imports it: no file here starts that "
  for (path, code, message), expected in zip(
    by_hand, ["LS202", "LS203"], strict=True
  ):
    assert (pathlib.Path(path).name, code) == ("c.py", expected)
    assert f" at the top of {tail}program" in message
  # After the edit of that file, nothing is left of it.
  path = tmp_path / "lib/sub/c.py"
  call = "import tf_compat_lossscale as tfl\ntfl.use_keras_2()\ntfl.install()\n"
  path.write_text(call + path.read_text())
  again = [f.code for own in find(tmp_path).values() for f in own]
  assert not {"LS202", "LS203"} & set(again)
