// Asks for the page again every two seconds, and puts what is new in its place. While nothing is, the server answers
// 304. The answer is parsed as a document of its own, in which no script runs.
"use strict";

const main = document.getElementById("live");
const pulse = document.getElementById("pulse");

function reading() {
  const selected = window.getSelection();
  return selected !== null && !selected.isCollapsed && main.contains(selected.anchorNode);
}

async function refresh() {
  const headers = { "If-None-Match": main.dataset.version };
  const answer = await fetch(location.href, { headers, cache: "no-store", redirect: "error" });
  if (answer.status === 304) return;
  if (!answer.ok) throw new Error(`the server answers ${answer.status}`);
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("live");
  for (const opened of main.querySelectorAll("details[open][id]")) {
    fresh.querySelector(`#${CSS.escape(opened.id)}`)?.setAttribute("open", "");
  }
  main.replaceChildren(...fresh.childNodes);
  if (fresh.dataset.version === undefined) delete main.dataset.version;
  else main.dataset.version = fresh.dataset.version;
}

async function tick() {
  if (main.dataset.version === undefined) {
    pulse.className = "pulse";
    pulse.textContent = "";
    return;
  }
  if (!document.hidden && !reading()) {
    try {
      await refresh();
      pulse.className = "pulse live";
      pulse.textContent = "live";
    } catch (error) {
      pulse.className = "pulse lost";
      pulse.textContent = `not up to date: ${error.message}`;
    }
  }
  setTimeout(tick, 2000);
}

tick();
