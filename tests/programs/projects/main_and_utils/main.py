#!/usr/bin/env python3
# coding: utf-8
"""Trains a small regression model in mixed precision.

    python main.py --epochs 2 --amp
"""
import argparse
import os
import sys

os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'  # must be set before TF is imported
assert 'tensorflow' not in sys.modules

import numpy as np
import tensorflow as tf

from utils import data
from utils.model import build_model, current_scale
from utils.precision import set_precision


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument('--epochs', type=int, default=2)
    parser.add_argument('--batch-size', type=int, default=4)
    parser.add_argument('--amp', action='store_true')
    return parser.parse_args()


def main():
    args = parse_args()
    np.random.seed(1)
    tf.random.set_seed(1)
    policy = set_precision(args.amp)
    print('policy', policy.name, policy.compute_dtype)

    x, y = data.load(n=32)
    model = build_model(x.shape[1])
    history = model.fit(x, y, batch_size=args.batch_size, epochs=args.epochs,
                        shuffle=False, verbose=0)
    print('loss falls', history.history['loss'][-1] < history.history['loss'][0])
    print('optimizer', type(model.optimizer).__name__, model.optimizer.get_slot_names())
    print('scale %g' % current_scale(model.optimizer))
    for v in model.trainable_variables:
        print(v.name, v.shape, v.dtype.name if hasattr(v.dtype, 'name') else v.dtype)


if __name__ == '__main__':
    main()
