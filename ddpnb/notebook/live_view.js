// The live view of a run. The kernel sends one message a tick; what is clicked here is sent to it.
// Joined behind live_rows.js and live_curves.js into one module.

const SYMBOLS = {
  pending: "◌", starting: "◌", running: "▶", done: "✔", succeeded: "✔",
  failed: "✖", stopped: "■", ended: "□", lost: "?",
};
const LAUNCHER = "launcher";
const MOST_TABS = 8; // more ranks are chosen by their chips, and in a list
const PICK = "Click: only its lines; Ctrl-click: one more or one less";
const SILENCE = 5000; // ms without a message after which the kernel is asked for the state
const DEAF = 10000; // ms after which it is taken to be gone

class View {
  constructor(model, root) {
    this.model = model;
    this.id = `${Date.now()}-${Math.random()}`;
    this.buffers = new Map(); // by writer: a rank's number, or LAUNCHER
    this.run = {};
    this.ranks = [];
    this.open = {};
    this.number = null;
    this.heard = Date.now();
    this.lacked = 0;
    this.chosen = []; // writers whose lines are shown
    this.mixed = null; // their lines together, where they are several
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
    this.setDeaf(true); // seen where the kernel has gone and the page has not
  }

  /** Say that nobody answers, and take no orders then. */
  setDeaf(deaf) {
    this.deaf.hidden = !deaf;
    for (const button of this.buttons.children) button.classList.toggle("ddpnb-deaf-button", deaf);
    this.buttons.inert = deaf;
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
    let missed = !message.to && this.number !== null && message.number > this.number + 1;
    this.number = message.number;
    if (message.all || message.of !== this.of) this.forget();
    if (!message.all && message.of !== this.of) missed = true; // the word that it is another run was lost
    this.of = message.of;
    for (const key of ["run", "gpus", "failure", "open"]) {
      if (key in message) this[key] = message[key];
    }
    for (const rank of message.ranks || []) this.ranks[rank.rank] = rank; // only those that changed
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
    if (this.mixed) for (const row of byTime(fresh)) if (this.chosen.includes(row.writer)) this.mixed.push(row);
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
    this.mix();
    this.curves.forget();
    this.rerunButton.disabled = false;
  }

  /** Ask for lines that are missing; @param missed a message was lost, and points with it. */
  lack(missed = false) {
    const have = {};
    for (const [writer, buffer] of this.buffers) have[writer] = buffer.next;
    this.send({ type: "lack", have, missed });
  }

  /** Ask again when nothing has come for long: a message may have been dropped on its way. */
  check() {
    if (this.run.done) return;
    const now = Date.now();
    const silent = now - this.heard;
    this.setDeaf(silent >= DEAF);
    if (silent < SILENCE || now - this.lacked < SILENCE) return;
    this.lacked = now;
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
    this.rerunButton = this.button("↻ Re-run", "ddpnb-rerun", () => { this.rerunButton.disabled = true; this.order("rerun"); });
    this.detachButton = this.button("⇥ Detach", "ddpnb-detach", () => this.order("detach"));
    this.detachButton.title = "Let the run go on when the kernel ends";
    this.buttons.append(this.stopButton, this.rerunButton, this.detachButton);
    this.confirm = element("div", "ddpnb-confirm", { hidden: true, role: "alertdialog" });
    this.said = element("div", "ddpnb-said", { role: "status" });
    this.deaf = element("div", "ddpnb-confirm ddpnb-deaf", { hidden: true, role: "alert" });
    this.hider = element("style");
    this.head.append(this.hider, element("div", "ddpnb-top", {}, this.title, this.buttons), this.notes, this.deaf, this.confirm, this.said);
    this.counts = element("div", "ddpnb-counts", { hidden: true });
    this.chips = element("div", "ddpnb-chips");
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
    const body = element("div", "ddpnb-view", {}, this.head, element("div", "ddpnb-ranks", {}, this.counts, this.chips), this.cause, this.pages, ...Object.values(this.bodies));
    root.append(body);
    this.turnTo("Log");
  }

