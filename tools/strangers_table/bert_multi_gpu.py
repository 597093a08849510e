# SPDX-License-Identifier: Apache-2.0
"""BERT for several GPUs, with weights that are cast to float16."""

from strangers_table import bert
from strangers_table import Program


def _command(epochs: int) -> tuple[str, ...]:
  return (
    *("run_custom_classifier.py", "--task_name=MRPC", "--data_dir={work}"),
    *("--vocab_file={work}/vocab.txt", "--bert_config_file={work}/config.json"),
    *("--output_dir={work}/model", "--max_seq_length=24", "--use_gpu=true"),
    *("--train_batch_size=4", "--do_train=true", "--use_fp16=true"),
    *("--do_eval=true", f"--num_train_epochs={epochs}"),
  )


PROGRAM = Program(
  name="bert-multi-gpu",
  repository="HaoyuHu/bert-multi-gpu",
  commit="66dc4ec8af70ec13e44749dae2ca8e5928f4b02e",
  title="run_custom_classifier.py --use_fp16",
  needs={"tensorflow_estimator": "tensorflow-estimator==2.15.*"},
  start=(_command(1),),
  resume=(_command(2),),
  checkpoint="{work}/model",
  prepare=bert.prepare,
  initial=2**32,
  unseeded=True,
  remark="`--use_fp16` with `tf.contrib`'s loss scale of 2^32; it sets no "
  "seed, so that runs differ",
)
