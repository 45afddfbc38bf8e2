"""The page to try a model in a real browser: every kind of model, keyboard, width, security."""

import contextlib
import csv
import dataclasses
import json
import shutil
import subprocess
import threading

import pytest

from albert.serving import requests, served_model
from tests.support import browser, serving_samples
from tests.support.serving_stand_in import EchoModel

web = pytest.importorskip("aiohttp.web")
pytest.importorskip("prometheus_client")
http_server = pytest.importorskip("albert.serving.server")

WIDE, NARROW = 1200, 400  # pixels
HARD = 'it\'s "a" <b>\n$(id) `id` \\ \u202e\u0007 \U0001f600 é !'


@pytest.fixture(scope="module")
def chromium():
    with browser.opened() as found:
        yield found


@contextlib.contextmanager
def serving(model=None, **settings):
    """Yields (address, server)."""
    server = http_server.Server(http_server.Settings(port=0, **settings))

    @contextlib.asynccontextmanager
    async def listening():
        async with server.listening() as (_, port, _):
            if model is not None:
                server.start(model)
            yield port
        server.close()

    with browser.in_thread(listening) as address:
        yield address, server


class Visit:
    """A page in the browser and what it has logged and fetched."""

    def __init__(self, chromium, address, width=WIDE, scheme="light"):
        viewport = {"width": width, "height": 800}
        self.page = chromium.new_page(viewport=viewport, color_scheme=scheme)
        self.page.set_default_timeout(20_000)
        self.problems, self.fetched = [], []
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.fetched.append(request.url))
        self.page.goto(address)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.page.close()

    def text(self, selector):
        return self.page.locator(selector).text_content()

    def texts(self, selector):
        return self.page.locator(selector).all_text_contents()

    @property
    def send(self):
        return self.page.get_by_role("button", name="Ask the model")

    def ask(self, **values):
        """Fills fields by their labels and asks; returns the reply."""
        self.send.wait_for()
        for label, value in values.items():
            self.page.get_by_label(label.replace("_", " "), exact=False).first.fill(value)
        with self.page.expect_response(lambda response: response.request.method == "POST") as got:
            self.send.click()
        self.page.locator("#result:visible, #problem:visible").first.wait_for()
        return got.value.json()

    def table(self, name):
        """The cells of a table, without those of its head."""
        rows = self.page.get_by_role("table", name=name).locator("tbody tr").all()
        return [row.locator("th, td:not(.bar)").all_text_contents() for row in rows]

    def fill_lines(self, text):
        self.page.get_by_label("Many at once").check()
        self.page.get_by_role("textbox", name="per line").fill(text)
        self.send.click()

    def fits(self):
        return self.page.evaluate(
            "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        )


def shares(rows):
    return [f"{100 * share:.1f}%" for share in rows]


def sure(share):
    """The words of a probability that is neither near 0 nor near 1."""
    return f" — {100 * share:.0f}% sure"


def check_labels(visit, reply, sent):
    best = max(reply["probabilities"], key=reply["probabilities"].get)
    assert best == reply["prediction"]
    assert visit.text("#answer .verdict") == best + sure(reply["probabilities"][best])
    rows = sorted(reply["probabilities"].items(), key=lambda row: -row[1])
    expected = [[name, *shares([share])] for name, share in rows]
    assert visit.table("Probabilities") == expected
    assert visit.texts("#answer tr.best th") == [best]
    visit.page.get_by_text("Chooses one of 3 labels: bad, fine, good.").wait_for()


def check_number(visit, reply, sent):
    assert float(visit.text("#answer .verdict")) == pytest.approx(reply["prediction"], rel=1e-3)
    visit.page.get_by_text("Answers with a number.").wait_for()


def check_choice(visit, reply, sent):
    named = [f"{'ABCD'[i]}: {option}" for i, option in enumerate(sent["options"])]
    best = f"{reply['prediction']}: {reply['answer']}"
    share = reply["probabilities"][reply["prediction"]]
    assert visit.text("#answer .verdict") == best + sure(share)
    rows = zip(named, shares(reply["probabilities"].values()), strict=True)
    assert visit.table("Probabilities") == [list(row) for row in rows]
    assert visit.texts("#answer tr.best th") == [best]


def check_words(visit, reply, sent):
    words = sent["text"].split()
    assert reply["words"] == words
    marks = visit.texts("#answer mark")
    assert marks == [f"{w} {label}" for w, label in zip(words, reply["labels"], strict=True)]


def check_answer(visit, reply, sent):
    title = "Possible answers"
    if reply["answer"]:
        best = reply["answers"][0]
        assert visit.text("#answer .verdict").startswith(best["text"] + " — ")
        assert visit.text("#answer mark") == best["text"]
        before = visit.page.evaluate("document.querySelector('mark').previousSibling.data.length")
        units = len(sent["context"][: best["start"]].encode("utf-16-le")) // 2
        assert before == units > best["start"]  # there is an emoji before
        assert visit.text("#answer .passage") == sent["context"]
    else:
        assert visit.text("#answer .verdict") == "The text does not answer the question"
        title = "If it did"
    rows = [[a["text"], *shares([a["probability"]])] for a in reply["answers"]]
    assert visit.table(title) == rows
    if "null_odds" in reply:
        assert f"{reply['null_odds']:.3f}" in visit.text("#answer .hint")


PASSAGE = {
    "Text_with_the_answer": "\U0001f600\U0001f600 Ann wrote it <i>in 1901</i>.\nBen read it."
}
KINDS = {
    "classifier": (check_labels, {"Text": HARD}),
    "regression": (check_number, {}),
    "multiple_choice": (check_choice, {"Option B": "x" * 300}),
    "token_classifier": (check_words, {}),
    "squad_v1": (check_answer, PASSAGE),
    "squad_v2": (check_answer, PASSAGE),
}


@pytest.mark.parametrize("kind", serving_samples.MARKED_KINDS)
def test_each_kind_of_model(tmp_path, chromium, kind):
    check, values = KINDS[kind]
    serving_samples.trained_in(tmp_path, kind)
    model = served_model.load(str(tmp_path))
    with serving(model) as (address, _), Visit(chromium, address, NARROW) as visit:
        reply = visit.ask(**values)
        sent = json.loads(visit.page.evaluate("body()"))
        check(visit, reply, sent)
        assert json.loads(visit.text("#reply")) == reply
        assert visit.fits() and not visit.problems
        assert visit.page.title() == "model · ALBERT"
        assert all(url.startswith(address) for url in visit.fetched)
        if shutil.which("curl"):
            visit.page.get_by_text("The same request in a terminal").click()
            command = visit.page.get_by_label("Command for curl").text_content()
            done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=60)
            assert json.loads(done.stdout) == reply, command


