"use strict";
(() => {
  const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
  const wide = matchMedia("(min-width: 70rem)");

  // Contents: open next to the text on wide screens, folded above it on narrow ones. The section in view is current.
  function setUpContents() {
    const contents = document.getElementById("contents");
    const fold = () => { contents.open = wide.matches; };
    fold();
    wide.addEventListener("change", fold);
    contents.addEventListener("click", (event) => {
      if (event.target.closest("a") && !wide.matches) contents.open = false;
    });
    const links = new Map([...contents.querySelectorAll("details > ol > li > a")]
      .map((link) => [document.querySelector(link.getAttribute("href")), link]));
    const observer = new IntersectionObserver((entries) => {
      for (const entry of entries.filter((entry) => entry.isIntersecting)) {
        links.forEach((link) => link.removeAttribute("aria-current"));
        links.get(entry.target).setAttribute("aria-current", "true");
      }
    }, { rootMargin: "-20% 0px -79% 0px" });
    links.forEach((_, target) => observer.observe(target));
  }

  // Tables: clicks on a header sort ascending, descending, and back to the order of the report.
  function setUpSorting(table) {
    const body = table.tBodies[0];
    const original = [...body.rows];
    const headers = [...table.tHead.rows[0].cells];
    headers.forEach((header, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.title = "Sort";
      button.append(...header.childNodes);
      header.append(button);
      button.addEventListener("click", () => {
        const direction = { none: "ascending", ascending: "descending" }[header.ariaSort ?? "none"];
        headers.forEach((other) => other.removeAttribute("aria-sort"));
        if (direction) header.setAttribute("aria-sort", direction);
        const isNumber = header.dataset.sort === "number";
        body.append(...(direction ? sorted([...body.rows], column, isNumber, direction) : original));
      });
    });
  }

  // Equal rows keep their order, and rows without a value come last in both directions.
  function sorted(rows, column, isNumber, direction) {
    const sign = direction === "ascending" ? 1 : -1;
    const compare = isNumber ? (a, b) => Number(a) - Number(b) : collator.compare;
    return rows
      .map((row) => ({ row, key: key(row.cells[column], isNumber) }))
      .sort((a, b) => (a.key === "") - (b.key === "") || sign * compare(a.key, b.key))
      .map(({ row }) => row);
  }

  function key(cell, isNumber) {
    return cell.dataset.value ?? (isNumber ? "" : cell.textContent.trim());
  }

  function setUpFilter(figure) {
    const box = figure.querySelector(".filter");
    if (!box) return;
    const rows = [...figure.querySelectorAll("tbody tr")].map((row) => ({ row, text: words(row) }));
    const input = box.querySelector("input");
    const output = box.querySelector("output");
    input.addEventListener("input", () => {
      const wanted = input.value.trim().toLowerCase();
      for (const { row, text } of rows) row.hidden = !text.includes(wanted);
      const shown = rows.filter(({ row }) => !row.hidden).length;
      output.textContent = shown === rows.length ? `${shown} rows` : `${shown} of ${rows.length} rows`;
      box.classList.toggle("active", shown < rows.length);
    });
    box.hidden = false;
  }

  const words = (row) => [...row.cells].map((cell) => cell.textContent).join(" ").toLowerCase();

  // Figures: a click opens a larger version. Browsers without dialogs follow the link to the file.
  function setUpViewer() {
    const viewer = document.getElementById("viewer");
    if (!viewer.showModal) return;
    const title = document.getElementById("viewer-title");
    const canvas = viewer.querySelector(".canvas");
    document.addEventListener("click", (event) => {
      const link = event.target.closest("a.enlarge");
      if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      title.textContent = link.parentElement.querySelector("h3").textContent;
      canvas.replaceChildren(link.querySelector("img").cloneNode());
      viewer.showModal();
      canvas.scrollTo(0, 0);
    });
    viewer.addEventListener("click", (event) => {
      if (event.target === viewer || event.target.closest("button")) viewer.close();
    });
    viewer.addEventListener("close", () => canvas.replaceChildren());
  }

  // Folded parts open for links into them, and on paper.
  function setUpFolds() {
    const reveal = () => {
      const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
      if (!target) return;
      const folds = [...document.querySelectorAll("details.fold")].filter((fold) => target.contains(fold) || fold.contains(target));
      for (const fold of folds) fold.open = true;
      if (folds.length) target.scrollIntoView();
    };
    reveal();
    addEventListener("hashchange", reveal);
    let opened = [];
    addEventListener("beforeprint", () => {
      opened = [...document.querySelectorAll("details:is(.fold, .reading, .more-findings):not([open])")];
      for (const fold of opened) fold.open = true;
    });
    addEventListener("afterprint", () => { for (const fold of opened) fold.open = false; });
  }

  setUpContents();
  setUpFolds();
  document.querySelectorAll("figure.table").forEach((figure) => {
    setUpSorting(figure.querySelector("table"));
    setUpFilter(figure);
  });
  setUpViewer();
})();
