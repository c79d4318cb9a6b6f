"use strict";
// Where no Authorization comes through (the API server's proxy): the token, typed once, is kept in a variable of this tab and sent by a
// header of our own. A link that is followed would send none, so pages are fetched and put in place here.
let token = "", tag = "", going = 0, stream = null, wait = 2000, again = null;

const headers = (more) => ({ "X-Pumice-Token": token, ...more });
const ask = (url, more, signal) => fetch(url, { headers: headers(more), credentials: "same-origin", cache: "no-store", redirect: "error", signal });

async function go(url, push) {
  const turn = ++going;
  let answer, made;
  try {
    answer = await ask(url, {});
    made = new DOMParser().parseFromString(await answer.text(), "text/html");
  } catch { if (turn === going) say("This page's server does not answer."); return; }
  if (turn !== going) return;
  if (answer.status === 401) { leave(made); return; }
  if (push) history.pushState(null, "", url);
  tag = answer.headers.get("ETag") || "";
  document.body.replaceChildren(...made.body.childNodes);
  document.title = made.title;
  scrollTo(0, 0);
  document.getElementById("main")?.focus({ preventScroll: true });
  if (answer.ok && !stream) listen();
}

// The token has ended, or is none: what it showed is taken away.
function leave(made) {
  token = tag = "";
  stop();
  document.body.replaceChildren(...made.body.childNodes);
  document.title = made.title;
  document.getElementById("token").focus();
}

async function refresh() {
  if (document.hidden || !token) return;
  const turn = going;
  let answer, made;
  try {
    answer = await ask(location.href, tag ? { "If-None-Match": tag } : {});
    if (answer.status === 304) { say("Live."); return; }
    made = new DOMParser().parseFromString(await answer.text(), "text/html");
  } catch { say("Not live: this page's server does not answer."); return; }
  if (turn !== going) return;
  if (answer.status === 401) { leave(made); return; }
  if (answer.status !== 200 && answer.status !== 404) { say(`Not live: the server says ${answer.status}.`); return; }
  tag = answer.headers.get("ETag") || "";
  for (const part of ["main", "footer"]) {
    const old = document.querySelector(part), fresh = made.querySelector(part), active = document.activeElement;
    if (!old || !fresh || old.innerHTML === fresh.innerHTML || (old.contains(active) && active.matches("input, select"))) continue;
    const href = old.contains(active) ? active.getAttribute("href") : null;
    old.replaceChildren(...fresh.childNodes);
    if (href) [...old.querySelectorAll("a[href]")].find((each) => each.getAttribute("href") === href)?.focus({ preventScroll: true });
  }
  document.title = made.title;
  say("Live.");
}

function say(text) {
  const live = document.getElementById("live");
  if (live && live.textContent !== text) live.textContent = text;
}

function stop() { clearTimeout(again); if (stream) stream.abort(); stream = null; }

// An EventSource sends no header of ours, so the stream is read by hand.
async function listen() {
  stop();
  const mine = stream = new AbortController();
  try {
    const answer = await ask("events", {}, mine.signal);
    if (answer.ok) {
      wait = 2000;
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = "", part; !(part = await reader.read()).done;) {
        const lines = (rest + part.value).split("\n");
        rest = lines.pop().slice(0, 1000);
        if (lines.some((line) => line.startsWith("data:"))) refresh();
      }
    }
  } catch { /* it is opened again below */ }
  if (stream !== mine || !token) return;
  stream = null;
  again = setTimeout(() => { if (!document.hidden && token) { listen(); refresh(); } }, wait * (1 + Math.random()));
  wait = Math.min(wait * 2, 60000);
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  if (!link || !token || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  const to = new URL(link.href, document.baseURI);
  if (link.getAttribute("href").startsWith("#") || to.origin !== location.origin) return;
  event.preventDefault();
  go(to.href, true);
});
document.addEventListener("submit", (event) => {
  event.preventDefault();
  if (event.target.id === "viewer") {
    const field = document.getElementById("token");
    token = field.value.trim();
    field.value = "";
    if (/^[\x21-\x7e]+$/.test(token)) go(location.href, false);
    else { token = ""; document.getElementById("wrong").hidden = false; }
    return;
  }
  go(`${new URL(event.target.getAttribute("action"), document.baseURI).href}?${new URLSearchParams(new FormData(event.target))}`, true);
});
addEventListener("popstate", () => { if (token) go(location.href, false); });
document.addEventListener("visibilitychange", () => { if (!token) return; if (document.hidden) stop(); else { listen(); refresh(); } });
addEventListener("pagehide", stop);
