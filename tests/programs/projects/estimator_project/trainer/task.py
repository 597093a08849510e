"""python -m trainer.task --job-dir out"""
import argparse

from . import input_fn
from . import model


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument('--job-dir', default='out')
    parser.add_argument('--train-steps', type=int, default=4)
    parser.add_argument('--learning-rate', type=float, default=.05)
    return parser.parse_args()


def main():
    args = get_args()
    import tensorflow as tf
    tf.logging.set_verbosity(tf.logging.ERROR)
    config = tf.estimator.RunConfig(model_dir=args.job_dir, tf_random_seed=1, save_checkpoints_steps=4)
    estimator = tf.estimator.Estimator(model.model_fn, config=config,
                                       params={'learning_rate': args.learning_rate})
    print('train')
    estimator.train(input_fn.train_input_fn, hooks=[model.PrintHook()], steps=args.train_steps)
    print('resume')
    estimator.train(input_fn.train_input_fn, hooks=[model.PrintHook()], steps=args.train_steps)
    result = estimator.evaluate(input_fn.eval_input_fn, steps=1)
    print('loss %.4f mae %.4f' % (result['loss'], result['mae']))
    print([name for name in estimator.get_variable_names()])


if __name__ == '__main__':
    main()
