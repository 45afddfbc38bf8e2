"""Training that ends when its minutes are up, on a clock of the test's own."""

import json

import pytest

from albert.io import file_io
from albert.training import budget

MEASURED = budget.Durations(0.5, 4.0, 1.0)


def spelled_out(measured, first, last, save_every, eval_every):
    """Seconds from a step, whose checkpoint comes next, to the end of a run, step by step."""
    seconds = 0.0
    for step in range(first, last + 1):
        evaluates = step % (eval_every or save_every) == 0 or step == last
        saves = step % save_every == 0 or evaluates
        seconds += (step > first) * measured.step
        seconds += evaluates * measured.evaluation + saves * measured.saving
    return seconds


@pytest.mark.parametrize("eval_every", [0, 10, 15, 40, 1000])
@pytest.mark.parametrize(("first", "last"), [(1, 1), (1, 29), (15, 30), (29, 31), (30, 100)])
def test_the_rest_of_a_run_takes_the_sum_of_its_parts(first, last, eval_every):
    expected = spelled_out(MEASURED, first, last, 30, eval_every)
    assert MEASURED.seconds_left(first, last, 30, eval_every) == pytest.approx(expected)


@pytest.mark.parametrize("seconds", [-5.0, 0.0, 5.0, 5.6, 100.0, 1234.5])
def test_the_last_step_that_fits(seconds):
    last = budget.last_step_within(seconds, 7, MEASURED, 30, 20)
    assert last == 7 or spelled_out(MEASURED, 7, last, 30, 20) <= seconds
    assert spelled_out(MEASURED, 7, last + 1, 30, 20) > seconds


class Machine:
    """A clock, and what the engine does, with times of a test.

    Args:
      folder: output folder.
      step_seconds: function of the step and of the time.
      evaluation: seconds; None: nothing is evaluated.
    """

    def __init__(self, folder, step_seconds, evaluation=3.0, building=4.0, minutes=6.0, **changes):
        self.now, self.started = 140.0, 100.0  # the program has taken 40 s to get here
        self.folder, self.step_seconds = str(folder), step_seconds
        self.evaluation, self.building = evaluation, building
        self.changes, self.minutes = changes, minutes
        self.rates, self.known, self.evaluated, self.killed_at = {}, [], [], None

    def settings(self):
        return budget.Settings(
            self.minutes, clock=lambda: self.now, started=self.started, **self.changes
        )

    def set(self, step, share, last):
        self.plan = step, share, last

    def share(self, step):
        begun, share, last = self.plan
        return share + (1 - share) * min((step - begun) / max(last - begun, 1), 1)

    def run(self, save_every=100, attempt=0, step=0, most=5.0):
        """Trains from a step on as the engine does; returns the last step."""
        pacer = budget.Pacer(
            self.settings(),
            self.folder,
            attempt,
            save_every,
            0,
            pace=self,
            on_known=lambda steps, _: self.known.append(steps),
        )
        self.plan = 0, 0.0, 1e9

        def evaluate(prefix, step):
            self.now += self.evaluation
            self.evaluated.append(step)
            return False

        def time_evaluation():
            self.now += self.building
            return 1.1 * self.evaluation

        on_checkpoint = pacer.timing(evaluate, time_evaluation)

        def save(step):
            pacer.save(step)
            self.now += 1.0  # writing
            if self.evaluation is not None:
                on_checkpoint("prefix", step)

        if step == 0:
            save(0)
        last, is_first = pacer.resume(step), True
        while step < last:
            count = min(pacer.steps_to_stop(step), last - step, save_every - step % save_every, 20)
            each = self.step_seconds(step, self.now)
            count = max(1, min(count, int(most / each)))
            for number in range(step, step + count):
                self.rates[number] = self.share(number)
            self.now += count * each + (12.0 if is_first else 0.0)  # tracing
            is_first = False
            step += count
            last = pacer.update(step)
            if step == last or step % save_every == 0:
                save(step)
            if self.killed_at is not None and step >= self.killed_at:
                return step
        self.pacer = pacer
        return step

    @property
    def minutes_taken(self):
        return (self.now - self.started) / 60