def test_entities_and_pairs(chromium):
    """Parts of only some models: words in entities; a second text."""

    class Entities(EchoModel):
        def answer(self, examples):
            return [
                {
                    "words": (words := example["words"]),
                    "labels": ["B-PER", "I-PER", *["O"] * (len(words) - 2)],
                    "probabilities": [0.5] * len(words),
                    "entities": [{"type": "PER", "start": 0, "end": 2, "text": "x"}],
                }
                for example in examples
            ]

    model = Entities(form=requests.WORDS, kind="token_classifier")
    with serving(model) as (address, _), Visit(chromium, address) as visit:
        visit.ask(Text="Ann <b>Lee</b> sings")
        assert visit.texts("#answer mark") == ["Ann <b>Lee</b> PER"]
        assert visit.text("#answer .words").split() == ["Ann", "<b>Lee</b>", "PER", "sings"]
    pair = EchoModel(form=requests.TWO_TEXTS)
    with serving(pair) as (address, _), Visit(chromium, address) as visit:
        assert visit.ask(Text="one", Second_text="two") == {"prediction": "one"}
        assert json.loads(visit.page.evaluate("body()")) == {"text": "one", "text_pair": "two"}


@pytest.mark.parametrize("count", [1, 2])
def test_masked_words(chromium, count):
    answers = [
        {"word": "<b>x", "piece": "<b>x", "probability": 0.75, "text": "It is <b>x."},
        {"word": "fine", "piece": "fine", "probability": 0.125, "text": "It is fine."},
    ]

    class Words(EchoModel):
        def answer(self, examples):
            return [{"masks": [answers[: one["num_answers"]]] * count} for one in examples]

    model = Words(form=requests.MASKED, kind="masked_words", labels=())
    with serving(model) as (address, _), Visit(chromium, address, NARROW) as visit:
        visit.send.wait_for()
        assert json.loads(visit.page.evaluate("body()")) == {
            "text": "The capital of France is [MASK].", "num_answers": 5,
        }  # fmt: skip
        visit.ask()
        assert visit.texts("#answer .verdict") == ["<b>x — 75% sure"] * count
        assert visit.page.get_by_text("It is <b>x.", exact=True).count() == count
        for name in ["[MASK]"] if count == 1 else ["[MASK] 1", "[MASK] 2"]:
            assert visit.table(name) == [["<b>x", "75.0%"], ["fine", "12.5%"]]
        assert visit.texts("#answer tr.best th") == ["<b>x"] * count
        assert visit.fits() and not visit.problems


