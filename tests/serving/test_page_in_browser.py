"""The page to try a model in a real browser: every kind of model, keyboard, width, security."""

import contextlib
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

    def __init__(self, chromium, address, width=WIDE):
        self.page = chromium.new_page(viewport={"width": width, "height": 800})
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

    def ask(self, **values):
        """Fills fields by their labels and asks; returns the reply."""
        self.page.locator("#send").wait_for()
        for label, value in values.items():
            self.page.get_by_label(label.replace("_", " "), exact=False).first.fill(value)
        with self.page.expect_response(lambda response: response.request.method == "POST") as got:
            self.page.locator("#send").click()
        self.page.locator("#result:visible, #problem:visible").first.wait_for()
        return got.value.json()

    def fits(self):
        return self.page.evaluate(
            "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        )


def shares(rows):
    return [f"{100 * share:.1f} %" for share in rows]


def check_labels(visit, reply, sent):
    best = max(reply["probabilities"], key=reply["probabilities"].get)
    assert visit.text("#answer .verdict") == best == reply["prediction"]
    rows = sorted(reply["probabilities"].items(), key=lambda row: -row[1])
    assert visit.texts("#answer th") == [name for name, _ in rows]
    assert visit.texts("#answer td.number") == shares(share for _, share in rows)


def check_number(visit, reply, sent):
    assert float(visit.text("#answer .verdict")) == reply["prediction"]


def check_choice(visit, reply, sent):
    named = [f"{'ABCD'[i]}: {option}" for i, option in enumerate(sent["options"])]
    assert visit.text("#answer .verdict") == f"{reply['prediction']}: {reply['answer']}"
    assert visit.texts("#answer th") == named
    assert visit.texts("#answer td.number") == shares(reply["probabilities"].values())
    assert visit.texts("#answer tr.best th") == [visit.text("#answer .verdict")]


def check_words(visit, reply, sent):
    words = sent["text"].split()
    assert reply["words"] == words
    marks = visit.texts("#answer mark")
    assert marks == [f"{w} {label}" for w, label in zip(words, reply["labels"], strict=True)]


def check_answer(visit, reply, sent):
    best, *others = reply["answers"]
    if reply["answer"]:
        assert visit.text("#answer .verdict") == best["text"] == visit.text("#answer mark")
        before = visit.page.evaluate("document.querySelector('mark').previousSibling.data.length")
        units = len(sent["context"][: best["start"]].encode("utf-16-le")) // 2
        assert before == units > best["start"]  # there is an emoji before
        assert visit.text("#answer .passage") == sent["context"]
    else:
        assert "does not answer" in visit.text("#answer .verdict")
        others = reply["answers"]
    assert visit.texts("#answer table[aria-label='Other answers'] th") == [
        a["text"] for a in others
    ]
    found = visit.texts("#answer table[aria-label='Other answers'] td.number")
    assert found == shares(a["probability"] for a in others)
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
        assert all(url.startswith(address) for url in visit.fetched)
        if shutil.which("curl"):
            command = visit.text("#curl")
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


def test_several_labels_of_a_text_and_their_thresholds(chromium):
    reply = {
        "prediction": ["<b>price", "food"],
        "probabilities": {"service": 0.25, "<b>price": 0.5, "food": 0.125},
        "thresholds": {"service": 0.5, "<b>price": 0.375, "food": 0.0625},
    }

    class Sets(EchoModel):
        def answer(self, examples):
            return [reply for _ in examples]

    model = Sets(kind="multi_label_classifier")
    with serving(model) as (address, _), Visit(chromium, address, NARROW) as visit:
        visit.ask(Text="one")
        assert visit.text("#answer .verdict") == "<b>price, food"
        assert visit.texts("#answer th") == ["<b>price", "service", "food"]
        assert visit.texts("#answer tr.best th") == ["<b>price", "food"]
        assert visit.texts("#answer td.number") == [
            "50.0 %", "needs 37.5 %", "25.0 %", "needs 50.0 %", "12.5 %", "needs 6.3 %"
        ]  # fmt: skip
        bars = visit.page.locator("#answer meter").evaluate_all("all => all.map(x => x.value)")
        assert bars == [0.5, 0.25, 0.125]
        assert visit.fits() and not visit.problems


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
        visit.page.locator("#send").wait_for()
        assert json.loads(visit.page.evaluate("body()")) == {
            "text": "The capital of France is [MASK].", "num_answers": 5,
        }  # fmt: skip
        visit.ask()
        assert visit.texts("#answer .verdict") == ["It is <b>x."] * count
        assert visit.texts("#answer th") == ["<b>x", "fine"] * count
        assert visit.texts("#answer td.number") == ["75.0 %", "12.5 %"] * count
        assert visit.texts("#answer tr.best th") == ["<b>x"] * count
        named = ["[MASK]"] if count == 1 else ["[MASK] 1", "[MASK] 2"]
        assert visit.texts("#answer h3") == named
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
        page.locator("#send").wait_for()
        focused = "document.activeElement.id || document.activeElement.tagName"
        page.keyboard.press("Tab")
        assert page.evaluate(focused) == "TEXTAREA"
        page.keyboard.press("Control+A")
        page.keyboard.type("some words")
        page.keyboard.press("Control+Enter")
        page.locator("#result").wait_for()
        assert visit.text("#answer .verdict") == "some words"
        found = []
        while not found or found[-1] not in ("copy", "BODY"):
            page.keyboard.press("Tab")
            found.append(page.evaluate(focused))
        assert found == ["send", "SUMMARY", "curl", "copy"]
        assert page.evaluate("getComputedStyle(document.activeElement).outlineWidth") == "3px"
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.keyboard.press("Enter")
        page.get_by_text("Copied").wait_for()
        assert page.evaluate("navigator.clipboard.readText()") == visit.text("#curl")


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
        assert not visit.page.locator("#send").is_visible()
        server.start(EchoModel())
        assert visit.ask(Text="refused") == {"error": "text: the model refuses it"}
        assert visit.text("#problem") == "text: the model refuses it"
        assert visit.ask(Text="good") == {"prediction": "good"}
        assert not visit.page.locator("#problem").is_visible()
        server.refuse_new()
        visit.page.locator("#send").click()
        visit.page.get_by_text("the server is stopping").wait_for()
    with serving(EchoModel()) as (address, _):
        visit = Visit(chromium, address)
        visit.page.locator("#send").wait_for()
    with visit:
        visit.page.locator("#send").click()
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
