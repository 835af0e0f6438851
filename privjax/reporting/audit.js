"use strict";
// The table of an audit. Names go in as text, never as markup.

function make(tag, properties, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.filter((child) => child !== null && child !== ""));
  return element;
}

// Attackers by falling score; beside each its interval on a common scale.
function auditTable(audit, attribute, utility, notes) {
  if (!audit) {
    return [make("p", { className: "muted" }, "This point was not audited, so what it leaks is not known.")];
  }
  const names =
    attribute.score === "R²" ? ["R²", "rank correlation"] : ["accuracy", "balanced accuracy", "AUC"];
  const asides = [];
  if (audit.label_alone) asides.push({ name: `${utility} alone`, scores: audit.label_alone, aside: true });
  const blind = audit.majority ?? audit.chance;
  const rest = names.slice(1).map(() => null);
  asides.push({
    name: audit.majority === null ? "the mean" : "the largest class",
    scores: [[blind], ...rest],
    aside: true,
  });
  const rows = [...audit.attackers, ...asides];
  const values = rows.flatMap((row) => row.scores[0] ?? []);
  const low = Math.max(-0.25, Math.min(0, ...values));
  const head = ["attacker", `${names[0]}, 95 % interval`, ...names].map((name, i) =>
    make("th", { scope: "col", className: i === 1 ? "whisker" : "" }, name),
  );
  const table = make(
    "table",
    {},
    make("caption", { className: "hidden" }, "What each attacker learnt, on test rows"),
    make("thead", {}, make("tr", {}, ...head)),
    make("tbody", {}, ...rows.map((row) => auditRow(row, low))),
  );
  const told = [...audit.notes, ...notes, audit.confidence.note].filter(Boolean);
  return [
    make("div", { className: "scroll", role: "region", tabIndex: 0, ariaLabel: "Audit table" }, table),
    ...told.map((note) => make("p", { className: "muted" }, note)),
  ];
}

function auditRow(row, low) {
  const details = [row.paper ? "the paper's" : "", row.settings ?? "", ...(row.notes ?? [])]
    .filter(Boolean)
    .join("; ");
  const name = make(
    "th",
    { scope: "row" },
    row.name,
    details ? make("small", {}, details) : null,
    row.failed ? make("small", { className: "bad" }, `failed: ${row.failed}`) : null,
  );
  const cells = row.scores.map((score) =>
    make(
      "td",
      {},
      score ? number(score[0]) : row.aside ? "" : "none",
      score?.length > 1 ? make("small", {}, `[${number(score[1])}, ${number(score[2])}]`) : null,
    ),
  );
  const track = make("span", { className: "track" });
  if (row.scores[0]) {
    const [value, from, to] = row.scores[0].map((end) => (100 * (Math.max(end, low) - low)) / (1 - low));
    if (from !== undefined) track.append(make("i", { style: `left:${from}%;width:${to - from}%` }));
    track.append(make("b", { className: row.paper ? "paper" : "", style: `left:${value}%` }));
  }
  return make(
    "tr",
    { className: row.aside ? "aside" : "" },
    name,
    make("td", { className: "whisker", ariaHidden: "true" }, track),
    ...cells,
  );
}
