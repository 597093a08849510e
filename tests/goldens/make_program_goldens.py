"""Saves programs drawn by chance with a real TensorFlow 1.15, and what each
variable of them is.

  PYTHONPATH=tests/harness python tests/goldens/make_program_goldens.py OUT_DIR [case ...]

Each case gets OUT_DIR/program_<case>/ with the checkpoint, its .meta and
manifest.json.
"""
import os
import sys

import random_builder
import random_programs
import random_saves
import tensorflow as tf

# Case -> (seed, how each optimizer is wrapped, TensorFlow 2's control flow).
CASES = {
    # Two Adams, in scopes that are made against the alphabet.
    'gan': (1800, ('dynamic', 'dynamic'), False),
    'gan_v2': (1800, ('dynamic', 'dynamic'), True),
    'gan_reference_variables': (2215, ('dynamic', 'dynamic'), False),
    # Variables of the user's that are called as a loss scale's are.
    'user_loss_scale': (3145, ('dynamic', 'dynamic'), False),
    'user_loss_scale_contrib': (3145, ('contrib', 'contrib'), False),
    'user_loss_scale_trained': (3303, ('dynamic', 'dynamic'), False),
    # Variables of the user's that are called as powers are.
    'user_powers': (177, ('dynamic', 'dynamic'), False),
    # A plain Adam and a wrapped one in one scope.
    'one_scope': (883, ('plain', 'dynamic'), False),
    'one_scope_v2': (883, ('plain', 'dynamic'), True),
    'no_scope': (468, ('dynamic', 'plain'), False),
    # One loss scale of two optimizers, and a third.
    'three': (1569, ('dynamic', 'dynamic', 'dynamic'), False),
    # Conds of the user's, and moving averages.
    'conds_v2': (208, ('dynamic', 'dynamic'), True),
    'conds_contrib': (208, ('contrib', 'contrib'), False),
    # Optimizers of the user's.
    'custom': (254, ('dynamic', 'dynamic'), False),
}


def main():
  tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
  root, cases = sys.argv[1], sys.argv[2:] or sorted(CASES)
  api = random_builder.Api('tf1')
  for case in cases:
    seed, kinds, v2 = CASES[case]
    program = random_programs.program_of(seed)
    assert len(kinds) == len(program['optimizers']), case
    variant = {'kinds': dict(zip(sorted(program['optimizers']), kinds)), 'v2': v2, 'dropped': []}
    folder = os.path.join(root, 'program_' + case)
    os.makedirs(folder, exist_ok=True)
    path, manifest = random_saves.save(
        program, variant, api, os.path.join(folder, 'model.ckpt'), strip=True)
    random_saves.write_manifest(os.path.join(folder, 'manifest.json'), program, variant, manifest)
    print(case, len(manifest), 'variables')


if __name__ == '__main__':
  main()