  buildLog() {
    this.tabs = element("div", "ddpnb-choice", { role: "tablist" });
    this.followButton = this.button("⤓ following", "ddpnb-follow", () => this.setFollow(!this.rows.follow));
    this.query = element("input", "ddpnb-query", {
      type: "search", placeholder: "search the whole log", "aria-label": "search the whole log",
      keydown: (event) => { own(event); if (event.key === "Enter" && !event.repeat) this.search(); },
    });
    this.regex = element("input", "", { type: "checkbox" });
    const regex = element("label", "ddpnb-muted", {}, this.regex, " regex");
    this.case = element("input", "", { type: "checkbox" });
    const match = element("label", "ddpnb-muted", {}, this.case, " match case");
    const copy = this.button("copy", "ddpnb-copy", () => this.copyLines());
    const save = this.button("download", "ddpnb-download", () => this.download());
    this.tools = element("div", "ddpnb-tools", {}, this.followButton, this.query, regex, match, this.button("search", "ddpnb-search", () => this.search()), copy, save);
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
    if ("ranks" in message) { this.drawChips(message.ranks); this.drawTabs(); }
    if ("failure" in message) this.drawCause();
    if (this.page === "Log" && (message.lines || "open" in message || "run" in message)) this.drawLog();
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
    this.drawNotes();
    this.hider.textContent = `.${this.of} { display: none }`; // while this view is there, it says all that it does
    this.deaf.textContent = "No word from the notebook's kernel: it was restarted, or is busy. "
      + `Run ddpnb.attach("${run.run_id}") to see the run again.`;
    this.stopButton.disabled = run.done;
    this.detachButton.hidden = run.done || run.detached;
    this.rerunButton.hidden = !run.done;
    if (!run.done) this.rerunButton.disabled = false;
    if (run.done) this.confirm.hidden = true;
  }

  drawNotes() {
    const { notes, trouble, command, folder } = this.run;
    const told = JSON.stringify([notes, trouble, command, folder]);
    if (told === this.toldNotes) return; // what holds the focus stays
    this.toldNotes = told;
    const place = element("details", "", { open: Boolean(this.notes.querySelector("details")?.open) },
      element("summary", "", {}, "command and folder"), this.copyable(command), this.copyable(folder));
    this.notes.replaceChildren(...[...notes, trouble].filter(Boolean).map((note) => element("div", "", {}, note)), place);
  }

  copyable(text) {
    return element("div", "ddpnb-copyable", {}, element("code", "", {}, text),
      this.button("copy", "", () => this.copy(text)));
  }

  drawChips(changed = this.ranks) {
    const few = this.ranks.length <= MOST_TABS;
    if (this.chips.childElementCount !== this.ranks.length) {
      this.chips.replaceChildren(...this.ranks.map(({ rank }) =>
        element("button", "", { type: "button", click: (event) => this.pick(String(rank), event) })));
      changed = this.ranks;
    }
    for (const rank of changed) this.drawChip(this.chips.children[rank.rank], rank, few);
    this.chips.classList.toggle("ddpnb-many", !few);
    this.counts.hidden = few;
    if (few) return;
    const counts = {};
    for (const { state } of this.ranks) counts[state] = (counts[state] || 0) + 1;
    this.counts.textContent = Object.entries(counts).map(([state, count]) => `${count} ${SYMBOLS[state]} ${state}`).join(", ");
  }

  /** Fill a chip anew; the button itself stays, and with it the focus. */
  drawChip(chip, rank, words) {
    const said = [];
    if (rank.reported) said.push(rank.reported);
    if (rank.exit && rank.state !== "done") said.push(rank.exit);
    if (rank.attempt) said.push(`restart ${rank.attempt}`);
    if (rank.step !== undefined) said.push(`step ${rank.step}`);
    if (rank.rate) said.push(`${rank.rate}/s`);
    if (rank.behind) said.push("behind");
    if (rank.quiet) said.push(`quiet for ${rank.quiet}`);
    chip.className = `ddpnb-chip ddpnb-is-${rank.state}`;
    chip.classList.toggle("ddpnb-behind", Boolean(rank.behind));
    chip.title = `rank ${rank.rank}: ${[rank.state, ...said].join(", ")}. ${PICK}`;
    chip.setAttribute("aria-pressed", this.chosen.includes(String(rank.rank)) && !this.isAll());
    const parts = [words ? `rank ${rank.rank} ` : `${rank.rank} `, mark(rank.state, "", words)];
    if (words && said.length) parts.push(element("span", "ddpnb-muted", {}, ` · ${said.join(" · ")}`));
    if (rank.progress) parts.push(bar(rank.progress, words));
    chip.replaceChildren(...parts);
  }

