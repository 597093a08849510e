# SPDX-License-Identifier: Apache-2.0
"""Tests files of arrays, and that files of other programs are named."""

import gzip
import json
import pickle
import random
import tracemalloc
import zipfile

import helpers
import numpy as np
import pytest

from tf_compat_lossscale import checkpoint
from tf_compat_lossscale.checkpoint.files import array_files
from tf_compat_lossscale.checkpoint.files.entries import TensorSpec
from tf_compat_lossscale.cli import main as cli

pytestmark = pytest.mark.any_release
_ARRAYS = {
  "model/dense/kernel": np.ones([2, 3], "f"),
  "half": np.zeros([4], np.float16),
  "step": np.int64(7),
  "names": np.array(["a", "bc"]),
  "none": np.zeros([0, 5], "?"),
}
_SPECS = {
  "model/dense/kernel": TensorSpec("float32", (2, 3)),
  "half": TensorSpec("float16", (4,)),
  "step": TensorSpec("int64", ()),
  "names": TensorSpec("string", (2,)),
  "none": TensorSpec("bool", (0, 5)),
}


def make_safetensors(items, data=b"", **forged):
  """Returns the bytes of a file.

  Args:
    items: Name -> (dtype, shape, number of bytes).
    data: The bytes of all tensors; zeros by default.
    **forged: Entries of the header that replace the right ones.
  """
  header, end = {"__metadata__": {"format": "tf"}}, 0
  for name, (dtype, shape, size) in items.items():
    header[name] = {
      "dtype": dtype,
      "shape": shape,
      "data_offsets": [end, end + size],
    }
    end += size
  text = json.dumps(header | forged).encode().ljust(64)
  return len(text).to_bytes(8, "little") + text + (data or bytes(end))


_TENSORS = {"b": ("F32", [2, 3], 24), "a": ("BF16", [], 2), "c": ("I8", [0], 0)}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("name", ["a.npz", "a.weights"])
def test_npz(save, name, tmp_path, capsys):
  path = tmp_path / name
  with open(path, "wb") as file:
    save(file, **_ARRAYS)
  for verify in (False, True):
    d = checkpoint.describe(path, verify=verify)
    assert (d.kind, d.keys, d.checked) == ("npz", _SPECS, verify)
  assert cli.main(["inspect", "--keys", str(path)]) == 0
  text = capsys.readouterr().out
  assert "model/dense/kernel: float32 [2, 3]\n" in text
  assert "loss scale: not looked for" in text and "numpy.load" in text
  assert cli.main(["inspect", "--format=json", str(tmp_path)]) == int(
    2 * (name != "a.npz")
  )


def test_objects_are_not_unpickled(tmp_path):
  class Trap:
    def __reduce__(self):
      return (pytest.fail, ("It was unpickled.",))

  np.savez(tmp_path / "a.npz", x=np.array([Trap()], object))
  spec = checkpoint.describe(tmp_path / "a.npz", verify=True).keys["x"]
  assert spec == TensorSpec("pickled objects", (1,))


def test_safetensors(tmp_path, capsys):
  path = tmp_path / "model.safetensors"
  path.write_bytes(make_safetensors(_TENSORS))
  d = checkpoint.describe(path, verify=True)
  assert (d.kind, d.checked) == ("safetensors", False)
  assert d.keys == {
    "b": TensorSpec("float32", (2, 3)),
    "a": TensorSpec("bfloat16", ()),
    "c": TensorSpec("int8", (0,)),
  }
  assert cli.main(["inspect", "--keys", str(tmp_path)]) == 0
  text = capsys.readouterr().out
  assert "none in safetensors: damage to numbers" in text
  assert "  a: bfloat16 []\n" in text


def test_what_the_package_writes(tmp_path):
  numpy = pytest.importorskip("safetensors.numpy")
  arrays = {k: np.asarray(v) for k, v in _ARRAYS.items() if k != "names"}
  numpy.save_file(arrays, tmp_path / "a")
  assert checkpoint.describe(tmp_path / "a").keys == {
    name: spec for name, spec in _SPECS.items() if name != "names"
  }


