"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
  const CHOOSERS = { dataset: "Dataset", protocol: "Protocol", n_way: "N", k_shot: "K", more: "Setting" };
  const state = { panel: 0, metric: 0, session: "last", shown: new Set(data.shown), one: null, view: "values", sort: null };

  // Numbers. Percent values are whole tenths; other values are texts. Nothing here is computed again.
  const text = (value) => typeof value === "string" ? value : (value / 10).toFixed(1);
  const number = (value) => typeof value === "string" ? Number(value) : value / 10;
  const signed = (value) => (value < 0 ? "" : "+") + text(value);
  const estimate = (mean, half) => mean === null ? "" : half === null ? text(mean) : `${text(mean)} ± ${text(half)}`;
  const difference = (mean, low, high) =>
    mean === null ? "" : signed(mean) + (low === null ? "" : ` [${signed(low)}, ${signed(high)}]`);

  const panel = () => data.panels[state.panel];
  const metric = () => data.metrics[state.metric];
  const numbers = () => panel().numbers[state.metric];
  const label = (row) => data.labels[panel().rows[row]];
  const rowOf = (index) => panel().rows.indexOf(index);
  const sessions = () => metric().sessions ? numbers().values[0].length / 2 - 1 : 0;
  const column = () => {
    if (!metric().sessions) return 0;
    if (state.session === "average") return sessions();
    return state.session === "last" ? sessions() - 1 : Math.min(state.session, sessions() - 1);
  };
  const value = (row, at = column()) => numbers().values[row].slice(2 * at, 2 * at + 2);
  const minus = (row, at = column()) => numbers().minus[row].slice(3 * at, 3 * at + 3);
  const isTested = () => state.metric === 0 && column() === sessions() - 1;
  const shownRows = () => panel().rows.map((_, row) => row).filter((row) => state.shown.has(panel().rows[row]));
  const when = () => !metric().sessions ? "over all sessions"
    : column() === sessions() ? "average over sessions"
      : `session ${column()}${column() === sessions() - 1 ? " (last)" : ""}`;

  // Elements.
  const SVG = "http://www.w3.org/2000/svg";
  function fill(element, attributes, children) {
    for (const [name, content] of Object.entries(attributes)) {
      if (content !== null && content !== false) element.setAttribute(name, content === true ? "" : content);
    }
    element.append(...children.filter((child) => child !== null));
    return element;
  }
  const make = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
  const draw = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

  // The markers of the report's figures, as polygons around 0.
  function polygon(corners, turn, inner = null) {
    const steps = inner === null ? corners : 2 * corners;
    return [...Array(steps).keys()].map((step) => {
      const radius = inner !== null && step % 2 ? inner : 1;
      const angle = (turn + 360 * step / steps) * Math.PI / 180;
      return [radius * Math.sin(angle), -radius * Math.cos(angle)];
    });
  }
  const THIRD = 0.36;
  const cross = [[-THIRD, -1], [THIRD, -1], [THIRD, -THIRD], [1, -THIRD], [1, THIRD], [THIRD, THIRD], [THIRD, 1], [-THIRD, 1],
    [-THIRD, THIRD], [-1, THIRD], [-1, -THIRD], [-THIRD, -THIRD]];
  const turned = (points) => points.map(([x, y]) => [(x - y) * Math.SQRT1_2, (x + y) * Math.SQRT1_2]);
  const MARKERS = {
    s: polygon(4, 45), "^": polygon(3, 0), D: polygon(4, 0), v: polygon(3, 180), P: cross, X: turned(cross),
    "<": polygon(3, 270), ">": polygon(3, 90), h: polygon(6, 0), "*": polygon(5, 0, 0.42), p: polygon(5, 0),
    d: polygon(4, 0).map(([x, y]) => [0.6 * x, y]), 8: polygon(8, 22.5), H: polygon(6, 30),
  };
  const lookOf = (index) => data.looks[index][0];
  function marker(index, x, y, size) {
    const kind = data.looks[index][1];
    const attributes = { class: `mark look-${lookOf(index)}` };
    if (!(kind in MARKERS)) return draw("circle", { ...attributes, cx: x, cy: y, r: kind === "." ? 0.6 * size : 0.85 * size });
    return draw("polygon", { ...attributes, points: MARKERS[kind].map(([a, b]) => `${x + size * a},${y + size * b}`).join(" ") });
  }
  const swatch = (index) => draw("svg", { class: "swatch", viewBox: "0 0 34 14", width: 34, height: 14, "aria-hidden": "true" },
    draw("line", { ...strokeOf(index, 2), x1: 1, x2: 33, y1: 7, y2: 7 }), marker(index, 17, 7, 4.5));
  const strokeOf = (index, width) => ({
    class: `line look-${lookOf(index)}`,
    "stroke-width": width,
    "stroke-dasharray": data.looks[index][2].map((part) => part * width).join(" ") || null,
  });

  // Axes.
  function ticks(low, high, most) {
    const rough = (high - low) / most || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
    const digits = Math.max(0, -Math.floor(Math.log10(step)));
    const found = [];
    for (let at = Math.ceil(low / step); at * step <= high + 1e-9; at++) found.push([at * step, (at * step).toFixed(digits)]);
    return found;
  }
  function wholeTicks(last) {
    const step = [1, 2, 5, 10, 20, 50, 100].find((each) => last / each <= 12) ?? last;
    return [...Array(Math.floor(last / step) + 1).keys()].map((each) => [each * step, String(each * step)]);
  }
  function logTicks(low, high) {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power++) {
      for (const each of [1, 2, 5]) {
        const at = each * 10 ** power;
        if (at >= low && at <= high) found.push([at, String(Number(at.toPrecision(1)))]);
      }
    }
    return found;
  }
  function range(values, room) {
    const low = Math.min(...values), high = Math.max(...values);
    const more = (high - low || 1) * room;
    return [low - more, high + more];
  }

  // A chart: axes, what `content` draws, and a point for each thing to hover. `points` are {x, y, row, words}.
  function chart(host, { height, xs, ys, xTicks, yTicks, xName, yName, log = false, name, content, points }) {
    const width = Math.max(260, host.clientWidth);
    const box = { left: 46, right: width - 12, top: 10, bottom: height - 40 };
    const scale = log ? Math.log10 : (at) => at;
    const [x0, x1] = xs.map(scale);
    const x = (at) => box.left + (scale(at) - x0) / (x1 - x0 || 1) * (box.right - box.left);
    const y = (at) => box.bottom - (at - ys[0]) / (ys[1] - ys[0] || 1) * (box.bottom - box.top);
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": name, tabindex: points.length ? 0 : null });
    for (const [at, words] of yTicks) {
      svg.append(draw("line", { class: "grid", x1: box.left, x2: box.right, y1: y(at), y2: y(at) }),
        draw("text", { class: "tick", x: box.left - 7, y: y(at) + 4, "text-anchor": "end" }, words));
    }
    for (const [at, words] of xTicks) {
      svg.append(draw("line", { class: "axis", x1: x(at), x2: x(at), y1: box.bottom, y2: box.bottom + 4 }),
        draw("text", { class: "tick", x: x(at), y: box.bottom + 17, "text-anchor": "middle" }, words));
    }
    svg.append(draw("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }),
      draw("text", { class: "name", x: (box.left + box.right) / 2, y: height - 5, "text-anchor": "middle" }, xName),
      draw("text", { class: "name", transform: `translate(11 ${(box.top + box.bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, yName));
    content(svg, x, y, box);
    const ring = draw("circle", { class: "ring", r: 9, visibility: "hidden" });
    svg.append(ring);
    hover(svg, ring, points.map((point) => ({ ...point, px: x(point.x), py: y(point.y) })));
    host.replaceChildren(svg);
  }

  // Hover, focus and arrow keys name the nearest point. A click or Enter chooses its configuration.
  function hover(svg, ring, points) {
    let current = null;
    const show = (point) => {
      current = point;
      ring.setAttribute("visibility", point ? "visible" : "hidden");
      if (!point) return hideTip();
      ring.setAttribute("cx", point.px);
      ring.setAttribute("cy", point.py);
      const frame = svg.getBoundingClientRect();
      showTip(point.words, frame.left + point.px, frame.top + point.py);
    };
    const under = (event) => {
      const frame = svg.getBoundingClientRect();
      const [left, top] = [event.clientX - frame.left, event.clientY - frame.top];
      const far = (point) => Math.hypot(point.px - left, point.py - top);
      const best = points.reduce((a, b) => a && far(a) <= far(b) ? a : b, null);
      return best && far(best) < 40 ? best : null;
    };
    let isSecondTap = true; // a finger names a point first, and chooses it with a second tap
    svg.addEventListener("pointerdown", (event) => {
      if (event.pointerType !== "touch") return;
      const point = under(event);
      isSecondTap = point !== null && point === current;
      show(point);
    });
    svg.addEventListener("pointermove", (event) => { if (event.pointerType !== "touch") show(under(event)); });
    svg.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") show(null); });
    svg.addEventListener("blur", () => show(null));
    svg.addEventListener("focus", () => { if (svg.matches(":focus-visible") && points.length) show(points[0]); });
    svg.addEventListener("click", () => { if (isSecondTap && current?.row !== undefined) choose(current.row, true); });
    svg.addEventListener("keydown", (event) => {
      if (event.key === "Escape") return show(null);
      if (event.key === "Enter" && current?.row !== undefined) return choose(current.row, true);
      const next = neighbour(points, current, event.key);
      if (next) {
        event.preventDefault();
        show(next);
      }
    });
  }
  // Left and right move along x. Up and down move between points with the same x, or along y.
  function neighbour(points, current, key) {
    const along = { ArrowLeft: ["px", -1], ArrowRight: ["px", 1], ArrowUp: ["py", -1], ArrowDown: ["py", 1] }[key];
    if (!along || !points.length) return null;
    if (!current) return points[0];
    const [axis, sign] = along;
    const other = axis === "px" ? "py" : "px";
    const ahead = points.filter((point) => sign * (point[axis] - current[axis]) > 0.01);
    const lined = axis === "px" ? ahead.filter((point) => point.row === current.row) : ahead.filter((point) => Math.abs(point.px - current.px) < 0.01);
    const from = lined.length ? lined : ahead;
    return from.reduce((a, b) => a && Math.abs(a[axis] - current[axis]) + 1e-3 * Math.abs(a[other] - current[other])
      <= Math.abs(b[axis] - current[axis]) + 1e-3 * Math.abs(b[other] - current[other]) ? a : b, null);
  }

  const tip = byId("tip");
  function showTip(words, left, top) {
    tip.replaceChildren(...words.filter(Boolean).map((line, place) => make(place === 0 ? "strong" : line.startsWith("hagmeta ") ? "code" : "span", {}, line)));
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    const room = document.documentElement.clientWidth;
    tip.style.left = `${Math.max(8, Math.min(left + 14, room - width - 8)) + scrollX}px`;
    tip.style.top = `${(top - height - 14 < 0 ? top + 18 : top - height - 14) + scrollY}px`;
  }
  function hideTip() { tip.hidden = true; }

  // The words at a point: mean, interval, seeds and command.
  function words(row, at, place) {
    const found = panel();
    const [mean, half] = value(row, at);
    const rows = [label(row), `${metric().title}, ${place}: ${estimate(mean, half)}${metric().percent ? " %" : ""}`,
      half === null ? "one seed, no interval" : "mean ± half of the 95 % interval"];
    if (numbers().minus.length && row !== found.reference) rows.push(`minus ${label(found.reference)}: ${difference(...minus(row, at))} points`);
    return [...rows, `seeds: ${found.seeds[row]}`, found.commands[row]];
  }

  function drawCurves() {
    const isMinus = state.view === "minus" && numbers().minus.length > 0;
    const isCurve = metric().sessions; // other metrics have one value per run: a column for each configuration
    const { rows } = isCurve ? { rows: shownRows() } : sortedRows(tableColumns());
    const count = isCurve ? sessions() : rows.length;
    const at = (row, session) => isMinus ? minus(row, session) : value(row, session);
    const limits = ([mean, ...rest]) => isMinus ? [mean, rest[0] ?? mean, rest[1] ?? mean]
      : [number(mean), number(mean) - number(rest[0] ?? 0), number(mean) + number(rest[0] ?? 0)].map((each) => each * 10);
    const points = [];
    const series = rows.map((row, place) => {
      const line = [];
      for (let session = 0; session < Math.max(1, sessions()); session++) {
        const found = at(row, session);
        if (found[0] === null) continue;
        const [y, low, high] = limits(found).map((each) => each / 10);
        line.push({ x: isCurve ? session : place, y, low, high, row, words: words(row, session, isCurve ? `session ${session}` : when()) });
      }
      points.push(...line);
      return { row, index: panel().rows[row], line };
    });
    const unit = isMinus ? "points" : metric().percent ? "%" : "";
    const note = byId("curves-words");
    byId("chart-title").textContent = `${capital(metric().title)} ${isCurve ? "by session" : "by configuration"}: ${panel().title}`;
    if (!points.length) {
      byId("curves").replaceChildren(make("p", { class: "empty" }, "No configuration to draw. Choose some in the list."));
      note.textContent = "";
      return;
    }
    const ys = range([...points.flatMap(({ low, high }) => [low, high]), ...(isMinus ? [0] : [])], 0.04);
    const chosen = isCurve && column() < sessions() ? column() : null;
    const host = byId("curves");
    chart(host, {
      height: host.clientWidth < 500 ? 300 : 380,
      xs: isCurve ? [-0.25, count - 0.75] : [-0.7, count - 0.3], ys,
      xTicks: isCurve ? wholeTicks(count - 1) : [],
      yTicks: ticks(...ys, 7),
      xName: isCurve ? "session" : "configurations, in the order of the table",
      yName: `${isMinus ? "difference" : metric().title}${unit ? ` (${unit})` : ""}`,
      name: `${metric().title} ${isCurve ? "by session" : "by configuration"}. The table below has the numbers. Arrow keys move between points.`,
      points,
      content: (svg, x, y, box) => {
        if (chosen !== null) svg.append(draw("line", { class: "chosen", x1: x(chosen), x2: x(chosen), y1: box.top, y2: box.bottom }));
        if (isMinus) svg.append(draw("line", { class: "axis", x1: box.left, x2: box.right, y1: y(0), y2: y(0) }));
        const shade = Math.min(0.16, 0.5 / series.length);
        for (const { index, line } of series) {
          if (!isCurve) {
            svg.append(...line.map((p) => draw("line", { class: `bar look-${lookOf(index)}`, x1: x(p.x), x2: x(p.x), y1: y(p.low), y2: y(p.high) })));
            continue;
          }
          const edge = [...line.map((p) => [x(p.x), y(p.high)]), ...line.slice().reverse().map((p) => [x(p.x), y(p.low)])];
          svg.append(draw("polygon", { class: `band look-${lookOf(index)}`, "fill-opacity": shade, points: edge.map((p) => p.join()).join(" ") }));
        }
        for (const { index, line } of series) {
          const isOne = index === state.one;
          svg.append(draw("polyline", { ...strokeOf(index, isOne ? 3.4 : 1.7), points: line.map((p) => `${x(p.x)},${y(p.y)}`).join(" ") }));
          for (const p of line) svg.append(marker(index, x(p.x), y(p.y), isOne ? 6 : 4.4));
        }
      },
    });
    const bands = isCurve ? "Bands" : "Bars";
    note.textContent = (isMinus
      ? `Each configuration minus ${label(panel().reference)}, paired by seed, in points. ${bands} are 95 % intervals, not corrected.`
      : `Means over the seeds. ${bands} are 95 % intervals (Student's t).`)
      + (chosen === null ? "" : " The dotted line is the session of the table.")
      + " Point at a mark, or focus the chart and use the arrow keys.";
  }

  const capital = (words) => words[0].toUpperCase() + words.slice(1);

  // The table of the chosen session.
  function tableColumns() {
    const found = panel();
    const reference = found.reference;
    const columns = [
      { key: "name", name: "configuration", text: label, order: label },
      { key: "seeds", name: "seeds", right: true, text: (row) => found.seeds[row], order: (row) => parseInt(found.seeds[row], 10) },
      { key: "value", name: metric().title, right: true, text: (row) => estimate(...value(row)), order: (row) => value(row)[0] },
    ];
    if (numbers().minus.length) columns.push({ key: "minus", name: "minus reference", right: true,
      text: (row) => row === reference ? "reference" : difference(...minus(row)), mark: (row) => isTested() && found.asterisks[row] ? "*" : "", order: (row) => minus(row)[0] });
    if (isTested() && found.verdicts.length) columns.push({ key: "verdict", name: "verdict", text: (row) => found.verdicts[row], order: (row) => found.verdicts[row] });
    if (found.seconds.some(Boolean)) columns.push({ key: "seconds", name: "seconds", right: true, text: (row) => found.seconds[row] ?? "", order: (row) => found.seconds[row] === null ? null : Number(found.seconds[row]) });
    return columns;
  }
  function sortedRows(columns) {
    const rows = shownRows();
    const [key, direction] = state.sort ?? (isTested() ? ["", 1] : ["value", metric().higher ? -1 : 1]);
    const by = columns.find((each) => each.key === key);
    if (!by) return { rows, key, direction };
    const compare = (a, b) => typeof a === "string" ? collator.compare(a, b) : Number(a) - Number(b);
    rows.sort((a, b) => (by.order(a) === null) - (by.order(b) === null) || direction * compare(by.order(a), by.order(b)));
    return { rows, key, direction };
  }
  function drawTable() {
    const found = panel();
    const columns = tableColumns();
    const { rows, key, direction } = sortedRows(columns);
    byId("table-title").textContent = `${capital(metric().title)}, ${when()}`;
    const head = make("tr", {}, ...columns.map((each) => {
      const button = make("button", { type: "button", title: "Sort", "data-sort": each.key }, each.name);
      const sorted = each.key === key ? (direction > 0 ? "ascending" : "descending") : null;
      return make("th", { scope: "col", class: each.right ? "n" : null, "aria-sort": sorted }, button);
    }));
    const body = rows.map((row) => make("tr", { class: found.rows[row] === state.one ? "one" : null, "data-row": row },
      ...columns.map((each, place) => place === 0
        ? make("th", { scope: "row" }, nameButton(row))
        : make("td", { class: each.right ? "n" : null }, each.text(row), each.mark?.(row) ? make("sup", {}, each.mark(row)) : null))));
    byId("table").replaceChildren(make("thead", {}, head), make("tbody", {}, ...body));
    const unit = metric().percent ? "in percent" : "in the units of the metric";
    const open = [`Values are means ± 95 % intervals over the seeds (Student's t), ${unit}. Click a configuration for its details.`];
    if (!isTested() && found.verdicts.length) open.push(`Verdicts exist for ${data.metric} at the last session only.`);
    const folded = [...(isTested() && found.verdicts.length ? [data.words.tests] : []), ...found.notes];
    const isOpen = byId("table-words").querySelector("details")?.open ?? false;
    byId("table-words").replaceChildren(...open.map((line) => make("p", {}, line)),
      folded.length ? make("details", { open: isOpen }, make("summary", {}, "Notes and tests"), ...folded.map((line) => make("p", {}, line))) : "");
  }
  function nameButton(row) {
    const found = panel();
    const badge = found.oracles.includes(row) && !label(row).includes("oracle") ? make("span", { class: "badge" }, "oracle") : null;
    const button = make("button", { type: "button", class: "choose", "data-row": row, "aria-pressed": String(found.rows[row] === state.one) }, swatch(found.rows[row]), label(row));
    return fill(document.createDocumentFragment(), {}, [button, badge]);
  }

  function drawCost() {
    const found = panel();
    const rows = shownRows().filter((row) => found.seconds[row] !== null && value(row)[0] !== null);
    const host = byId("cost"), note = byId("cost-words");
    byId("cost-title").textContent = `${capital(metric().title)} and cost, ${when()}`;
    if (!rows.length) {
      host.replaceChildren(make("p", { class: "empty" }, found.seconds.some(Boolean) ? "No configuration to draw." : "The runs used different devices or have no device, so their costs are not comparable."));
      note.textContent = "";
      return;
    }
    const seconds = (row) => Number(found.seconds[row]);
    const points = rows.map((row) => {
      const [mean, half] = value(row).map((each) => each === null ? 0 : number(each));
      return { x: seconds(row), y: mean, low: mean - half, high: mean + half, row, words: [...words(row, column(), when()).slice(0, -1), `${found.seconds[row]} seconds per run`, found.commands[row]] };
    });
    const front = numbers().fronts[column()];
    const all = points.map((point) => point.x);
    const log = Math.max(...all) > 8 * Math.min(...all);
    const xs = log ? [Math.min(...all) / 1.3, Math.max(...all) * 1.3] : range(all, 0.08);
    const ys = range(points.flatMap(({ low, high }) => [low, high]), 0.06);
    const narrow = host.clientWidth < 500;
    chart(host, {
      height: narrow ? 280 : 340, xs, ys, log, points,
      xTicks: (log ? logTicks(...xs) : ticks(...xs, narrow ? 4 : 8)).filter((_, place, every) => !narrow || every.length < 7 || place % 2 === 0),
      yTicks: ticks(...ys, 6), xName: "seconds per run", yName: `${metric().title}${metric().percent ? " (%)" : ""}`,
      name: `${metric().title} against seconds per run. The table above has both numbers. Arrow keys move between points.`,
      content: (svg, x, y) => {
        const there = front.filter((row) => rows.includes(row));
        const steps = there.flatMap((row, place) => {
          const at = [x(seconds(row)), y(number(value(row)[0]))];
          return place === 0 ? [at] : [[at[0], y(number(value(there[place - 1])[0]))], at];
        });
        svg.append(draw("polyline", { class: "front", points: steps.map((p) => p.join()).join(" ") }));
        for (const point of points) {
          const index = found.rows[point.row];
          svg.append(draw("line", { class: `bar look-${lookOf(index)}`, x1: x(point.x), x2: x(point.x), y1: y(point.low), y2: y(point.high) }),
            marker(index, x(point.x), y(point.y), index === state.one ? 7.5 : 5.5));
        }
      },
    });
    const hidden = front.filter((row) => !rows.includes(row)).length;
    note.textContent = `The dashed line joins configurations that no other one beats in both cost and ${metric().title}, without oracles.`
      + (hidden ? ` ${hidden} of them ${hidden === 1 ? "is" : "are"} hidden.` : "") + ` ${data.words.cost}`;
  }

  // The details of one configuration.
  function drawOne() {
    const found = panel();
    const row = rowOf(state.one);
    byId("detail-title").textContent = `One configuration: ${label(row)}`;
    setOptions(byId("one"), found.rows.map((index) => [index, data.labels[index]]), state.one);
    const facts = [[`${metric().title}, ${when()}`, estimate(...value(row))], ["seeds", found.seeds[row]],
      ...(found.seconds[row] === null ? [] : [["seconds per run", found.seconds[row]]]),
      ...(found.verdicts[row] ? [[`${data.metric}, last session`, `${found.verdicts[row]} (against ${label(found.reference)})`]] : [])];
    byId("facts").replaceChildren(...facts.map(([name, words]) => make("div", {}, make("dt", {}, name), make("dd", {}, words))));
    byId("command").textContent = found.commands[row];
    drawSliders(row);
    drawClasses(row);
    drawQueries(row);
  }

  // Sliders: a slider moves to the configuration with this value that shares most other values.
  function drawSliders(row) {
    const grid = panel().settings.find((each) => row in each.rows);
    const host = byId("sliders"), note = byId("settings-words");
    if (!grid) {
      note.textContent = "No setting of this method varies here.";
      host.replaceChildren();
      delete host.dataset.grid;
      return;
    }
    const own = grid.rows[row];
    const rows = Object.keys(grid.rows).map(Number);
    note.textContent = `Move a slider to another configuration of ${grid.title} that was run. If the exact combination was not run, `
      + "the page takes the one that shares most settings. Dots are all configurations. The line joins those that differ in this setting only.";
    const here = `${state.panel} ${grid.title}`;
    if (host.dataset.grid !== here) {
      host.dataset.grid = here;
      host.replaceChildren(...grid.keys.map((key, place) => makeSlider(grid, rows, key, place)));
    }
    grid.keys.forEach((key, place) => {
      const box = host.children[place];
      const words = grid.values[place][own[place]];
      const input = box.querySelector("input");
      input.value = own[place];
      input.setAttribute("aria-valuetext", words);
      box.querySelector("output").textContent = words;
      drawSensitivity(box.querySelector(".chart"), grid, rows, row, place);
    });
  }
  function makeSlider(grid, rows, key, place) {
    const input = make("input", { type: "range", min: 0, max: grid.values[place].length - 1, step: 1, id: `slider-${key}` });
    input.addEventListener("input", () => choose(nearest(grid, rows, grid.rows[rowOf(state.one)], place, Number(input.value))));
    return make("div", { class: "slider" }, make("label", { for: `slider-${key}` }, key, " ", make("output")), input, make("div", { class: "chart" }));
  }
  function nearest(grid, rows, own, place, wanted) {
    const shared = (row) => grid.rows[row].filter((each, other) => other !== place && each === own[other]).length;
    const there = rows.filter((row) => grid.rows[row][place] === wanted);
    return there.reduce((a, b) => shared(a) >= shared(b) ? a : b);
  }
  function drawSensitivity(host, grid, rows, row, place) {
    const own = grid.rows[row];
    const known = rows.filter((each) => value(each)[0] !== null);
    const line = known.filter((each) => grid.rows[each].every((at, other) => other === place || at === own[other]))
      .sort((a, b) => grid.rows[a][place] - grid.rows[b][place]);
    const at = (each) => [grid.rows[each][place], number(value(each)[0])];
    if (!known.length) return;
    const ys = range(known.map((each) => at(each)[1]), 0.1);
    const values = grid.values[place];
    const most = Math.max(1, Math.ceil(values.length * Math.max(...values.map((each) => each.length)) / 26));
    chart(host, {
      height: 150, xs: [-0.5, values.length - 0.5], ys, xName: "", yName: metric().percent ? "%" : "",
      xTicks: values.map((words, where) => [where, words]).filter((_, where) => where % most === 0), yTicks: ticks(...ys, 4),
      name: `${metric().title} by ${grid.keys[place]}`,
      points: known.map((each) => ({ x: at(each)[0], y: at(each)[1], row: each, words: words(each, column(), when()) })),
      content: (svg, x, y) => {
        for (const each of known) svg.append(draw("circle", { class: "dot", cx: x(at(each)[0]), cy: y(at(each)[1]), r: 2.5 }));
        svg.append(draw("polyline", { class: "line look-0", "stroke-width": 1.6, points: line.map((each) => `${x(at(each)[0])},${y(at(each)[1])}`).join(" ") }));
        for (const each of line) svg.append(draw("circle", { class: each === row ? "mark look-6" : "mark look-0", cx: x(at(each)[0]), cy: y(at(each)[1]), r: each === row ? 5.5 : 3.5 }));
      },
    });
  }

  function drawClasses(row) {
    const found = panel();
    const scores = found.classes[row] ?? [];
    const answers = found.answers[row] ?? null;
    const taken = new Map();
    for (const [true_, predicted, share] of answers?.wrong ?? []) {
      if (!taken.has(true_)) taken.set(true_, []);
      taken.get(true_).push([predicted, share]);
    }
    const forgets = scores.some(([, , , , , lost]) => lost !== null); // stored predictions have the last session alone
    byId("classes-scroll").hidden = !scores.length;
    byId("classes-words").textContent = !scores.length ? noClasses(row)
      : (forgets ? "Accuracy and forgetting of each class at the last session, in percent and points, over the seeds in which it was met. Forgetting is the best earlier accuracy minus the last one."
        : "Accuracy of each class at the last session, in percent, over the seeds in which it was met.")
        + (answers ? " \"Taken for\" names the most frequent wrong answers, as shares of the queries of all seeds." : "");
    drawConfusion(row, scores, taken);
    if (!scores.length) return;
    const head = ["class", "known as", "seeds", "accuracy", "", ...(forgets ? ["forgetting"] : []), ...(answers ? ["taken for"] : [])];
    const right = new Set(["class", "seeds", "accuracy", "forgetting"]);
    const body = scores.map(([number_, group, seeds, mean, half, lost, lostHalf]) => {
      const bar = draw("svg", { class: "meter", viewBox: "0 0 100 8", width: 80, height: 8, "aria-hidden": "true" },
        draw("rect", { class: "empty-bar", width: 100, height: 8 }), draw("rect", { class: "full-bar", width: mean / 10, height: 8 }));
      const cells = [String(seeds), estimate(mean, half), bar, ...(forgets ? [estimate(lost, lostHalf)] : [])];
      if (answers) cells.push((taken.get(number_) ?? []).map(([to, share]) => `${className(to)} (${text(share)} %)`).join(", "));
      return make("tr", {}, make("th", { scope: "row", class: "n" }, String(number_)), make("td", {}, group),
        ...cells.map((cell, place) => make("td", { class: right.has(head[place + 2]) ? "n" : null }, cell)));
    });
    byId("classes").replaceChildren(make("thead", {}, make("tr", {}, ...head.map((name) => make("th", { scope: "col", class: right.has(name) ? "n" : null }, name)))), make("tbody", {}, ...body));
  }
  // Why a configuration has no scores by class: the page keeps those of the first rows of a panel.
  const noClasses = (row) => panel().classes.length && row >= data.most_detailed
    ? `The page has these scores for the first ${data.most_detailed} configurations of the table.` : "This page has no scores by class of these runs.";
  const noAnswers = (row) => panel().answers.length && row >= data.most_detailed ? noClasses(row)
    : "This page has no predictions of these runs.";
  const className = (number_) => number_ < 0 ? "no class" : String(number_);

  const EDGE = 42; // pixels for the names of axes
  function drawConfusion(row, scores, taken) {
    const host = byId("confusion");
    byId("confusion-words").textContent = taken.size && scores.length
      ? "Rows are true classes, columns are predictions. Blue is the accuracy, red are the wrong answers of the table above." : noAnswers(row);
    if (!taken.size || !scores.length) return host.replaceChildren();
    const classes = scores.map(([number_]) => number_);
    const place = new Map(classes.map((number_, at) => [number_, at]));
    const side = Math.min(host.clientWidth, 460);
    const cell = (side - EDGE) / classes.length;
    const svg = draw("svg", { viewBox: `0 0 ${side} ${side}`, width: side, height: side, role: "img", "aria-label": "Confusion between classes. The table has the same numbers.", tabindex: 0 });
    svg.append(draw("rect", { class: "frame", x: EDGE, y: 0, width: side - EDGE, height: side - EDGE }),
      draw("text", { class: "name", x: (side + EDGE) / 2, y: side - 4, "text-anchor": "middle" }, "predicted class"),
      draw("text", { class: "name", transform: `translate(10 ${(side - EDGE) / 2}) rotate(-90)`, "text-anchor": "middle" }, "true class"));
    const every = Math.ceil(classes.length / 12);
    classes.forEach((number_, at) => {
      if (at % every) return;
      svg.append(draw("text", { class: "tick", x: EDGE - 4, y: (at + 0.5) * cell + 4, "text-anchor": "end" }, String(number_)),
        draw("text", { class: "tick", x: EDGE + (at + 0.5) * cell, y: side - 19, "text-anchor": "middle" }, String(number_)));
    });
    const points = [];
    const add = (true_, predicted, share, words) => {
      if (!place.has(predicted)) return;
      const [px, py] = [EDGE + place.get(predicted) * cell, place.get(true_) * cell];
      svg.append(draw("rect", { class: true_ === predicted ? "right" : "wrong", x: px, y: py, width: cell, height: cell, "fill-opacity": Math.sqrt(Math.min(1000, share) / 1000) }));
      points.push({ px: px + cell / 2, py: py + cell / 2, words });
    };
    for (const [number_, , , mean, half] of scores) {
      add(number_, number_, mean, [`class ${number_}`, `accuracy ${estimate(mean, half)} %`]);
      for (const [to, share] of taken.get(number_) ?? []) add(number_, to, share, [`class ${number_}`, `taken for class ${to}: ${text(share)} % of its queries`]);
    }
    const ring = draw("circle", { class: "ring", r: 9, visibility: "hidden" });
    svg.append(ring);
    hover(svg, ring, points);
    host.replaceChildren(svg);
  }

  function drawQueries(row) {
    const answers = panel().answers[row] ?? null;
    const note = byId("queries-words");
    byId("queries-scroll").hidden = !answers?.examples.length || panel().oracles.includes(row);
    if (!answers) {
      note.textContent = noAnswers(row);
      return;
    }
    if (panel().oracles.includes(row)) {
      note.textContent = "An oracle sees labels that the others never see, so it is not compared with them.";
      return;
    }
    note.textContent = `At the last session it alone is right on ${answers.only.toLocaleString("en")} of ${answers.compared.toLocaleString("en")} queries, over all seeds. `
      + "All other configurations of this setting, without oracles, are wrong there. Hidden ones count."
      + (answers.only > answers.examples.length ? ` The table has the first ${answers.examples.length}.` : "");
    const head = ["seed", "node", "true class", "most frequent other answer", "given by"];
    byId("queries").replaceChildren(make("thead", {}, make("tr", {}, ...head.map((name) => make("th", { scope: "col", class: "n" }, name)))),
      make("tbody", {}, ...answers.examples.map((cells) => make("tr", {}, ...cells.map((cell, place) => make(place ? "td" : "th", { class: "n", scope: place ? null : "row" }, place === 3 ? className(cell) : String(cell)))))));
  }

  // Controls. Elements stay while they have the focus, so that typing and dragging are not interrupted.
  function setOptions(select, options, chosen) {
    const key = JSON.stringify(options);
    if (select.dataset.options !== key) {
      select.dataset.options = key;
      select.replaceChildren(...options.map(([content, words]) => make("option", { value: content }, words)));
      select.disabled = options.length < 2;
    }
    select.value = chosen;
  }
  function makeChoosers() {
    const names = { ...CHOOSERS, metric: "Metric", session: "Session" };
    byId("choosers").append(...Object.entries(names).map(([key, name]) =>
      make("label", { class: "chooser" }, make("span", {}, name), make("select", { id: `choose-${key}`, "data-key": key }))));
  }
  function drawChoosers() {
    for (const key of Object.keys(CHOOSERS)) {
      const values = [...new Set(data.panels.map((each) => each[key]))].sort(collator.compare);
      const select = byId(`choose-${key}`);
      select.parentElement.hidden = key === "more" && values.length < 2;
      setOptions(select, values.map((each) => [each, each || "default"]), panel()[key]);
    }
    setOptions(byId("choose-metric"), data.metrics.map((each, place) => [place, each.title]), state.metric);
    const last = sessions() - 1;
    const every = [...Array(last + 1).keys()].map((each) => each === last ? ["last", `${each} (last)`] : [each, String(each)]);
    const at = column() === last ? "last" : column() > last ? "average" : column();
    setOptions(byId("choose-session"), metric().sessions ? [...every, ["average", "average"]] : [["last", "all"]], metric().sessions ? at : "last");
  }
  function drawList() {
    const wanted = byId("find").value.trim().toLowerCase();
    const here = new Set(panel().rows);
    byId("count").textContent = `${shownRows().length} of ${here.size}`;
    for (const item of byId("list").children) {
      const index = Number(item.dataset.index);
      item.hidden = !here.has(index) || !data.labels[index].toLowerCase().includes(wanted);
      item.querySelector("input").checked = state.shown.has(index);
    }
  }
  function makeList() {
    const order = new Set([...data.shown, ...data.labels.keys()]); // what is shown at first comes first
    byId("list").append(...[...order].map((index) => make("li", { "data-index": index, title: data.labels[index] },
      make("label", {}, make("input", { type: "checkbox", "data-index": index }), swatch(index), make("span", {}, data.labels[index])))));
  }
  let unknown = []; // parts of the address, until something else is chosen
  function drawWarnings() {
    const found = panel();
    const lines = unknown.length ? [`The address names what this page does not have: ${unknown.join(", ")}.`] : [];
    if (found.leaks) lines.push("The released protocol leaks: it trains on the queries that it is scored on.");
    if (found.badge) lines.push(`${capital(found.badge)}.`);
    lines.push(...found.damaged);
    byId("warnings").replaceChildren(...lines.map((line) => make("p", { class: "notice" }, line)));
    byId("reference").textContent = byId("reference").title = label(found.reference);
    for (const input of document.querySelectorAll("[name=view]")) {
      input.checked = input.value === state.view;
      input.disabled = input.value === "minus" && !numbers().minus.length;
    }
  }

  // What was chosen is in the address.
  function toHash() {
    const found = panel();
    const said = new URLSearchParams();
    for (const key of Object.keys(CHOOSERS)) if (new Set(data.panels.map((each) => each[key])).size > 1) said.set(key, found[key]);
    if (state.metric) said.set("metric", metric().title);
    if (state.session !== "last") said.set("session", state.session);
    if (state.view !== "values") said.set("view", state.view);
    if (state.sort) said.set("sort", state.sort.join(" "));
    if (state.one !== found.rows[0]) said.set("one", data.labels[state.one]);
    const shown = [...state.shown].sort((a, b) => a - b);
    if (shown.join() !== data.shown.join()) {
      if (shown.length === data.labels.length) said.set("show", "*");
      else if (!shown.length) said.set("hide", "*");
      else if (2 * shown.length <= data.labels.length) shown.forEach((index) => said.append("show", data.labels[index]));
      else data.labels.forEach((name, index) => { if (!state.shown.has(index)) said.append("hide", name); });
    }
    const hash = said.toString();
    if (hash !== location.hash.slice(1)) history.replaceState(null, "", `#${hash}`);
  }
  function fromHash() {
    const said = new URLSearchParams(location.hash.slice(1));
    const wanted = Object.fromEntries(Object.keys(CHOOSERS).filter((key) => said.has(key)).map((key) => [key, said.get(key)]));
    state.panel = closest(wanted);
    state.metric = Math.max(0, data.metrics.findIndex((each) => each.title === said.get("metric")));
    const session = said.get("session");
    state.session = session === "average" ? session : /^\d+$/.test(session ?? "") ? Number(session) : "last";
    state.view = said.get("view") === "minus" ? "minus" : "values";
    const [key, direction] = (said.get("sort") ?? "").split(" ");
    state.sort = key ? [key, direction === "-1" ? -1 : 1] : null;
    const every = data.labels.map((_, index) => index);
    const named = (name) => said.getAll(name).includes("*") ? every : said.getAll(name).map((each) => data.labels.indexOf(each)).filter((index) => index >= 0);
    state.shown = new Set(said.has("show") ? named("show") : said.has("hide") ? every.filter((index) => !named("hide").includes(index)) : data.shown);
    state.one = data.labels.indexOf(said.get("one"));
    unknown = [...said].filter(([name, content]) => !isKnown(name, content)).map(([name, content]) => `${name} ${content}`);
    draws();
    unknown = [];
  }
  function isKnown(name, content) {
    if (name in CHOOSERS) return panel()[name] === content;
    if (name === "metric") return data.metrics.some((each) => each.title === content);
    if (name === "session") return content === "average" || (/^\d+$/.test(content) && Number(content) < Math.max(1, sessions()));
    if (name === "one") return rowOf(data.labels.indexOf(content)) >= 0;
    if (name === "show" || name === "hide") return content === "*" || data.labels.includes(content);
    return name === "view" || name === "sort";
  }
  // The setting that agrees with most of `wanted`; earlier choosers count more.
  function closest(wanted, first = null) {
    const keys = Object.keys(wanted).sort((a, b) => (b === first) - (a === first));
    const score = (each) => keys.reduce((sum, key) => 2 * sum + (each[key] === wanted[key]), 0);
    return data.panels.reduce((best, each, place) => score(each) > score(data.panels[best]) ? place : best, 0);
  }

  // The details do not depend on what is shown, on the view or on the order of the table.
  function draws(withDetails = true) {
    if (rowOf(state.one) < 0) state.one = panel().rows[0];
    hideTip();
    drawWarnings();
    drawChoosers();
    drawList();
    drawCurves();
    drawTable();
    drawCost();
    if (withDetails) drawOne();
    toHash();
  }
  function choose(row, jump = false) {
    state.one = panel().rows[row];
    draws();
    if (jump) {
      byId("detail").scrollIntoView();
      byId("detail-title").focus({ preventScroll: true });
    }
  }

  byId("choosers").addEventListener("change", (event) => {
    const { key } = event.target.dataset;
    const chosen = event.target.value;
    if (key === "metric") state.metric = Number(chosen);
    else if (key === "session") state.session = /^\d+$/.test(chosen) ? Number(chosen) : chosen;
    else state.panel = closest({ ...Object.fromEntries(Object.keys(CHOOSERS).map((each) => [each, panel()[each]])), [key]: chosen }, key);
    draws();
  });
  byId("list").addEventListener("change", (event) => {
    const index = Number(event.target.dataset.index);
    if (event.target.checked) state.shown.add(index);
    else state.shown.delete(index);
    draws(false);
  });
  byId("methods").addEventListener("click", (event) => {
    const wanted = event.target.dataset?.show;
    if (!wanted) return;
    state.shown = new Set({ all: data.labels.keys(), none: [], first: data.shown }[wanted]);
    draws(false);
  });
  byId("find").addEventListener("input", drawList);
  byId("one").addEventListener("change", (event) => choose(rowOf(Number(event.target.value))));
  byId("table").addEventListener("click", (event) => {
    const sort = event.target.closest("[data-sort]")?.dataset.sort;
    const row = event.target.closest(".choose")?.dataset.row;
    if (sort) {
      const direction = state.sort?.[0] === sort ? -state.sort[1] : ["name", "verdict", "seconds"].includes(sort) ? 1 : -1;
      state.sort = [sort, direction];
      draws(false);
      byId("table").querySelector(`[data-sort="${sort}"]`).focus();
    } else if (row) {
      choose(Number(row), true);
    }
  });
  document.querySelectorAll("[name=view]").forEach((input) => input.addEventListener("change", () => {
    state.view = input.value;
    draws(false);
  }));
  addEventListener("hashchange", fromHash);
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    draws();
  });

  byId("choosers").hidden = byId("page").hidden = false;
  document.querySelector(".pair").hidden = !data.panels.some((each) => each.answers.length);
  byId("methods").open = matchMedia("(min-width: 60rem)").matches;
  makeChoosers();
  makeList();
  fromHash();
  document.documentElement.dataset.drawn = Math.round(performance.now());
})();
