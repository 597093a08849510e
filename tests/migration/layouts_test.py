# SPDX-License-Identifier: Apache-2.0
"""Tests projects of random layouts: what started before starts migrated.

The programs run on two stand-ins for TensorFlow that know one thing: TensorFlow
1's `placeholder` works in graph mode alone, which is TensorFlow 1's default and
not TensorFlow 2's. MIGRATION_LAYOUTS sets the number of layouts.
"""

import json
import os
import random
import shlex
import subprocess
import sys

import helpers
import pytest
from source_trees import write_tree

from tf_compat_lossscale._core import whole_files
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import migrator
from tf_compat_lossscale.migration import scanner

pytestmark = pytest.mark.any_release

_LAYOUTS = int(os.environ.get("MIGRATION_LAYOUTS", "12"))
_OPTIONS = scanner.Options(target=(2, 15), jobs=1)

_MODE = """\
import sys
eager = {eager}
def placeholder(*args):
    if eager:
        raise RuntimeError('placeholder() needs graph mode')
    return 'graph'
def constant(value):
    return 'eager' if eager else 'symbolic'
def enable_eager_execution():
    global eager
    eager = True
def disable_v2_behavior():
    global eager
    eager = False
def Session():
    return placeholder()
float32 = 'float32'
"""
_SCALES = """\
class train:
    class experimental:
        @staticmethod
        def FixedLossScale(value):
            return value
"""
_OLD = {
  "tensorflow/__init__.py": _MODE.format(eager=False) + _SCALES,
  "tensorflow/compat/__init__.py": "",
  "tensorflow/compat/v1/__init__.py": "from tensorflow import *",
}
_NEW = {
  "tensorflow/__init__.py": "__version__ = '2.15.0'",
  "tensorflow/compat/__init__.py": "",
  "tensorflow/compat/v1/__init__.py": _MODE.format(eager=True),
  "tf_compat_lossscale/__init__.py": """\
def FixedLossScale(value):
    return value
def honor_environment():
    print('honored')
""",
}


@pytest.fixture(scope="module")
def tensorflows(tmp_path_factory):
  """Returns the folders of both stand-ins."""
  folder = tmp_path_factory.mktemp("tensorflows")
  return write_tree(folder / "old", _OLD), write_tree(folder / "new", _NEW)


def run(project, command, tensorflow):
  """Runs a command of a project; returns what it prints, or its error."""
  folders, *words = shlex.split(command)
  paths = [tensorflow, *(project / f for f in folders.split(":") if f)]
  done = subprocess.run(
    [sys.executable, "-S", *words],
    cwd=project,
    env={
      "PYTHONPATH": os.pathsep.join(map(str, paths)),
      "PYTHONDONTWRITEBYTECODE": "1",
    },
    capture_output=True,
    text=True,
    timeout=60,
  )
  return done.stdout if not done.returncode else done.stderr[-2000:]


def migrate(project, options=_OPTIONS):
  """Migrates a project; returns the findings that are left."""
  report = scanner.scan([str(project)], options, check=migrator.check)
  for change in report.changes:
    whole_files.replace_file(change.path, change.after)
  again = scanner.scan([str(project)], options)
  assert not again.errors
  assert not [f for f in again.findings if f.state == findings.APPLIED]
  return again.findings


def import_line(module, name, alias):
  return f"from {module} import {name} as {alias}"


def make_layout(rng):
  """Returns the files of a random project, and the commands that start it.

  A command begins with the folders of PYTHONPATH.
  """
  root = rng.choice(["", "src", "training", "code/python", "lib"])
  folder = f"{root}/" if root else ""
  deep = rng.random() < 0.3
  package = "pkg.core" if deep else "pkg"
  place = folder + package.replace(".", "/") + "/"
  files, commands = {}, []
  named = root and not deep and rng.random() < 0.2
  if named:
    place = folder + "parts/"
  has_init = named or rng.random() < 0.8
  if has_init:
    files[f"{place}__init__.py"] = rng.choice(
      ["", "", "import tensorflow as tf\n", "from . import net\n"]
    )
    if deep:
      files[f"{folder}pkg/__init__.py"] = ""
  relative = rng.random() < 0.5
  own = "." if relative else package
  # A module that has TensorFlow, whose graph may be built at its import.
  at_import = rng.random() < 0.3
  files[f"{place}net.py"] = (
    "import tensorflow as tf\n"
    + ("made = tf.placeholder(tf.float32)\n" if at_import else "")
    + "def build():\n    return tf.placeholder(tf.float32)\n"
  )
  # A module that may be a program, which others may import.
  asks = rng.random() < 0.7
  first = ["import tensorflow as tf", import_line(own, "net", "net")]
  if rng.random() < 0.3:
    first.reverse()
  if rng.random() < 0.2:
    first = first[-1:] if "net" in first[-1] else first[:1]
  body = (
    "def main():\n"
    "    scale = tf.train.experimental.FixedLossScale(2.)\n"
    "    print(scale, net.build(), __file__.rpartition('/')[2])\n"
  )
  if not any("tensorflow" in line for line in first):
    body = "def main():\n    print(2., net.build(), 'no tf')\n"
    files[f"{place}scales.py"] = (
      "import tensorflow as tf\n"
      "def get():\n    return tf.train.experimental.FixedLossScale(2.)\n"
    )
    first.append(import_line(own, "scales", "scales"))
  text = "\n".join(first) + "\n" + body
  if asks:
    text += "if __name__ == '__main__':\n    main()\n"
  files[f"{place}train.py"] = text
  if rng.random() < 0.6:
    files[f"{place}evaluate.py"] = (
      import_line(own, "train", "train")
      + "\ndef main():\n    train.main()\n"
      + rng.choice(["", "if __name__ == '__main__':\n    main()\n"])
    )
  path = root
  if named:
    files["setup.py"] = (
      "from setuptools import setup\n"
      f"setup(name='x', packages=['pkg'], package_dir={{'pkg': '{place}'}})\n"
    )
    # What pip's link makes of it.
    path = "installed"
    files["installed/pkg"] = f"../{place.rstrip('/')}"
  else:
    make_settings(rng, files, root)
  if asks and has_init | (not relative):
    commands.append(f"'{path}' -m {package}.train")
  if asks and not relative:
    commands.append(f"'{path}' {place}train.py")
  if f"{place}evaluate.py" in files:
    if "__main__" in files[f"{place}evaluate.py"]:
      commands.append(f"'{path}' -m {package}.evaluate")
    elif rng.random() < 0.5:
      # A program that is not in the project, and does nothing but this.
      commands.append(f"'{path}' -c 'import {package}.evaluate as e; e.main()'")
  if rng.random() < 0.5 and has_init:
    setup = files.get("setup.py", "from setuptools import setup\nsetup()\n")
    files["setup.py"] = setup.replace(
      "setup(",
      "setup(entry_points={'console_scripts': "
      f"['x-train = {package}.train:main']}}, ",
      1,
    ).replace("import setup(", "import setup")
    commands.append(f"'{path}' -c 'from {package}.train import main; main()'")
  make_main(rng, files, root, package, path, commands)
  if rng.random() < 0.4:
    files["tests/test_train.py"] = (
      import_line(package, "train", "train")
      + "\ndef test_main():\n    train.main()\n"
    )
    commands.append(
      f"'{path}:tests' -c 'import test_train; test_train.test_main()'"
    )
  return files, list(dict.fromkeys(commands))


