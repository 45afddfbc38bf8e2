"use strict";
// Asks a served model: builds the form of its kind, sends requests, shows the replies. What users
// type and what the server sends becomes text of nodes and values of fields, never HTML.

const RETRY = 1000; // milliseconds until a server that is not ready is asked again
const BATCH = 16, MAX_BUSY = 20; // examples in a request; times that a busy server is asked again
const MAX_OPTIONS = 26, MAX_LABELS = 10, MAX_ENTRIES = 10, MAX_SHOWN_WORDS = 5000;
const MAX_SHOWN_ROWS = 500, MAX_SHOWN_CHARACTERS = 200, MAX_FILE_BYTES = 20e6;
const ABSTAINS = "abstains";
const at = id => document.getElementById(id);
let models = [], timer = 0;

// --- nodes and words -----------------------------------------------------------------------------

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

const percent = share => `${(100 * share).toFixed(1)}%`;

function sure(share) {
  const whole = Math.round(100 * share);
  if (share < 1 && whole === 100) return "more than 99%";
  return share > 0 && !whole ? "less than 1%" : `${whole}%`;
}

/** A label as a word: numbers alone would look like measurements. */
const named = label => /^[-+]?[\d.]+$/.test(label) ? `label ${label}` : label;

function shortened(text, length = MAX_SHOWN_CHARACTERS) {
  const letters = Array.from(text);
  return letters.length <= length ? text : letters.slice(0, length).join("") + "…";
}

// --- the form ------------------------------------------------------------------------------------

/** A field of several lines, or of one. `read` returns what the request holds. */
function textField(label, rows) {
  const input = rows ? make("textarea", {rows}) : make("input");
  input.required = true;
  const node = make("label", {}, make("span", {}, label), input);
  const write = value => { input.value = [value].flat().join(" "); };
  return {node, read: () => input.value, write};
}

function countField() {
  const input = make("input", {type: "number", min: 1, max: 20, value: 5, required: true});
  const label = make("span", {}, "Answers to show, at most");
  return {
    node: make("label", {}, label, input),
    read: () => input.valueAsNumber,
    write: value => { input.value = value; },
  };
}

/** Texts of which the model chooses one; two at least. */
function optionsField() {
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
  const buttons = make("p", {className: "row"}, more, less);
  const node = make("fieldset", {}, make("legend", {}, "Options"), list, buttons);
  const write = texts => { list.replaceChildren(); texts.forEach(add); change(); };
  return {node, read: () => inputs().map(input => input.value), write};
}

// Name of a field of the server: its name in requests, in words, and the field.
const FIELDS = {
  text: ["text", "text", () => textField("Text", 4)],
  text_pair: ["text_pair", "second text", () => textField("Second text", 3)],
  // As a text, which the server splits.
  words: ["text", "text", () => textField("Text, with a space between words", 4)],
  article: ["article", "article", () => textField("Article", 8)],
  question: ["question", "question", () => textField("Question")],
  options: ["options", "options", optionsField],
  context: ["context", "text with the answer", () => textField("Text with the answer", 8)],
  num_answers: ["num_answers", "", countField],
};
const SHARED = ["context", "num_answers"]; // by all lines of many examples that have no own
let fields = {}; // of the chosen model by name

function chosen() {
  return models[at("model").selectedIndex];
}

const isMany = () => at("several").checked;
const keyOf = name => FIELDS[name][0];

/** Fills the fields with an example, or with what was sent. */
function fill(values) {
  for (const [name, field] of Object.entries(fields)) {
    const value = values[name] ?? values[keyOf(name)];
    if (value !== undefined) field.write(value);
  }
  update();
}

/** What an example is about, in a line. */
function titleOf({question, text, words}) {
  return [question ?? text ?? words ?? ""].flat().join(" ");
}

/** What the model does, for its first line. */
function about(model) {
  const labels = model.labels || [];
  const types = new Set(labels.map(label => label.replace(/^[BI]-/, "")));
  types.delete("O");
  const list = names => shortened(names.map(named).join(", "), 400);
  const sentences = {
    classifier: labels.length
      ? `Chooses one of ${labels.length} labels: ${list(labels)}.` : "Answers with a number.",
    multi_label_classifier: `Finds which of ${labels.length} labels a text has: ${list(labels)}.`,
    token_classifier: `Marks words: ${list([...types])}.`,
    multiple_choice: "Chooses the answer to a question about an article.",
    squad_v1: "Finds the answer to a question in a text.",
    squad_v2: "Finds the answer to a question in a text, or that there is none.",
    masked_words: "Fills in words: write [MASK] in the place of each.",
  };
  const least = model.abstention && ` Abstains if it is less than ${percent(
    model.abstention.min_probability)} sure.`;
  return (sentences[model.kind] ?? `A model of kind ${model.kind}.`) + (least ?? "");
}

