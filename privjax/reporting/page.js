"use strict";
// Shows the member that is selected with the slider, by a click on the curve or in the address.

const content = JSON.parse(document.getElementById("content").textContent);
const byId = (id) => document.getElementById(id);
const config = { displayModeBar: false, responsive: true };
const curve = byId("curve");
let attribute = 0;
let member = content.start;

function select(number) {
  member = Number(number);
  try {
    history.replaceState(null, "", `#member-${member}`);
  } catch {
    // A frame without an address.
  }
  show();
}

function show() {
  const place = content.weights.findIndex((weight) => weight.members.includes(member));
  const { label, members } = content.weights[place];
  byId("detail").replaceChildren(byId(`detail-${member}-${attribute}`).content.cloneNode(true));
  byId("selection").textContent = byId("detail").firstElementChild.getAttribute("aria-label");
  byId("weight").value = place;
  byId("weight").setAttribute("aria-valuetext", `weight ${label}`);
  byId("weight-shown").value = label;
  byId("seed-row").hidden = members.length < 2;
  byId("seed").replaceChildren(...members.map((m) => new Option(content.seeds[m], m, false, m === member)));
  for (const row of document.querySelectorAll("tr[data-member]")) {
    row.classList.toggle("selected", Number(row.dataset.member) === member);
  }
  if (curve) drawCurve(members);
  const charts = content.training[member];
  byId("training").hidden = !charts;
  byId("no-training").hidden = Boolean(charts);
  charts?.forEach((traces, i) => Plotly.react(`training-${i}`, traces, content.trainingLayout, config));
}

// The last trace marks the selected member and the other seeds of its weight.
function drawCurve(members) {
  const { figure, places } = content.attributes[attribute];
  const shown = members.filter((number) => number in places);
  const values = (key) => shown.map((number) => places[number][key]);
  const either = (selected, other) => shown.map((number) => (number === member ? selected : other));
  const last = { ...figure.data.at(-1), customdata: shown };
  Object.assign(last, { x: values("x"), y: values("y"), hovertext: values("text") });
  last.marker = { ...last.marker, symbol: either("circle-open", "circle"), size: either(20, 6) };
  Plotly.react(curve, [...figure.data.slice(0, -1), last], figure.layout, config);
}

async function copy(button) {
  const code = button.parentElement.querySelector("code");
  try {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  } catch {
    getSelection().selectAllChildren(code); // no clipboard: the reader copies the selection
  }
}

// Paper has another width than the screen, and shows closed parts of the page.
function print(on) {
  for (const details of document.querySelectorAll("details")) details.open = on;
  for (const chart of document.querySelectorAll(".js-plotly-plot")) {
    const [width, height] = chart === curve ? [660, 440] : [210, 210];
    Plotly.relayout(chart, on ? { width, height } : { width: null, height: null, autosize: true });
  }
}

function fromAddress() {
  const number = /^#member-(\d+)$/.exec(location.hash)?.[1];
  return number in content.seeds ? number : null;
}

byId("controls").hidden = false;
byId("weight").addEventListener("input", (event) => {
  select(content.attributes[attribute].picks[event.target.value]);
});
byId("seed").addEventListener("change", (event) => select(event.target.value));
byId("attribute").addEventListener("change", (event) => {
  attribute = Number(event.target.value);
  show();
});
addEventListener("click", (event) => event.target.matches(".command button") && copy(event.target));
addEventListener("hashchange", () => {
  if (fromAddress() === null) return;
  select(fromAddress());
  byId("controls").scrollIntoView({ block: "center" });
});
addEventListener("beforeprint", () => print(true));
addEventListener("afterprint", () => print(false));
member = Number(fromAddress() ?? member);
show();
curve?.on("plotly_click", ({ points }) => {
  const clicked = points.find((point) => point.customdata !== undefined);
  if (clicked) select(clicked.customdata);
});
