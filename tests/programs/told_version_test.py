# SPDX-License-Identifier: Apache-2.0
"""Tests which version of TensorFlow a program for TensorFlow 1 is told."""

import re

import pytest

from tf_compat_lossscale.programs import tensorflow1

pytestmark = pytest.mark.any_release

_INSTALLED = "env/lib/python3.11/site-packages"


def ask(path, name="asker"):
  """Returns what a module in a file is told when the real version is 2.99.0."""
  names = {"answer": tensorflow1.tell_version, "__name__": name}
  if path is not None:
    names["__file__"] = path
  return eval("answer('2.99.0')", names)


@pytest.mark.parametrize(
  ("path", "name", "expected"),
  [
    ("me/train.py", "__main__", "1.15.5"),
    ("me/site/packages/train.py", "train", "1.15.5"),
    (None, "__main__", "1.15.5"),  # Code without a file, as in a notebook.
    (f"{_INSTALLED}/tf_slim/__init__.py", "tf_slim", "2.99.0"),
    ("lib/python3/dist-packages/mine.py", "mine", "2.99.0"),
    ("env\\Lib\\site-packages\\horovod\\a.py", "horovod.a", "2.99.0"),
    # This package is not always among the installed ones.
    ("src/tf_compat_lossscale/a.py", "tf_compat_lossscale.a", "2.99.0"),
    (
      "src/tf_compat_lossscale_tools.py",
      "tf_compat_lossscale_tools",
      "1.15.5",
    ),
  ],
)
def test_tells_by_the_asking_module(path, name, expected):
  assert ask(path, name) == expected


def test_a_package_of_the_program_may_be_installed(monkeypatch):
  monkeypatch.setattr(tensorflow1, "_own", set())
  tensorflow1.set_own_packages(["opennmt", "single"])
  assert ask(f"{_INSTALLED}/opennmt/utils/compat.py") == "1.15.5"
  assert ask(f"{_INSTALLED}/single.py") == "1.15.5"
  assert ask(f"{_INSTALLED}/opennmt_tools/a.py") == "2.99.0"
  tensorflow1.set_own_packages([])
  assert ask(f"{_INSTALLED}/opennmt/utils/compat.py") == "2.99.0"


# What public programs do with `tf.__version__`, and mean by 1.15.
_QUESTIONS = [
  "v.startswith('1') and v.startswith('1.') and not v.startswith('2')",
  "v[0] == '1' and int(v[0]) < 2 and int(v[2:4]) > 13",
  "v < '2' and v < '2.0.0' and not v >= '2.0' and v > '1.14'",
  "int(v.split('.')[0]) == 1 and float('.'.join(v.split('.')[:2])) < 2",
  "tuple(map(int, v.split('.'))) >= (1, 14, 0)",
  "[int(part) for part in v.split('.')] < [2, 0, 0]",
  "(lambda major, minor, _: (major, minor))(*v.split('.')) == ('1', '15')",
  "re.match(r'^(\\d+)\\.(\\d+)\\.(\\d+)$', v).group(2) == '15'",
  "Version('1.15') <= Version(v) < Version('2.0.0a0')",
  "not Version(v).is_prerelease and Version(v).local is None",
]


@pytest.mark.parametrize("question", _QUESTIONS)
def test_every_usual_question_takes_it_for_1_15(question):
  version = pytest.importorskip("packaging.version")
  names = {"v": tensorflow1.VERSION, "re": re, "Version": version.Version}
  assert eval(question, names)