  drawTabs() {
    if (!this.chosen.length) this.choose(this.everyRank());
    const writers = [...this.everyRank(), LAUNCHER];
    if (this.tabs.writers === writers.join()) return;
    this.tabs.writers = writers.join();
    if (this.ranks.length <= MOST_TABS) {
      const tab = (writer) => this.button(writer === LAUNCHER ? writer : `rank ${writer}`, "ddpnb-tab", (event) => this.pick(writer, event),
        { role: "tab", "data-writer": writer, title: PICK });
      const all = this.button("all ranks", "ddpnb-tab", () => this.choose(this.everyRank()), { role: "tab", "data-writer": "all" });
      this.tabs.replaceChildren(...(this.ranks.length > 1 ? [all] : []), ...writers.map(tab));
    } else {
      this.field = element("input", "ddpnb-which", {
        "aria-label": "lines of ranks", title: "all, launcher, or ranks: 0-3, 7", change: () => this.pickWritten(this.field.value),
        keydown: own,
      });
      this.tabs.replaceChildren("lines of ranks ", this.field,
        this.button("all", "", () => this.choose(this.everyRank())), this.button("launcher", "", () => this.choose([LAUNCHER])));
    }
    this.drawChoice();
  }

  everyRank() {
    return this.ranks.map(({ rank }) => String(rank));
  }

  /** Whether the lines of all ranks are shown, and not only because there is one. */
  isAll() {
    return this.ranks.length > 1 && this.chosen.length === this.ranks.length && !this.chosen.includes(LAUNCHER);
  }

  /** Take a click on a writer: only this one, or with Ctrl, Cmd or Shift one more or one less. */
  pick(writer, event) {
    if (!(event.ctrlKey || event.metaKey || event.shiftKey) || this.isAll()) return this.choose([writer]);
    const others = this.chosen.filter((one) => one !== writer);
    const more = others.length === this.chosen.length ? [...others, writer] : others;
    return this.choose(more.length ? more : [writer]);
  }

  /** Take what somebody wrote: all, launcher, or ranks and ranges of them. */
  pickWritten(text) {
    const known = new Set(this.everyRank());
    const wanted = text.trim() === "all" ? [...known] : text.split(",").flatMap((part) => {
      const [, from, to] = part.match(/^\s*(\d+)\s*(?:-\s*(\d+)\s*)?$/) || [null, part.trim()];
      if (to === undefined) return [from];
      const last = Math.min(Number(to), this.ranks.length);
      return Array.from({ length: Math.max(0, last - Number(from) + 1) }, (_, i) => String(Number(from) + i));
    });
    const wrong = wanted.filter((writer) => !known.has(writer) && writer !== LAUNCHER);
    if (wanted.length && !wrong.length) return this.choose([...new Set(wanted)]);
    this.say(`There is no rank ${wrong.join(", ") || text}. Write all, launcher, or ranks: 0-3, 7`);
    return this.drawChoice();
  }

  choose(writers) {
    this.chosen = writers;
    this.mix();
    this.window = null;
    this.drawChoice();
    if (this.page !== "Log") this.turnTo("Log");
    this.rows.clear();
    this.setFollow(true);
  }

  /** Put the lines of the chosen writers together, where they are several. */
  mix() {
    this.mixed = this.chosen.length > 1 ? new Buffer(2 * MOST_ROWS) : null;
    if (this.mixed) for (const row of byTime(this.chosen.flatMap((writer) => this.buffer(writer).rows))) this.mixed.push(row);
  }

  drawChoice() {
    const all = this.isAll();
    for (const tab of this.tabs.querySelectorAll("[role=tab]")) {
      const { writer } = tab.dataset;
      tab.setAttribute("aria-selected", writer === "all" ? all : this.chosen.includes(writer) && !all);
    }
    if (this.field) this.field.value = all ? "all" : ranges(this.chosen);
    this.drawChips();
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
    const tail = this.chosen.filter((w) => this.open[w]).map((writer) => ({ writer, kind: 1, text: this.open[writer], open: true }));
    const buffer = this.shown();
    this.rows.show(buffer, buffer.rows.length || tail.length ? tail : [{ kind: 2, text: this.quiet() }]);
  }

  /** What is to be said where no line is. */
  quiet() {
    if (this.run.done) return "nothing was printed";
    if (this.chosen.includes(LAUNCHER)) return "the launcher has said nothing, which is as it should be";
    return "nothing printed yet (importing torch takes a while)";
  }

  /** The lines on show. */
  shown() {
    return this.mixed || (this.chosen.length ? this.buffer(this.chosen[0]) : new Buffer());
  }

