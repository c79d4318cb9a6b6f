"use strict";
// Keeps the page as it is in the cluster: told that there is news, it loads itself again and exchanges what stands in <main>.
const live = document.getElementById("live");
let tag = "", loading = false, again = false, stream = null, wait = 2000, heard = Date.now();

const say = (text) => { if (live.textContent !== text) live.textContent = text; };
const clock = (at) => new Date(at).toLocaleTimeString();

async function refresh() {
  if (document.hidden) { again = true; return; }
  if (loading) { again = true; return; }
  loading = true;
  again = false;
  try {
    const answer = await fetch(location.href, { headers: tag ? { "If-None-Match": tag } : {}, credentials: "same-origin", cache: "no-store" });
    if (answer.status === 401) { stop(); location.reload(); return; }
    if (answer.status === 200 || answer.status === 404) {
      tag = answer.headers.get("ETag") || "";
      exchange(new DOMParser().parseFromString(await answer.text(), "text/html"));
    }
    if (answer.status < 500) { heard = Date.now(); say("Live."); }
  } catch { lost(); }
  loading = false;
  if (again && !document.hidden) setTimeout(refresh, 500);
}

function exchange(fresh) {
  for (const part of ["main", "footer"]) {
    const old = document.querySelector(part), made = fresh.querySelector(part);
    if (!old || !made || old.innerHTML === made.innerHTML) continue;
    const active = document.activeElement, inside = old.contains(active);
    if (inside && active.matches("input, select")) { again = false; continue; } // who types is not disturbed
    const open = new Map([...old.querySelectorAll("details[id]")].map((each) => [each.id, each.open]));
    const scrolled = [...old.querySelectorAll(".wide")].map((each) => each.scrollLeft);
    const href = inside ? active.getAttribute("href") : null;
    old.replaceChildren(...made.childNodes);
    for (const each of old.querySelectorAll("details[id]")) if (open.has(each.id)) each.open = open.get(each.id);
    old.querySelectorAll(".wide").forEach((each, at) => { each.scrollLeft = scrolled[at] || 0; });
    if (href) [...old.querySelectorAll("a[href]")].find((each) => each.getAttribute("href") === href)?.focus({ preventScroll: true });
  }
  document.title = fresh.title;
}

function lost() { say(`Not live: this page's server does not answer. What stands here is from ${clock(heard)}.`); }
function stop() { if (stream) stream.close(); stream = null; }

function listen() {
  stop();
  stream = new EventSource("events");
  stream.onopen = () => { wait = 2000; };
  stream.onmessage = refresh;
  stream.onerror = () => {
    stop();
    lost();
    setTimeout(() => { if (!document.hidden) { listen(); refresh(); } }, wait * (1 + Math.random()));
    wait = Math.min(wait * 2, 60000);
  };
}

// A tab that nobody looks at costs nothing; when it is looked at again it is loaded anew.
document.addEventListener("visibilitychange", () => { if (document.hidden) stop(); else { listen(); refresh(); } });
addEventListener("pageshow", (event) => { if (event.persisted) { listen(); refresh(); } });
addEventListener("pagehide", stop);
listen();