def test_one_of_several_models_is_chosen(chromium):
    names = ("first", "other")
    with serving(model_names=names) as (address, server), Visit(chromium, address) as visit:
        visit.page.get_by_text("The model is loading").wait_for()
        server.start(EchoModel(), "first")
        assert visit.ask(Text="a") == {"prediction": "a"}
        chooser = visit.page.get_by_role("combobox", name="Model")
        assert visit.texts("#model option") == ["first", "other"]
        chooser.select_option("other")
        visit.page.get_by_text("The model is loading").wait_for()
        assert not visit.page.locator("#result").is_visible()
        server.start(EchoModel(form=requests.TWO_TEXTS), "other")
        assert visit.ask(Text="b", Second_text="c") == {"prediction": "b"}
        assert chooser.input_value() == "other" and "/models/other/predict" in visit.text("#curl")
        assert not visit.problems


def test_by_keyboard_alone(chromium):
    with serving(EchoModel()) as (address, _), Visit(chromium, address) as visit:
        page = visit.page
        visit.send.wait_for()
        focused = "document.activeElement.id || document.activeElement.textContent"

        def tab_until(*ends):
            found = []
            while not found or found[-1] not in (*ends, "BODY"):
                page.keyboard.press("Tab")
                found.append(page.evaluate(focused))
            return found

        assert tab_until("one") == ["one"]
        page.keyboard.press("Tab")
        page.keyboard.press("Control+A")
        page.keyboard.type("some words")
        page.keyboard.press("Control+Enter")
        page.get_by_role("heading", name="Last answers").wait_for()
        assert visit.text("#answer .verdict") == "some words"
        summary = "The same request in a terminal"
        assert tab_until(summary) == ["send", "Reply of the server", "some words", summary]
        assert page.evaluate("getComputedStyle(document.activeElement).outlineWidth") == "3px"
        page.keyboard.press("Enter")
        assert tab_until("copy") == ["curl", "copy"]
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.keyboard.press("Enter")
        page.get_by_text("Copied").wait_for()
        assert page.evaluate("navigator.clipboard.readText()") == visit.text("#curl")


class Labels(EchoModel):
    """Chooses the label "ask" by the length of the text; refuses some texts."""

    def answer(self, examples):
        found = super().answer(examples)
        for reply in found:
            share = min(len(reply["prediction"]) / 100, 1.0)
            reply["prediction"] = "ask" if share > 0.5 else "0"
            reply["probabilities"] = {"ask": share, "0": 1 - share}
        return found


LABELS = Labels(labels=("ask", "0"))
LONG, SHORT = 'Where, is my "parcel"? ' * 4, "Thank you"
OWN = ({"text": LONG.strip()}, {"text": SHORT})


