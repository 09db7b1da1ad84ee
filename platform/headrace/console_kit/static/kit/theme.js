/* Runs before anything is painted: the theme of the cookie, else the system's. */
(function () {
  const asked = document.cookie.match(/(?:^|; )theme=(light|dark)/);
  const dark = asked ? asked[1] === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.bsTheme = dark ? "dark" : "light";
})();