def steady(step, now):
    return 0.7


def busy_at_first(step, now):
    """A process takes the other core for a while, and steps of another length come by."""
    return (1.8 if now < 300 else 0.7) * (1.3 if step % 50 < 7 else 1.0)


def busy_later(step, now):
    return 0.7 if now < 250 else 1.6


def warming_up(step, now):
    return 9.0 if step < 3 else 0.9


SPEEDS = [steady, busy_at_first, busy_later, warming_up, lambda step, now: 4.5]


@pytest.mark.parametrize("evaluation", [3.0, 20.0, None])
@pytest.mark.parametrize("speed", SPEEDS)
def test_a_run_ends_when_its_minutes_are_up(tmp_path, speed, evaluation):
    machine = Machine(tmp_path, speed, evaluation)
    last = machine.run()
    # After the evaluation at step 200 the time left may be too short for steps and another one.
    spare = evaluation / 60 if evaluation and last % 100 == 0 else 0.0
    assert 0.98 * 6 - spare < machine.minutes_taken < 1.02 * 6
    # The rate goes from the first to the last step without a jump, wherever the end was planned.
    shares = [machine.rates[step] for step in range(last)]
    assert shares[0] == 0.0 and 1 - 4 / last < shares[-1] < 1
    moves = [later - earlier for earlier, later in zip(shares, shares[1:], strict=False)]
    assert min(moves) > -1e-6 and max(moves[4:]) < 12 / last
    if evaluation:
        assert machine.evaluated == [*range(100, last, 100), last]


def test_a_quiet_machine_has_the_schedule_of_the_number_of_steps(tmp_path):
    machine = Machine(tmp_path, steady)
    last = machine.run()
    for step in range(20, last):
        assert machine.rates[step] == pytest.approx(step / last, abs=0.02)
    plans = json.loads((tmp_path / "budget.json").read_text())["attempts"][0]["plans"]
    assert len(plans) < 30 and plans[-1]["step"] == plans[-1]["num_train_steps"] == last


def test_the_number_of_steps_is_said_once_it_is_known(tmp_path):
    machine = Machine(tmp_path, warming_up)
    last = machine.run()
    assert machine.known[0] == pytest.approx(last, rel=0.15) and machine.known[-1] == last


def test_what_is_written_down_is_taken_again(tmp_path):
    """The same steps at the same rates, whatever the clock says."""
    first = Machine(tmp_path / "first", busy_at_first)
    (tmp_path / "first").mkdir()
    last = first.run()
    budget.repeat(str(tmp_path / "first"), str(tmp_path / "again"))
    again = Machine(tmp_path / "again", lambda step, now: 0.01)
    assert again.run(most=1000.0) == last
    assert (again.rates, again.known, again.evaluated) == (
        first.rates, first.known, first.evaluated,
    )  # fmt: skip
    # So does a run whose last checkpoint was lost.
    lost = Machine(tmp_path / "first", lambda step, now: 5.0)
    assert lost.run(step=100) == last
    assert lost.rates == {step: rate for step, rate in first.rates.items() if step >= 100}


def test_a_run_that_was_killed_has_the_time_that_is_left(tmp_path):
    machine = Machine(tmp_path, steady)
    machine.killed_at = 250
    machine.run()
    at_200 = json.loads((tmp_path / "budget.json").read_text())["attempts"][0]["saved"]["200"]
    shares = dict(machine.rates)
    machine.killed_at, machine.now = None, 10_000.0
    machine.started = 9_980.0
    last = machine.run(step=200)
    assert 0.97 * 360 < at_200 + machine.now - machine.started < 1.03 * 360
    assert machine.rates[200] == pytest.approx(shares[200]) and machine.rates[last - 1] > 0.97