def test_examples_and_last_answers(chromium):
    """Examples of the model fill the form; earlier answers come back."""
    form = dataclasses.replace(requests.ONE_TEXT, own_examples=OWN)
    model = Labels(labels=("ask", "0"), form=form)
    with serving(model) as (address, _), Visit(chromium, address) as visit:
        button = visit.page.get_by_role
        field = visit.page.get_by_label("Text", exact=True)
        visit.ask()
        assert field.input_value() == OWN[0]["text"]
        assert visit.text("#answer .verdict") == "ask — 91% sure"
        button("list", name="Dev examples of the model").get_by_text(SHORT).click()
        assert field.input_value() == SHORT and SHORT in visit.text("#curl")
        visit.send.click()
        visit.page.get_by_text("label 0 — 91% sure").first.wait_for()
        entries = button("list", name="Last answers").get_by_role("listitem")
        expected = [f"{SHORT}label 0 — 91% sure", f"{OWN[0]['text']}ask — 91% sure"]
        assert entries.all_text_contents() == expected
        entries.nth(1).get_by_role("button").click()
        assert field.input_value() == OWN[0]["text"]
        assert visit.text("#answer .verdict") == "ask — 91% sure"
        assert entries.count() == 2 and not visit.problems


def test_many_lines_become_a_table_and_a_file(chromium):
    lines = [LONG, "", *[SHORT] * 20, "refused", "=1"]
    with serving(LABELS) as (address, _), Visit(chromium, address, NARROW) as visit:
        visit.send.wait_for()
        visit.fill_lines("\n".join(lines))
        counts = "22 of 23 answered: label 0 21, ask 1; 1 refused."
        visit.page.get_by_text(counts).wait_for()
        rows = visit.table("Answers")
        assert rows[0] == ["1", LONG, "ask", "92%"] and len(rows) == 23
        assert rows[21] == ["23", "refused", "Error: text: the model refuses it", ""]
        assert visit.fits() and not any("CSP" in problem for problem in visit.problems)
        with visit.page.expect_download() as got:
            visit.page.get_by_role("button", name="Download as CSV").click()
        assert got.value.suggested_filename == "answers.csv"
        with open(got.value.path(), encoding="utf-8", newline="") as file:
            found = list(csv.DictReader(file))
        assert [(int(row["line"]), row["text"]) for row in found] == [
            (number, line) for number, line in enumerate(lines, 1) if line
        ]
        assert found[0]["answer"] == "ask" and float(found[0]["probability_ask"]) == 0.92
        assert found[1]["answer"] == "0" and found[21]["error"] == "text: the model refuses it"


FILES = {
    "a.csv": 'id,topic,text\r\n1,x,"Where, is\nmy ""parcel""?"\r\n2,y,bare\r\n',
    "b.csv": 'id,text\n1,"Where, is my ""parcel""?"\n2,"bare',
    "a.tsv": 'id\ttext\n1\tWhere, is my "parcel"?\r\n2\t"bare\n',
    "a.jsonl": '{"text": "Where, is\\nmy \\"parcel\\"?"}\n\n{"text": "bare"}\n',
    "a.txt": 'Where, is my "parcel"?\nbare\n',
}


BROKEN = {
    "b.jsonl": ('{"text": "a"}\n{', "line 2 is not a JSON object"),
    "c.jsonl": ("[1]", "line 1 is not a JSON object"),
    "d.jsonl": (
        '{"text": "a"}\n{"text": {"x": 1}}',
        'row 2: expected a text, found {"x":1};',
    ),
    "e.jsonl": ('{"text": ["a"]}', 'row 1: expected a text, found ["a"]'),
    "a.ndjson": ('{"text": "a"}', "its name must end in .txt, .csv, .tsv or .jsonl"),
    "c.csv": (
        "id,text\n1,a, b\n",
        "row 2 has 3 cells, the first has 2; texts with commas need quotes",
    ),
    "b.tsv": ("id\ttext\n1\ta\n\n2\n", "row 4 has 1 cells, the first has 2"),
    "d.csv": ("", "it has no rows"),
    "e.csv": (
        'text,id\n"a\rb",1\nfoo\rbar,1\n',
        "line 3 has a carriage return outside of quotation marks",
    ),
}


def give_file(visit, name, content):
    file = {"name": name, "mimeType": "text/plain", "buffer": content.encode()}
    visit.page.get_by_label("Or a file").set_input_files(file)


