"use strict";
// Shows the operating point that is picked by the slider, by a click on the curve or in the address.

const content = JSON.parse(document.getElementById("content").textContent);
const byId = (id) => document.getElementById(id);
let attribute = content.attributes[0] ?? null;
let member = content.members[content.start];

function options(select, entries, selected) {
  select.replaceChildren(
    ...entries.map(([value, text]) => new Option(text, value, false, value === selected)),
  );
}

function pick(point) {
  member = content.members[point];
  try {
    history.replaceState(null, "", `#point-${point}`);
  } catch {
    // A frame without an address of its own: nothing to note it in.
  }
  show();
}

function show() {
  const weight = content.weights[member.weight];
  const audit = attribute && member.audit ? member.audit[attribute.name] : null;
  const slider = byId("weight");
  slider.value = member.weight;
  slider.setAttribute("aria-valuetext", `weight ${weight.label}`);
  byId("weight-shown").value = weight.label;
  byId("seed-row").hidden = weight.points.length < 2;
  options(
    byId("seed"),
    weight.points.map((point) => [point, content.members[point].seed]),
    member.point,
  );
  showSelection(weight, audit);
  showChosen();
  const words = content.command.join(member.point).split(" "); // a line ends between words, not at a hyphen
  byId("command").replaceChildren(...words.flatMap((word, i) => [i ? " " : "", make("span", {}, word)]));
  byId("audit").replaceChildren(...auditTable(audit, attribute, content.utility.name, member.notes));
  showTraining();
  if (byId("curve")) drawCurve(byId("curve"), content, attribute, member);
  for (const row of document.querySelectorAll("tr[data-point]")) {
    row.classList.toggle("now", row.dataset.point === String(member.point));
  }
}

function showSelection(weight, audit) {
  const strongest = audit?.strongest.value ?? null;
  const heard =
    `, utility ${number(member.utility.test)}` + (audit ? `, strongest attacker ${number(strongest)}` : "");
  byId("selection").replaceChildren(
    make("b", {}, `Point ${member.point}`),
    `: weight ${weight.label}, seed ${member.seed}`,
    make("span", { className: "hidden" }, heard), // seen in the numbers below
  );
  const summary = [
    ["Utility", `test ${content.utility.score}`, number(member.utility.test)],
    [
      "Leakage",
      audit ? `strongest: ${audit.strongest.attacker ?? "none"}` : "not audited",
      audit ? number(strongest) : "unknown",
    ],
  ];
  const rows = [];
  if (audit) {
    const { p_value: p, note } = audit.confidence;
    rows.push(
      ["The paper's attackers", "", number(audit.leakage)],
      [`What ${content.utility.name} alone says`, "", number(audit.label_alone?.[0]?.[0])],
      [
        "Blind guess",
        audit.majority === null ? "the mean" : "the largest class",
        number(audit.majority ?? audit.chance),
      ],
      ["Privacy confidence", p === null ? (note ?? "") : "p-value of independence", number(p)],
    );
  }
  rows.push(
    ["Utility on validation rows", "", number(member.utility.validation)],
    [
      "Live units of z",
      `effective rank ${member.effective_rank?.toFixed(1) ?? "none"}`,
      String(member.live_units ?? "none"),
    ],
    ["Training", `${member.epochs} epoch${member.epochs === 1 ? "" : "s"}`, member.status],
  );
  const entry = ([name, note, value]) =>
    make("div", {}, make("dt", {}, name, note ? make("small", {}, note) : null), make("dd", {}, value));
  byId("summary").replaceChildren(...summary.map(entry));
  byId("numbers").replaceChildren(...rows.map(entry));
}

function showChosen() {
  const line = byId("chosen");
  const chosen = attribute?.chosen ?? null;
  byId("mark").hidden = chosen === null || content.weights.length < 2;
  if (chosen !== null)
    byId("mark").style.setProperty("--at", content.members[chosen].weight / (content.weights.length - 1));
  if (!attribute) line.textContent = "";
  else if (chosen === null)
    line.textContent = "No point is marked as chosen: no audited point has validation rows.";
  else if (chosen === member.point)
    line.textContent = "Chosen on validation rows: largest utility minus leakage.";
  else
    line.replaceChildren(
      "Chosen on validation rows: ",
      make("a", { href: `#point-${chosen}` }, `point ${chosen}`),
      ".",
    );
}

function showTraining() {
  const box = byId("training");
  for (const div of box.querySelectorAll(".chart")) Plotly.purge(div);
  if (!member.history) {
    box.replaceChildren(make("p", { className: "muted" }, "Its history is not there."));
    return;
  }
  const charts = member.history.charts.map((chart) => [chart, make("div", { className: "chart" })]);
  box.replaceChildren(...charts.map(([chart, div]) => make("div", {}, make("h3", {}, chart.title), div)));
  for (const [chart, div] of charts) drawTraining(div, member.history.epochs, chart.lines);
}

async function copy(button) {
  const code = button.parentElement.querySelector("code");
  try {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  } catch {
    getSelection().selectAllChildren(code); // no clipboard here: ready for the reader's own keys
  }
}

function fromAddress() {
  const point = /^#point-(\d+)$/.exec(location.hash)?.[1];
  return point !== undefined && point in content.members ? point : null;
}

function start() {
  const picks = () => attribute?.picks ?? content.weights.map((weight) => weight.points[0]);
  byId("weight").max = content.weights.length - 1;
  byId("weight").disabled = content.weights.length < 2;
  byId("weight").addEventListener("input", (event) => pick(picks()[event.target.value]));
  byId("seed").addEventListener("change", (event) => pick(event.target.value));
  byId("attribute-row").hidden = content.attributes.length < 2;
  options(
    byId("attribute"),
    content.attributes.map((one, i) => [i, one.label]),
    0,
  );
  byId("attribute").addEventListener("change", (event) => {
    attribute = content.attributes[event.target.value];
    show();
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest(".command button");
    if (button) copy(button);
  });
  addEventListener("hashchange", () => {
    if (fromAddress() === null) return;
    pick(fromAddress());
    byId("operating").scrollIntoView({ block: "center" });
  });
  member = content.members[fromAddress() ?? content.start];
  show();
  byId("curve")?.on("plotly_click", (event) => {
    const point = event.points.find((clicked) => clicked.customdata !== undefined)?.customdata;
    if (point !== undefined) pick(point);
  });
  // The charts take the colours and the width of the screen or of the paper.
  const printing = (on) => {
    document.documentElement.classList.toggle("printing", on);
    for (const details of document.querySelectorAll(on ? "details:not([open])" : "details.for-print")) {
      details.open = on;
      details.classList.toggle("for-print", on);
    }
    show();
  };
  addEventListener("beforeprint", () => printing(true));
  addEventListener("afterprint", () => printing(false));
  matchMedia("print").addEventListener("change", (event) => printing(event.matches));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
}

start();
