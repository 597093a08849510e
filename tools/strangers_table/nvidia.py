# SPDX-License-Identifier: Apache-2.0
"""The TensorFlow 1 projects of NVIDIA's DeepLearningExamples."""

import ast
from collections.abc import Iterable
from collections.abc import Mapping
import json
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import numpy as np

from strangers_table import bert
from strangers_table import LOSS
from strangers_table import Program

# Eight more good steps double a scale whose period is 2000.
_NEARLY_FULL = {r"(^|/)good_steps(_\d+)?$": 1995}
# For large networks, of which a step in float16 takes long on a CPU.
_FULLER = {r"(^|/)good_steps(_\d+)?$": 1998}
# Programs that print no loss, but how well they recommend.
_NDCG = r"ndcg(?:@100)?': (?:np\.float64\()?(?P<NDCG>\d\.\d+)"


def _program(
  name: str, project: str, title: str, stand_ins: tuple[str, ...], **values: Any
) -> Program:
  defaults = {
    "folder": f"TensorFlow/{project}",
    "settings": _NEARLY_FULL,
    "initial": 2.0**15,
    "loss": LOSS,
    "migrate": ("--nvidia-switch",),
  }
  return Program(
    name=f"nvidia-{name}",
    repository="NVIDIA/DeepLearningExamples",
    commit="982c3900258ccd0f7d340d486e6414932e9a2dc4",
    title=f"{project}/{title}",
    paths=(f"TensorFlow/{project}",),
    stand_ins=("horovod", "dllogger", *stand_ins),
    **{**defaults, **values},
  )


def _write_records(
  path: pathlib.Path, examples: Iterable[Mapping[str, Any]]
) -> None:
  """Writes a file of records.

  Args:
    path: The file.
    examples: For each, feature -> its values: bytes, or integers or floats.
  """
  import tensorflow as tf

  train = tf.train
  with tf.io.TFRecordWriter(str(path)) as writer:
    for example in examples:
      made = {}
      for name, given in example.items():
        values = [given] if isinstance(given, bytes) else np.ravel(given)
        if isinstance(values[0], bytes):
          feature = train.Feature(bytes_list=train.BytesList(value=values))
        elif isinstance(values[0], np.integer):
          feature = train.Feature(int64_list=train.Int64List(value=values))
        else:
          feature = train.Feature(float_list=train.FloatList(value=values))
        made[name] = feature
      record = train.Example(features=train.Features(feature=made))
      writer.write(record.SerializeToString())