def test_files_become_lines(chromium):
    with serving(LABELS) as (address, _), Visit(chromium, address) as visit:
        visit.send.wait_for()
        visit.page.get_by_label("Many at once").check()
        lines = visit.page.get_by_role("textbox", name="One text per line")
        for name, content in FILES.items():
            give_file(visit, name, content)
            quote = '"' if name in ("b.csv", "a.tsv") else ""  # not closed: a plain character
            expected = f'Where, is my "parcel"?\n{quote}bare'
            visit.page.wait_for_function(
                "text => document.querySelector('#lines').value.trim() === text", arg=expected
            )
            lines.fill("")
        for name, (content, message) in BROKEN.items():
            give_file(visit, name, content)
            visit.page.get_by_role("alert").get_by_text(f"{name}: {message}").wait_for()
            assert lines.input_value() == ""
        give_file(visit, "a.csv", FILES["a.csv"])
        visit.page.get_by_label("Column of the text").select_option("topic")
        assert lines.input_value() == "x\ny"


def test_rows_without_text_keep_the_numbers_of_the_others(chromium):
    files = {
        "a.csv": "id,text\n1,\n2,two\n\n3,three\n",
        "a.tsv": "text\tid\n\t1\ntwo\t2\n\nthree\t\n",
        "a.jsonl": '{"id": 1}\n{"id": 2, "text": "two"}\n\n{"text": "three"}\n',
    }
    with serving(LABELS) as (address, _):
        for name, content in files.items():
            with Visit(chromium, address) as visit:
                visit.send.wait_for()
                visit.page.get_by_label("Many at once").check()
                give_file(visit, name, content)
                visit.page.wait_for_function("document.querySelector('#lines').value.trim()")
                visit.send.click()
                visit.page.get_by_text("2 of 2 answered").wait_for()
                rows = [row[:2] for row in visit.table("Answers")]
                assert rows == [["2", "two"], ["3", "three"]]


def test_options_are_one_list_or_the_last_columns(chromium):
    rows = [
        ["It rained.", "We stayed _ .", "inside", "at home"],
        ["It\train\ned.", "Why?", "a", "b"],
    ]
    objects = [
        {"options": [*row[2:], "c\td"], "question": row[1], "id": "x", "article": row[0]}
        for row in rows
    ]
    head, padded = ["article", "question", "options", "B", "C"], [[*row, ""] for row in rows]
    files = {
        "a.csv": "\n".join('"' + '","'.join(row) + '"' for row in [head, *padded]),
        "a.jsonl": "\n".join(map(json.dumps, objects)),
    }
    model = EchoModel(form=requests.CHOICE)
    with serving(model) as (address, _), Visit(chromium, address) as visit:
        visit.send.wait_for()
        visit.page.get_by_label("Many at once").check()
        lines = visit.page.get_by_role("textbox", name="One question per line")
        for name, content in files.items():
            give_file(visit, name, content)
            visit.page.wait_for_function("document.querySelector('#lines').value.trim()")
            expected = [["It rained.", *rows[0][1:]], ["It rain ed.", *rows[1][1:]]]
            if name == "a.jsonl":
                expected = [[*row, "c d"] for row in expected]
            assert lines.input_value() == "\n".join(map("\t".join, expected))
            lines.fill("")


class Asked(EchoModel):
    """Answers with the question's first word, found in the text."""

    def answer(self, examples):
        found = []
        for example in examples:
            word = example["question"].split()[0]
            start = example["context"].find(word)
            answer = {"text": word, "probability": 0.75, "start": start, "end": start + len(word)}
            is_there = start >= 0
            found.append(
                {"answer": word if is_there else "", "answers": [answer] if is_there else []}
            )
        return found


def test_many_questions_about_a_text(chromium):
    model = Asked(form=requests.QUESTION, kind="squad_v2", labels=())
    with serving(model) as (address, _), Visit(chromium, address) as visit:
        visit.send.wait_for()
        visit.fill_lines("Ann wrote?\nBen wrote?\nBen wrote?\tBen did.")
        visit.page.get_by_text("3 of 3 answered.").wait_for()
        no_answer = "The text does not answer the question"
        assert visit.table("Answers") == [
            ["1", "Ann wrote?", "Ann", "75%"],
            ["2", "Ben wrote?", no_answer, ""],
            ["3", "Ben wrote?", "Ben", "75%"],
        ]
        assert not visit.problems


