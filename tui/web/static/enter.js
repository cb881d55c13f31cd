// Trades the invitation behind the # for a cookie. It leaves the address at once, and works but once: a browser that
// has a cookie already spends it too, so that none which still works stays in a history.
"use strict";
function tell(text) {
  const told = document.getElementById("told");
  if (told) told.textContent = text;
}
async function enter() {
  const invitation = location.hash.slice(1);
  if (!invitation) return;
  history.replaceState(null, "", "/");
  tell("Opening...");
  try {
    const answer = await fetch("/session", { method: "POST", body: new URLSearchParams({ invitation }) });
    if (answer.ok) return location.reload();
    tell(await answer.text());
  } catch {
    tell("The server does not answer.");
  }
}
enter();
addEventListener("hashchange", enter);
