// --- many examples -------------------------------------------------------------------------------

/** The fields that a line has, in this order. */
function lineNames() {
  return Object.keys(fields).filter(name => name !== "num_answers");
}

const isObjects = name => /\.jsonl$/i.test(name);

/** Returns the cells of each row of a csv file; commas and line breaks may be within quotes. */
function cellsOf(text) {
  const pattern = /("(?:[^"]|"")*"|[^,\r\n]*)(,|\r*(?:\n|$)|(\r))/g;
  const rows = [];
  let row = [];
  for (const {0: whole, 1: cell, 2: end, 3: lone, index} of text.matchAll(pattern)) {
    if (!whole && !row.length) break;
    if (lone) {
      const line = text.slice(0, index + cell.length).split("\n").length;
      throw new Error(`line ${line} has a carriage return outside of quotation marks; end lines ` +
        "with LF or CRLF, and put texts with carriage returns in quotation marks");
    }
    const isQuoted = /^"(?:[^"]|"")*"$/.test(cell);
    row.push(isQuoted ? cell.slice(1, -1).replaceAll('""', '"') : cell);
    if (end === ",") continue;
    rows.push(row);
    row = [];
  }
  return rows;
}

/** Returns rows of one length without empty lines, which are rows only if texts stand alone. */
function evenRows(rows, advice) {
  const isEmpty = row => row.length === 1 && !row[0];
  const size = rows.find(row => !isEmpty(row))?.length;
  if (!size) throw new Error("it has no rows");
  rows.forEach((row, place) => {
    if (row.length === size || isEmpty(row)) return;
    throw new Error(`row ${place + 1} has ${row.length} cells, the first has ${size}${advice}`);
  });
  const first = rows.findIndex(row => !isEmpty(row));
  return rows.slice(first).filter(row => row.length === size);
}

/** Returns the objects in lines of JSON. */
function objectsIn(text) {
  return text.split("\n").flatMap((line, place) => {
    if (!line.trim()) return [];
    let object = null;
    try { object = JSON.parse(line); } catch { /* null */ }
    if (object && typeof object === "object" && !Array.isArray(object)) return [object];
    throw new Error(`line ${place + 1} is not a JSON object`);
  });
}

/** Returns the table in a file, whose first row has the names of the columns; null for lines. A
    cell of jsonl may be a list. */
function tableIn(text, name) {
  if (/\.csv$/i.test(name)) return evenRows(cellsOf(text), "; texts with commas need quotes");
  // As in commands, quotation marks are plain characters of a tsv file.
  if (/\.tsv$/i.test(name)) {
    return evenRows(text.split(/\r?\n/).map(line => line.split("\t")), "");
  }
  if (/\.txt$/i.test(name)) return null;
  if (!isObjects(name)) throw new Error("its name must end in .txt, .csv, .tsv or .jsonl");
  const objects = objectsIn(text), names = [...new Set(objects.flatMap(Object.keys))];
  return evenRows([names, ...objects.map(object => names.map(key => object[key] ?? ""))], "");
}

/** Shows lines; of a file with columns also which of them are used. */
function setLines(text, controls) {
  at("lines").value = text;
  at("columns").replaceChildren(...controls);
}

/** Returns the texts in a field's cell; cells of jsonl may hold other values, which are refused. */
function textsIn(cell, name, place) {
  const mayBeList = name === "options" || name === "words";
  const texts = mayBeList && Array.isArray(cell) ? cell : [cell];
  if (texts.every(text => typeof text === "string")) return texts;
  const expected = mayBeList ? "a list of texts" : "a text";
  throw new Error(`row ${place + 1}: expected ${expected}, found ` +
    `${shortened(JSON.stringify(cell))}; choose another column or mend the file`);
}

/** Lets the user choose the column of each field, and writes lines of the chosen ones. Options are
    a list in one column, or have a column each. */
function useTable([header, ...rows], file) {
  const hasLists = isObjects(file);
  const clean = text => text.replace(/\s*[\r\n]+\s*|\t/g, " ");
  const choices = lineNames().map((name, place) => {
    const select = make("select", {}, ...header.map(title => make("option", {}, title)));
    const found = [name, keyOf(name)].map(known => header.indexOf(known)).find(i => i >= 0);
    select.selectedIndex = found ?? Math.min(place, header.length - 1);
    return [name, select];
  });
  const write = () => {
    const line = (row, place) => choices.map(([name, {selectedIndex: i}]) => {
      const isOfOptions = name === "options";
      const cells = isOfOptions && !hasLists ? row.slice(i) : textsIn(row[i], name, place);
      const text = cells.map(clean).join(isOfOptions ? "\t" : " ");
      return isOfOptions ? text.replace(/\t+$/, "") : text;
    });
    say("");
    at("lines").value = "";
    try {
      at("lines").value = rows.map((row, place) => line(row, place).join("\t")).join("\n");
    } catch (error) {
      say(`${file}: ${error.message}`);
    }
  };
  const controls = choices.map(([name, select]) => {
    select.onchange = write;
    const first = name === "options" && !hasLists ? "First column" : "Column";
    const title = `${first} of the ${FIELDS[name][1]}`;
    return make("label", {}, make("span", {}, title), select);
  });
  setLines("", controls);
  write();
}

async function readFile(file) {
  say("");
  try {
    if (file.size > MAX_FILE_BYTES) throw new Error("larger than 20 MB; use predict");
    const text = (await file.text()).replace(/^\ufeff/, "");
    const found = tableIn(text, file.name);
    if (found) useTable(found, file.name);
    else setLines(text, []);
  } catch (error) {
    say(`${file.name}: ${error.message}`);
  }
}

