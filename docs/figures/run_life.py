"""Draws the life of a run: checkpoints, a signal, a kill and the same command given again."""

from drawing import Drawing

LEFT, RIGHT, LAST_STEP = 150, 690, 1000
# Of each process: first and last step, its checkpoints, its end, the color of that, a note.
PROCESSES = [
    (0, 500, [200, 400, 500], "SIGTERM", "orange", "saves step 500, exit status 75"),
    (500, 900, [600, 800], "SIGKILL", "orange", "nothing saved after step 800"),
    (800, 1000, [1000], "done", "green", "repeats 800 to 900, exit status 0"),
]
BEST = 600


def _x(step: float) -> float:
    return LEFT + (RIGHT - LEFT) * step / LAST_STEP


def _axis(drawing: Drawing, y: float, bottom: float) -> None:
    drawing.text(LEFT - 16, y, "step", size=15, color="soft", anchor="end")
    for step in range(0, LAST_STEP + 1, 200):
        drawing.text(_x(step), y, str(step), size=15, color="soft")
        drawing.line([(_x(step), y + 8), (_x(step), bottom)], color="rule", width=1, dashed=True)


def _process(drawing: Drawing, number: int, top: float) -> None:
    first, last, checkpoints, end, color, note = PROCESSES[number]
    drawing.text(LEFT - 16, top + 25, ("1st", "2nd", "3rd")[number] + " start", anchor="end")
    if number:
        drawing.text(LEFT - 16, top + 44, "same command", size=13, color="soft", anchor="end")
    drawing.box(_x(first), top + 8, _x(last) - _x(first), 24, fill="blue_area", stroke="blue")
    if number == 2:  # steps that are taken a second time
        drawing.box(_x(800), top + 8, _x(900) - _x(800), 24, fill="orange_area", stroke="orange")
    for step in checkpoints:
        drawing.dot(_x(step), top + 20, 7, fill="green" if step == BEST else "blue")
    drawing.text(min(_x(last), RIGHT), top - 2, end, color=color, bold=True)
    if first:
        drawing.text(_x(first) - 12, top + 25, note, color="soft", anchor="end", halo=True)
    else:
        drawing.text(_x(last) + 14, top + 25, note, color="soft", anchor="start", halo=True)


def _legend(drawing: Drawing, y: float) -> None:
    drawing.dot(32, y - 5, 7, fill="blue")
    drawing.text(46, y, "checkpoint", color="soft", anchor="start")
    drawing.dot(176, y - 5, 7, fill="green")
    drawing.text(
        190, y, "the best one is also kept as model.ckpt-best", color="soft", anchor="start"
    )
    drawing.box(556, y - 15, 24, 19, fill="orange_area", stroke="orange", radius=4)
    drawing.text(588, y, "taken twice", color="soft", anchor="start")
    note = "The weights at step 1000 are those of a run that was never interrupted."
    drawing.text(25, y + 32, note, anchor="start")


def draw() -> str:
    """Returns the SVG."""
    drawing = Drawing(720, 362, "Life of a run: checkpoints, signals and resuming")
    _axis(drawing, 30, 272)
    for number in range(len(PROCESSES)):
        _process(drawing, number, 64 + number * 74)
    _legend(drawing, 308)
    return drawing.svg()
