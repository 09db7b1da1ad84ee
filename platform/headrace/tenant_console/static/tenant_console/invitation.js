/* Takes the token from behind the # of the mail's link, off the address, and hands it over. */
"use strict";

const token = location.hash.slice(1);
if (token) {
  history.replaceState(null, "", location.pathname);
  const form = document.getElementById("open-invitation");
  form.elements.token.value = token;
  form.requestSubmit();
}
