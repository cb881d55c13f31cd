// Says where the websocket is, before textual.js opens it, and opens another session on request.
"use strict";
const scheme = location.protocol === "https:" ? "wss:" : "ws:";
document.getElementById("terminal").dataset.sessionWebsocketUrl = `${scheme}//${location.host}/ws`;
// Keys go to the terminal from the first frame on: textual.js marks that in the body's class.
const marks = new MutationObserver(() => {
  if (!document.body.classList.contains("-first-byte")) return;
  marks.disconnect();
  document.querySelector(".xterm-helper-textarea")?.focus();
});
marks.observe(document.body, { attributes: true, attributeFilter: ["class"] });
document.querySelector("#ended button").addEventListener("click", () => location.reload());
