"""How a run proceeds, whatever its task."""

import dataclasses

from albert import layers


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """How a run proceeds; `common_flags` builds it from flags, which hold the defaults.

    Attributes:
      output_dir: folder of checkpoints and results.
      num_train_steps: step at which training ends, counted from the very first one.
      train_batch_size: examples per step over all replicas.
      eval_batch_size: examples per evaluation step over all replicas.
      predict_batch_size: examples per prediction step over all replicas.
      save_checkpoints_steps: steps between checkpoints.
      save_checkpoints_secs: seconds between those that are saved beside them, so that less is lost
        when a run breaks; 0 for none. They are not evaluated: results do not depend on speed.
      keep_checkpoint_max: numbered checkpoints kept; 0 keeps all.
      iterations_per_loop: most steps that one call of the compiled train function runs.
      log_every_steps: steps between log lines.
      seed: source of initial weights, data order and dropout.
      gradient_accumulation_steps: micro-batches that each replica computes its batch in.
      compute: `layers.Compute`, how the model computes.
      eval_every: steps between evaluations, each of which saves a checkpoint, too; 0: each
        checkpoint is evaluated.
      early_stopping_patience: evaluations without a better one after which training ends; 0: none.
    """

    output_dir: str
    num_train_steps: int
    train_batch_size: int
    eval_batch_size: int
    predict_batch_size: int
    save_checkpoints_steps: int
    keep_checkpoint_max: int
    iterations_per_loop: int
    log_every_steps: int
    seed: int
    gradient_accumulation_steps: int = 1
    save_checkpoints_secs: int = 0
    compute: layers.Compute = layers.Compute(skip_padding=True)
    eval_every: int = 0
    early_stopping_patience: int = 0

    def is_evaluated(self, step):
        """Whether the checkpoint of a step is to be evaluated."""
        every = self.eval_every or 1
        return step % every == 0 or step == self.num_train_steps

    def steps_to_stop(self, step):
        """Steps until there is something to report, to save or to evaluate."""
        stops = (self.log_every_steps, self.save_checkpoints_steps, self.eval_every)
        return min(self.num_train_steps - step, *(every - step % every for every in stops if every))

    def num_saved_after(self, step):
        """Checkpoints that a run saves after a step, without those of `save_checkpoints_secs`."""
        last = self.num_train_steps
        every = filter(None, (self.save_checkpoints_steps, self.eval_every))
        saved = {last}.union(*(range(0, last, interval) for interval in every))
        return sum(other > step for other in saved)

    def is_saved(self, step):
        """Whether a step has a checkpoint."""
        due = step % self.save_checkpoints_steps == 0 or step == self.num_train_steps
        return due or bool(self.eval_every and self.is_evaluated(step))