/** Returns the example of a line, without the fields that it lacks; the last one takes the rest. */
function exampleOf(line) {
  const cells = line.split("\t"), names = lineNames(), example = {};
  names.forEach((name, place) => {
    const rest = cells.slice(place), isLast = place === names.length - 1;
    if (name === "options") example.options = rest;
    else if (rest.length) example[keyOf(name)] = isLast ? rest.join("\t") : rest[0];
  });
  for (const name of SHARED) {
    if (fields[name]) example[name] ??= fields[name].read();
  }
  return example;
}

// {model, rows: [{number of the line, example, reply or error}], isStopped} of many examples
let batch = null;

/** Asks for some examples; waits for a busy server, and asks for each alone if one is refused. */
async function askSome(current, rows) {
  const {model} = current;
  for (let busy = 0; ; busy++) {
    const sent = rows.length > 1 ? {examples: rows.map(row => row.example)} : rows[0].example;
    const {ok, status, reply, wait} = await post(model, JSON.stringify(sent));
    if (ok) {
      (rows.length > 1 ? reply.results : [reply]).forEach((found, i) => { rows[i].reply = found; });
    } else if (status === 503 && busy < MAX_BUSY && !current.isStopped) {
      await new Promise(done => setTimeout(done, 1000 * wait));
      continue;
    } else if (status === 503) {
      throw new Error(reply.error);
    } else if (rows.length > 1) {
      for (const row of rows) await askSome(current, [row]);
    } else {
      rows[0].error = reply.error;
    }
    return;
  }
}

async function askMany() {
  const rows = at("lines").value.split(/\r?\n/).flatMap((line, place) =>
    line.trim() ? [{number: place + 1, example: exampleOf(line)}] : []);
  const current = {model: chosen(), rows};
  batch = current;
  say("");
  at("send").disabled = true;
  show(at("stop"), true);
  show(at("batch"), true);
  at("rows").replaceChildren(tableOfRows());
  let done = 0;
  try {
    while (done < current.rows.length && !current.isStopped) {
      at("status").textContent = `${done} of ${current.rows.length} are answered …`;
      const part = current.rows.slice(done, done + BATCH);
      await askSome(current, part);
      if (batch !== current || chosen() !== current.model) return;
      part.forEach((row, i) => showRow(row, done + i, current.model));
      done += part.length;
      at("counts").textContent = countsOf(current);
    }
  } catch (error) {
    say(described(error));
  } finally {
    at("status").textContent = "";
    at("send").disabled = false;
    show(at("stop"), false);
  }
}

function tableOfRows() {
  const names = lineNames().filter(name => name !== "context");
  const titles = ["", ...names.map(name => FIELDS[name][1]), "answer", "sure"];
  const cells = titles.map(title => make("th", {scope: "col"}, title));
  const head = make("thead", {}, make("tr", {}, ...cells));
  return make("table", {ariaLabel: "Answers"}, head, make("tbody"));
}

function showRow({number, example, reply, error}, place, model) {
  const body = at("rows").querySelector("tbody");
  if (place === MAX_SHOWN_ROWS) {
    at("rows").append(make("p", {className: "hint"}, "The file has the further rows."));
  }
  if (place >= MAX_SHOWN_ROWS) return;
  const texts = lineNames().filter(name => name !== "context").map(name =>
    make("td", {}, shortened([example[keyOf(name)] ?? ""].flat().join(" | "))));
  const {answer, share} = reply ? inWords(reply, example, model) : {answer: error};
  body.append(make("tr", {}, make("th", {scope: "row", className: "number"}, String(number)),
    ...texts, make("td", {className: "answer"}, reply ? shortened(answer) : `Error: ${answer}`),
    make("td", {className: "number"}, share === undefined ? "" : sure(share))));
}

/** How many were answered, and how often each label was. */
function countsOf({model, rows}) {
  const answered = rows.filter(row => row.reply), wrong = rows.filter(row => row.error).length;
  const counts = new Map();
  for (const {reply} of answered) {
    for (const name of model.labels && reply.probabilities && !reply.words
      ? [reply.prediction].flat() : []) counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  const each = [...counts].sort((a, b) => b[1] - a[1]).slice(0, MAX_LABELS);
  const labels = each.map(([name, count]) => `${named(name)} ${count}`).join(", ");
  return `${answered.length} of ${rows.length} answered${labels && `: ${labels}`}` +
    `${wrong ? `; ${wrong} refused` : ""}.`;
}

/** The examples with the numbers of their lines and their answers as comma-separated values. */
function csvOf({model, rows}) {
  const names = lineNames();
  const isOfLabels = rows.some(({reply}) => reply?.probabilities && !reply.words);
  const labels = isOfLabels ? model.labels ?? [] : [];
  const quoted = cell => /[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell;
  const line = cells => cells.map(cell => quoted(String(cell ?? ""))).join(",") + "\r\n";
  const head = ["line", ...names.map(keyOf), "answer", "probability",
    ...labels.map(label => `probability_${label}`), "error"];
  return line(head) + rows.filter(row => row.reply || row.error).map(row => {
    const {number, example, reply, error} = row;
    const {answer, share} = reply ? inWords(reply, example, model) : {};
    const texts = [...names.map(name => example[keyOf(name)]),
      reply?.answer ?? reply?.prediction ?? answer].map(text => [text].flat().join(" | "));
    const shares = labels.map(label => reply?.probabilities[label]);
    return line([number, ...texts, share, ...shares, error]);
  }).join("");
}

function download() {
  const address = URL.createObjectURL(new Blob([csvOf(batch)], {type: "text/csv"}));
  make("a", {href: address, download: "answers.csv"}).click();
  setTimeout(() => URL.revokeObjectURL(address), RETRY);
}
