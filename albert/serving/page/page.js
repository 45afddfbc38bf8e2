"use strict";
// Asks a served model: builds the form of its kind, sends the request, shows the reply. What users
// type and what the server sends becomes text of nodes and values of fields, never HTML.

const RETRY = 1000; // milliseconds until a server that is not ready is asked again
const MAX_OPTIONS = 26, MAX_SHOWN_WORDS = 5000;
const at = id => document.getElementById(id);
let models = [], timer = 0;

// --- nodes ---------------------------------------------------------------------------------------

/** Makes an element with properties and children; texts become text nodes. */
function make(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

function show(node, isShown) {
  node.hidden = !isShown;
}

function say(problem) {
  at("problem").textContent = problem;
  show(at("problem"), Boolean(problem));
}

// --- the form ------------------------------------------------------------------------------------

/** A field of several lines, or of one. Its `value` is what the request holds. */
function textField(label, value, rows) {
  const input = rows ? make("textarea", {value, rows}) : make("input", {value});
  input.required = true;
  return {node: make("label", {}, make("span", {}, label), input), read: () => input.value};
}

function countField() {
  const input = make("input", {type: "number", min: 1, max: 20, value: 5, required: true});
  const label = make("span", {}, "Answers to show, at most");
  return {node: make("label", {}, label, input), read: () => input.valueAsNumber};
}

/** Texts of which the model chooses one; two at least. */
function optionsField(texts) {
  const list = make("div"), inputs = () => [...list.querySelectorAll("input")];
  const more = make("button", {type: "button"}, "Add an option");
  const less = make("button", {type: "button"}, "Remove the last");
  const change = () => {
    more.disabled = inputs().length >= MAX_OPTIONS;
    less.disabled = inputs().length <= 2;
    update();
  };
  const add = value => {
    const letter = String.fromCharCode(65 + inputs().length);
    const input = make("input", {value, required: true, ariaLabel: `Option ${letter}`});
    list.append(make("label", {}, make("span", {}, letter), input));
    return input;
  };
  more.onclick = () => { add("").focus(); change(); };
  less.onclick = () => { list.lastElementChild.remove(); change(); };
  texts.forEach(add);
  const buttons = make("p", {className: "row"}, more, less);
  const node = make("fieldset", {}, make("legend", {}, "Options"), list, buttons);
  return {node, read: () => inputs().map(input => input.value)};
}

// Name of a field of the server: the name in requests and the field, filled with an example.
const FIELDS = {
  text: ["text", schema =>
    textField("Text", schema.examples?.[0] ?? "A charming journey with a splendid soup.", 4)],
  text_pair: ["text_pair", () => textField("Second text", "The soup was good.", 3)],
  // As a text, which the server splits.
  words: ["text", () => textField("Text, with a space between words",
    "John Smith moved from Boston to New York .", 4)],
  article: ["article", () => textField("Article",
    "It rained the whole day. We stayed inside and played chess.", 8)],
  question: ["question", () => textField("Question", "What did they do on that day?")],
  options: ["options", () => optionsField(
    ["They played chess.", "They went swimming.", "They slept.", "They wrote letters."])],
  context: ["context", () => textField("Text with the answer",
    "On that day it rained in Lisbon. Ann and Ben stayed inside and played chess until six.", 8)],
  num_answers: ["num_answers", countField],
};
let fields = {}; // of the chosen model, by their names in requests

function chosen() {
  return models[at("model").selectedIndex];
}

function buildForm() {
  const model = chosen(), isReady = model.state === "ready";
  fields = {};
  for (const [name, schema] of isReady ? Object.entries(model.example.properties) : []) {
    if (name in FIELDS) {
      const [key, build] = FIELDS[name];
      fields[key] = build(schema);
    }
  }
  at("fields").replaceChildren(...Object.values(fields).map(field => field.node));
  at("about").textContent = isReady ? `${model.name}, a model of kind ${model.kind}` : model.name;
  at("status").textContent = isReady ? "" : `The model is ${model.state} …`;
  for (const id of ["sending", "request"]) show(at(id), isReady);
  show(at("result"), false);
  say("");
  if (isReady) update();
  else startLater();
}

// --- the request ---------------------------------------------------------------------------------

function addressOf(model) {
  return new URL(model.path.replace(/^\//, ""), document.baseURI);
}

function body() {
  const values = Object.entries(fields).map(([key, field]) => [key, field.read()]);
  return JSON.stringify(Object.fromEntries(values));
}

/** Writes the command: nothing in it but visible characters, in quotes of the shell. */
function update() {
  const hidden = /[\p{C}\p{Zl}\p{Zp}]/gu;
  const code = unit => "\\u" + unit.charCodeAt(0).toString(16).padStart(4, "0");
  const visible = body().replace(hidden, found => found.split("").map(code).join(""));
  const quoted = text => "'" + text.replaceAll("'", "'\\''") + "'";
  at("curl").textContent = `curl ${quoted(String(addressOf(chosen())))} -d ${quoted(visible)}`;
  at("copied").textContent = "";
}

async function ask() {
  const model = chosen(), sent = body();
  say("");
  at("send").disabled = true;
  at("status").textContent = "Waiting for the answer …";
  try {
    const response = await fetch(addressOf(model), {method: "POST", body: sent});
    const text = await response.text();
    let reply;
    try { reply = JSON.parse(text); } catch { reply = {}; }
    if (!response.ok) throw new Error(reply.error || `the server replied ${response.status}`);
    if (chosen() === model) showReply(reply, JSON.parse(sent));
  } catch (error) {
    show(at("result"), false);
    say(error instanceof TypeError ? "The server does not answer." : String(error.message));
  } finally {
    at("status").textContent = "";
    at("send").disabled = false;
  }
}

async function copy() {
  const command = at("curl");
  let isCopied = true;
  try {
    await navigator.clipboard.writeText(command.textContent);
  } catch { // Only pages of this machine or with encryption may do that.
    getSelection().selectAllChildren(command);
    isCopied = document.execCommand("copy");
  }
  at("copied").textContent = isCopied ? "Copied" : "Selected: copy it with Ctrl+C";
}

// --- the reply -----------------------------------------------------------------------------------

const percent = share => `${(100 * share).toFixed(1)} %`;

/** A table of texts with their probabilities; rows are [text, probability, is chosen, threshold],
    whose last is undefined for a choice of one. */
function table(rows, caption) {
  const body = make("tbody");
  for (const [text, share, isBest, threshold] of rows) {
    const meter = make("meter", {min: 0, max: 1, value: share, ariaLabel: percent(share)});
    const row = make("tr", {className: isBest ? "best" : ""}, make("th", {scope: "row"}, text),
      make("td", {className: "bar"}, meter), make("td", {className: "number"}, percent(share)));
    if (threshold !== undefined) {
      row.append(make("td", {className: "number"}, `needs ${percent(threshold)}`));
    }
    body.append(row);
  }
  return make("table", {ariaLabel: caption}, body);
}

const verdict = text => make("p", {className: "verdict"}, text);

/** Several labels of a text, each with its threshold. */
function memberNodes(reply) {
  const rows = Object.entries(reply.probabilities).map(([name, share]) =>
    [name, share, reply.prediction.includes(name), reply.thresholds[name]]);
  rows.sort((a, b) => b[1] - a[1]);
  return [verdict(reply.prediction.join(", ") || "no label"), table(rows, "Probabilities")];
}

function labelNodes(reply, request) {
  const options = request.options || [];
  const named = (name, number) => options.length ? `${name}: ${options[number]}` : name;
  const rows = Object.entries(reply.probabilities).map(
    ([name, share], number) => [named(name, number), share, name === reply.prediction]);
  if (!options.length) rows.sort((a, b) => b[1] - a[1]);
  const best = options.length ? `${reply.prediction}: ${reply.answer}` : reply.prediction;
  return [verdict(best), table(rows, "Probabilities")];
}

/** Words with their labels: each entity is one mark, or else each word that has a label. */
function wordNodes(reply) {
  const spans = reply.entities ||
    reply.labels.map((type, start) => ({type, start, end: start + 1})).filter(s => s.type !== "O");
  const begins = new Map(spans.map(span => [span.start, span]));
  const passage = make("p", {className: "words"});
  const shown = Math.min(reply.words.length, MAX_SHOWN_WORDS);
  for (let i = 0; i < shown;) {
    const span = begins.get(i), end = span ? span.end : i + 1;
    const text = reply.words.slice(i, end).join(" ");
    if (span) {
      const label = make("small", {}, span.type);
      const title = reply.labels.slice(i, end).map(
        (name, k) => `${reply.words[i + k]}: ${name} ${percent(reply.probabilities[i + k])}`);
      passage.append(make("mark", {title: title.join("\n")}, text, " ", label), " ");
    } else {
      passage.append(text + " ");
    }
    i = end;
  }
  if (shown < reply.words.length) passage.append("…");
  const found = spans.length ? [] : [verdict("No word has a label.")];
  return [...found, passage];
}

/** The text with the answer marked, and the other answers. Positions count code points. */
function answerNodes(reply, request) {
  const [best, ...others] = reply.answers, isAnswered = Boolean(best && reply.answer);
  const letters = Array.from(request.context), nodes = [];
  const row = answer => [answer.text, answer.probability, false];
  if (isAnswered) {
    const part = (start, end) => letters.slice(start, end).join("");
    const marked = make("mark", {}, part(best.start, best.end));
    const passage = make("p", {className: "passage", tabIndex: 0, ariaLabel: "Text"},
      part(0, best.start), marked, part(best.end));
    nodes.push(verdict(best.text), table([[best.text, best.probability, true]], "Best answer"),
      make("h3", {}, "In the text"), passage);
    setTimeout(() => { passage.scrollTop = marked.offsetTop - passage.offsetTop - 40; });
  } else {
    nodes.push(verdict("The text does not answer the question."));
  }
  if (reply.null_odds !== undefined) {
    nodes.push(make("p", {className: "hint"}, `Null odds, which speak against an ` +
      `answer: ${reply.null_odds.toFixed(3)}. Below ${reply.threshold.toFixed(3)} one is given.`));
  }
  const rows = (isAnswered ? others : reply.answers).map(row);
  if (rows.length) nodes.push(make("h3", {}, "Other answers"), table(rows, "Other answers"));
  return nodes;
}

/** The words in the place of each mask of a text. */
function maskNodes(reply) {
  return reply.masks.flatMap((answers, number) => {
    const name = reply.masks.length > 1 ? `[MASK] ${number + 1}` : "[MASK]";
    const rows = answers.map((answer, place) => [answer.word, answer.probability, place === 0]);
    return [make("h3", {}, name), verdict(answers[0].text), table(rows, name)];
  });
}

function nodesOf(reply, request) {
  if (Array.isArray(reply.masks)) return maskNodes(reply);
  if (Array.isArray(reply.answers)) return answerNodes(reply, request);
  if (Array.isArray(reply.words)) return wordNodes(reply);
  if (reply.thresholds) return memberNodes(reply);
  if (reply.probabilities) return labelNodes(reply, request);
  return reply.prediction === undefined ? [] : [verdict(String(reply.prediction))];
}

function showReply(reply, request) {
  at("answer").replaceChildren(...nodesOf(reply, request));
  at("reply").textContent = JSON.stringify(reply, null, 2);
  show(at("result"), true);
}

// --- start ---------------------------------------------------------------------------------------

function startLater() {
  clearTimeout(timer);
  timer = setTimeout(start, RETRY);
}

async function start() {
  try {
    const response = await fetch("v1/models", {cache: "no-store"});
    if (!response.ok) throw new Error(`the server replied ${response.status}`);
    const before = at("model").value;
    ({models} = await response.json());
    at("model").replaceChildren(...models.map(model => make("option", {}, model.name)));
    if (models.some(model => model.name === before)) at("model").value = before;
    show(at("choice"), models.length > 1);
    buildForm();
  } catch (error) {
    at("status").textContent = "The server does not answer; trying again …";
    startLater();
  }
}

at("form").addEventListener("submit", event => { event.preventDefault(); ask(); });
at("form").addEventListener("keydown", event => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) at("form").requestSubmit();
});
at("fields").addEventListener("input", update);
at("model").addEventListener("change", buildForm);
at("copy").addEventListener("click", copy);
start();