@pytest.mark.parametrize(
  ("data", "what"),
  [
    (make_safetensors(_TENSORS)[:-1], "26 bytes, but 25 are there: it is cut"),
    (make_safetensors(_TENSORS) + b"x", "26 bytes, but 27"),
    (make_safetensors(_TENSORS)[:50], "its header is cut off"),
    ((1 << 25).to_bytes(8, "little") + b"{" * 99, "its header has 33554432"),
    ((40).to_bytes(8, "little") + b"{" * 99, "damaged: Expecting"),
    ((1 << 19).to_bytes(8, "little") + b'{"":' * (1 << 17), "damaged"),
    (make_safetensors({"a": ("F32", [2], 4)}), "which has not 4 bytes"),
    (make_safetensors({"a": ("F32", [-1], 4)}), "'a' has"),
    (make_safetensors({"a": ("F32", [True], 4)}), "'a' has"),
    (make_safetensors({"a": ("F32", 1, 4)}), "damaged"),
    (make_safetensors({}, b=3), "damaged"),
    (
      make_safetensors(
        {"a": ("U8", [4], 4)},
        b={"dtype": "U8", "shape": [2], "data_offsets": [2, 4]},
      ),
      "do not follow one another",
    ),
  ],
)
def test_damaged_safetensors(data, what, tmp_path):
  path = tmp_path / "a"
  path.write_bytes(data)
  with pytest.raises(checkpoint.CheckpointError, match=what) as error:
    checkpoint.describe(path)
  assert str(error.value).startswith(f"{path}: ")


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["npz", "safetensors"])
def test_any_damage(kind, tmp_path):
  """Checks that damage raises one error, and takes no memory to speak of."""
  path = tmp_path / f"a.{kind}"
  if kind == "npz":
    np.savez(path, **_ARRAYS)
  else:
    path.write_bytes(make_safetensors(_TENSORS))
  good = path.read_bytes()
  chance = random.Random(7)
  refused = 0
  tracemalloc.start()
  for _ in range(600):
    data = bytearray(good)
    for _ in range(chance.randint(1, 3)):
      data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data[: chance.choice([len(data), chance.randint(1, 900)])])
    try:
      checkpoint.describe(path, verify=True)
    except checkpoint.CheckpointError as error:
      assert len(str(error).splitlines()) == 1
      refused += 1
  assert tracemalloc.get_traced_memory()[1] < 20 << 20
  tracemalloc.stop()
  assert refused > 300


def test_an_array_of_a_forged_size(tmp_path):
  with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as file:
    file.writestr("x.npy", b"\x93NUMPY\2\0\xff\xff\xff\x7f" + bytes(1 << 22))
    file.writestr("y.npy", b"")
  with pytest.raises(checkpoint.CheckpointError, match="has 2147483647 bytes"):
    array_files.read_npz(str(tmp_path / "a.npz"))


@pytest.mark.parametrize("name", ["a.npz", "a.safetensors"])
def test_arrays_are_no_checkpoints(name, tmp_path, capsys):
  """Checks that only a description takes such files."""
  path = tmp_path / name
  path.write_bytes(make_safetensors(_TENSORS))
  if name == "a.npz":
    np.savez(path, **_ARRAYS)
  what = "tf-lossscale inspect describes, but which is no checkpoint"
  with pytest.raises(checkpoint.CheckpointError, match=what):
    checkpoint.convert(path, tmp_path / "new", "saver")
  with pytest.raises(checkpoint.CheckpointError, match=what):
    checkpoint.restore(None, path)
  assert [p.name for p in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
  ("name", "data", "what"),
  [
    ("a", pickle.dumps(1), "a pickle of Python"),
    (
      "pytorch_model.bin",
      b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.",
      "a checkpoint of PyTorch before 1.6: torch.load",
    ),
    ("a.pt", b"?", "by its name a checkpoint of PyTorch"),
    ("frozen.pb", b"\n\x04", "a graph, whose weights, if any, are constants"),
    ("a.tgz", gzip.compress(b"x", mtime=0), "a packed file: unpack it"),
    ("a.tflite", b"\x1c\0\0\0TFL3", "a model of TensorFlow Lite"),
    ("a.onnx", b"\x08\x03", "a model of ONNX"),
    ("a.npy", b"\x93NUMPY\1\0", "an array of NumPy"),
    ("model.ckpt", b"", "but it is empty"),
    ("x", b"version https://git-lfs.github.com/spec/v1\n", "a pointer of Git"),
    ("x", b"<!DOCTYPE html>", "a page of the web"),
    ("events.out.tfevents.1.x", b"\x18\0\0\0", "an event file: tf-lossscale"),
    ("unknown", b"?", "of Keras, NumPy or safetensors (.h5, .keras, .npz, .s"),
  ],
)
def test_files_of_others_are_named(name, data, what, tmp_path, capsys):
  (tmp_path / name).write_bytes(data)
  assert cli.main(["inspect", str(tmp_path / name)]) == 2
  line = capsys.readouterr().err
  assert line.count("\n") == 1 and f"{tmp_path / name}: neither a" in line
  assert what in line


def test_folders_that_may_mean_several_files(tmp_path):
  for name in ("b.h5", "a.keras"):
    (tmp_path / name).touch()
  with pytest.raises(checkpoint.CheckpointError, match=r"such as a\.keras"):
    checkpoint.describe(tmp_path)


if __name__ == "__main__":
  helpers.main()