def test_thresholds_of_several_labels(chromium):
    class Members(EchoModel):
        def answer(self, examples):
            reply = {
                "prediction": ["urgent", "ask"],
                "probabilities": {"ask": 0.25, "<b>thanks": 0.5, "urgent": 0.9},
                "thresholds": {"ask": 0.2, "<b>thanks": 0.6, "urgent": 0.5},
            }
            return [
                reply if len(one["text"]) > 3 else reply | {"prediction": []} for one in examples
            ]

    model = Members(kind="multi_label_classifier", labels=("ask", "<b>thanks", "urgent"))
    with serving(model) as (address, _), Visit(chromium, address, NARROW) as visit:
        visit.ask(Text="Where is it? Now!")
        assert visit.text("#answer .verdict") == "urgent (90%), ask (25%)"
        assert visit.table("Probabilities") == [
            ["urgent", "90.0%", "✓ needs 50.0%"],
            ["<b>thanks", "50.0%", "needs 60.0%"],
            ["ask", "25.0%", "✓ needs 20.0%"],
        ]
        place = "[...document.querySelectorAll('.needed')].map(mark => mark.style.left)"
        assert visit.page.evaluate(place) == ["50%", "60%", "20%"]
        assert visit.fits() and not visit.problems
        visit.ask(Text="a")
        visit.page.get_by_role("heading", name="Last answers").wait_for()
        visit.page.locator("#answer").get_by_text("No label").wait_for()


def test_a_model_that_abstains_says_why(chromium):
    class Careful(EchoModel):
        def abstention(self):
            return {"min_probability": 0.8, "max_error": 0.05, "coverage": 0.6}

        def answer(self, examples):
            share = {"a": 0.7, "b": 0.3}
            return [{"prediction": "abstains", "probabilities": share} for _ in examples]

    with serving(Careful()) as (address, _), Visit(chromium, address) as visit:
        visit.ask(Text="a")
        assert visit.text("#answer .verdict") == "No answer: a is 70.0% sure, which needs 80.0%"
        visit.page.get_by_text("Abstains if it is less than 80.0% sure.").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colors_have_contrast(chromium, scheme):
    form = dataclasses.replace(requests.ONE_TEXT, own_examples=OWN)
    model = Labels(labels=("ask", "0"), form=form)
    with serving(model) as (address, _), Visit(chromium, address, scheme=scheme) as visit:
        visit.ask()
        visit.page.get_by_text("The same request in a terminal").click()
        assert not browser.low_contrasts(visit.page)
        visit.ask(Text="refused")
        visit.fill_lines("a\nb")
        visit.page.get_by_text("2 of 2 answered").wait_for()
        assert not browser.low_contrasts(visit.page)
        background = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(255, 255, 255)") == (scheme == "light")


@pytest.mark.parametrize(
    ("form", "reply", "hint"),
    [
        (requests.ONE_TEXT, {"prediction": "a"}, "The texts were longer than the model's input"),
        (requests.QUESTION, {"answer": "", "answers": []}, "The question was longer than the"),
    ],
)
def test_what_was_cut_is_named(chromium, form, reply, hint):
    class Short(EchoModel):
        def answer(self, examples):
            return [reply | {"truncated": True} for _ in examples]

    with serving(Short(form=form, labels=())) as (address, _), Visit(chromium, address) as visit:
        visit.ask()
        visit.page.locator("#answer .hint").get_by_text(hint).wait_for()


def test_options_are_added_and_removed(chromium):
    model = EchoModel(form=requests.CHOICE)
    with serving(model) as (address, _), Visit(chromium, address) as visit:
        button = visit.page.get_by_role
        for _ in range(2):
            button("button", name="Remove the last").click()
        button("button", name="Remove the last", disabled=True).wait_for()
        button("button", name="Add an option").click()
        visit.page.keyboard.type("third")  # the new field has the focus
        assert json.loads(visit.page.evaluate("body()"))["options"][2:] == ["third"]
        assert '"third"]' in visit.text("#curl")


