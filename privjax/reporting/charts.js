"use strict";
// Charts in the colours of the page, so that they follow its theme and its print.

function theme() {
  const style = getComputedStyle(document.documentElement);
  return (name) => style.getPropertyValue(`--${name}`).trim();
}

// Plotly reads a little markup in texts, and a name is never that; nor may it be wider than a chart.
function plain(text) {
  const letters = [...String(text)];
  const short = letters.length > 60 ? `${letters.slice(0, 57).join("")}...` : letters.join("");
  return short.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

function number(value) {
  return value === null || value === undefined ? "none" : value.toFixed(3).replace("-", "\u2212");
}

function withInterval(score) {
  return number(score[0]) + (score.length > 1 ? ` [${number(score[1])}, ${number(score[2])}]` : "");
}

// On the screen a chart fills its place; on paper it has a size of its own, as its place is not laid out yet.
function draw(div, traces, layout, [width, height]) {
  const colour = theme();
  const printing = document.documentElement.classList.contains("printing");
  const base = {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12.5, color: colour("muted") },
    hoverlabel: {
      bgcolor: colour("card"),
      bordercolor: colour("line"),
      font: { color: colour("ink") },
      align: "left",
    },
    hovermode: "closest",
    dragmode: false,
    showlegend: false,
    ...(printing ? { width, height } : { autosize: true }),
  };
  return Plotly.react(div, traces, { ...base, ...layout }, { displayModeBar: false, responsive: true });
}

function axis(colour, title, more) {
  return {
    title: { text: plain(title), standoff: 10, font: { size: 13 } },
    gridcolor: colour("grid"),
    linecolor: colour("line"),
    tickcolor: colour("line"),
    ticks: "outside",
    ticklen: 4,
    showline: true,
    zeroline: false,
    fixedrange: true,
    automargin: true,
    nticks: 7,
    ...more,
  };
}

