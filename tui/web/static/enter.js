// Trades the invitation behind the # for a cookie. The invitation leaves the address at once, and works but once.
"use strict";
async function enter() {
  const invitation = location.hash.slice(1);
  if (!invitation) return;
  history.replaceState(null, "", "/");
  const told = document.getElementById("told");
  told.textContent = "Opening...";
  try {
    const answer = await fetch("/session", { method: "POST", body: new URLSearchParams({ invitation }) });
    if (answer.ok) return location.reload();
    told.textContent = await answer.text();
  } catch {
    told.textContent = "The server does not answer.";
  }
}
enter();
addEventListener("hashchange", enter);
