# SPDX-License-Identifier: Apache-2.0
"""DeepCTR: a model of TensorFlow's private Keras, on the project's sample."""

from strangers_table import Program

PROGRAM = Program(
  name="deepctr",
  repository="shenweichen/DeepCTR",
  commit="66d173e5736eae2e19c32e28e6d656ef873461a5",
  paths=("deepctr", "examples"),
  title="examples/run_regression_movielens.py",
  folder="examples",
  path=(".",),
  needs={
    "h5py": "h5py",
    "pandas": "pandas",
    "requests": "requests",
    "sklearn": "scikit-learn",
  },
  start=(("run_regression_movielens.py",),),
  checkpoint=None,
  prints=r"test MSE [\d.]+",
  scale="no loss scale: it trains in float32",
  remark="version 0.8.0",
)
