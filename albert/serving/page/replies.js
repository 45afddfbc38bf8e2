// --- a reply in words ----------------------------------------------------------------------------

/** Words with a label: entities, or else each word that has one. */
function spansOf(reply) {
  return reply.entities ||
    reply.labels.map((type, start) => ({type, start, end: start + 1})).filter(s => s.type !== "O");
}

/** The answer of a reply in words, and its probability if it has one. */
function inWords(reply, request, model) {
  if (reply.masks) {
    const share = reply.masks.length === 1 ? reply.masks[0][0].probability : undefined;
    return {answer: reply.masks.map(answers => answers[0].word).join(", "), share};
  }
  if (reply.answers) {
    return reply.answer ? {answer: reply.answer, share: reply.answers[0].probability}
      : {answer: "The text does not answer the question"};
  }
  if (reply.words) {
    const text = ({type, start, end}) => `${reply.words.slice(start, end).join(" ")} (${type})`;
    return {answer: spansOf(reply).map(text).join(", ") || "No word has a label"};
  }
  if (reply.thresholds) {
    const text = name => `${named(name)} (${sure(reply.probabilities[name])})`;
    return {answer: reply.prediction.map(text).join(", ") || "No label"};
  }
  if (reply.probabilities) return chosenLabel(reply, request, model);
  const {prediction = ""} = reply, isNumber = typeof prediction === "number";
  return {answer: String(isNumber ? Number(prediction.toPrecision(4)) : prediction)};
}

function chosenLabel(reply, request, model) {
  const {prediction, probabilities} = reply;
  if (prediction === ABSTAINS && model.abstention) {
    const [name, share] = Object.entries(probabilities).reduce((a, b) => b[1] > a[1] ? b : a);
    const least = percent(model.abstention.min_probability);
    return {answer: `No answer: ${named(name)} is ${percent(share)} sure, which needs ${least}`};
  }
  const answer = request.options ? `${prediction}: ${reply.answer}` : named(prediction);
  return {answer, share: probabilities[prediction]};
}

function sentence({answer, share}) {
  return share === undefined ? answer : `${answer} — ${sure(share)} sure`;
}

function verdict({answer, share}) {
  const node = make("p", {className: "verdict"}, make("strong", {}, answer));
  if (share !== undefined) node.append(` — ${sure(share)} sure`);
  return node;
}

// --- a reply as nodes ----------------------------------------------------------------------------

/** A bar of a share, with a mark where the threshold is; the number beside it says the same. */
function bar(share, threshold) {
  const filled = make("span", {className: "fill"});
  filled.style.width = percent(share);
  const track = make("span", {className: "track", ariaHidden: "true"}, filled);
  if (threshold !== undefined) {
    const needed = make("span", {className: "needed"});
    needed.style.left = percent(threshold);
    track.append(needed);
  }
  return track;
}

/** A table of texts with their probabilities; rows are [text, probability, is chosen, threshold],
    whose last is undefined for a choice of one. Many rows are folded. */
function table(rows, caption) {
  const nodes = rows.map(([text, share, isBest, threshold]) => {
    const row = make("tr", {className: isBest ? "best" : ""}, make("th", {scope: "row"}, text),
      make("td", {className: "bar"}, bar(share, threshold)),
      make("td", {className: "number"}, percent(share)));
    if (threshold !== undefined) {
      const needs = `${isBest ? "✓ " : ""}needs ${percent(threshold)}`;
      row.append(make("td", {className: "number"}, needs));
    }
    return row;
  });
  const tableOf = (rows, name) => make("table", {ariaLabel: name}, make("tbody", {}, ...rows));
  const first = tableOf(nodes.slice(0, MAX_LABELS), caption);
  if (nodes.length <= MAX_LABELS) return [first];
  const rest = nodes.slice(MAX_LABELS), title = `${rest.length} more`;
  return [first, make("details", {}, make("summary", {}, title), tableOf(rest, title))];
}

