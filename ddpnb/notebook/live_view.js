// The live view of a run. The kernel sends one message a tick; what is clicked here is sent to it.
// Joined behind live_rows.js and live_curves.js into one module.

const SYMBOLS = {
  pending: "◌", starting: "◌", running: "▶", done: "✔", succeeded: "✔",
  failed: "✖", stopped: "■", ended: "□", lost: "?",
};
const LAUNCHER = "launcher";
const ALL = "all";
const MOST_TABS = 8; // more ranks are chosen by their chips, and in a list
const SILENCE = 5000; // ms without a message after which the kernel is asked for the state

class View {
  constructor(model, root) {
    this.model = model;
    this.id = `${Date.now()}-${Math.random()}`;
    this.buffers = new Map([[ALL, new Buffer(2 * MOST_ROWS)]]);
    this.run = {};
    this.ranks = [];
    this.open = {};
    this.number = null;
    this.heard = Date.now();
    this.chosen = ALL;
    this.window = null; // lines around a hit, shown in place of the newest
    this.asked = 0;
    this.files = new Map();
    this.curves = new Curves();
    this.build(root);
    this.onMessage = (message, buffers) => this.receive(message, buffers || []);
    model.on("msg:custom", this.onMessage);
    this.timer = setInterval(() => this.check(), 1000);
    this.send({ type: "hello", have: {}, missed: true });
  }

  close() {
    this.model.off("msg:custom", this.onMessage);
    clearInterval(this.timer);
  }

  send(message) {
    this.model.send({ view: this.id, ...message });
  }

  // ---- what comes from the kernel

  receive(message, buffers) {
    if (message.to && message.to !== this.id) return;
    this.heard = Date.now();
    if (message.type === "tick") this.tick(message);
    else if (message.type === "found" && message.id === this.asked) this.showFound(message);
    else if (message.type === "window" && message.id === this.asked) this.showWindow(message);
    else if (message.type === "file") this.collect(message, buffers[0]);
    else if (message.type === "said") this.say(message.text);
  }

  tick(message) {
    const missed = !message.to && this.number !== null && message.number > this.number + 1;
    this.number = message.number;
    if (message.all) this.forget();
    for (const key of ["run", "ranks", "gpus", "failure", "open"]) {
      if (key in message) this[key] = message[key];
    }
    const gap = this.take(message.lines || {}, Boolean(message.to));
    if (message.points) this.curves.add(message.points, Boolean(message.all_points));
    if (missed || gap) this.lack(missed);
    this.draw(message);
  }

  /** Take lines in; return whether some are missing that the kernel may still have. */
  take(lines, answered) {
    const fresh = [];
    let gap = false;
    for (const [writer, { from, first, rows }] of Object.entries(lines)) {
      const buffer = this.buffer(writer);
      if (!answered && from > buffer.next) {
        gap = true;
        continue;
      }
      const skipped = first - buffer.next;
      if (skipped > 0) fresh.push(this.put(buffer, writer, [2, `… ${skipped} lines are passed over here; the file has them`, null, -1]));
      for (const row of rows.slice(Math.max(0, buffer.next - first))) fresh.push(this.put(buffer, writer, row));
      buffer.next = Math.max(buffer.next, first + rows.length);
    }
    const all = this.buffers.get(ALL);
    fresh.sort((a, b) => (a.time || 0) - (b.time || 0)); // stable: each writer's own order stays
    for (const row of fresh) if (row.writer !== LAUNCHER) all.push(row);
    return gap;
  }

  put(buffer, writer, [kind, text, time, offset]) {
    const row = { writer, kind, text, time, offset };
    buffer.push(row);
    return row;
  }

  buffer(writer) {
    if (!this.buffers.has(writer)) this.buffers.set(writer, new Buffer());
    return this.buffers.get(writer);
  }

  forget() {
    this.buffers.clear();
    this.buffers.set(ALL, new Buffer(2 * MOST_ROWS));
  }

  /** Ask for lines that are missing; @param missed a message was lost, and points with it. */
  lack(missed = false) {
    const have = {};
    for (const [writer, buffer] of this.buffers) if (writer !== ALL) have[writer] = buffer.next;
    this.send({ type: "lack", have, missed });
  }