def test_a_killed_run_is_repeated_as_far_as_it_came(tmp_path):
    first = Machine(tmp_path / "first", busy_later)
    (tmp_path / "first").mkdir()
    first.killed_at = 150
    first.run()
    budget.repeat(str(tmp_path / "first"), str(tmp_path / "again"))
    again = Machine(tmp_path / "again", steady)
    assert again.run() > 150
    assert {step: again.rates[step] for step in first.rates} == first.rates


def test_an_attempt_has_the_minutes_for_itself(tmp_path):
    machine = Machine(tmp_path, steady)
    machine.run()
    machine.now += 5
    began = machine.now
    machine.run(attempt=1)
    assert 0.97 * 360 < machine.now - began < 1.03 * 360
    attempts = json.loads((tmp_path / "budget.json").read_text())["attempts"]
    assert len(attempts) == 2 and attempts[0]["plans"] != attempts[1]["plans"]


def test_a_given_number_of_steps_is_the_most(tmp_path):
    machine = Machine(tmp_path, steady, max_steps=60)
    assert machine.run() == 60
    assert machine.rates == pytest.approx({step: step / 60 for step in range(60)})


def test_a_budget_without_room_for_a_step_is_refused(tmp_path):
    with pytest.raises(file_io.InputError, match=r"budget_minutes=0.7 is too small: 0 s are left"):
        Machine(tmp_path, steady, minutes=0.7).run()


def test_a_budget_that_is_up_after_the_first_step_ends_there(tmp_path):
    machine = Machine(tmp_path, lambda step, now: 100.0, minutes=1.5)
    assert machine.run() == 1 and machine.evaluated == [1]


def test_another_budget_is_refused(tmp_path):
    Machine(tmp_path, steady).run()
    with pytest.raises(file_io.InputError, match=r"budget_minutes=5, but .* with 6 minutes: give"):
        Machine(tmp_path, steady, minutes=5.0).run()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attempts": 3}, "budget.json.attempts: expected list, found whole number"),
        ({"plans": [{"step": 5}]}, "there is no 'share'"),
        ({"num_train_steps": 3}, "plans: expected increasing steps up to num_train_steps, and"),
        ({"share": 1.5}, "shares from 0 to 1; found"),
        ({"saved": {"x": 1}}, "saved: expected steps, found"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, change, message):
    plan = {"step": 5, "share": 0.5, "num_train_steps": 9, "seconds": 1.0, "is_known": True}
    seconds = {"evaluation": 1.0, "saving": 1.0}
    attempt = {"plans": [{**plan, **change}], "saved": {}, "seconds": seconds}
    attempt |= {name: value for name, value in change.items() if name in attempt}
    content = {"budget_minutes": 6.0, "is_repeated": False, "attempts": [attempt]}
    content |= {name: value for name, value in change.items() if name in content}
    (tmp_path / "budget.json").write_text(json.dumps(content))
    with pytest.raises(file_io.InputError, match=message):
        budget.read(str(tmp_path), 6.0)


def test_all_workers_have_the_plans_of_the_chief(tmp_path):
    """The chief writes its measurements and sends them; the others write nothing."""
    machine = Machine(tmp_path, steady)
    plan = {"step": 4, "share": 0.0, "num_train_steps": 33, "seconds": 50.0, "is_known": False}
    answers = iter([None, [300.0, 1.0], None, plan])
    pacer = budget.Pacer(
        machine.settings(), str(tmp_path), 0, 100, 0, lambda make: next(answers), writes=False
    )
    assert pacer.resume(0) == budget.UNKNOWN
    for step, expected in ((0, budget.UNKNOWN), (1, 33)):
        assert pacer.steps_to_stop(step) == 1
        assert pacer.update(step + 1) == expected
    assert not list(tmp_path.iterdir())