function buildForm() {
  const model = chosen(), isReady = model.state === "ready";
  const {properties = {}, examples = []} = isReady ? model.example : {};
  fields = {};
  for (const [name, schema] of Object.entries(properties)) {
    if (!(name in FIELDS)) continue;
    fields[name] = FIELDS[name][2]();
    if (name !== "num_answers") fields[name].write(schema.examples[0]);
  }
  at("fields").replaceChildren(...Object.values(fields).map(field => field.node));
  at("examples").lastElementChild.replaceChildren(...examples.map(example => {
    const text = titleOf(example);
    const button = make("button", {type: "button", title: shortened(text)}, text);
    button.onclick = () => fill(example);
    return make("li", {}, button);
  }));
  at("title").textContent = `Try ${model.name}`;
  document.title = `${model.name} · ALBERT`;
  at("about").textContent = isReady ? about(model) : "";
  at("status").textContent = isReady ? "" : `The model is ${model.state} …`;
  for (const id of ["sending", "modes"]) show(at(id), isReady);
  say("");
  if (examples.length) fill(examples[0]);
  setLines("", []);
  changeMode();
  if (!isReady) startLater();
}

/** Shows the fields of one example, or those of many. */
function changeMode() {
  const many = isMany(), isReady = Object.keys(fields).length > 0;
  for (const [name, {node}] of Object.entries(fields)) {
    show(node, !many || SHARED.includes(name));
    for (const input of node.querySelectorAll("textarea, input")) input.disabled = node.hidden;
  }
  at("lines").disabled = !many;
  show(at("many"), isReady && many);
  show(at("examples"), isReady && !many && at("examples").lastElementChild.childElementCount > 0);
  for (const id of ["result", "batch"]) show(at(id), false);
  show(at("request"), isReady && !many);
  if (!isReady) return;
  const names = lineNames().map(name => FIELDS[name][1]), last = names.pop();
  const tabs = `Tabs separate ${names.join(", ")} and ${last}, as in cells of a spreadsheet.`;
  const above = fields.context ? " A line without a tab is a question about the text above." : "";
  at("lines-title").textContent = `One ${fields.question ? "question" : names[0] ?? last} per line`;
  at("lines-hint").textContent = names.length ? tabs + above : "";
  update();
}

// --- requests ------------------------------------------------------------------------------------

function addressOf(model) {
  return new URL(model.path.replace(/^\//, ""), document.baseURI);
}

function values() {
  return Object.fromEntries(
    Object.entries(fields).map(([name, field]) => [keyOf(name), field.read()]));
}

const body = () => JSON.stringify(values());

/** Writes the command: nothing in it but visible characters, in quotes of the shell. */
function update() {
  if (isMany()) return;
  const hidden = /[\p{C}\p{Zl}\p{Zp}]/gu;
  const code = unit => "\\u" + unit.charCodeAt(0).toString(16).padStart(4, "0");
  const visible = body().replace(hidden, found => found.split("").map(code).join(""));
  const quoted = text => "'" + text.replaceAll("'", "'\\''") + "'";
  at("curl").textContent = `curl ${quoted(String(addressOf(chosen())))} -d ${quoted(visible)}`;
  at("copied").textContent = "";
}

/** Sends a request; returns {ok, status, reply, wait}, the seconds that a busy server asks for. */
async function post(model, sent) {
  const response = await fetch(addressOf(model), {method: "POST", body: sent});
  const text = await response.text();
  let reply;
  try { reply = JSON.parse(text); } catch { reply = {}; }
  const {ok, status, headers} = response;
  if (!ok) reply.error ??= `the server replied ${status}`;
  return {ok, status, reply, wait: Number(headers.get("Retry-After")) || 1};
}

const described = error =>
  error instanceof TypeError ? "The server does not answer." : String(error.message);

async function ask() {
  const model = chosen(), sent = values();
  say("");
  at("send").disabled = true;
  at("status").textContent = "Waiting for the answer …";
  try {
    const {ok, reply} = await post(model, JSON.stringify(sent));
    if (!ok) throw new Error(reply.error);
    if (chosen() !== model) return;
    showReply(reply, sent, model);
    remember(reply, sent, model);
  } catch (error) {
    show(at("result"), false);
    say(described(error));
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

at("form").addEventListener("submit", event => {
  event.preventDefault();
  if (isMany()) askMany();
  else ask();
});
at("form").addEventListener("keydown", event => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) at("form").requestSubmit();
});
at("fields").addEventListener("input", update);
at("model").addEventListener("change", buildForm);
at("modes").addEventListener("change", changeMode);
at("file").addEventListener("change", () => {
  if (at("file").files.length) readFile(at("file").files[0]);
});
for (const kind of ["dragover", "dragleave", "drop"]) {
  at("many").addEventListener(kind, event => {
    event.preventDefault();
    at("many").classList.toggle("dragged", kind === "dragover");
    if (kind === "drop" && event.dataTransfer.files.length) readFile(event.dataTransfer.files[0]);
  });
}
at("stop").addEventListener("click", () => { batch.isStopped = true; });
at("download").addEventListener("click", download);
at("copy").addEventListener("click", copy);
start();
