# SPDX-License-Identifier: Apache-2.0
"""Tests which files a command of Python is found to run."""

import os
import pathlib
import sys
import sysconfig

import pytest

from tf_compat_lossscale.programs import choosing
from tf_compat_lossscale.programs import command_words
from tf_compat_lossscale.programs import launch

pytestmark = pytest.mark.any_release

_FILES = {
  "train.py": "",
  "pkg/__init__.py": "",
  "pkg/__main__.py": "",
  "pkg/model.py": "",
  "pkg/tests/__init__.py": "class InPackage: pass\n",
  "pkg/tests/conftest.py": "",
  "pkg/tests/model_test.py": "class ModelTest: pass\n",
  "pkg/tests/data_test.py": "from pkg.base import *\n",
  "tests/test_scale.py": "def test_scale(): pass\n",
  "tests/deep/test_deep.py": "",
  "tests/helper.py": "",
  "build/test_copy.py": "",
}
_OF_PKG = ["pkg/tests/data_test.py", "pkg/tests/model_test.py"]
_OF_TESTS = ["tests/deep/test_deep.py", "tests/test_scale.py"]


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
  """Returns the folder of a project, which is also the current folder."""
  for name, text in _FILES.items():
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(text, "utf-8")
  monkeypatch.chdir(tmp_path)
  return tmp_path


def collect(words):
  """Returns the files that `python -m WORDS` collects, relatively."""
  found = command_words.find_files(["-m", *words.split()])
  assert found.program is None
  return sorted(
    pathlib.Path(os.path.relpath(path)).as_posix() for path in found.collected
  )


@pytest.mark.parametrize(
  ("words", "expected"),
  [
    ("pytest tests", _OF_TESTS),
    ("pytest -q tests/test_scale.py::test_scale", ["tests/test_scale.py"]),
    ("pytest -xk scale --unknown=3 tests/deep", ["tests/deep/test_deep.py"]),
    ("pytest pkg/tests -m slow", ["pkg/tests/conftest.py", *_OF_PKG]),
    ("unittest tests/test_scale.py -f", ["tests/test_scale.py"]),
    ("unittest discover -s tests", _OF_TESTS),
    ("coverage run --source pkg/model -m pytest tests", _OF_TESTS),
    ("nose2.__main__ tests/deep", ["tests/deep/test_deep.py"]),
    ("pytest", []),
    ("unittest pkg.tests.model_test", []),
    ("pytest typo/ tests/typo.py", []),
  ],
)
def test_runners_of_tests(words, expected):
  assert collect(words) == expected


@pytest.mark.parametrize(
  ("words", "expected"),
  [
    ("cProfile -o out train.py --flag", "train.py"),
    ("coverage run --omit x -a train.py", "train.py"),
    ("pdb -c continue train.py", "train.py"),
    ("kernprof -lo out pkg/model.py", "pkg/model.py"),
    ("coverage report -m", None),
    ("pkg --its=flags", "pkg/__main__.py"),
    ("pkg.model train.py tests", "pkg/model.py"),
    ("no_such_module", None),
  ],
)
def test_programs_and_what_runs_them(words, expected):
  found = command_words.find_files(["-m", *words.split()])
  assert not found.packages
  if expected is None:
    assert found.program is None
  else:
    assert os.path.relpath(found.program) == os.path.normpath(expected)


@pytest.mark.parametrize(
  "code",
  ["import pkg.model", "if 1:\n  import tensorflow as tf\n  tf.Session()"],
)
def test_code_of_a_command_decides(code):
  pathlib.Path("pkg/model.py").write_text(
    "import tensorflow as tf\ntf.placeholder(tf.float32)\n"
  )
  found = command_words.find_files(["-c", code, "-x"])
  assert found.program == "-c"
  choice = choosing.choose_for(choosing.read_program(found))
  assert choice.tensorflow == 1


def test_tests_decide(project):
  text = (
    "import tensorflow as tf\n"
    "from tests import helper as other\n"
    "class TestModel(tf.test.TestCase):\n"
    "  def test_it(self):\n    helper()\n"
    "def helper():\n  tf.Session()\n"
    "if __name__ == '__main__':\n  tf.function(lambda: 1)\n  tf.Variable\n"
  )
  (project / "tests" / "test_scale.py").write_text(text)
  # Nothing calls this.
  (project / "tests" / "helper.py").write_text(
    "import tensorflow as tf\n"
    "def call():\n  tf.random.normal; tf.optimizers.SGD; tf.saved_model.save\n"
    "  tf.GradientTape; tf.function; tf.keras.Model; tf.config.run_functions\n"
  )
  for words in ("pytest tests", "unittest tests/test_scale.py"):
    found = command_words.find_files(["-m", *words.split()])
    choice = choosing.choose_for(choosing.read_program(found))
    assert choice.tensorflow == 1
    assert "tf.Session, test_scale.py line 7" in choice.found


def test_an_installed_program_is_read(project, monkeypatch):
  installed = project / "lib" / "site-packages"
  (installed / "segnet").mkdir(parents=True)
  (installed / "segnet" / "__init__.py").write_text("")
  (installed / "segnet" / "__main__.py").write_text(
    "from segnet import cli\ncli.main()\n"
  )
  (installed / "segnet" / "cli.py").write_text(
    "from segnet import model\ndef main():\n  model.build()\n"
  )
  (installed / "segnet" / "model.py").write_text(
    "import tensorflow as tf\ndef build():\n  tf.placeholder(tf.float32)\n"
  )
  # Its packages are the program, and a library that the script imports is not.
  info = installed / "segnet_tools-1.0.dist-info"
  info.mkdir()
  (info / "METADATA").write_text("Name: segnet-tools\nVersion: 1.0\n")
  (info / "RECORD").write_text(
    "../../bin/segnet-train,sha256=x,99\nsegnet/__init__.py,sha256=x,0\n"
    "segnet_tools-1.0.dist-info/METADATA,sha256=x,9\n"
  )
  (installed / "keras_lib").mkdir()
  (installed / "keras_lib" / "__init__.py").write_text("")
  scripts = project / "bin"
  scripts.mkdir()
  (scripts / "segnet-train").write_text(
    "#!/usr/bin/python\nimport re, sys, keras_lib\n"
    "from segnet.cli import main\n"
    "if __name__ == '__main__':\n  sys.exit(main())\n"
  )
  monkeypatch.setattr(sys, "path", [*sys.path, str(installed)])
  monkeypatch.setattr(sysconfig, "get_path", lambda name: str(scripts))
  for words in (["bin/segnet-train"], ["-m", "segnet"]):
    found = command_words.find_files(words)
    assert list(found.packages) == ["segnet"]
    choice = choosing.choose_for(choosing.read_program(found))
    assert choice.tensorflow == 1


def test_tensorflow_is_no_program():
  words = ["-m", "tensorflow.python.tools.freeze_graph"]
  found = command_words.find_files(words)
  assert found.program and not found.packages


def test_names_the_packages_in_the_environment(monkeypatch):
  files = command_words.Files("train.py", (), ["."], {"a": "x", "b": "y"})
  monkeypatch.setattr(command_words, "find_files", lambda words: files)
  env = launch._decide_environment(["-m", "a.b"], None, None, None, True)
  assert env["TF_COMPAT_LOSSSCALE_PACKAGES"] == os.pathsep.join("ab")