def _volumes(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes volumes and their labels in the Medical Decathlon's format."""
  import SimpleITK as sitk

  random = np.random.RandomState(1)
  for name in ("train", "label"):
    (work / name).mkdir()
  pairs = []
  for i in range(6):
    image = random.rand(16, 16, 16).astype(np.float32)
    label = random.randint(0, 3, (16, 16, 16)).astype(np.uint8)
    pair = (work / f"train/{i}.nii", work / f"label/{i}.nii")
    for array, path in zip((image, label), pair):
      sitk.WriteImage(sitk.GetImageFromArray(array), str(path))
    pairs.append({"image": f"train/{i}.nii", "label": f"label/{i}.nii"})
  (work / "dataset.json").write_text(
    json.dumps(
      {
        "labels": {"0": "background", "1": "Anterior", "2": "Posterior"},
        "modality": {"0": "MRI"},
        "training": pairs,
        "test": ["train/0.nii"],
      }
    )
  )


_VNET = (
  *("main.py", "--exec_mode=train_and_evaluate", "--data_dir={work}"),
  *("--model_dir={work}/model", "--batch_size=1", "--train_split=0.9"),
  *("--amp", "--train_epochs=2", "--log_every=1", "--upscale_blocks", "1"),
  *("--downscale_blocks", "1", "1"),
)


def _ratings(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes sparse matrices of users and films."""
  import pandas as pd
  import scipy.sparse

  random = np.random.RandomState(1)
  folder = work / "ml-20m" / "preprocessed"
  folder.mkdir(parents=True)
  for name in (
    *("train_data", "vad_data_true", "vad_data_test"),
    *("test_data_true", "test_data_test"),
  ):
    dense = (random.rand(48, 130) < 0.2).astype(np.float32)
    path = folder / f"{name}.npz"
    scipy.sparse.save_npz(path, scipy.sparse.csr_matrix(dense))
  for name, count in (("train", 400), ("test", 40)):
    users = np.arange(count) % 40
    items = random.randint(0, 50, count)
    items[:1] = 49
    frame = pd.DataFrame({"user_id": users, "item_id": items})
    frame.to_pickle(work / f"{name}_ratings.pickle")


_VAE = (
  *("main.py", "--train", "--amp", "--epochs=6", "--batch_size_train=24"),
  *("--batch_size_validation=48", "--validation_step=50", "--data_dir={work}"),
  *("--checkpoint_dir={work}/model", "--log_path={work}/log"),
)
_NCF = (
  *("ncf.py", "--data={work}", "--epochs=1", "--batch-size=182", "--seed=1"),
  *("--factors=8", "--layers", "16", "8", "--amp", "--valid-negative=20"),
  *("--valid-users-per-batch=20", "--checkpoint-dir={work}/model"),
  *("--log-path={work}/log", "--eval-after=-1", "--target=0"),
)


def _pictures(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes multi-page TIFF files of cells, and makes pictures and masks small.

  The network's convolutions have no padding: 220 points become 36.
  """
  from PIL import Image

  random = np.random.RandomState(1)
  for name in ("train-volume", "train-labels", "test-volume"):
    pages = [
      Image.fromarray(random.randint(0, 2, (64, 64)).astype(np.uint8) * 255)
      for _ in range(5)
    ]
    path = work / f"{name}.tif"
    pages[0].save(path, save_all=True, append_images=pages[1:])
  path = repo / "TensorFlow/Segmentation/UNet_Medical/utils/data_loader.py"
  small = path.read_text().replace("572", "220").replace("388", "36")
  path.write_text(small)


_UNET_MEDICAL = (
  *("main.py", "--exec_mode=train", "--data_dir={work}", "--amp"),
  *("--model_dir={work}/model", "--batch_size=1", "--log_every=1"),
)


def _brains(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes records of volumes with four channels."""
  random = np.random.RandomState(1)
  shape = (240, 240, 155)
  for i in range(2):
    example = {
      "X": random.randint(0, 255, (*shape, 4)).astype(np.uint8).tobytes(),
      "Y": random.randint(0, 4, shape).astype(np.uint8).tobytes(),
      "mean": [127.0] * 4,
      "stdev": [70.0] * 4,
    }
    _write_records(work / f"{i}.tfrecords", [example])


_UNET_3D = (
  *("main.py", "--exec_mode=train", "--data_dir={work}", "--amp"),
  *("--model_dir={work}/model", "--batch_size=1", "--num_folds=2"),
  *("--input_shape", "32", "32", "32", "--log_every=1"),
)


def _defects(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes pictures with masks in the format of DAGM 2007."""
  from PIL import Image

  random = np.random.RandomState(1)
  for part in ("Train", "Test"):
    folder = work / "raw_images/private/Class1" / part
    (folder / "Label").mkdir(parents=True)
    lines = ["image,mask,label"]
    for i in range(4):
      for path in (folder / f"{i}.PNG", folder / "Label" / f"{i}_label.PNG"):
        picture = random.randint(0, 255, (512, 512)).astype(np.uint8)
        Image.fromarray(picture).save(path)
      lines.append(f"{i}.PNG,{i}_label.PNG,1")
    (folder.parent / f"{part.lower()}_list.csv").write_text(
      "\n".join(lines) + "\n"
    )


_WHOLE_SEEDS = """
import random
import runpy

seed = random.seed
random.seed = lambda x=None: seed(x and int(x))
runpy.run_path("main.py", run_name="__main__")
"""


def _photos(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes records of pictures in ImageNet's format, and what starts main.py.

  All pictures are of one color, because their order and parts are random.
  """
  import tensorflow as tf

  folder = repo / "TensorFlow/Classification/ConvNets"
  (folder / "start.py").write_text(_WHOLE_SEEDS)
  picture = np.full((64, 64, 3), (200, 90, 30), np.uint8)
  encoded = tf.io.encode_jpeg(picture).numpy()
  for part in ("train", "validation"):
    example = {"image/encoded": encoded, "image/class/label": 1}
    _write_records(work / f"{part}-00000-of-00001", [example] * 8)


_BOX = (0.1, 0.6, 0.2, 0.7)
_SSD_FOLDER = "TensorFlow/Detection/SSD/models/research"


def _objects(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes pictures with boxes, a small configuration, and the messages.

  The configuration is the project's own with other sizes and places.
  """
  import tensorflow as tf

  research = repo / _SSD_FOLDER
  messages = sorted((research / "object_detection/protos").glob("*.proto"))
  subprocess.run(
    [
      *(sys.executable, "-m", "grpc_tools.protoc", "-I.", "--python_out=."),
      *(str(path.relative_to(research)) for path in messages),
    ],
    cwd=research,
    check=True,
  )
  config = research.parent.parent / "configs/ssd320_full_1gpus.config"
  text = config.read_text()
  for pattern, new in (
    (r"(height|width): 320", r"\1: 160"),
    (r"fine_tune_checkpoint\w*: .*", ""),
    (r"batch_size: 32", "batch_size: 1"),
    (r'"[^"]*coco2017[^"]*\*(\w+)\*"', rf'"{work}/\1.record"'),
    (r"num_examples: 8000", "num_examples: 2"),
  ):
    text = re.sub(pattern, new, text)
  (work / "ssd.config").write_text(text)
  random = np.random.RandomState(1)
  for part in ("train", "val"):
    examples = []
    for i in range(2):
      picture = random.randint(0, 255, (64, 64, 3)).astype(np.uint8)
      example = {
        "image/encoded": tf.io.encode_jpeg(picture).numpy(),
        "image/format": b"jpeg",
        "image/filename": b"picture",
        "image/source_id": str(i + 1).encode(),
        "image/height": 64,
        "image/width": 64,
        "image/object/class/text": b"person",
        "image/object/class/label": 1,
        "image/object/is_crowd": 0,
        "image/object/area": 900.0,
      }
      for side, place in zip(("xmin", "xmax", "ymin", "ymax"), _BOX):
        example[f"image/object/bbox/{side}"] = place
      examples.append(example)
    _write_records(work / f"{part}.record", examples)


def _read_lists(source: pathlib.Path) -> dict[str, Any]:
  """Returns the constants that a module assigns."""
  lists = {}
  for node in ast.parse(source.read_text()).body:
    if isinstance(node, ast.Assign):
      try:
        lists[node.targets[0].id] = ast.literal_eval(node.value)
      except ValueError:
        continue
  return lists


def _list_features(lists: dict[str, Any], batch: int) -> dict[str, Any]:
  """Returns the dtype and the shape of each feature by its name."""
  features = {}
  for name in ("label", "display_id", "is_leak", "display_ad_and_is_leak"):
    features[name] = ("int64", [batch, 1])
  for name in lists["BOOL_COLUMNS"] + lists["CATEGORICAL_COLUMNS"]:
    features[name] = ("int64", [batch, 1])
  for name, parts in lists["DOC_CATEGORICAL_MULTIVALUED_COLUMNS"].items():
    features[name] = ("int64", [batch, len(parts)])
  for name in lists["INT_COLUMNS"] + lists["FLOAT_COLUMNS_LOG_BIN_TRANSFORM"]:
    features[f"{name}_log_01scaled"] = ("float32", [batch, 1])
  for name in lists["FLOAT_COLUMNS_SIMPLE_BIN_TRANSFORM"]:
    features[name] = ("float32", [batch, 1])
  return features


_SEED = """
import functools
import tensorflow as tf
from trainer import task

tf.estimator.RunConfig = functools.partial(
    tf.estimator.RunConfig, tf_random_seed=1)
task.main(task.create_parser().parse_args())
"""


def _clicks(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes records of all features that the program lists name, and a seed."""
  folder = repo / "TensorFlow/Recommendation/WideAndDeep"
  (folder / "start.py").write_text(_SEED)
  lists = _read_lists(folder / "trainer/features.py")
  features = _list_features(lists, batch=8)
  (work / "features.json").write_text(json.dumps(features))
  random = np.random.RandomState(1)
  for part in ("train", "eval"):
    examples = []
    for _ in range(8):
      example = {}
      for name, (dtype, shape) in features.items():
        size = int(np.prod(shape))
        if dtype == "float32":
          example[name] = random.rand(size)
        else:
          example[name] = random.randint(0, 2, size)
        if name == "display_id":
          example[name] = np.arange(size) // 2
      examples.append(example)
    _write_records(work / f"{part}_0", examples)


def _tokens(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes records of tokens, and the files that describe the records."""
  random = np.random.RandomState(1)
  (work / "model").mkdir()
  corpus = {"vocab_size": 20, "cutoffs": []}
  (work / "corpus-info.json").write_text(json.dumps(corpus))
  for part in ("train", "valid"):
    examples = []
    for _ in range(20):
      tokens = random.randint(0, 20, 9)
      examples.append({"inputs": tokens[:-1], "labels": tokens[1:]})
    name = f"{part}.bsz-2.tlen-8"
    _write_records(work / f"{name}.tfrecords", examples)
    info = {"filenames": [f"{name}.tfrecords"], "bin_sizes": []}
    info["num_batch"] = 10  # Below 10 the program divides by zero.
    (work / f"record_info-{name}.json").write_text(json.dumps(info))


def _sentences(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes sentences, a detokenizer, and a sacrebleu that prints 0."""
  random = np.random.RandomState(1)
  words = [f"w{i}" for i in range(21)]
  (work / "vocab.bpe.32000.en").write_text(
    "\n".join(("<unk>", "<s>", "</s>", *words)) + "\n"
  )
  for name, count in (
    ("train.tok.clean.bpe.32000", 80),
    ("newstest2014.tok.bpe.32000", 4),
  ):
    for language in ("en", "de"):
      # All alike, for their order depends on the time.
      sentence = " ".join(random.choice(words, 6)) + "\n"
      (work / f"{name}.{language}").write_text(sentence * count)
  scripts = work / "mosesdecoder" / "scripts" / "tokenizer"
  scripts.mkdir(parents=True)
  (scripts / "detokenizer.perl").write_text("print while <STDIN>;\n")
  (work / "bin").mkdir()
  score = work / "bin" / "sacrebleu"
  score.write_text("#!/bin/sh\ncat >/dev/null\necho 0\n")
  score.chmod(0o755)


_CONVNETS = (
  *("start.py", "--mode=train", "--iter_unit=batch", "--batch_size=1"),
  *("--amp", "--cpu", "--results_dir={work}/model", "--display_every=1"),
  *("--data_dir={work}", "--warmup_steps=1", "--seed=1"),
)
_BERT = (
  *("run_classifier.py", "--task_name=MRPC", "--data_dir={work}"),
  *("--vocab_file={work}/vocab.txt", "--bert_config_file={work}/config.json"),
  *("--output_dir={work}/model", "--max_seq_length=24", "--do_train=true"),
  *("--train_batch_size=1", "--amp", "--horovod", "--use_xla=false"),
  *("--dllog_path={work}/log", "--save_checkpoints_steps=20"),
)
_SSD = (
  *("object_detection/model_main.py", "--amp", "--model_dir={work}/model"),
  *("--pipeline_config_path={work}/ssd.config", "--raport_file={work}/log"),
)
_WIDE = (
  *("start.py", "--amp", "--hvd", "--model_dir={work}/model"),
  *("--train_data_pattern={work}/train_*", "--results_dir={work}/results"),
  *("--eval_data_pattern={work}/eval_*", "--prebatch_size=8"),
  *("--transformed_metadata_path={work}", "--global_batch_size=16"),
  *("--deep_hidden_units", "16", "8", "--eval_batch_size=16"),
  *("--training_set_size=160", "--eval_epoch_interval=1", "--eval_steps=2"),
  *("--deep_learning_rate=0.01", "--linear_learning_rate=0.01"),
)
_UNET_INDUSTRIAL = (
  *("main.py", "--exec_mode=train", "--iter_unit=batch", "--batch_size=1"),
  *("--amp", "--use_auto_loss_scaling", "--data_format=NHWC"),
  *("--results_dir={work}/model", "--data_dir={work}", "--warmup_step=1"),
  *("--dataset_name=DAGM2007", "--dataset_classID=1", "--display_every=1"),
  *("--seed=1", "--noaugment_data"),
)
_TRANSFORMER_XL = (
  *("main.py", "--data_dir={work}", "--record_info_dir={work}", "--amp"),
  *("--corpus_info_path={work}/corpus-info.json", "--train_batch_size=2"),
  *("--model_dir={work}/model", "--raport_file={work}/log", "--tgt_len=8"),
  *("--mem_len=8", "--n_layer=1", "--d_model=8", "--d_embed=8", "--n_head=2"),
  *("--d_head=4", "--d_inner=16", "--warmup_steps=1", "--train_steps=10"),
  *("--save_steps=10", "--log_interval=1", "--eval_batch_size=2"),
)
_GNMT = (
  *("nmt.py", "--data_dir={work}", "--output_dir={work}/model", "--amp"),
  *("--num_units=8", "--num_layers=3", "--batch_size=8", "--num_buckets=1"),
  *("--max_train_epochs=1", "--infer_batch_size=4", "--all_reduce_spec=pscpu"),
  *("--tgt_max_len_infer=8",),
)

PROGRAMS = (
  _program(
    *("vnet", "Segmentation/VNet", "main.py --amp", ()),
    start=(_VNET,),
    checkpoint="{work}/model",
    prepare=_volumes,
    needs={"SimpleITK": "SimpleITK", "scipy": "scipy"},
  ),
  _program(
    *("vae", "Recommendation/VAE-CF", "main.py --amp", ("mpi4py",)),
    start=(_VAE,),
    checkpoint="{work}/model",
    prepare=_ratings,
    needs={"pandas": "pandas", "scipy": "scipy", "sklearn": "scikit-learn"},
    loss=_NDCG,
  ),
  _program(
    *("ncf", "Recommendation/NCF", "ncf.py --amp", ("mpi4py", "cupy")),
    start=(_NCF,),
    resume=((*_NCF, "--load-checkpoint-path={work}/model/model.ckpt"),),
    checkpoint="{work}/model",
    prepare=_ratings,
    needs={"pandas": "pandas", "scipy": "scipy"},
    loss=_NDCG,
    remark="CuPy is NumPy",
  ),
  _program(
    *("unet-medical", "Segmentation/UNet_Medical", "main.py --amp", ()),
    start=((*_UNET_MEDICAL, "--max_steps=5"),),
    resume=((*_UNET_MEDICAL, "--max_steps=5", "--resume_training"),),
    checkpoint="{work}/model/model_checkpoint",
    prepare=_pictures,
    needs={"PIL": "Pillow", "munch": "munch"},
    settings=_FULLER,
    remark="pictures of 220 points a side, and masks of 36",
    timeout=600,
  ),
  _program(
    *("unet-3d", "Segmentation/UNet_3D_Medical", "main.py --amp", ()),
    start=((*_UNET_3D, "--max_steps=3"),),
    resume=((*_UNET_3D, "--max_steps=3", "--resume_training"),),
    checkpoint="{work}/model/model_checkpoint",
    prepare=_brains,
    settings=_FULLER,
    timeout=600,
  ),
  _program(
    *("convnets", "Classification/ConvNets", "main.py --amp --cpu"),
    (),
    importable=("nvidia",),
    start=((*_CONVNETS, "--num_iter=2"),),
    resume=((*_CONVNETS, "--num_iter=3"),),
    checkpoint="{work}/model",
    prepare=_photos,
    settings=_FULLER,
    run=("--tf1", "--keras2"),
    remark="a program of ours makes seeds Python's integers, as 3.11 asks",
    timeout=900,
  ),
  _program(
    *("bert", "LanguageModeling/BERT", "run_classifier.py --amp --horovod"),
    ("pynvml",),
    start=((*_BERT, "--num_train_epochs=1"),),
    resume=((*_BERT, "--num_train_epochs=2", "--do_eval=true"),),
    checkpoint="{work}/model",
    prepare=bert.prepare,
    settings={r"(^|/)good_steps$": 990},
    initial=2.0**32,
    remark="forty steps: below 26 the program divides by zero",
  ),
  _program(
    *("wide", "Recommendation/WideAndDeep", "trainer.task --amp --hvd"),
    ("tensorflow_transform",),
    start=((*_WIDE, "--num_epochs=1"),),
    resume=((*_WIDE, "--num_epochs=2"),),
    checkpoint="{work}/model",
    prepare=_clicks,
    environment={"TF_ENABLE_AUTO_MIXED_PRECISION_GRAPH_REWRITE": "1"},
    remark="a canned Estimator with two loss scales; TensorFlow Transform is a "
    "file of the features; the graph rewrite's switch in place of `--gpu`, "
    "which takes `protobuf<7`; a program of ours sets a seed",
    timeout=600,
  ),
  _program(
    *("unet-industrial", "Segmentation/UNet_Industrial"),
    *("main.py --amp --use_auto_loss_scaling", ()),
    start=((*_UNET_INDUSTRIAL, "--num_iter=3"),),
    resume=((*_UNET_INDUSTRIAL, "--num_iter=4"),),
    checkpoint="{work}/model/checkpoints",
    prepare=_defects,
    needs={"PIL": "Pillow"},
    settings=_FULLER,
    migrate=("--nvidia-switch", "--exclude=*.ipynb"),
    remark="`--data_format=NHWC`: a CPU has no NCHW convolutions; `migrate` "
    "leaves out the notebooks, where one cell is indented",
    timeout=900,
  ),
  _program(
    *("ssd", "Detection/SSD", "model_main.py --amp", ()),
    folder=_SSD_FOLDER,
    path=(f"{_SSD_FOLDER}/slim",),
    start=((*_SSD, "--num_train_steps=3"),),
    resume=((*_SSD, "--num_train_steps=3"),),
    checkpoint="{work}/model",
    prepare=_objects,
    settings=_FULLER,
    needs={
      "grpc_tools": "grpcio-tools",
      "matplotlib": "matplotlib",
      "PIL": "Pillow<10",
      "pycocotools": "pycocotools",
      "tf_slim": "tf_slim",
    },
    timeout=900,
  ),
  _program(
    *("transformer-xl", "LanguageModeling/Transformer-XL", "main.py --amp", ()),
    folder="TensorFlow/LanguageModeling/Transformer-XL/tf",
    start=(_TRANSFORMER_XL,),
    resume=((*_TRANSFORMER_XL, "--nodo_train", "--do_eval"),),
    checkpoint="{work}/model",
    prepare=_tokens,
    settings={},
    scale="the program cannot train on, so the second run evaluates the "
    "checkpoint",
  ),
  _program(
    *("gnmt", "Translation/GNMT", "nmt.py --amp", ()),
    start=(_GNMT,),
    checkpoint="{work}/model",
    prepare=_sentences,
    environment={"PATH": f"{{work}}/bin:{os.defpath}"},
    remark="`--all_reduce_spec=pscpu`: the default is an op of GPUs; "
    "sacrebleu is a command that prints a score",
  ),
)
