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
    ("unittest pkg.tests.model_test", ["pkg/tests/model_test.py"]),
    (
      "unittest -v -k x pkg.tests.model_test.ModelTest.test_1",
      ["pkg/tests/model_test.py"],
    ),
    ("unittest tests/test_scale.py -f", ["tests/test_scale.py"]),
    ("unittest pkg.tests.InPackage", ["pkg/tests/__init__.py"]),
    ("unittest pkg.tests.data_test.OfGlobals", ["pkg/tests/data_test.py"]),
    ("unittest -vk model pkg.tests.data_test", ["pkg/tests/data_test.py"]),
    ("unittest", _OF_TESTS),
    ("unittest discover", _OF_TESTS),
    ("unittest discover -s pkg -p *_test.py -t .", _OF_PKG),
    ("unittest discover -v pkg *_test.py", _OF_PKG),
    ("unittest discover --start-directory=tests", _OF_TESTS),
    ("pytest tests", _OF_TESTS),
    ("pytest -q tests/test_scale.py::test_scale", ["tests/test_scale.py"]),
    (
      "pytest -k scale -m slow -p no:x",
      ["pkg/tests/conftest.py", *_OF_PKG, *_OF_TESTS],
    ),
    ("pytest tests/test_scale.py --unknown 3", ["tests/test_scale.py"]),
    ("pytest -E pkg.tests tests/deep", ["tests/deep/test_deep.py"]),
    ("pytest -xvsk pkg tests", _OF_TESTS),
    ("pytest -qm pkg tests", _OF_TESTS),
    ("pytest -vn 2 tests", _OF_TESTS),
    ("pytest --unknown=3 -kscale tests/deep", ["tests/deep/test_deep.py"]),
    (
      "pytest --pyargs pkg.tests.model_test",
      ["pkg/tests/conftest.py", "pkg/tests/model_test.py"],
    ),
    ("nose2 -s tests", _OF_TESTS),
    ("nose2 -v pkg.tests.model_test", ["pkg/tests/model_test.py"]),
    ("nose pkg.tests.model_test", ["pkg/tests/model_test.py"]),
    ("twisted.trial pkg.tests.model_test", ["pkg/tests/model_test.py"]),
    ("trial -j 2 pkg.tests.model_test", ["pkg/tests/model_test.py"]),
    ("green pkg.tests.model_test", ["pkg/tests/model_test.py"]),
    ("py.test -q tests", _OF_TESTS),
    ("testtools.run pkg.tests.model_test", ["pkg/tests/model_test.py"]),
    ("xmlrunner discover -s tests", _OF_TESTS),
    ("coverage run --source pkg -m pytest tests", _OF_TESTS),
    ("cProfile -o out -m unittest pkg.tests.model_test", _OF_PKG[1:]),
    ("cProfile -munittest pkg.tests.model_test", _OF_PKG[1:]),
  ],
)
def test_runners_of_tests(words, expected):
  assert collect(words) == expected


@pytest.mark.parametrize(
  ("words", "expected"),
  [
    ("cProfile -o out train.py --flag", "train.py"),
    ("coverage run --omit x -a train.py", "train.py"),
    ("coverage run -pm pkg.model", "pkg/model.py"),
    ("coverage report -m", None),
    ("debugpy --listen 5678 train.py", "train.py"),
    ("ipdb -c continue train.py", "train.py"),
    ("kernprof -lo out train.py", "train.py"),
    ("memory_profiler --precision 3 train.py", "train.py"),
    ("pdb -c continue train.py", "train.py"),
    ("pdb -m pkg.model", "pkg/model.py"),
    ("runpy pkg.model", "pkg/model.py"),
    ("profile -s time train.py", "train.py"),
    ("pudb --log-errors errors train.py", "train.py"),
    ("pyinstrument -r html -m pkg.model", "pkg/model.py"),
    ("scalene --outfile out train.py", "train.py"),
    ("trace --count -mC out train.py", "train.py"),
    ("trace --count --module pkg.model", "pkg/model.py"),
    ("viztracer -o out -- train.py", "train.py"),
    ("pkg --its=flags", "pkg/__main__.py"),
    ("pkg.model", "pkg/model.py"),
    ("no_such_module", None),
  ],
)
def test_programs_and_what_runs_them(words, expected):
  found = command_words.find_files(["-m", *words.split()])
  assert not found.collected and not found.packages
  if expected is None:
    assert found.program is None
  else:
    assert os.path.relpath(found.program) == os.path.normpath(expected)


@pytest.mark.parametrize(
  ("words", "shown"),
  [
    (["-c", "import pkg.model", "-x"], "-c"),
    (["-m", "timeit", "-n1", "-r", "1", "from pkg import model"], "timeit"),
    (["-m", "timeit", "-s", "import pkg.model", "pass"], "timeit"),
    (["-c", "if 1:\n  import tensorflow as tf\n  tf.Session()"], "-c"),
  ],
)
def test_code_of_a_command_decides(words, shown):
  pathlib.Path("pkg/model.py").write_text(
    "import tensorflow as tf\ntf.placeholder(tf.float32)\n"
  )
  found = command_words.find_files(words)
  assert found.program == shown
  choice = choosing.choose_for(choosing.read_program(found))
  assert choice.tensorflow == 1


# A runner reports what is missing, and its plugins add options.
@pytest.mark.parametrize(
  "words",
  [
    "unittest tests.typo_test",
    "unittest tests/typo.py",
    "xmlrunner -o reports",
    "pytest typo/",
    "pytest tests/typo.py::test",
    "pytest @list.txt",
    "pytest -E stage1",
    "pytest --pyargs typo.tests",
    "nose2 typo --unknown 3",
    "coverage run -m pytest typo/",
  ],
)
def test_words_that_name_no_test_are_passed_over(words):
  assert set(_OF_TESTS) <= set(collect(words))


def test_a_folder_that_is_not_there_has_no_tests():
  assert not collect("unittest discover -s typo")


def test_settings_of_runners(project):
  (project / "setup.cfg").write_text(
    "[tool:pytest]\ntestpaths = pkg tests\npython_files = *_test.py test_*.py\n"
  )
  (project / "unittest.cfg").write_text(
    "[unittest]\nstart-dir = pkg\ntest-file-pattern = *_test.py\n"
  )
  assert collect("nose2") == _OF_PKG
  assert collect("pytest") == ["pkg/tests/conftest.py", *_OF_PKG, *_OF_TESTS]
  (project / "pytest.ini").write_text("[pytest]\ntestpaths = tests\n")
  assert collect("pytest") == _OF_TESTS
  (project / "pytest.ini").write_text("= not [a file of settings")
  assert "tests/test_scale.py" in collect("pytest")


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
  for words in ("pytest tests", "unittest", "unittest tests.test_scale"):
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