def make_settings(rng, files, root):
  """Adds the files that say where a package is; they may say nothing."""
  kind = rng.choice(["setup.py", "find", "none"])
  if kind == "setup.py":
    files["setup.py"] = (
      "from setuptools import setup\n"
      f"setup(name='x', package_dir={{'': '{root}'}})\n"
    )
  elif kind == "find":
    files["setup.py"] = (
      "from setuptools import find_packages, setup\n"
      f"setup(name='x', packages=find_packages(where='{root or '.'}'))\n"
    )


def make_main(rng, files, root, package, path, commands):
  """Adds programs outside of the package."""
  if rng.random() < 0.8:
    style = rng.choice(["top", "guard", "function", "script", "try"])
    line = import_line(package, "train", "train")
    before = rng.choice(["", "import tensorflow as tf\n", "import sys\n"])
    if rng.random() < 0.3 and root and path == root:
      before += (
        "import os, sys\nsys.path.insert(0, os.path.join(os.path.dirname("
        f"os.path.abspath(__file__)), '{root}'))\n"
      )
      path = ""
    files["main.py"] = (
      before
      + {
        "top": f"{line}\nif __name__ == '__main__':\n    train.main()\n",
        "guard": f"if __name__ == '__main__':\n    {line}\n    train.main()\n",
        "function": f"def run():\n    {line}\n    train.main()\n"
        "if __name__ == '__main__':\n    run()\n",
        "script": f"{line}\ntrain.main()\n",
        "try": f"try:\n    {line}\nexcept ImportError:\n    raise\n"
        "if __name__ == '__main__':\n    train.main()\n",
      }[style]
    )
    commands.append(f"'{path}' main.py")
  if rng.random() < 0.3:
    files["tools/eager.py"] = (
      "import tensorflow as tf\ntf.enable_eager_execution()\n"
      + import_line(package, "net", "net")
      + "\nprint(tf.constant(1), net.__name__)\n"
    )
    if "made = " not in next(t for n, t in files.items() if "net.py" in n):
      commands.append(f"'{path or root}' tools/eager.py")
    else:
      del files["tools/eager.py"]


def write_project(folder, files):
  """Writes a project; "installed/pkg" is a link."""
  plain = {n: t for n, t in files.items() if not n.startswith("installed")}
  write_tree(folder, plain)
  for name in files.keys() - plain.keys():
    (folder / name).parent.mkdir()
    (folder / name).symlink_to(files[name])
  return folder


def check_layout(seed, folder, tensorflows):
  """Checks a layout; returns what became of it."""
  files, commands = make_layout(random.Random(seed))
  project = write_project(folder, files)
  before = {
    command: run(project, command, tensorflows[0]) for command in commands
  }
  works = {c: out for c, out in before.items() if "Error" not in out}
  left = [f for f in migrate(project) if f.code == "LS204"]
  after = {command: run(project, command, tensorflows[1]) for command in works}
  wrong = {c: after[c] for c in works if after[c] != works[c]}
  if wrong and not left:
    texts = {p: (project / p).read_text() for p in files if "." in p}
    raise AssertionError(
      f"seed {seed}: {json.dumps(wrong, indent=1)}\n"
      + "\n".join(f"== {name}\n{text}" for name, text in texts.items())
    )
  return len(works), len(before) - len(works), len(wrong)


@pytest.mark.parametrize("seed", range(_LAYOUTS))
def test_what_started_starts(seed, tmp_path, tensorflows):
  works, _, _ = check_layout(seed, tmp_path / "project", tensorflows)
  assert works >= 0


if __name__ == "__main__":
  helpers.main()
