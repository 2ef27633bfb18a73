// Lines of a log: kept in buffers, coloured as in a terminal, drawn only where they are seen.
// Called by live_view.js. What a rank wrote enters the page as text, never as markup.

const ROW_HEIGHT = 18; // px, as .ddpnb-row in live_view.css
const MOST_ROWS = 100000; // of one writer; the file has all
const ANSI = /\x1b\[([0-9;:]*)m/g;

/** The lines of one writer, or of all together; the oldest go when there are too many. */
class Buffer {
  constructor(most = MOST_ROWS) {
    this.most = most;
    this.rows = [];
    this.next = 0; // the number of the line that comes next
    this.dropped = 0; // rows that were here and are not any more
  }

  push(row) {
    this.rows.push(row);
    if (this.rows.length <= this.most) return;
    this.dropped += this.rows.splice(0, Math.ceil(this.most / 10)).length;
  }
}

/** A list of rows of one height, of which only those in sight are in the page. */
class Rows {
  /** @param draw makes the element of a row; @param onLeave is called when a reader scrolls up. */
  constructor(draw, onLeave) {
    this.draw = draw;
    this.onLeave = onLeave;
    this.buffer = new Buffer();
    this.rows = [];
    this.tail = [];
    this.dropped = 0;
    this.follow = true;
    this.placed = 0; // where we have scrolled to; where a reader has, is another place
    this.nodes = new Map();
    this.root = element("div", "ddpnb-rows", { tabindex: "0", role: "log", "aria-live": "off" });
    this.space = this.root.appendChild(element("div", "ddpnb-space"));
    this.longest = 0;
    this.root.addEventListener("scroll", () => this.scrolled(), { passive: true });
    this.root.addEventListener("wheel", (event) => event.deltaY < 0 && this.leave(), { passive: true });
    this.root.addEventListener("keydown", (event) => {
      if (["ArrowUp", "PageUp", "Home"].includes(event.key)) this.leave();
    });
    if (window.ResizeObserver) new ResizeObserver(() => this.render()).observe(this.root);
  }

  /** Show the rows of a buffer, and below them those that have no end yet. */
  show(buffer, tail) {
    const dropped = buffer === this.buffer ? buffer.dropped - this.dropped : 0;
    if (buffer !== this.buffer || dropped) this.clear();
    if (dropped && !this.follow) this.scrollTo(this.root.scrollTop - dropped * ROW_HEIGHT);
    this.buffer = buffer;
    this.dropped = buffer.dropped;
    this.rows = buffer.rows;
    this.tail = tail;
    this.render();
  }

  scrollTo(top) {
    this.root.scrollTop = Math.max(0, top);
    this.placed = this.root.scrollTop; // the page has bounds of its own
  }

  clear() {
    for (const node of this.nodes.values()) node.remove();
    this.nodes.clear();
    this.longest = 0;
  }

  leave() {
    if (!this.follow) return;
    this.follow = false;
    this.onLeave();
  }

  scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.root;
    if (this.follow && scrollTop < this.placed - ROW_HEIGHT) this.leave(); // by dragging the bar
    if (!this.follow && scrollTop + clientHeight >= scrollHeight - 2) {
      this.follow = true;
      this.onLeave();
    }
    this.render();
  }

  /** Put a row in the middle. */
  goTo(index) {
    this.follow = false;
    this.scrollTo(index * ROW_HEIGHT - this.root.clientHeight / 2);
    this.render();
  }

  /** Be as high as the rows need, within bounds, until a reader has chosen a height. */
  fit(count) {
    if (this.height && this.root.offsetHeight && Math.abs(this.root.offsetHeight - this.height) > 2) {
      this.resized = true;
      return;
    }
    const height = Math.min(300, Math.max(3, count) * ROW_HEIGHT + 20);
    if (height === this.height) return;
    this.height = height;
    this.root.style.height = `${height}px`;
  }

  render() {
    const count = this.rows.length + this.tail.length;
    this.space.style.height = `${count * ROW_HEIGHT}px`;
    if (!this.resized) this.fit(count);
    if (this.follow) this.scrollTo(count * ROW_HEIGHT);
    const height = this.root.clientHeight || 300;
    const first = Math.max(0, Math.floor(this.root.scrollTop / ROW_HEIGHT) - 5);
    const last = Math.min(count, Math.ceil((this.root.scrollTop + height) / ROW_HEIGHT) + 5);
    for (const [i, node] of this.nodes) {
      if (first <= i && i < last) continue;
      node.remove();
      this.nodes.delete(i);
    }
    // From the bottom up, each before the one below it: text is copied and read out in the
    // order of the page's elements, wherever they are drawn.
    let below = null;
    for (let i = last - 1; i >= first; i--) {
      const row = i < this.rows.length ? this.rows[i] : this.tail[i - this.rows.length];
      let node = this.nodes.get(i);
      if (!node || node.row !== row) {
        node?.remove();
        node = this.space.insertBefore(this.draw(row), below);
        node.row = row;
        node.classList.add("ddpnb-row");
        node.style.top = `${i * ROW_HEIGHT}px`;
        this.nodes.set(i, node);
        this.longest = Math.max(this.longest, node.textContent.length);
      }
      below = node;
    }
    this.space.style.minWidth = `${this.longest + 2}ch`;
  }
}

