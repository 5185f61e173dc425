"use strict";
// Draws every figure in the colours of the page's theme; legends switch a series in all panels of their figure.
(() => {
  const CONFIG = { responsive: true, displayModeBar: false, doubleClick: "reset+autosize" };
  const touch = matchMedia("(hover: none)");
  const dark = matchMedia("(prefers-color-scheme: dark)");

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

  // "@ink" and the like stand for the page's own colours and font.
  const themed = (text) => JSON.parse(text.replace(/"@(\w+)"/g, (_, name) => JSON.stringify(css(name))));

  const hidden = (figure) =>
    new Set([...figure.querySelectorAll('.key[aria-pressed="false"]')].map((key) => key.dataset.series));

  const draw = (figure) => {
    const off = hidden(figure);
    return [...figure.querySelectorAll(".panel")].map((panel) => {
      const spec = themed(panel.querySelector("script").textContent);
      for (const trace of spec.data) trace.visible = !off.has(trace.legendgroup);
      spec.layout.dragmode = touch.matches ? false : "zoom"; // a finger scrolls the page
      return Plotly.react(panel.querySelector(".plot"), spec.data, spec.layout, CONFIG);
    });
  };

  const figures = [...document.querySelectorAll("figure")];
  for (const figure of figures) {
    figure.querySelector("[data-svg]").href = figure.querySelector(".still").src;
    figure.addEventListener("click", (event) => {
      const key = event.target.closest(".key");
      if (!key) return;
      key.setAttribute("aria-pressed", key.getAttribute("aria-pressed") === "false");
      draw(figure);
    });
  }
  const everything = () => Promise.all(figures.flatMap(draw));
  dark.addEventListener("change", everything);
  everything().then(() => document.documentElement.setAttribute("data-drawn", ""));
})();
