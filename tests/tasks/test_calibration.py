"""Temperature, scores of probabilities, and abstention whose promise holds."""

import numpy as np
import pytest

from albert.tasks import calibration


def draw(count, labels, heat, seed=0, scale=3.0):
    """Logits that are `heat` times too certain, and labels."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(count, labels)) * scale
    chances = calibration.softmax(logits / heat).cumsum(axis=1)
    return logits, (rng.random((count, 1)) > chances).sum(axis=1)


# --- temperature and scores ---


@pytest.mark.parametrize(("labels", "heat"), [(2, 1.7), (3, 0.6), (20, 4.0)])
def test_the_temperature_is_the_best(labels, heat):
    optimize = pytest.importorskip("scipy.optimize")
    logits, classes = draw(800, labels, heat)

    def loss(inverse):
        return calibration.log_losses(calibration.softmax(logits * inverse), classes).mean()

    found = calibration.fit_temperature(logits, classes)
    best = optimize.minimize_scalar(loss, bounds=(0.05, 20), method="bounded")
    assert found == pytest.approx(1 / best.x, rel=1e-4)
    assert found == pytest.approx(heat, rel=0.25)
    # The loss is that of the log-probabilities, too: a constant of each row changes nothing.
    warm = calibration.softmax(logits / 2)
    again = calibration.fit_temperature(calibration.to_logits(warm, 2.0), classes)
    assert again == pytest.approx(found, rel=1e-6)
    answers = calibration.softmax(logits / found).argmax(axis=1)
    np.testing.assert_array_equal(answers, logits.argmax(axis=1))


def test_several_labels_per_text_have_one_temperature():
    rng = np.random.default_rng(7)
    logits = rng.normal(size=(300, 4)) * 3
    labels = (rng.random((300, 4)) < 1 / (1 + np.exp(-logits / 1.8))).astype(int)
    found = calibration.as_choices(1 / (1 + np.exp(-logits)), labels)
    pairs = np.stack([np.zeros(1200), logits.reshape(-1)], axis=1)
    np.testing.assert_allclose(found[0], calibration.softmax(pairs), rtol=1e-6)
    measured = calibration.measure(calibration.to_logits(found[0]), found[1])
    expected = calibration.fit_temperature(pairs, labels.reshape(-1))
    assert measured.temperature == pytest.approx(expected, rel=1e-6)
    assert 1.4 < expected < 2.3
    # What float32 rounds to 1 and 0 is not taken for certain.
    assert calibration.as_choices(np.array([[1.0, 0.0]]), np.array([[1, 0]]))[0].min() > 0


def test_texts_are_drawn_and_split_with_all_their_labels():
    """Labels that always agree say no more than one of them."""
    logits, labels = draw(150, 2, 1.7)
    one = calibration.measure(logits, labels)
    copies = np.repeat(logits, 4, axis=0), np.repeat(labels, 4)
    found = calibration.measure(*copies, per_text=4)
    for name in ("examples", "temperature", "gain", "gain_low", "gain_high"):
        assert getattr(found, name) == pytest.approx(getattr(one, name), rel=1e-6)
    for name in ("log_loss", "brier", "ece", "ece_high"):
        for side in ("before", "after"):
            values = [getattr(getattr(x, side), name) for x in (found, one)]
            assert values[0] == pytest.approx(values[1], rel=1e-6)
    independent = calibration.measure(*copies)
    assert found.gain_high - found.gain_low > 1.5 * (independent.gain_high - independent.gain_low)
    assert "on 150 examples with 4 labels each: temperature" in found.describe()
    assert found.describe().count("if the labels of a text are independent") == 1


@pytest.mark.parametrize("are_right", [True, False])
def test_without_a_best_temperature_it_stays_1(are_right):
    logits = np.array([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0], [0.0, 2.0], [1.0, 0.0]] * 4)
    if not are_right:
        logits = -logits
    labels = np.array([0, 1, 0, 1, 0] * 4)
    found = calibration.measure(logits, labels)
    assert (found.temperature, found.is_fitted) == (1, False)
    assert "no temperature fits best" in found.describe()


def test_scores_equal_those_of_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    for labels in (2, 4):
        logits, classes = draw(300, labels, 1.5)
        probabilities = calibration.softmax(logits)
        scores = calibration.score(probabilities, classes)
        assert scores.log_loss == pytest.approx(metrics.log_loss(classes, probabilities))
        expected = (
            metrics.brier_score_loss(classes, probabilities, labels=range(labels))
            if (labels > 2)
            else 2 * metrics.brier_score_loss(classes, probabilities[:, 1])
        )
        assert scores.brier == pytest.approx(expected)


def test_the_calibration_error_is_over_bins_of_equal_mass():
    rng = np.random.default_rng(4)
    confidences, is_right = rng.uniform(0.5, 1, 100), rng.random(100) < 0.8
    order = np.argsort(confidences)
    expected = 0.0
    edges = [place * 100 // 15 for place in range(16)]
    for begin, end in zip(edges, edges[1:], strict=False):
        part = order[begin:end]
        expected += len(part) / 100 * abs(is_right[part].mean() - confidences[part].mean())
    found = calibration.calibration_error(confidences, is_right)
    assert found == pytest.approx(expected)
    assert sum(row.count for row in calibration.score(*draw(100, 2, 1)).bins) == 100
    # Fewer examples than bins have a bin each.
    assert calibration.calibration_error(np.array([0.9, 0.6]), np.array([True, False])) == (
        pytest.approx((0.1 + 0.6) / 2)
    )


def test_figures_are_of_examples_that_the_temperature_was_not_fitted_on():
    logits, classes = draw(103, 3, 2.0)
    parts = np.argmax([*calibration.split_in_parts(classes)], axis=0)
    counts = [np.bincount(classes[parts == part], minlength=3) for part in range(5)]
    assert np.ptp(counts, axis=0).max() <= 1  # stratified
    found = calibration.cross_fit(logits, classes)
    for part in range(5):
        inside = parts == part
        temperature = calibration.fit_temperature(logits[~inside], classes[~inside])
        np.testing.assert_allclose(found[inside], calibration.softmax(logits[inside] / temperature))


def test_what_there_is_to_mend():
    found = calibration.measure(*draw(872, 2, 2.0))
    assert found.has_fault and "nothing to mend" not in found.describe()
    assert found.after.ece < found.before.ece
    assert found.after.log_loss < found.before.log_loss
    assert found.gain_low < found.gain < found.gain_high
    assert found.before.ece_low <= found.before.ece <= found.before.ece_high
    right = calibration.measure(*draw(872, 2, 1.0, seed=3))
    assert not right.has_fault and "nothing to mend" in right.describe()
    # Few examples show an error though there is none: as much as chance makes.
    assert right.before.ece < right.before.ece_by_chance_high
    assert 0.015 < right.before.ece_by_chance < 0.035
    assert right == calibration.measure(*draw(872, 2, 1.0, seed=3))  # seeds are fixed


@pytest.mark.slow
@pytest.mark.parametrize("heat", [1.0, 1.3])
def test_intervals_hold_the_true_error(heat, monkeypatch):
    """The true error of a calibrated model is 0, though the measured one never is."""
    monkeypatch.setattr(calibration, "RESAMPLES", 100)
    logits, _ = draw(100_000, 2, heat, seed=99)
    true, held = calibration.softmax(logits / heat).max(axis=1), 0
    confidences = calibration.softmax(logits).max(axis=1)
    true = calibration.calibration_error(confidences, true)
    for seed in range(40):
        scores = calibration.score(*with_probabilities(draw(300, 2, heat, seed)))
        held += scores.ece_low <= true <= scores.ece_high
        assert scores.ece_low < scores.ece <= scores.ece_high
    assert held >= 36


def with_probabilities(drawn):
    return calibration.softmax(drawn[0]), drawn[1]


# --- abstention ---


def test_bounds_are_exact():
    stats = pytest.importorskip("scipy.stats")
    for errors, count in ((0, 1), (0, 59), (3, 100), (19, 532), (100, 100), (500, 9815)):
        expected = stats.beta.ppf(0.95, errors + 1, count - errors) if errors < count else 1.0
        assert calibration.upper_bound(errors, count, 0.05) == pytest.approx(expected, abs=1e-9)
        tail = stats.binom.cdf(errors, count, 0.05)
        assert calibration.tail(errors, count, 0.05) == pytest.approx(tail, abs=1e-12)
    # The bins of the diagram have both ends.
    row = calibration.score(*with_probabilities(draw(60, 2, 1.0))).bins[0]
    test = stats.binomtest(round(row.accuracy * row.count), row.count)
    interval = test.proportion_ci(0.95, "exact")
    assert (row.low, row.high) == pytest.approx((interval.low, interval.high), abs=1e-9)


def test_the_smallest_threshold_that_keeps_the_promise():
    probabilities, classes = with_probabilities(draw(872, 2, 1.7))
    found = calibration.find_abstention(probabilities, classes, 0.05)
    confidences, is_wrong = probabilities.max(axis=1), probabilities.argmax(axis=1) != classes
    is_answered = confidences >= found.threshold
    assert (found.answered, found.errors) == (is_answered.sum(), is_wrong[is_answered].sum())
    assert found.coverage == found.answered / 872
    assert found.bound == calibration.upper_bound(found.errors, found.answered, 0.05) <= 0.05
    tried = calibration.thresholds()
    following = tried[np.searchsorted(-tried, -found.threshold) + 1]
    looser = confidences >= following
    assert calibration.upper_bound(is_wrong[looser].sum(), looser.sum(), 0.05) > 0.05
    assert f"{found.coverage:.1%} of 872 dev examples" in found.describe()


def test_everything_is_answered_where_that_keeps_the_promise():
    probabilities, classes = with_probabilities(draw(2000, 4, 1.0, scale=20))
    found = calibration.find_abstention(probabilities, classes, 0.2)
    assert (found.threshold, found.coverage) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("count", "wrong", "needed", "text"),
    [
        (40, 0, 59, "about 59 dev examples would be needed"),  # 0.95 ** 59 < 0.05
        (200, 6, None, "dev examples would be needed"),
        (200, 60, 0, "a better model is needed"),
    ],
)
def test_without_a_promise_it_says_what_is_missing(count, wrong, needed, text):
    """All are equally certain, so there is one threshold."""
    probabilities = np.tile([0.9, 0.1], (count, 1))
    classes = np.r_[np.ones(wrong, int), np.zeros(count - wrong, int)]
    found = calibration.find_abstention(probabilities, classes, 0.05)
    assert found.threshold is None and text in found.describe()
    assert found.results() == {"abstention_max_error": 0.05, "abstention_coverage": 0}
    if needed == 0:
        assert found.needed is None
    elif needed:
        assert found.needed == needed
    else:
        # As many examples with this error rate keep the promise, or nearly.
        errors = found.needed * wrong / count
        assert calibration.upper_bound(round(errors), found.needed, 0.05) < 0.053


def test_the_temperature_does_not_change_which_of_two_labels_are_answered():
    logits, classes = draw(872, 2, 1.7)
    found = [
        calibration.find_abstention(calibration.softmax(logits / heat), classes, 0.05, heat)
        for heat in (1.0, 1.7, 0.5)
    ]
    assert len({(row.answered, row.errors) for row in found}) == 1
    assert len({row.threshold for row in found}) == 3


def broken(probabilities, classes, max_error, size, resamples=2000, seed=5):
    """In what fraction of resamples the promise is broken, and the mean coverage.

    Each resample is a dev half from which the threshold comes. The rate of errors among all of the
    given examples that are answered is what halves for the test have on average.
    """
    rng, total = np.random.default_rng(seed), len(classes)
    tried = calibration.thresholds()
    answered, errors = calibration.count_above(tried, probabilities, classes)
    # The examples between two thresholds differ only in being right or wrong.
    wrong, each = np.diff(errors, prepend=0), np.diff(answered, prepend=0)
    drawn = rng.multinomial(size, np.r_[wrong, each - wrong] / total, size=resamples)
    drawn = drawn.reshape(resamples, 2, len(tried)).cumsum(axis=2)
    places = calibration.last_to_pass(drawn[:, 0], drawn.sum(axis=1), max_error, size)
    kept = places[places >= 0]
    rates = errors[kept] / answered[kept]
    return np.sum(rates > max_error) / resamples, np.sum(answered[kept]) / total / resamples


def of_sst2(shared):
    """Probabilities of a naive Bayes model of words on the dev data of SST-2, and its labels."""
    text = pytest.importorskip("sklearn.feature_extraction.text")
    bayes = pytest.importorskip("sklearn.naive_bayes")
    splits = {}
    for split in ("train", "dev"):
        lines = (shared / "data" / "glue" / "SST-2" / f"{split}.tsv").read_text().splitlines()
        rows = [line.split("\t") for line in lines[1:6001]]
        splits[split] = [row[0] for row in rows], np.array([int(row[1]) for row in rows])
    words = text.CountVectorizer(ngram_range=(1, 2))
    model = bayes.MultinomialNB().fit(words.fit_transform(splits["train"][0]), splits["train"][1])
    return model.predict_proba(words.transform(splits["dev"][0])), splits["dev"][1]


# 5% and what chance allows in 2,000 resamples: three standard deviations.
ALLOWED = 0.05 + 3 * (0.05 * 0.95 / 2000) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize("max_error", [0.05, 0.1, 0.2])
def test_the_promise_holds_on_a_synthetic_task(max_error):
    for labels, size in ((2, 436), (3, 1000)):
        pool = with_probabilities(draw(20_000, labels, 1.7, scale=8.0))
        rate, coverage = broken(*pool, max_error, size)
        assert rate <= ALLOWED
        assert coverage > 0.05  # it does not hold because nothing is answered


def test_the_promise_holds_on_a_real_task(shared):
    probabilities, classes = of_sst2(shared)
    for max_error in (0.1, 0.15, 0.2):
        rate, coverage = broken(probabilities, classes, max_error, len(classes) // 2)
        assert rate <= ALLOWED
        assert coverage > 0.1


def test_the_promise_holds_where_certainty_says_nothing():
    """The worst case: the error rate is just above the promise at every threshold."""
    rng = np.random.default_rng(6)
    top = rng.uniform(0.5, 1, 20_000)
    classes = (rng.random(20_000) < 0.0505).astype(int)
    pool = np.stack([top, 1 - top], axis=1)
    for size in (150, 436):
        rate, _ = broken(pool, classes, 0.05, size)
        assert rate <= ALLOWED
