# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's benchmarks: float16 with a loss scale of the program's own."""

from strangers_table import Program


def _command(batches: int) -> tuple[str, ...]:
  return (
    *("tf_cnn_benchmarks.py", "--model=trivial", "--batch_size=2"),
    *(f"--num_batches={batches}", "--num_warmup_batches=0", "--use_fp16"),
    *("--fp16_enable_auto_loss_scale", "--fp16_inc_loss_scale_every_n=3"),
    *("--device=cpu", "--local_parameter_device=cpu", "--data_format=NHWC"),
    *("--variable_update=replicated", "--train_dir={work}/model"),
  )


PROGRAM = Program(
  name="tf_cnn_benchmarks",
  repository="tensorflow/benchmarks",
  commit="15c4c472b7052d4cde70aac4895309aa13531ad6",
  paths=("scripts/tf_cnn_benchmarks",),
  title="tf_cnn_benchmarks.py --use_fp16 --fp16_enable_auto_loss_scale",
  folder="scripts/tf_cnn_benchmarks",
  start=(_command(10),),
  resume=(_command(20),),
  checkpoint="{work}/model",
  scale="the program's own, by names that inspect does not know",
)
