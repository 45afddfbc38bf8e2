"""The optimizers that a run can choose from; plain, so that help texts know their names at once."""

from albert import file_io

# Name: module and class of an `optimization.Optimizer`. A new optimizer needs a class and a row.
OPTIMIZERS = {
    "adamw": ("optimization", "AdamWeightDecayOptimizer"),
    "lamb": ("lamb_optimizer", "LAMB"),
}


def check(name):
    """Refuses a name that is not in the table.

    Raises:
      file_io.InputError: names those that are.
    """
    if name not in OPTIMIZERS:
        raise file_io.InputError(f"optimizer={name}: expected {' or '.join(OPTIMIZERS)}")