/** Make an element; attributes that are functions become listeners. */
function element(tag, name = "", attributes = {}, ...children) {
  const node = document.createElement(tag);
  if (name) node.className = name;
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(key, value);
    else if (value !== null && value !== false) node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== ""));
  return node;
}

/** Put a line into a node, its colours as spans. */
function paint(node, text) {
  if (!text.includes("\x1b")) {
    node.append(text);
    return;
  }
  let style = {};
  let at = 0;
  for (const match of text.matchAll(ANSI)) {
    append(node, text.slice(at, match.index), style);
    style = changed(style, match[1]);
    at = match.index + match[0].length;
  }
  append(node, text.slice(at), style);
}

function append(node, text, style) {
  if (!text) return;
  if (!Object.keys(style).length) {
    node.append(text);
    return;
  }
  const span = element("span", "", {}, text);
  Object.assign(span.style, style);
  node.append(span);
}

/** Return a style after the codes of one escape sequence (SGR). */
function changed(style, codes) {
  const list = codes.split(/[;:]/).map((code) => Number(code || 0));
  let next = { ...style };
  while (list.length) {
    const code = list.shift();
    if (code === 0) next = {};
    else if (code === 1) next.fontWeight = "bold";
    else if (code === 2) next.opacity = "0.7";
    else if (code === 3) next.fontStyle = "italic";
    else if (code === 4) next.textDecoration = "underline";
    else if (code === 22) { delete next.fontWeight; delete next.opacity; }
    else if (code === 23) delete next.fontStyle;
    else if (code === 24) delete next.textDecoration;
    else if (code === 39) delete next.color;
    else if (code === 49) delete next.backgroundColor;
    else if (code === 38 || code === 48) {
      const colour = longColour(list);
      if (colour) next[code === 38 ? "color" : "backgroundColor"] = colour;
    } else {
      const [base, key] = [[30, "color"], [90, "color"], [40, "backgroundColor"], [100, "backgroundColor"]]
        .find(([from]) => code >= from && code < from + 8) || [];
      if (key) next[key] = `var(--ddpnb-ansi-${code - base + (base >= 90 ? 8 : 0)})`;
    }
  }
  return next;
}

/** Take one of 256 colours, or red, green and blue, from the front of a list of codes. */
function longColour(list) {
  const kind = list.shift();
  if (kind === 2) {
    const [r, g, b] = list.splice(0, 3).map((part) => Math.min(255, part || 0));
    return `rgb(${r}, ${g}, ${b})`;
  }
  if (kind !== 5) return null;
  const index = Math.min(255, list.shift() || 0);
  if (index < 16) return `var(--ddpnb-ansi-${index})`;
  if (index >= 232) {
    const grey = 8 + 10 * (index - 232);
    return `rgb(${grey}, ${grey}, ${grey})`;
  }
  const part = (value) => (value ? 55 + 40 * value : 0);
  const cube = index - 16;
  return `rgb(${part(Math.floor(cube / 36))}, ${part(Math.floor(cube / 6) % 6)}, ${part(cube % 6)})`;
}