function labelNodes(reply, request, model) {
  const options = request.options || [], {prediction, thresholds = {}} = reply;
  const text = (name, number) => options.length ? `${name}: ${options[number]}` : named(name);
  const rows = Object.entries(reply.probabilities).map(([name, share], number) =>
    [text(name, number), share, [prediction].flat().includes(name), thresholds[name]]);
  if (!options.length) rows.sort((a, b) => b[1] - a[1]);
  return [verdict(inWords(reply, request, model)), ...table(rows, "Probabilities")];
}

/** Words with their labels: each entity is one mark, or else each word that has a label. */
function wordNodes(reply) {
  const spans = spansOf(reply);
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
  return [...(spans.length ? [] : [verdict(inWords(reply))]), passage];
}

/** The text with the answer marked, and the other answers. Positions count code points. */
function answerNodes(reply, request) {
  const [best] = reply.answers, isAnswered = Boolean(best && reply.answer);
  const letters = Array.from(request.context), nodes = [verdict(inWords(reply))];
  if (isAnswered) {
    const part = (start, end) => letters.slice(start, end).join("");
    const marked = make("mark", {}, part(best.start, best.end));
    const passage = make("p", {className: "passage", tabIndex: 0, ariaLabel: "Text"},
      part(0, best.start), marked, part(best.end));
    nodes.push(passage);
    setTimeout(() => { passage.scrollTop = marked.offsetTop - passage.offsetTop - 40; });
  }
  if (reply.null_odds !== undefined) {
    nodes.push(make("p", {className: "hint"}, `Null odds, which speak against an ` +
      `answer: ${reply.null_odds.toFixed(3)}. Below ${reply.threshold.toFixed(3)} one is given.`));
  }
  const rows = reply.answers.map((a, place) => [a.text, a.probability, isAnswered && !place]);
  if (rows.length) {
    const title = isAnswered ? "Possible answers" : "If it did";
    nodes.push(make("h3", {}, title), ...table(rows, title));
  }
  return nodes;
}

/** The words in the place of each mask of a text. */
function maskNodes(reply) {
  return reply.masks.flatMap((answers, number) => {
    const name = reply.masks.length > 1 ? `[MASK] ${number + 1}` : "[MASK]";
    const rows = answers.map((answer, place) => [answer.word, answer.probability, place === 0]);
    const [best] = answers;
    return [...(reply.masks.length > 1 ? [make("h3", {}, name)] : []),
      verdict({answer: best.word, share: best.probability}), make("p", {}, best.text),
      ...table(rows, name)];
  });
}

function nodesOf(reply, request, model) {
  if (reply.masks) return maskNodes(reply);
  if (reply.answers) return answerNodes(reply, request);
  if (reply.words) return wordNodes(reply);
  if (reply.probabilities) return labelNodes(reply, request, model);
  return reply.prediction === undefined ? [] : [verdict(inWords(reply, request, model))];
}

function showReply(reply, request, model) {
  at("answer").replaceChildren(...nodesOf(reply, request, model));
  if (reply.truncated) {
    const cut = reply.answers ? "The question was longer than the model reads and was cut."
      : "The texts were longer than the model's input and were cut.";
    at("answer").append(make("p", {className: "hint"}, cut));
  }
  at("reply").textContent = JSON.stringify(reply, null, 2);
  show(at("result"), true);
}

/** Adds an answer to the list of the last ones; its button shows it again. */
function remember(reply, request, model) {
  const button = make("button", {type: "button", title: "Show again"}, titleOf(request));
  button.onclick = () => {
    if (chosen().name !== model.name) {
      at("model").value = model.name;
      buildForm();
    }
    at("one").checked = true;
    changeMode();
    fill(request);
    showReply(reply, request, model);
  };
  const answer = sentence(inWords(reply, request, model));
  const from = models.length > 1 ? `${model.name}: ` : "";
  at("answers").prepend(make("li", {}, button, make("span", {}, from + shortened(answer))));
  while (at("answers").childElementCount > MAX_ENTRIES) at("answers").lastElementChild.remove();
  show(at("history"), true);
}