  /** Ask again when nothing has come for long: a message may have been dropped on its way. */
  check() {
    if (this.run.done || Date.now() - this.heard < SILENCE) return;
    this.heard = Date.now();
    this.lack();
  }

  collect(message, buffer) {
    const parts = this.files.get(message.name) || [];
    parts[message.part] = buffer;
    this.files.set(message.name, parts);
    if (parts.filter(Boolean).length < message.parts) return;
    this.files.delete(message.name);
    const url = URL.createObjectURL(new Blob(parts, { type: "text/plain" }));
    const link = element("a", "", { href: url, download: message.name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  }

  // ---- the page

  build(root) {
    this.head = element("div", "ddpnb-head");
    this.title = element("span", "ddpnb-title");
    this.notes = element("div", "ddpnb-muted");
    this.buttons = element("span", "ddpnb-buttons");
    this.stopButton = this.button("■ Stop", "ddpnb-stop", () => this.confirmStop());
    this.rerunButton = this.button("↻ Re-run", "ddpnb-rerun", () => this.order("rerun"));
    this.detachButton = this.button("⇥ Detach", "ddpnb-detach", () => this.order("detach"));
    this.detachButton.title = "Let the run go on when the kernel ends";
    this.buttons.append(this.stopButton, this.rerunButton, this.detachButton);
    this.confirm = element("div", "ddpnb-confirm", { hidden: true, role: "alertdialog" });
    this.said = element("div", "ddpnb-said", { role: "status" });
    this.head.append(element("div", "ddpnb-top", {}, this.title, this.buttons), this.notes, this.confirm, this.said);
    this.chips = element("div", "ddpnb-ranks");
    this.cause = element("div", "ddpnb-trouble", { hidden: true });
    this.pages = element("div", "ddpnb-pages", { role: "tablist" });
    this.logPage = element("div", "ddpnb-log");
    this.machinePage = element("div", "ddpnb-machine");
    this.bodies = { Log: this.logPage, Curves: this.curves.root, Machine: this.machinePage };
    for (const name of Object.keys(this.bodies)) {
      this.pages.append(this.button(name, `ddpnb-page-${name.toLowerCase()}`, () => this.turnTo(name), { role: "tab" }));
    }
    this.pages.append(this.curves.axis);
    this.buildLog();
    const body = element("div", "ddpnb-view", {}, this.head, this.chips, this.cause, this.pages, ...Object.values(this.bodies));
    root.append(body);
    this.turnTo("Log");
  }

  buildLog() {
    this.tabs = element("div", "ddpnb-choice", { role: "tablist" });
    this.followButton = this.button("⤓ following", "ddpnb-follow", () => this.setFollow(!this.rows.follow));
    this.query = element("input", "ddpnb-query", {
      type: "search", placeholder: "search the whole log", "aria-label": "search the whole log",
      keydown: (event) => { event.stopPropagation(); if (event.key === "Enter") this.search(); },
    });
    this.regex = element("input", "", { type: "checkbox", "aria-label": "regular expression" });
    const regex = element("label", "ddpnb-muted", { title: "regular expression" }, this.regex, " .*");
    const copy = this.button("copy", "ddpnb-copy", () => this.copyLines());
    const save = this.button("download", "ddpnb-download", () => this.download());
    this.tools = element("div", "ddpnb-tools", {}, this.followButton, this.query, regex, this.button("search", "ddpnb-search", () => this.search()), copy, save);
    this.found = element("div", "ddpnb-found", { hidden: true });
    this.rows = new Rows((row) => this.drawRow(row), () => this.drawFollow());
    this.logPage.append(this.tabs, this.tools, this.found, this.rows.root);
  }

  button(text, name, act, attributes = {}) {
    return element("button", `ddpnb-button ${name}`, { type: "button", click: act, ...attributes }, text);
  }

  turnTo(name) {
    for (const [key, body] of Object.entries(this.bodies)) {
      body.hidden = key !== name;
      this.pages.querySelector(`.ddpnb-page-${key.toLowerCase()}`).setAttribute("aria-selected", key === name);
    }
    this.curves.axis.hidden = name !== "Curves";
    this.page = name;
    if (name === "Log") this.drawLog();
    if (name === "Curves") this.curves.draw();
    if (name === "Machine") this.drawMachine();
  }

  draw(message) {
    if ("run" in message) this.drawHead();
    if ("ranks" in message) { this.drawChips(); this.drawTabs(); }
    if ("failure" in message) this.drawCause();
    if (this.page === "Log" && (message.lines || "open" in message)) this.drawLog();
    if (this.page === "Curves" && message.points) this.curves.draw();
    if (this.page === "Machine") this.drawMachine();
  }

  drawHead() {
    const { run } = this;
    const words = [`${run.world_size} rank${run.world_size === 1 ? "" : "s"}`, `on ${run.device}`];
    if (run.elapsed) words.push(run.elapsed);
    if (run.eta) words.push(`about ${run.eta} to go`);
    if (run.detached && !run.done) words.push("detached");
    this.title.replaceChildren(
      element("b", "", {}, run.target), " ", mark(run.state, run.reason), " ",
      element("span", "ddpnb-muted", {}, words.join(" · ")),
    );
    const notes = [...run.notes, run.trouble].filter(Boolean).map((note) => element("div", "", {}, note));
    const place = element("details", "", {}, element("summary", "", {}, "command and folder"),
      this.copyable(run.command), this.copyable(run.folder));
    if (this.notes.querySelector("details")?.open) place.open = true;
    this.notes.replaceChildren(...notes, place);
    this.stopButton.disabled = run.done;
    this.detachButton.hidden = run.done || run.detached;
    this.rerunButton.hidden = !run.done;
    if (run.done) this.confirm.hidden = true;
  }

  copyable(text) {
    return element("div", "ddpnb-copyable", {}, element("code", "", {}, text),
      this.button("copy", "", () => this.copy(text)));
  }

  drawChips() {
    const few = this.ranks.length <= MOST_TABS;
    this.chips.classList.toggle("ddpnb-many", !few);
    const counts = {};
    for (const { state } of this.ranks) counts[state] = (counts[state] || 0) + 1;
    const summary = few ? [] : [element("div", "ddpnb-counts", {},
      Object.entries(counts).map(([state, count]) => `${count} ${SYMBOLS[state]} ${state}`).join(", "))];
    this.chips.replaceChildren(...summary, ...this.ranks.map((rank) => this.chip(rank, few)));
  }

  chip(rank, words) {
    const said = [];
    if (rank.exit && rank.state !== "done") said.push(rank.exit);
    if (rank.attempt) said.push(`restart ${rank.attempt}`);
    if (rank.step !== undefined) said.push(`step ${rank.step}`);
    if (rank.rate) said.push(`${rank.rate}/s`);
    if (rank.behind) said.push("behind");
    if (rank.quiet) said.push(`quiet for ${rank.quiet}`);
    const name = words ? `rank ${rank.rank}` : String(rank.rank);
    const chip = element("button", `ddpnb-chip ddpnb-is-${rank.state}`, {
      type: "button", click: () => this.choose(String(rank.rank)),
      title: `rank ${rank.rank}: ${[rank.state, ...said].join(", ")}`,
    }, name, " ", mark(rank.state, "", words));
    if (rank.behind) chip.classList.add("ddpnb-behind");
    if (!words) return chip;
    if (said.length) chip.append(element("span", "ddpnb-muted", {}, ` · ${said.join(" · ")}`));
    if (rank.progress) chip.append(bar(rank.progress));
    return chip;
  }

  drawTabs() {
    const writers = [...(this.ranks.length > 1 ? [ALL] : []), ...this.ranks.map((r) => String(r.rank)), LAUNCHER];
    if (!writers.includes(this.chosen)) this.chosen = writers[0];
    if (this.tabs.childElementCount && this.tabs.writers === writers.join()) return;
    this.tabs.writers = writers.join();
    const label = (writer) => (writer === ALL ? "all ranks" : writer === LAUNCHER ? "launcher" : `rank ${writer}`);
    if (this.ranks.length <= MOST_TABS) {
      this.tabs.replaceChildren(...writers.map((writer) => this.button(label(writer), "ddpnb-tab", () => this.choose(writer), { role: "tab", "data-writer": writer })));
    } else {
      const select = element("select", "", { "aria-label": "lines of", change: () => this.choose(select.value) },
        ...writers.map((writer) => element("option", "", { value: writer }, label(writer))));
      this.tabs.replaceChildren("lines of ", select);
    }
    this.choose(this.chosen);
  }

  choose(writer) {
    this.chosen = writer;
    this.window = null;
    for (const tab of this.tabs.querySelectorAll("button")) tab.setAttribute("aria-selected", tab.dataset.writer === writer);
    const select = this.tabs.querySelector("select");
    if (select) select.value = writer;
    if (this.page !== "Log") this.turnTo("Log");
    this.rows.clear();
    this.setFollow(true);
  }

  setFollow(follow) {
    if (follow) this.window = null;
    this.rows.follow = follow;
    this.drawLog();
  }

  drawFollow() {
    this.followButton.textContent = this.rows.follow ? "⤓ following" : "⤓ paused";
    this.followButton.setAttribute("aria-pressed", this.rows.follow);
    this.followButton.title = this.rows.follow ? "Hold the lines still" : "Show the newest lines";
  }

  drawLog() {
    this.drawFollow();
    if (this.window) {
      this.rows.show(this.window, []);
      return;
    }
    const writers = this.chosen === ALL ? this.ranks.map((r) => String(r.rank)) : [this.chosen];
    const tail = writers.filter((w) => this.open[w]).map((writer) => ({ writer, kind: 1, text: this.open[writer], open: true }));
    const rows = this.buffer(this.chosen).rows;
    const quiet = this.run.done ? "nothing was printed" : "nothing printed yet (importing torch takes a while)";
    this.rows.show(rows, rows.length || tail.length ? tail : [{ kind: 2, text: quiet }]);
  }

  drawRow(row) {
    const node = element("div", ["ddpnb-out", "ddpnb-err", "ddpnb-remark"][row.kind]);
    if (row.time) node.title = new Date(row.time * 1000).toLocaleTimeString();
    if (this.chosen === ALL && row.writer !== undefined) {
      const gutter = element("span", "ddpnb-gutter", {}, `${row.writer.padStart(String(this.ranks.length - 1).length)} │ `);
      gutter.style.color = RANK_COLOURS[Number(row.writer) % RANK_COLOURS.length];
      node.append(gutter);
    }
    if (row.hit) node.classList.add("ddpnb-hit");
    paint(node, row.text);
    return node;
  }

  drawCause() {
    const { failure } = this;
    this.cause.hidden = !failure;
    if (!failure) return;
    const parts = [element("div", "ddpnb-cause", {}, failure.title)];
    if (failure.place) {
      const { file, line, first, lines } = failure.place;
      const code = lines.map((text, i) => element("div", first + i === line ? "ddpnb-here" : "", {}, `${String(first + i).padStart(5)}  ${text}`));
      parts.push(element("div", "ddpnb-muted", {}, `${file}, line ${line}`), element("pre", "", {}, ...code));
    }
    if (failure.hint) parts.push(element("div", "", {}, `What to try: ${failure.hint}`));
    for (const other of failure.others || []) parts.push(element("div", "ddpnb-muted", {}, other));
    parts.push(element("details", "", {}, element("summary", "", {}, "the whole report"), element("pre", "", {}, failure.report)));
    this.cause.replaceChildren(...parts);
  }

  drawMachine() {
    const table = (head, rows) => element("table", "", {},
      element("thead", "", {}, element("tr", "", {}, ...head.map((text) => element("th", "", {}, text)))),
      element("tbody", "", {}, ...rows.map((row) => element("tr", "", {}, ...row.map((text) => element("td", "", {}, text || ""))))));
    const parts = [table(["rank", "state", "CPU", "memory"], this.ranks.map((r) => [String(r.rank), r.state, r.cpu, r.rss]))];
    if ((this.gpus || []).length) {
      parts.push(table(["GPU", "name", "busy", "memory", "power", "temperature", "used by"],
        this.gpus.map((g) => [String(g.index), g.name, g.percent, g.memory, g.power, g.temperature, g.holders])));
    }
    this.machinePage.replaceChildren(...parts);
  }

  // ---- what is asked of the kernel

  order(what) {
    this.send({ type: "order", what });
  }

  confirmStop() {
    const grace = `${this.run.grace} s`;
    this.confirm.replaceChildren(
      `The ranks are asked to end and may save; after ${grace} they are terminated, then killed. `,
      this.button("Stop the run", "ddpnb-stop-now", () => { this.confirm.hidden = true; this.order("stop"); }),
      this.button("Kill it now", "ddpnb-kill", () => { this.confirm.hidden = true; this.order("kill"); }),
      this.button("Let it run", "", () => { this.confirm.hidden = true; }),
    );
    this.confirm.hidden = false;
    this.confirm.querySelector("button").focus();
  }

  search() {
    const text = this.query.value;
    if (!text) { this.found.hidden = true; return; }
    const writers = this.chosen === ALL ? null : [this.chosen];
    this.found.hidden = false;
    this.found.replaceChildren("searching …");
    this.send({ type: "search", id: ++this.asked, text, regex: this.regex.checked, writers });
  }

  showFound({ total, hits, trouble }) {
    const title = trouble || `${total} line${total === 1 ? "" : "s"}${total > hits.length ? `, the first ${hits.length} are shown` : ""}`;
    const lines = hits.map(([writer, kind, offset, text]) => element("button", "ddpnb-found-line", {
      type: "button", click: () => this.send({ type: "window", id: ++this.asked, writer, kind, offset }),
    }, element("span", "ddpnb-muted", {}, writer === LAUNCHER ? "launcher │ " : `rank ${writer} │ `), text));
    this.found.replaceChildren(element("b", "", {}, title), this.button("close", "", () => { this.found.hidden = true; }), element("div", "ddpnb-found-lines", {}, ...lines));
  }

  showWindow({ writer, offset, rows }) {
    if (this.chosen !== writer) this.choose(writer);
    this.window = rows.map(([kind, text, time, at]) => ({ writer, kind, text, time, offset: at, hit: at === offset }));
    this.rows.follow = false;
    this.drawLog();
    this.rows.goTo(Math.max(0, this.window.findIndex((row) => row.hit)));
  }

  copyLines() {
    const rows = this.window || this.buffer(this.chosen).rows;
    const bare = (row) => row.text.replace(ANSI, "");
    this.copy(rows.map((row) => (this.chosen === ALL ? `[rank ${row.writer}] ${bare(row)}` : bare(row))).join("\n"));
  }

  async copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      this.say("copied");
    } catch {
      this.say("this page may not write to the clipboard; select the text and copy it");
    }
  }

