// Logs in by the token behind the # of the address, which browsers send to nobody. The address is then forgotten.
"use strict";
const said = document.getElementById("said");
async function logIn(token) {
  history.replaceState(null, "", "/login");
  said.textContent = "…";
  try {
    const answer = await fetch("/api/v1/session", {
      method: "POST",
      headers: { "content-type": "application/json", "x-saturn": "1" },
      body: JSON.stringify({ token }),
    });
    if (answer.ok) return location.replace("/");
    said.textContent = "This is not the token of the server that runs now. Open the address that it printed.";
  } catch (error) {
    said.textContent = `not connected: ${error.message}`;
  }
}
const logInByAddress = () => location.hash.length > 1 && logIn(location.hash.slice(1));
logInByAddress();
addEventListener("hashchange", logInByAddress);
