# SPDX-License-Identifier: Apache-2.0
"""Tests NVIDIA's switch in shell scripts, Dockerfiles, magics and the like."""

import json
import os
import time

import helpers
import pytest
from source_trees import write_tree

from tf_compat_lossscale._core import whole_files
from tf_compat_lossscale.cli import main as cli
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import launchers
from tf_compat_lossscale.migration import migrator
from tf_compat_lossscale.migration import scanner

pytestmark = pytest.mark.any_release

_NAME = "TF_ENABLE_AUTO_MIXED_PRECISION"
_OPTIONS = scanner.Options(target=(2, 15), jobs=1)
_MAIN = """\
import tensorflow as tf

def main():
    opt = tf.train.AdamOptimizer(0.1)
    print(tf.placeholder(tf.float32), opt)

if __name__ == '__main__':
    main()
"""
_NO_TENSORFLOW = """\
import os
os.environ['CUDA_VISIBLE_DEVICES'] = ''
from pkg import train
if __name__ == '__main__':
    train.main()
"""
_ENTRY = (
  "import tensorflow as tf\nopt = tf.train.AdamOptimizer()\ntf.Session()\n"
)


def notebook(*sources):
  """Returns a notebook with these code cells."""
  cells = [
    {
      "cell_type": "code",
      "execution_count": None,
      "metadata": {},
      "outputs": [],
      "source": source.splitlines(keepends=True),
    }
    for source in sources
  ]
  return json.dumps(
    {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
  )


def find(folder, options=_OPTIONS):
  """Returns (place, name, state, message) of the findings of the switch."""
  report = scanner.scan([str(folder)], options)
  assert not report.errors
  return [
    (
      f.place.replace(f"{folder}/", ""),
      f.name,
      f.state,
      f.message,
    )
    for f in report.findings
    if f.code == "LS205"
  ]


def migrate(folder, options=_OPTIONS):
  """Migrates a folder; returns the findings of the switch that are left."""
  report = scanner.scan([str(folder)], options, check=migrator.check)
  for change in report.changes:
    whole_files.replace_file(change.path, change.after)
  return find(folder, options)


@pytest.mark.parametrize(
  ("name", "text"),
  [
    ("run.sh", "export {n}=1\npython main.py\n"),
    ("run.sh", "#!/bin/bash\n{n}=1 python3 -u main.py --steps 3\n"),
    ("run.sh", 'export A=2 {n}="1" B=\'3\'; exec python main.py "$@"\n'),
    ("run", "#!/bin/sh\n{n}='1' \\\n  python main.py\n"),
    ("run.sh", 'env {n}=${{AMP:-1}} python $(dirname "$0")/main.py\n'),
    ("run.sh", "export {n}_LOSS_SCALING=1\nmpirun -np 2 python main.py"),
    ("run.sh", "export {n}_GRAPH_REWRITE=true\n./main.py\n"),
    ("run.sh", "docker run -e {n}=1 image python /app/main.py\n"),
    ("run.sh", "docker run --env={n}=1 image \\\n  bash -c 'python main.py'\n"),
    ("run.sh", "python -m main --env {n}=1\n"),
    ("run.sh", ": ${{{n}:=1}}\nexport {n}\npython main.py\n"),
    (
      "job.slurm",
      "#!/bin/bash\n#SBATCH --export=ALL,{n}=1\nsrun python main.py",
    ),
    ("job.sbatch", "sbatch --export={n}=1 --wrap 'python main.py'\n"),
    ("run.csh", "setenv {n} 1\npython main.py\n"),
    ("run.fish", "set -gx {n} 1\npython main.py\n"),
    ("run.bat", "set {n}=1\r\npython main.py\r\n"),
    ("run.ps1", '$env:{n} = "1"\npython main.py\n'),
    ("Dockerfile", 'FROM tf\nENV {n} 1\nCMD ["python", "main.py"]\n'),
    ("Dockerfile.gpu", "ENV A=1 \\\n    {n}=1\nENTRYPOINT python main.py\n"),
    ("docker/Dockerfile", "RUN export {n}=1 && python main.py\n"),
    ("Makefile", "export {n} := 1\ntrain:\n\tpython main.py\n"),
    ("Makefile", "train:\n\t{n}=1 python main.py\n"),
    ("compose.yml", "environment:\n  - {n}=1\ncommand: python main.py\n"),
    ("compose.yaml", "environment:\n  {n}: '1'\ncommand: [python, main.py]\n"),
    (
      "pod.yaml",
      "env:\n- name: {n}\n  value: \"1\"\ncommand: ['python', 'main.py']\n",
    ),
    ("pod.yaml", 'env: [{{name: {n}, value: "1"}}]\ncommand: python main.py\n'),
    ("one.yaml", "env: {{{n}: 1}}\nrun: python main.py\n"),
    ("scripts/run.sh", "cd ..\nexport {n}=1\npython main.py\n"),
    ("scripts/run.sh", "export {n}=1\npython ../main.py\n"),
    ("scripts/run.sh", "export {n}=1\npython $ROOT/main.py\n"),
    ("run.sh", b"# \xff\xfe Latin\nexport {n}=1\npython main.py\n"),
    ("run.sh", "\ufeffexport {n}=1\npython main.py\n"),
  ],
)
def test_a_switch_that_starts_a_program(name, text, tmp_path):
  if isinstance(text, bytes):
    text = text.replace(b"{n}", _NAME.encode())
  else:
    text = text.format(n=_NAME)
  write_tree(tmp_path, {"main.py": _MAIN, name: text})
  before = (tmp_path / name).read_bytes()
  *others, (place, switch, state, message) = sorted(
    find(tmp_path), key=lambda each: not each[0].startswith("main.py")
  )
  assert [each[2] for each in others] == [findings.APPLIED]
  assert place.startswith(f"{name}:") and switch.startswith(_NAME)
  line, column = map(int, place.split(":")[1:])
  shown = before.decode("utf-8", "replace").splitlines()[line - 1]
  assert shown[column - 1 :].startswith(switch)
  assert state == findings.APPLIED
  assert message.startswith("tfl.honor_environment() in ")
  assert "main.py" in message
  assert migrate(tmp_path) == []
  text = (tmp_path / "main.py").read_text()
  assert text.count("tfl.honor_environment()\n") == 1
  assert text.index("disable_v2") < text.index("honor_") < text.index("Adam")
  assert (tmp_path / name).read_bytes() == before


@pytest.mark.parametrize(
  "text",
  [
    "# export {n}=1\n",
    "true  # {n}=1\n",
    "unset {n}\n",
    "export {n}=0\n",
    "export {n}=\n",
    "export {n}\n",
    "export {n}=false\n",
    "export MY_{n}=1\n",
    "export {n}_2=1\n",
    "export NO={n}\n",
    'if [ "${n}" = 1 ]; then true; fi\n',
    'if [ "${n}" == "1" ]; then true; fi\n',
    'test "${{{n}:-0}}" = "1"\n',
    "echo 'Set {n}=1 for AMP'\n",
    "env -u {n} true\n",
    "export {n}=1  # lossscale: ignore[LS205]\n",
    "export {n}=1  # lossscale: ignore\n",
  ],
)
def test_what_is_no_switch(text, tmp_path):
  script = f"{text.format(n=_NAME)}python main.py\n"
  write_tree(tmp_path, {"main.py": _MAIN, "run.sh": script})
  assert launchers.read(str(tmp_path / "run.sh")).settings == ()
  report = scanner.scan([str(tmp_path)], _OPTIONS)
  assert [p.uses_loss_scaling for p in report.projects] == [False]


def test_a_program_that_starts_by_others(tmp_path):
  files = {
    "env.sh": f"export {_NAME}=1\n",
    "run.sh": "source ./env.sh\nbash scripts/train.sh\n",
    "scripts/train.sh": "python3 -m pkg.train\n",
    "pkg/__init__.py": "",
    "pkg/train.py": _MAIN.replace("__name__ == '__main__'", "True"),
    "other.py": _MAIN,
  }
  write_tree(tmp_path, files)
  (place, _, _, message) = next(f for f in find(tmp_path) if "env.sh" in f[0])
  assert (place, message) == (
    "env.sh:1:8",
    "tfl.honor_environment() in pkg/train.py",
  )
  assert migrate(tmp_path) == []
  assert "honor_environment()" in (tmp_path / "pkg/train.py").read_text()
  assert "honor_" not in (tmp_path / "other.py").read_text()


def test_a_program_that_does_not_import_tensorflow(tmp_path):
  files = {
    "run.sh": f"export PYTHONPATH=$PWD/code\n{_NAME}=1 python main.py\n",
    "main.py": _NO_TENSORFLOW,
    "code/pkg/train.py": _MAIN,
  }
  write_tree(tmp_path, files)
  assert migrate(tmp_path) == []
  assert (tmp_path / "main.py").read_text().splitlines() == [
    "import os",
    "os.environ['CUDA_VISIBLE_DEVICES'] = ''",
    "import tensorflow.compat.v1 as tf",
    "tf.disable_v2_behavior()",
    "import tf_compat_lossscale as tfl",
    "tfl.honor_environment()",
    *_NO_TENSORFLOW.splitlines()[2:],
  ]


def test_a_module_that_sets_the_switch_for_its_programs(tmp_path):
  files = {
    "pkg/amp.py": f"import os\nos.environ.update({{'{_NAME}': '1'}})\n",
    "pkg/__init__.py": "",
    "main.py": f"from pkg import amp\n{_MAIN}",
    "launch.py": "import subprocess\nsubprocess.call(['python', 'main.py'], "
    f"env={{'{_NAME}': '1'}})\n",
  }
  write_tree(tmp_path, files)
  found = {place: state for place, _, state, _ in find(tmp_path)}
  assert found["pkg/amp.py:2:20"] == findings.APPLIED
  left = migrate(tmp_path)
  assert [(f[0].split(":")[0], f[2]) for f in left] == [
    ("launch.py", findings.BY_HAND)
  ]
  assert "honor_environment()" in (tmp_path / "main.py").read_text()


def test_nothing_tells_which_program_starts(tmp_path, capsys):
  files = {"env.sh": f"export {_NAME}=1\n", "a.py": _ENTRY, "b.py": _ENTRY}
  write_tree(tmp_path, files)
  ((place, _, state, message),) = find(tmp_path)
  assert (place, state) == ("env.sh:1:8", findings.BY_HAND)
  assert "--nvidia-switch" in message
  assert cli.main(["migrate", "--write", str(tmp_path)]) == 0
  assert "honor" not in (tmp_path / "a.py").read_text()
  options = ["--nvidia-switch", str(tmp_path)]
  assert cli.main(["migrate", "--write", *options]) == 0
  for name in ("a.py", "b.py"):
    assert "tfl.honor_environment()\n" in (tmp_path / name).read_text()
  capsys.readouterr()
  assert cli.main(["scan", str(tmp_path)]) == 0
  assert cli.main(["scan", *options]) == 0
  out = capsys.readouterr().out
  assert out.count(": 2 files, TensorFlow 1, nothing to change\n") == 2


def test_the_option_alone(tmp_path):
  write_tree(
    tmp_path, {"main.py": _MAIN, "lib/x.py": "import tensorflow as tf\n"}
  )
  assert find(tmp_path) == []
  options = _OPTIONS._replace(nvidia_switch=True)
  assert migrate(tmp_path, options) == []
  assert "honor_environment()" in (tmp_path / "main.py").read_text()


def test_a_program_that_cannot_be_edited(tmp_path):
  files = {
    "run.sh": f"{_NAME}=1 python main.py\n",
    "main.py": "print 'Python 2'",
  }
  write_tree(tmp_path, files)
  ((_, _, state, message),) = find(tmp_path)
  assert state == findings.BY_HAND and "cannot be read" in message


def test_single_files(tmp_path, capsys):
  files = {
    ".git/x": "",
    "run.sh": f"{_NAME}=1 python main.py\n",
    "main.py": _MAIN,
    "other.py": _MAIN,
  }
  write_tree(tmp_path, files)
  (alone,) = find(tmp_path / "run.sh")
  assert alone[1:] == find(tmp_path)[-1][1:]
  assert alone[2] == findings.APPLIED and "in main.py" in alone[3]
  # The program is not among the files that are given.
  assert cli.main(["migrate", "--write", str(tmp_path / "run.sh")]) == 0
  left, more = capsys.readouterr().err.splitlines()
  assert left.endswith(" [not made]") and "2 more files of this" in more
  assert (tmp_path / "main.py").read_text() == _MAIN
  ((place, _, state, _),) = find(tmp_path / "main.py")
  assert (place, state) == (f"{tmp_path}/main.py:1:1", findings.APPLIED)
  assert find(tmp_path / "other.py") == []


def test_notebooks(tmp_path):
  text = notebook(
    f"%env {_NAME}=1\n",
    "import tensorflow as tf",
    "opt = tf.train.AdamOptimizer()\ntf.Session()",
    f"!{_NAME}=1 python main.py",
    f"%%bash\nexport {_NAME}=1\npython tools/two.py\n",
  )
  files = {"train.ipynb": text, "main.py": _MAIN, "tools/two.py": _MAIN}
  write_tree(tmp_path, files)
  places = {}
  for place, _, _, message in find(tmp_path):
    places[place] = f"{places.get(place, '')} {message}"
  assert "train.ipynb" in places["train.ipynb:cell 1:1:6"]
  assert "main.py" in places["train.ipynb:cell 4:1:2"]
  assert "tools/two.py" in places["train.ipynb:cell 5:2:8"]
  assert migrate(tmp_path) == []
  for name in files:
    assert "honor_environment()" in (tmp_path / name).read_text(), name
  data = text.encode()
  report = scanner.scan_text(data, "x.ipynb", _OPTIONS)
  assert "LS205" in {f.code for f in report.findings}


def test_formats(tmp_path, capsys):
  write_tree(
    tmp_path, {"run.sh": f"a\n {_NAME}=1 python main.py\n", "main.py": _MAIN}
  )
  for name in ("json", "sarif", "github"):
    assert cli.main(["scan", f"--format={name}", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    if name == "github":
      (line,) = [line for line in out.splitlines() if "run.sh,line=2" in line]
      assert "col=2" in line and "LS205" in line
      continue
    value = json.loads(out)
    if name == "json":
      (found,) = [f for f in value["findings"] if f["path"].endswith(".sh")]
      assert (found["line"], found["column"], found["state"]) == (
        *(2, 2),
        findings.APPLIED,
      )
      assert value["projects"][0]["files"] == 1
    else:
      assert "run.sh" in json.dumps(value["runs"][0]["results"])


@pytest.mark.thorough
def test_hostile_files(tmp_path):
  """Checks that other files cost no time and do no harm."""
  text = f"export {_NAME}=1\npython main.py\n"
  files = {
    "main.py": _ENTRY,
    "binary.sh": b"\0" + text.encode(),
    "huge.sh": b"#\n" * 600_000 + text.encode(),
    "line.sh": b"x=" + b"$(" * 200_000,
    "words.sh": f"{_NAME} " * 20_000,
    "colons.yml": "name: " * 50_000,
    "paths.sh": "PYTHONPATH=" + "$(a" * 300_000,
    "many.sh": f"# {_NAME}=1\n" * 20_000 + f"{_NAME}=0 " * 20_000,
    "modules.sh": "python -m a " * 80_000,
  }
  write_tree(tmp_path, files)
  os.mkfifo(tmp_path / "pipe.sh")
  (tmp_path / "loop.sh").symlink_to("loop.sh")
  (tmp_path / "device.sh").symlink_to("/dev/zero")
  (tmp_path / "gone.env").symlink_to("nothing")
  (tmp_path / "folder.sh").mkdir()
  start = time.process_time()
  report = scanner.scan([str(tmp_path)], _OPTIONS)
  # In quadratic time, one of these files takes minutes.
  assert time.process_time() - start < 60
  assert not report.errors and not report.findings


def test_excluded_files(tmp_path):
  write_tree(
    tmp_path, {"old/run.sh": f"{_NAME}=1 python ../a.py\n", "a.py": _ENTRY}
  )
  assert find(tmp_path)
  assert find(tmp_path, _OPTIONS._replace(exclude=("old",))) == []


def test_each_project_has_its_own_switches(tmp_path):
  files = {
    "one/run.sh": f"{_NAME}=1 python train.py\n",
    "one/train.py": _ENTRY,
    "two/train.py": _ENTRY,
    "two/run.sh": "python train.py\n",
  }
  write_tree(tmp_path, files)
  assert migrate(tmp_path) == []
  assert "honor_" in (tmp_path / "one/train.py").read_text()
  assert (tmp_path / "two/train.py").read_text() == _ENTRY


if __name__ == "__main__":
  helpers.main()