  download() {
    if (this.chosen !== ALL) this.send({ type: "download", writer: this.chosen });
    else for (const { rank } of this.ranks.slice(0, MOST_TABS)) this.send({ type: "download", writer: String(rank) });
  }

  say(text) {
    this.said.textContent = text;
    clearTimeout(this.saying);
    this.saying = setTimeout(() => { this.said.textContent = ""; }, 8000);
  }
}

function mark(state, reason = "", words = true) {
  const text = words ? `${SYMBOLS[state] || "?"} ${state}${reason ? ` (${reason})` : ""}` : SYMBOLS[state] || "?";
  return element("span", `ddpnb-mark ddpnb-is-${state}`, {}, text);
}

function bar({ n, total, name }) {
  const text = `${name} ${n}${total ? `/${total}` : ""}`.trim();
  if (!total) return element("span", "ddpnb-muted", {}, ` ${text}`);
  const node = element("span", "ddpnb-bar", { title: text }, element("span", "ddpnb-bar-full"));
  node.firstChild.style.width = `${Math.min(100, (100 * n) / total)}%`;
  return element("span", "", {}, " ", node, element("span", "ddpnb-muted", {}, ` ${text}`));
}

export default {
  render({ model, el }) {
    const view = new View(model, el);
    return () => view.close();
  },
};