def test_before_the_model_is_there_and_after_the_end(chromium):
    with serving() as (address, server), Visit(chromium, address) as visit:
        visit.page.get_by_text("The model is loading").wait_for()
        assert not visit.send.is_visible()
        server.start(EchoModel())
        assert visit.ask(Text="refused") == {"error": "text: the model refuses it"}
        assert visit.text("#problem") == "text: the model refuses it"
        assert visit.ask(Text="good") == {"prediction": "good"}
        assert not visit.page.locator("#problem").is_visible()
        server.refuse_new()
        visit.send.click()
        visit.page.get_by_text("the server is stopping").wait_for()
    with serving(EchoModel()) as (address, _):
        visit = Visit(chromium, address)
        visit.send.wait_for()
    with visit:
        visit.send.click()
        visit.page.get_by_text("The server does not answer.").wait_for()


INTRUDERS = {
    "html": "document.getElementById('about').innerHTML = '<b>x</b>'",
    "script": "document.createElement('script').text = 'hacked=1'",
    "address": "document.createElement('script').src = 'data:text/javascript,hacked=1'",
    "handler": "document.body.setAttribute('onclick', 'hacked=1'), document.body.click()",
    "eval": "setTimeout('hacked=1')",
}


def test_no_other_script_runs(chromium):
    """Texts stay texts, and what got into the page all the same would not run."""
    with serving(EchoModel()) as (address, _), Visit(chromium, address) as visit:
        text = "<img src=x onerror=hacked=1><script>hacked=1</script>"
        assert visit.ask(Text=text) == {"prediction": text}
        assert visit.text("#answer .verdict") == text
        assert visit.page.locator("#answer img, #answer script").count() == 0
        assert not visit.problems
        for name, program in INTRUDERS.items():
            refused = visit.page.evaluate(
                f"() => {{ try {{ {program}; }} catch (e) {{ return e.name; }} }}"
            )
            assert refused == "TypeError", name
        for reach in ("fetch('http://localhost:9/')", "fetch('https://pages.example/')"):
            assert visit.page.evaluate(f"{reach}.then(() => '', e => e.name)") == "TypeError"
        assert any("Content Security Policy" in problem for problem in visit.problems)
        visit.page.wait_for_timeout(100)
        assert visit.page.evaluate("typeof hacked") == "undefined"


ATTACK = """
<iframe src="{0}"></iframe>
<script>
const send = (path, body) => fetch("{0}" + path, {{method: "POST", mode: "no-cors", body}});
Promise.allSettled([
  send("predict", '{{"text": "stolen"}}'),
  send("v1/models/model:predict", '{{"inputs": ["stolen"]}}'),
  fetch("{0}v1/models").then(r => r.json()),
]).then(found => {{ document.title = "done " + found[2].status; }});
</script>
"""


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_a_page_of_another_site_changes_nothing(chromium, name):
    """Another port is another origin; another name is another site."""
    asked, lock = [], threading.Lock()

    class Counting(EchoModel):
        def answer(self, examples):
            with lock:
                asked.extend(examples)
            return super().answer(examples)

    with serving(Counting()) as (address, _):

        @contextlib.asynccontextmanager
        async def listening():
            app = web.Application()

            async def attack(_):
                return web.Response(text=ATTACK.format(address), content_type="text/html")

            app.router.add_get("/", attack)
            runner = web.AppRunner(app)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            try:
                yield runner.addresses[0][1]
            finally:
                await runner.cleanup()

        with (
            browser.in_thread(listening) as other,
            Visit(chromium, other.replace("127.0.0.1", name)) as visit,
        ):
            visit.page.wait_for_function("document.title.startsWith('done')")
            assert visit.page.title() == "done rejected"
            assert not any(frame.locator("#form").count() for frame in visit.page.frames)
        assert not asked
        with Visit(chromium, address) as visit:
            visit.ask(Text="own")
        assert asked == [{"text": "own"}]
