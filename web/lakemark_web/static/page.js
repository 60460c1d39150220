"use strict";
// Keeps an open page up to date: when the service tells of a change, the page is loaded again in the background and the
// parts marked data-live are exchanged. All text comes as HTML that the service has escaped. Everything works without.
(() => {
  const PAUSE_MS = 1500, REFUSED_MS = 30000;
  const status = document.getElementById("live");
  const source = document.body.dataset.live;
  let waiting = false, busy = false, wanted = false, unreachable = false;

  const tell = (text) => { if (status && status.textContent !== text) status.textContent = text; };

  function exchange(fresh) {
    for (const part of document.querySelectorAll("[data-live][id]")) {
      const other = fresh.getElementById(part.id);
      // What somebody is in the middle of stays as it is.
      if (!other || other.innerHTML === part.innerHTML || part.contains(document.activeElement)) continue;
      const open = new Set([...part.querySelectorAll("details[open][id]")].map((one) => one.id));
      const next = document.importNode(other, true);
      for (const one of next.querySelectorAll("details[id]")) one.open = open.has(one.id);
      const scrolled = [...part.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
      part.replaceWith(next);
      [...next.querySelectorAll(".scroll")].forEach((one, at) => { one.scrollLeft = scrolled[at] || 0; });
      next.classList.add("fresh");
    }
  }

  async function load() {
    if (busy || document.hidden) { wanted = true; return; }
    busy = true; wanted = false;
    try {
      const answer = await fetch(location.href, { cache: "no-store" });
      if (!answer.ok) throw new Error(answer.status);
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      exchange(fresh);
      document.body.dataset.again = fresh.body.dataset.again || "";
      unreachable = false;
      tell("up to date at " + new Date().toISOString().slice(11, 19) + " UTC");
    } catch {
      unreachable = true;
      tell("the service cannot be reached; trying again");
    } finally {
      busy = false;
      if (wanted && !document.hidden) soon();
      later();
    }
  }

  // One timer, however often other reasons load the page.
  function later() {
    clearTimeout(later.timer);
    const seconds = Number(document.body.dataset.again || 0);
    if (seconds) later.timer = setTimeout(soon, seconds * 1000);
  }

  function soon() {
    if (waiting) { wanted = true; return; }
    waiting = true;
    setTimeout(() => { waiting = false; load(); }, 50);
  }

  let last = 0;
  function changed() {
    const rest = last + PAUSE_MS - Date.now();
    if (rest > 0) { clearTimeout(changed.later); changed.later = setTimeout(changed, rest); return; }
    last = Date.now();
    soon();
  }

  document.addEventListener("visibilitychange", () => { if (!document.hidden && wanted) soon(); });
  for (const one of document.querySelectorAll("select[data-submit]")) {
    one.addEventListener("change", () => one.form.requestSubmit());
  }
  function listen() {
    const stream = new EventSource(source);
    stream.addEventListener("ready", () => { tell("live"); if (unreachable) soon(); });
    stream.addEventListener("change", changed);
    stream.addEventListener("error", () => {
      unreachable = true;
      tell("not live; trying again");
      // A browser tries again by itself only where it had been let in.
      if (stream.readyState === EventSource.CLOSED) setTimeout(listen, REFUSED_MS);
    });
  }
  if (source && window.EventSource) listen();
  later();
})();