// The curve of one private variable, with the member that is picked. Markers carry the point that a click picks.
function drawCurve(div, content, attribute, member) {
  const colour = theme();
  const shown = attribute.points.map((point, i) => ({ ...point, i })).filter((point) => point.utility);
  const at = (points, key) => points.map((point) => point[key][0]);
  const bars = (key) => ({
    type: "data",
    array: shown.map((point) => (point[key].length > 1 ? point[key][2] - point[key][0] : 0)),
    arrayminus: shown.map((point) => (point[key].length > 1 ? point[key][0] - point[key][1] : 0)),
    color: colour("faint"),
    thickness: 1.5,
    width: 0,
  });
  const words = shown.map((point) =>
    [
      `<b>weight ${plain(content.weights[point.i].label)}</b> (${point.seeds} seed${point.seeds === 1 ? "" : "s"})`,
      `utility ${withInterval(point.utility)}`,
      `the paper's attackers ${withInterval(point.leakage)}`,
      `strongest of all ${withInterval(point.strongest)}`,
    ].join("<br>"),
  );
  const markers = (key, marker, more) => ({
    mode: "markers",
    x: at(shown, key),
    y: at(shown, "utility"),
    marker,
    hoverinfo: "text",
    hovertext: words,
    customdata: shown.map((point) => attribute.picks[point.i]),
    ...more,
  });
  const upright = (x, dash, text) => ({
    mode: "lines",
    x: x === null ? [] : [x, x],
    y: attribute.y,
    line: { color: colour("muted"), dash, width: 1.5 },
    hoverinfo: "text",
    hovertext: `${plain(text)} ${number(x)}`,
  });
  const front = attribute.front.map((i) => attribute.points[i]);
  const chosen = attribute.chosen === null ? -1 : content.members[attribute.chosen].weight;
  const scale = shown.length > 60 ? 0.6 : 1; // many points want small marks
  const isChosen = (point) => point.i === chosen;
  const seeds = content.weights[member.weight].points
    .map((point) => content.members[point])
    .filter((other) => other.audit && other.audit[attribute.name] && other.utility.test !== null);
  const leak = (other) => other.audit[attribute.name].leakage ?? other.audit[attribute.name].strongest.value;
  const traces = [
    upright(attribute.guess, "dot", "a blind guess scores"),
    upright(attribute.floor, "dash", `${content.utility.name} alone gives away`),
    {
      mode: "lines", // from each mark of the paper's attackers to that of the strongest
      x: shown.flatMap((point) => [point.leakage[0], point.strongest[0], null]),
      y: shown.flatMap((point) => [point.utility[0], point.utility[0], null]),
      line: { color: colour("accent"), width: 1 },
      hoverinfo: "skip",
    },
    {
      mode: "lines",
      x: at(front, "leakage"),
      y: at(front, "utility"),
      line: { color: colour("accent"), width: 2 },
      hoverinfo: "skip",
    },
    markers("strongest", {
      symbol: "circle",
      size: 12 * scale,
      color: colour("card"),
      line: { color: colour("accent"), width: 1.5 },
    }),
    markers(
      "leakage",
      {
        symbol: shown.map((point) => (isChosen(point) ? "diamond" : "circle")),
        size: shown.map((point) => (isChosen(point) ? 14 : 9 * scale)),
        color: colour("accent"),
        opacity: 1,
      },
      { error_x: bars("leakage"), error_y: bars("utility") },
    ),
    {
      mode: "markers",
      x: attribute.ideal ? [attribute.ideal[0]] : [],
      y: attribute.ideal ? [attribute.ideal[1]] : [],
      marker: { symbol: "star", size: 17, color: colour("gold"), line: { color: colour("ink"), width: 0.7 } },
      hoverinfo: "text",
      hovertext: "ideal: the largest utility, nothing leaks<br>but what a guess or the utility label tells",
    },
    {
      mode: "markers", // a ring around the one that is picked, dots for its other seeds
      x: seeds.map(leak),
      y: seeds.map((other) => other.utility.test),
      marker: {
        symbol: seeds.map((other) => (other === member ? "circle-open" : "circle")),
        size: seeds.map((other) => (other === member ? 20 : 6)),
        color: colour("picked"),
        line: { color: colour("picked"), width: 2.5 },
        opacity: 1,
      },
      hoverinfo: "text",
      hovertext: seeds.map(
        (other) =>
          `point ${other.point}, seed ${other.seed}<br>utility ${number(other.utility.test)}, leakage ${number(leak(other))}`,
      ),
      customdata: seeds.map((other) => other.point),
    },
  ];
  return draw(
    div,
    traces,
    {
      margin: { l: 56, r: 12, t: 8, b: 52 },
      xaxis: axis(colour, `what attackers learn of ${attribute.label} (test ${attribute.score})`, {
        range: attribute.x,
      }),
      yaxis: axis(colour, `utility (test ${content.utility.score})`, { range: attribute.y }),
    },
    [660, 400],
  );
}

function drawTraining(div, epochs, lines) {
  const colour = theme();
  const colours = ["accent", "second", "picked", "third", "gold", "muted"].map(colour);
  const traces = Object.entries(lines).map(([name, values], i) => ({
    mode: epochs.length > 1 ? "lines" : "markers",
    name: plain(name),
    x: epochs,
    y: values,
    line: { color: colours[i % colours.length], width: 1.75 },
    hovertemplate: "epoch %{x}: %{y:.4g}",
  }));
  return draw(
    div,
    traces,
    {
      margin: { l: 44, r: 8, t: 8, b: 40 },
      showlegend: true,
      legend: {
        orientation: "h",
        x: 0,
        y: 1.02,
        yanchor: "bottom",
        itemclick: false,
        itemdoubleclick: false,
      },
      xaxis: axis(colour, "epoch", epochs.at(-1) < 8 ? { dtick: 1 } : {}),
      yaxis: axis(colour, "", {}),
    },
    [210, 210],
  );
}
