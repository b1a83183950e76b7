// The dashboard's only script: times in the viewer's zone, live parts, and forms that check themselves.
// Pages are complete without it.
"use strict";

const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
const dayAndClock = new Intl.DateTimeFormat(undefined, {
  month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit",
});

function showTimes(root) {
  for (const element of root.querySelectorAll("time[datetime]")) {
    const time = new Date(element.dateTime);
    if (Number.isNaN(time.getTime())) continue;
    const format = { clock, day }[element.dataset.format] || dayAndClock;
    const text = element.dataset.format === "relative" ? ago(time) : format.format(time);
    if (element.textContent !== text) element.textContent = text;
    element.title = full.format(time);
  }
}

function ago(time) {
  const seconds = (Date.now() - time.getTime()) / 1000;
  const size = Math.abs(seconds);
  if (size < 1.5) return "now";
  const [unit, length] = size < 90 ? ["s", 1] : size < 5400 ? ["min", 60] : size < 129600 ? ["h", 3600] : ["days", 86400];
  const text = `${Math.round(size / length)} ${unit}`;
  return seconds < -1 ? `in ${text}` : `${text} ago`;
}

// Make `old` equal to `fresh`, and leave equal nodes unchanged: focus, selection and open details stay.
function morph(old, fresh) {
  const before = Array.from(old.childNodes);
  const after = Array.from(fresh.childNodes);
  after.forEach((node, index) => {
    const present = before[index];
    if (!present) {
      old.append(document.importNode(node, true));
    } else if (present.nodeType !== node.nodeType || present.nodeName !== node.nodeName || present.id !== node.id) {
      present.replaceWith(document.importNode(node, true));
    } else if (node.nodeType === Node.TEXT_NODE) {
      if (present.data !== node.data) present.data = node.data;
    } else if (node.nodeType === Node.ELEMENT_NODE) {
      for (const { name } of Array.from(present.attributes)) {
        if (!node.hasAttribute(name) && !(name === "open" || name === "title")) present.removeAttribute(name);
      }
      for (const { name, value } of node.attributes) {
        if (present.getAttribute(name) !== value) present.setAttribute(name, value);
      }
      // The text of a time depends on the viewer, so it is written here only.
      if (node.nodeName !== "TIME") morph(present, node);
    }
  });
  before.slice(after.length).forEach((node) => node.remove());
}

function update({ parts, trouble }) {
  const note = document.getElementById("trouble");
  note.hidden = !trouble;
  if (note.textContent !== trouble) note.textContent = trouble;
  for (const [name, html] of Object.entries(parts)) {
    const element = document.getElementById(`part-${name}`);
    if (!element) continue;
    const template = document.createElement("template");
    template.innerHTML = html;
    morph(element, template.content);
    showTimes(element);
  }
  document.documentElement.dataset.updated = String(Number(document.documentElement.dataset.updated || 0) + 1);
}

// A browser has six connections to a server, so a hidden page closes its own.
let source = null;
function listen() {
  const address = document.body.dataset.live;
  if (!address || document.hidden) {
    if (source) source.close();
    source = null;
  } else if (!source) {
    source = new EventSource(address);
    source.addEventListener("parts", (event) => update(JSON.parse(event.data)));
    source.addEventListener("error", () => {
      const note = document.getElementById("trouble");
      note.hidden = false;
      note.textContent = "Not connected to the server: the figures may be out of date.";
    });
  }
}

// A form with data-check is sent to that address while it is filled in, and the response is shown beside it.
function checkForm(form) {
  const target = document.getElementById(form.dataset.show);
  let timer = 0;
  let latest = 0;
  async function check() {
    const number = ++latest;
    const response = await fetch(form.dataset.check, { method: "POST", body: new URLSearchParams(new FormData(form)) });
    const html = await response.text();
    if (number !== latest) return;
    const template = document.createElement("template");
    template.innerHTML = html;
    morph(target, template.content);
  }
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => check().catch(() => {}), 250);
  });
  check().catch(() => {});
}

showTimes(document);
setInterval(() => showTimes(document), 1000);
document.querySelectorAll("form[data-check]").forEach(checkForm);
document.addEventListener("visibilitychange", listen);
listen();
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !event.ctrlKey && !event.metaKey && !/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.nodeName)) {
    const field = document.getElementById("find");
    if (field) {
      event.preventDefault();
      field.focus();
    }
  }
});
