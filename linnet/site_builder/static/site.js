"use strict";
// The one script of the site: theme, copying, search, catalogue, comparison, filters. Every page reads without it.
(() => {
  const root = new URL("..", document.currentScript.src);
  const page = document.documentElement;
  page.classList.add("js");

  // The theme is set before anything is drawn.
  const store = {
    get(key) { try { return localStorage.getItem(key); } catch { return null; } },
    set(key, value) { try { localStorage.setItem(key, value); } catch { /* A theme that lasts a page is a theme. */ } },
  };
  const THEMES = ["system", "light", "dark"];
  const setTheme = (theme) => {
    if (theme === "light" || theme === "dark") page.dataset.theme = theme;
    else delete page.dataset.theme;
  };
  setTheme(store.get("theme"));

  // Elements: make("a", {href: "x"}, "text", child).
  const make = (tag, attributes, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value === true) element.setAttribute(name, "");
      else if (value !== false && value != null) element.setAttribute(name, value);
    }
    element.append(...children.filter((child) => child != null && child !== false));
    return element;
  };
  const one = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const counted = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

  // Shards: scripts that hand a value to nest(), since a page on the file system may not fetch.
  const shards = new Map();
  self.nest = (name, value) => shards.get(name)?.resolve(value);
  const load = (name) => {
    let shard = shards.get(name);
    if (!shard) {
      shard = {};
      shard.value = new Promise((resolve, reject) => {
        shard.resolve = resolve;
        const script = make("script", { src: new URL(`${name}.js`, root) });
        script.onerror = () => { shards.delete(name); reject(new Error(`${name} could not be loaded`)); };
        shard.script = script;
      });
      shards.set(name, shard);
      document.head.append(shard.script);
    }
    return shard.value;
  };
  const link = (path) => new URL(path, root).href;

  // Words, as the builder cuts them.
  const wordsOf = (text) => text.normalize("NFKC").toLowerCase().match(/[\p{L}\p{N}\p{M}_]+/gu) || [];
  const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  const unpack = (text) => {
    const numbers = [];
    let at = 0;
    let end = -1;
    const next = () => {
      let value = 0;
      for (let shift = 0; ; shift += 5) {
        const digit = DIGITS.indexOf(text[at++]);
        value |= (digit & 31) << shift;
        if (digit < 32) return value;
      }
    };
    while (at < text.length) {
      const first = end + 1 + next();
      end = first + next();
      for (let number = first; number <= end; number++) numbers.push(number);
    }
    return numbers;
  };

  // Search: which documents have words that begin with each word of the query.
  const SHARDS = 3; // of words, for one word of a query: a single letter begins thousands
  const documentsWith = async (directory, prefix) => {
    const firsts = directory.words;
    let at = firsts.findLastIndex((first) => first <= prefix);
    const names = [];
    for (at = Math.max(at, 0); at < firsts.length && names.length < SHARDS; at++) {
      if (names.length && !firsts[at].startsWith(prefix)) break;
      names.push(`search/words/${at}`);
    }
    const scores = new Map();
    for (const shard of await Promise.all(names.map(load))) {
      for (const [word, postings] of Object.entries(shard)) {
        if (!word.startsWith(prefix)) continue;
        for (const group of postings.split(" ")) {
          const score = 2 * group[0] + (word === prefix ? 3 : 0);
          for (const number of unpack(group.slice(1))) scores.set(number, Math.max(score, scores.get(number) || 0));
        }
      }
    }
    return scores;
  };
  const RESULTS = 8;
  const ITEMS = 4;
  const find = async (query) => {
    const words = [...new Set(wordsOf(query))].slice(0, 8);
    if (!words.length) return { total: 0, results: [] };
    const directory = await load("search/directory");
    const [first, ...rest] = await Promise.all(words.map((word) => documentsWith(directory, word)));
    const found = [];
    for (const [number, score] of first) {
      if (rest.every((scores) => scores.has(number))) {
        found.push([rest.reduce((sum, scores) => sum + scores.get(number), score), number]);
      }
    }
    found.sort((a, b) => b[0] - a[0] || a[1] - b[1]);
    const results = await Promise.all(found.slice(0, RESULTS).map(async ([, number]) => {
      const rows = await load(`search/documents/${Math.floor(number / directory.chunk)}`);
      const [kind, title, note, href, key] = rows[number % directory.chunk];
      return { kind, title, note, href, key };
    }));
    return { total: found.length, words, results };
  };
  const itemsOf = async (result, words) => {
    const titled = wordsOf(`${result.title} ${result.note}`);
    const inTitle = (word) => titled.some((title) => title.startsWith(word));
    const items = [];
    let files = 1;
    for (let file = 0; file < files && items.length < ITEMS; file++) {
      const { "": more, ...groups } = await load(`search/items/${result.key}${file ? `~${file}` : ""}`);
      // What the title alone explains needs no more.
      if (more && !words.every(inTitle)) files = more;
      for (const [kind, list] of Object.entries(groups)) {
        for (const [label, href] of list) {
          const parts = wordsOf(label);
          parts.push(...parts.flatMap((part) => part.split("_")));
          const hit = (word) => parts.some((part) => part.startsWith(word)) || (word.length > 2 && label.toLowerCase().includes(word));
          if (words.some(hit) && words.every((word) => hit(word) || inTitle(word))) {
            const whole = words.filter((word) => parts.includes(word)).length;
            // What is asked for by whole names, of which the title alone does not tell.
            const best = !words.every(inTitle) && words.every((word) => parts.includes(word) || titled.includes(word));
            items.push({ kind, label, href, whole, best });
          }
        }
      }
    }
    return items.sort((a, b) => b.best - a.best || b.whole - a.whole).slice(0, ITEMS);
  };

  const searchBox = (tools) => {
    const input = make("input", {
      type: "search", id: "search", placeholder: "Search", autocomplete: "off", spellcheck: "false",
      "aria-label": "Search models, entries, blocks, parameters and the guide", "aria-keyshortcuts": "/", "aria-controls": "found",
    });
    const status = make("p", { class: "status", role: "status" });
    const list = make("ul", { "aria-label": "Results" });
    const panel = make("div", { id: "found", class: "found", hidden: true }, status, list);
    const box = make("div", { class: "search", role: "search", "aria-label": "Site" }, input, make("kbd", { "aria-hidden": "true" }, "/"), panel);
    tools.append(box);
    let asked = 0;
    let shown = null;
    const show = async () => {
      const ask = ++asked;
      const query = input.value.trim();
      if (!query) { panel.hidden = true; list.replaceChildren(); return; }
      try {
        const { total, words, results } = await find(query);
        if (ask !== asked) return;
        status.textContent = total ? counted(total, "result") : `Nothing begins with “${query}”.`;
        const rows = results.map((result) => make("li", {},
          make("a", { href: link(result.href) },
            make("bdi", { class: "what" }, result.title), make("span", { class: "kind" }, result.kind), make("bdi", { class: "note" }, result.note))));
        list.replaceChildren(...rows);
        panel.hidden = false;
        await Promise.all(results.map(async (result, index) => {
          const items = await itemsOf(result, words);
          if (ask !== asked || !items.length) return;
          rows[index].append(make("ul", {}, ...items.map((item) => make("li", {},
            make("a", { href: link(item.href), "data-best": item.best }, make("code", {}, item.label), make("span", { class: "kind" }, item.kind))))));
        }));
      } catch {
        if (ask !== asked) return;
        status.textContent = "The search index could not be loaded.";
        panel.hidden = false;
      }
    };
    const close = () => { panel.hidden = true; };
    input.addEventListener("focus", () => load("search/directory").catch(() => {}));
    const ask = () => { shown = show(); };
    // The first result, or what it holds that is just what was asked for.
    const open = async () => {
      const query = input.value;
      await shown;
      const first = list.firstElementChild;
      if (!panel.hidden && first && input.value === query) (one("[data-best]", first) || one("a", first)).click();
    };
    input.addEventListener("input", ask);
    input.addEventListener("click", () => { if (panel.hidden) ask(); });
    box.addEventListener("keydown", (event) => {
      const links = panel.hidden ? [] : all("a", list);
      const at = links.indexOf(document.activeElement);
      const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: at < 0 ? null : 0, End: at < 0 ? null : links.length - 1 }[event.key];
      if (to != null && links.length) {
        event.preventDefault();
        (to < 0 ? input : links[Math.min(to, links.length - 1)]).focus();
      } else if (event.key === "Enter" && document.activeElement === input) {
        open();
      } else if (event.key === "Escape") {
        event.preventDefault();
        if (panel.hidden) { input.value = ""; input.blur(); } else { close(); input.focus(); }
      }
    });
    document.addEventListener("click", (event) => { if (!box.contains(event.target)) close(); });
    box.addEventListener("focusout", (event) => { if (event.relatedTarget && !box.contains(event.relatedTarget)) close(); });
    return input;
  };

  const themeButton = (tools) => {
    const button = make("button", { type: "button", class: "theme" });
    const draw = () => {
      const theme = page.dataset.theme || "system";
      button.dataset.now = theme;
      button.setAttribute("aria-label", `Theme: ${theme}`);
      button.title = `Theme: ${theme}`;
    };
    button.addEventListener("click", () => {
      const next = THEMES[(THEMES.indexOf(page.dataset.theme || "system") + 1) % THEMES.length];
      store.set("theme", next);
      setTheme(next);
      draw();
    });
    draw();
    tools.append(button);
  };

  const KEYS = [["/", "search the site"], ["↓ ↑", "walk through the results"], ["Enter", "open the result, or the best"],
    ["Esc", "close"], ["f", "filter the list or table of this page"], ["?", "this help"]];
  const help = () => {
    let dialog = one("dialog.help");
    if (!dialog) {
      dialog = make("dialog", { class: "help", "aria-labelledby": "help-title" },
        make("h2", { id: "help-title" }, "Keys"),
        make("dl", {}, ...KEYS.map(([key, does]) => make("div", {}, make("dt", {}, ...key.split(" ").map((k) => make("kbd", {}, k))), make("dd", {}, does)))),
        make("form", { method: "dialog" }, make("button", { type: "button", onclick: () => dialog.close() }, "Close")));
      document.body.append(dialog);
    }
    dialog.showModal();
  };

  const keys = (input) => {
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
      const typing = event.target.closest?.("input:not([type=checkbox]), textarea, select, dialog");
      if (typing) return;
      if (event.key === "/" || event.key === "s" || event.key === "S") { event.preventDefault(); input.focus(); input.select(); }
      else if (event.key === "?") { event.preventDefault(); help(); }
      else if (event.key === "f") {
        const field = one("main input[type=search]");
        if (field) { event.preventDefault(); field.focus(); field.select(); }
      }
    });
    one("footer")?.append(make("p", { class: "wrap" }, make("button", { type: "button", class: "plain", onclick: help }, "Keys: ?")));
  };

  // Copying: without a clipboard there is no button.
  const copyButtons = () => {
    if (!navigator.clipboard) return;
    for (const figure of all(".snippet, [data-copy]")) {
      const button = make("button", { type: "button", "aria-live": "polite" }, "Copy");
      button.addEventListener("click", async () => {
        try {
          await navigator.clipboard.writeText(one("code", figure).textContent);
          button.textContent = "Copied";
        } catch {
          button.textContent = "Not copied";
        }
        setTimeout(() => { button.textContent = "Copy"; }, 2000);
      });
      figure.append(button);
    }
  };

  // Whether a row's text holds a word. `layers.3` is also in `layers.{0..35}`, and in no other set of numbers.
  const inSet = (set, number) => set.split(",").some((run) => {
    const [low, high = low] = run.split("..").map(Number);
    return low <= number && number <= high;
  });
  const holder = (word) => {
    const numbers = /[^\d]/.test(word) ? word.match(/\d+/g) || [] : [];
    if (!numbers.length) return (text) => text.includes(word);
    const folded = word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&").replace(/\d+/g, "(?:$&|\\{([\\d.,]+)\\})");
    const pattern = new RegExp(folded, "g");
    return (text) => text.includes(word) || [...text.matchAll(pattern)].some(([, ...sets]) =>
      sets.every((set, index) => set === undefined || inSet(set, +numbers[index])));
  };

  // A field above a table or a list, which keeps the rows that hold every word.
  const filters = () => {
    for (const place of all("[data-filter]")) {
      const target = document.getElementById(place.dataset.filter);
      if (!target) continue;
      const rows = all(target.tagName === "TABLE" ? "tbody tr" : ":scope > li", target);
      const texts = rows.map((row) => row.textContent.toLowerCase());
      const id = `filter-${place.dataset.filter}`;
      const input = make("input", { type: "search", id, autocomplete: "off", spellcheck: "false", placeholder: place.dataset.placeholder || "" });
      const status = make("span", { class: "status", role: "status" });
      const apply = () => {
        const words = input.value.toLowerCase().split(/\s+/).filter(Boolean).map(holder);
        let shown = 0;
        rows.forEach((row, index) => {
          row.hidden = !words.every((holds) => holds(texts[index]));
          shown += !row.hidden;
        });
        status.textContent = words.length ? `${shown} of ${counted(rows.length, "row")}` : "";
        if (!shown && words.length && place.dataset.full) {
          const full = make("a", { href: `${place.dataset.full}?filter=${encodeURIComponent(input.value)}` }, "Look among every parameter");
          status.append(". ", full);
        }
      };
      input.addEventListener("input", () => {
        apply();
        const address = new URL(location.href);
        if (input.value) address.searchParams.set("filter", input.value); else address.searchParams.delete("filter");
        history.replaceState(null, "", address);
      });
      place.append(make("label", { for: id }, "Filter"), input, status);
      place.hidden = false;
      input.value = new URLSearchParams(location.search).get("filter") || "";
      apply();
    }
  };

  // The rows of all models, in the order of catalogue.py.
  const FIELDS = ["name", "title", "summary", "version", "family", "licence", "weights", "size", "count", "parameters", "published", "tags", "results"];
  const allModels = async (count) => {
    const parts = await Promise.all([...Array(count).keys()].map((number) => load(`catalogue/${number}`)));
    return parts.flat().map((row) => {
      const model = Object.fromEntries(FIELDS.map((field, index) => [field, row[index]]));
      model.tag = model.tags;
      model.text = [model.name, model.title, model.summary, model.family, model.licence, model.weights, ...model.tags].join(" ").toLowerCase();
      const decoding = model.results.find(([label]) => label === "Decoding");
      model.speed = decoding ? parseFloat(decoding[1].replaceAll(",", "")) : -1;
      return model;
    });
  };
  const LIMIT = 4;
  const picked = [];
  const compareLink = (names) => link(`compare/index.html?${names.map((name) => `model=${encodeURIComponent(name)}`).join("&")}`);
  const tray = make("div", { class: "tray", role: "region", "aria-label": "To compare", hidden: true });
  const drawTray = () => {
    tray.hidden = !picked.length;
    tray.replaceChildren(
      make("span", { role: "status" }, picked.length < 2 ? `${picked.join("")}: choose another to compare with` : picked.join(", ")),
      picked.length > 1 && make("a", { href: compareLink(picked) }, `Compare ${picked.length} models`));
    for (const box of all(".pick input")) {
      box.checked = picked.includes(box.value);
      box.disabled = !box.checked && picked.length >= LIMIT;
    }
  };
  const pick = (name) => make("label", { class: "pick" }, make("input", {
    type: "checkbox", value: name, "aria-label": `Compare ${name}`,
    onchange: (event) => {
      if (event.target.checked) picked.push(name); else picked.splice(picked.indexOf(name), 1);
      drawTray();
    },
  }), "Compare");
  const modelRow = (model) => make("li", { class: "model" },
    make("h2", {}, make("a", { href: link(`models/${model.name}/index.html`) }, make("bdi", {}, model.title))),
    make("p", { class: "name" }, make("code", {}, model.name), model.version && " ", model.version && make("span", {}, model.version),
      model.published && " ", model.published && make("time", { datetime: model.published }, model.published)),
    make("p", { class: "summary" }, make("bdi", {}, model.summary)),
    make("ul", { class: "chips" }, make("li", {}, model.count), ...[...new Set([model.family, model.licence, model.weights, ...model.tags])].filter(Boolean).map((chip) => make("li", {}, make("bdi", {}, chip)))),
    model.results.length > 0 && make("dl", { class: "headlines" }, ...model.results.map(([label, value]) => make("div", {}, make("dt", {}, label), make("dd", {}, value)))),
    pick(model.name));

  const ORDERS = {
    "": (a, b) => (a.name < b.name ? -1 : 1),
    new: (a, b) => (a.published === b.published ? ORDERS[""](a, b) : a.published > b.published ? -1 : 1),
    large: (a, b) => b.parameters - a.parameters || ORDERS[""](a, b),
    small: (a, b) => a.parameters - b.parameters || ORDERS[""](a, b),
    fast: (a, b) => b.speed - a.speed || ORDERS[""](a, b),
  };
  const catalogue = () => {
    for (const row of all(".models > .model")) row.append(pick(one(".name code", row).textContent));
    if (one(".models")) document.body.append(tray);
    const browse = one("[data-catalogue]");
    if (!browse) return;
    const form = one("form", browse);
    const list = one(".models", browse);
    const status = one(".status", browse);
    const pages = one(".pages", browse);
    const step = +browse.dataset.perPage;
    const boxes = all("fieldset input", form);
    const facets = [...new Set(boxes.map((box) => box.name))];
    const more = make("button", { type: "button", class: "more" }, "Show more");
    list.after(more);
    more.hidden = true;
    const clear = make("button", { type: "button", class: "clear", hidden: true }, "Clear filters");
    status.after(clear);
    let models = null;
    let found = [];
    let shown = 0;
    const state = () => {
      const chosen = new URLSearchParams();
      for (const [key, value] of new FormData(form)) if (value) chosen.append(key, value);
      return chosen;
    };
    const matches = (model, chosen, except) => facets.every((facet) => {
      const wanted = facet === except ? [] : chosen.getAll(facet);
      if (!wanted.length) return true;
      // Several tags narrow further; several families, sizes or licences widen.
      return facet === "tag" ? wanted.every((tag) => model.tags.includes(tag)) : wanted.includes(model[facet]);
    });
    const append = () => {
      const rows = found.slice(shown, shown + step).map(modelRow);
      list.append(...rows);
      shown += rows.length;
      more.hidden = shown >= found.length;
      drawTray();
      return rows[0];
    };
    const apply = async () => {
      const chosen = state();
      clear.hidden = ![...chosen.keys()].some((key) => key !== "sort");
      if (!models) {
        if (!chosen.size) return;
        models = await allModels(+browse.dataset.catalogue);
      }
      const words = (chosen.get("q") || "").toLowerCase().split(/\s+/).filter(Boolean);
      const worded = models.filter((model) => words.every((word) => model.text.includes(word)));
      found = worded.filter((model) => matches(model, chosen)).sort(ORDERS[chosen.get("sort") || ""]);
      for (const box of boxes) {
        const narrowed = box.name === "tag" ? found : worded.filter((model) => matches(model, chosen, box.name));
        const count = narrowed.filter((model) => [].concat(model[box.name]).includes(box.value)).length;
        const row = box.closest("li");
        one(".count", row).textContent = count;
        row.classList.toggle("none", !count && !box.checked);
      }
      list.replaceChildren();
      list.removeAttribute("start");
      shown = 0;
      append();
      if (pages) pages.hidden = true;
      status.hidden = false;
      status.textContent = found.length ? `${found.length.toLocaleString("en")} of ${counted(models.length, "model")}` : "No model is like that.";
    };
    const restore = () => {
      const chosen = new URLSearchParams(location.search);
      form.elements.q.value = chosen.get("q") || "";
      form.elements.sort.value = chosen.get("sort") in ORDERS ? chosen.get("sort") || "" : "";
      for (const box of boxes) box.checked = chosen.getAll(box.name).includes(box.value);
      apply();
    };
    const changed = (event) => {
      const chosen = state();
      const address = `${location.pathname}${chosen.size ? `?${chosen}` : ""}`;
      if (event.type === "input") history.replaceState(null, "", address); else history.pushState(null, "", address);
      apply();
    };
    form.elements.q.addEventListener("input", changed);
    form.addEventListener("change", (event) => { if (event.target.name !== "q") changed(event); });
    form.addEventListener("submit", (event) => event.preventDefault());
    clear.addEventListener("click", (event) => {
      form.elements.q.value = "";
      for (const box of boxes) box.checked = false;
      changed(event);
      form.elements.q.focus();
    });
    more.addEventListener("click", () => one("a", append())?.focus());
    addEventListener("popstate", restore);
    form.hidden = false;
    restore();
  };

  const comparison = () => {
    const place = one("[data-compare]");
    if (!place) return;
    const NAME = /^[a-z0-9.-]+$/;
    const wanted = () => [...new Set(new URLSearchParams(location.search).getAll("model"))].filter((name) => NAME.test(name)).slice(0, LIMIT);
    const names = wanted();
    const known = make("datalist", { id: "known" });
    const input = make("input", { id: "add", list: "known", autocomplete: "off", spellcheck: "false" });
    const status = make("span", { class: "status", role: "status" });
    const form = make("form", { class: "filter" }, make("label", { for: "add" }, "Add a model"), input, make("button", { type: "submit" }, "Add"), status, known);
    const table = make("div", { class: "scroll", role: "region", "aria-label": "Comparison", tabindex: "0", hidden: true });
    const dim = () => { for (const row of all(".same", table)) row.hidden = only.checked; };
    const only = make("input", { type: "checkbox", onchange: dim });
    const choice = make("label", { class: "pick", hidden: true }, only, "Only rows that differ");
    place.append(form, choice, table);
    input.addEventListener("focus", async () => {
      const models = await allModels(+place.dataset.compare).catch(() => []);
      if (!known.children.length) known.append(...models.slice(0, 2000).map((model) => make("option", { value: model.name }, model.title)));
    });
    const cells = (groups, label) => groups.map((rows) => rows.get(label));
    const draw = async () => {
      const models = (await Promise.all(names.map((name) => load(`models/${name}/compare`).catch(() => {
        status.textContent = `There is no model “${name}”.`;
        return null;
      })))).filter(Boolean);
      names.splice(0, names.length, ...models.map((model) => model.name));
      input.disabled = names.length >= LIMIT;
      table.hidden = !models.length;
      choice.hidden = models.length < 2;
      if (!models.length) return table.replaceChildren();
      const head = make("thead", {}, make("tr", {}, make("td", {}), ...models.map((model) => make("th", { scope: "col" },
        make("a", { href: link(model.page) }, make("bdi", {}, model.title)), make("br"), make("code", {}, model.name), " ",
        make("button", { type: "button", class: "plain", "aria-label": `Remove ${model.name}`, onclick: () => go(names.filter((name) => name !== model.name)) }, "Remove")))));
      const bodies = models[0].groups.map(([title], index) => {
        const groups = models.map((model) => new Map(model.groups[index][1]));
        const labels = [...new Set(groups.flatMap((rows) => [...rows.keys()]))];
        const code = title === "Generics" || title === "Entries";
        return labels.length > 0 && make("tbody", {},
          make("tr", { class: "group" }, make("th", { colspan: models.length + 1, scope: "rowgroup" }, title)),
          ...labels.map((label) => {
            const values = cells(groups, label);
            return make("tr", { class: new Set(values).size > 1 || models.length === 1 ? null : "same" },
              make("th", { scope: "row" }, index > 1 ? make("code", {}, label) : label),
              ...values.map((value) => make("td", {}, value == null ? make("span", { class: "none" }, "—") : code ? make("code", {}, value) : make("bdi", {}, value))));
          }));
      });
      table.replaceChildren(make("table", { class: "comparison" }, head, ...bodies.filter(Boolean)));
      dim();
    };
    const go = (chosen) => {
      names.splice(0, names.length, ...chosen);
      history.pushState(null, "", chosen.length ? compareLink(chosen) : location.pathname);
      return draw();
    };
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const name = input.value.trim();
      status.textContent = "";
      if (!name || names.includes(name)) return;
      const known = NAME.test(name) && (await allModels(+place.dataset.compare).catch(() => [{ name }])).some((model) => model.name === name);
      if (!known) { status.textContent = `There is no model “${name}”.`; return; }
      input.value = "";
      await go([...names, name]);
    });
    addEventListener("popstate", () => {
      names.splice(0, names.length, ...wanted());
      draw();
    });
    draw();
  };

  // A picture that is too wide begins where its first box stands.
  const pictures = () => {
    const begin = (figure) => {
      const box = one("rect", figure)?.getBoundingClientRect();
      const frame = figure.getBoundingClientRect();
      if (box?.width) figure.scrollLeft += box.x + box.width / 2 - frame.x - frame.width / 2;
    };
    all(".diagram").forEach(begin);
    for (const part of all("details:has(.diagram)")) part.addEventListener("toggle", () => all(".diagram", part).forEach(begin), { once: true });
  };

  document.addEventListener("DOMContentLoaded", () => {
    const tools = one(".tools");
    const input = searchBox(tools);
    themeButton(tools);
    keys(input);
    // What stands beside the page on a wide screen stands folded above it on a narrow one.
    if (matchMedia("(max-width: 60rem)").matches) for (const part of all("[data-fold=phone]")) part.open = false;
    copyButtons();
    filters();
    catalogue();
    comparison();
    pictures();
  });
})();