  drawRow(row) {
    const node = element("div", ["ddpnb-out", "ddpnb-err", "ddpnb-remark"][row.kind]);
    if (row.time) node.title = new Date(row.time * 1000).toLocaleTimeString();
    if (this.mixed && row.writer !== undefined) {
      const name = row.writer === LAUNCHER ? "L" : row.writer;
      const gutter = element("span", "ddpnb-gutter", {}, `${name.padStart(String(this.ranks.length - 1).length)} │ `);
      gutter.style.color = RANK_COLOURS[Number(row.writer) % RANK_COLOURS.length] || "inherit";
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
    const gpus = this.ranks.some((r) => r.gpu);
    const head = ["rank", "state", "CPU", "memory", ...(gpus ? ["on"] : [])];
    const parts = [table(head, this.ranks.map((r) => [String(r.rank), r.state, r.cpu, r.rss, ...(gpus ? [r.gpu] : [])]))];
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
      `Stop this run? Its ranks will be asked to end and may save; after ${grace} they are terminated, then killed. `,
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
    const writers = this.isAll() ? null : this.chosen;
    this.found.hidden = false;
    this.found.replaceChildren("searching …");
    this.send({ type: "search", id: ++this.asked, text, regex: this.regex.checked, case: this.case.checked, writers });
  }

  showFound({ total, hits, trouble }) {
    const title = trouble || `${total} line${total === 1 ? "" : "s"}${total > hits.length ? `, the first ${hits.length} are shown` : ""}`;
    const lines = hits.map(([writer, kind, offset, text]) => element("button", "ddpnb-found-line", {
      type: "button", click: () => this.send({ type: "window", id: ++this.asked, writer, kind, offset }),
    }, element("span", "ddpnb-muted", {}, writer === LAUNCHER ? "launcher │ " : `rank ${writer} │ `), text));
    this.found.replaceChildren(element("b", "", {}, title), this.button("close", "", () => { this.found.hidden = true; }), element("div", "ddpnb-found-lines", {}, ...lines));
  }

  showWindow({ writer, offset, rows }) {
    if (this.mixed || this.chosen[0] !== writer) this.choose([writer]);
    this.window = new Buffer();
    for (const [kind, text, time, at] of rows) this.window.push({ writer, kind, text, time, offset: at, hit: at === offset });
    this.rows.follow = false;
    this.drawLog();
    this.rows.goTo(Math.max(0, this.window.rows.findIndex((row) => row.hit)));
  }

  copyLines() {
    const { rows } = this.window || this.shown();
    const bare = (row) => row.text.replace(ANSI, "");
    const who = (row) => (row.writer === LAUNCHER ? "[launcher] " : `[rank ${row.writer}] `);
    this.copy(rows.map((row) => (this.mixed ? who(row) : "") + bare(row)).join("\n"));
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
    if (this.chosen.length > MOST_TABS) this.say(`Choose up to ${MOST_TABS} ranks to download; all files are in the run folder.`);
    else for (const writer of this.chosen) this.send({ type: "download", writer });
  }

  say(text) {
    this.said.textContent = text;
    clearTimeout(this.saying);
    this.saying = setTimeout(() => { this.said.textContent = ""; }, 8000);
  }
}

/** Keep what is typed into a field from the notebook, whose commands are single letters; not Ctrl-S. */
function own(event) {
  if (!event.ctrlKey && !event.metaKey) event.stopPropagation();
}

/** Put lines of several writers in the order of their time; each writer's own order stays. */
function byTime(rows) {
  return rows.sort((a, b) => (a.time || 0) - (b.time || 0));
}

/** Write ranks as a person does: 0-3, 7. */
function ranges(writers) {
  const numbers = writers.filter((writer) => writer !== LAUNCHER).map(Number).sort((a, b) => a - b);
  const parts = [];
  for (const number of numbers) {
    const last = parts[parts.length - 1];
    if (last && last[1] === number - 1) last[1] = number;
    else parts.push([number, number]);
  }
  const words = parts.map(([from, to]) => (from === to ? String(from) : `${from}-${to}`));
  return [...words, ...(writers.includes(LAUNCHER) ? [LAUNCHER] : [])].join(", ");
}

function mark(state, reason = "", words = true) {
  const text = words ? `${SYMBOLS[state] || "?"} ${state}${reason ? ` (${reason})` : ""}` : SYMBOLS[state] || "?";
  return element("span", `ddpnb-mark ddpnb-is-${state}`, {}, text);
}

function bar({ n, total, name }, words) {
  const text = `${name} ${n}${total ? `/${total}` : ""}`.trim();
  if (!total) return element("span", "ddpnb-muted", {}, words ? ` ${text}` : "");
  const node = element("span", "ddpnb-bar", { title: text }, element("span", "ddpnb-bar-full"));
  node.firstChild.style.width = `${Math.min(100, (100 * n) / total)}%`;
  return words ? element("span", "", {}, " ", node, element("span", "ddpnb-muted", {}, ` ${text}`)) : node;
}

export default {
  render({ model, el }) {
    const view = new View(model, el);
    return () => view.close();
  },
};
