"use strict";
const record = JSON.parse(document.getElementById("record").textContent);
const $ = id => document.getElementById(id);
const MARK = {ended: "✓", failed: "✕", consequence: "↯", stopped: "■", lost: "?", unknown: "–"};
const NAMED = {ended: "exited with 0", failed: "failed", consequence: "failed as a consequence",
  stopped: "stopped", lost: "lost", unknown: "not started"};
const ORDER = ["failed", "lost", "unknown", "consequence", "stopped", "ended"];
const STATUSES = {0: "success", 1: "failed", 2: "usage error", 124: "a timeout",
  125: "an internal error", 126: "not executable", 127: "not found",
  129: "stopped by SIGHUP", 130: "stopped by SIGINT", 141: "the reader of stdout is gone",
  143: "stopped by SIGTERM", 255: "a host lost or unreachable"};
const SIGNALS = {1: "HUP", 2: "INT", 3: "QUIT", 4: "ILL", 5: "TRAP", 6: "ABRT", 7: "BUS", 8: "FPE",
  9: "KILL", 10: "USR1", 11: "SEGV", 12: "USR2", 13: "PIPE", 14: "ALRM", 15: "TERM", 24: "XCPU",
  25: "XFSZ", 31: "SYS"};
const MANY = 24;
const COLOURS = 10; // so many ranks have colours of their own
const FEW_WAITS = 5;
const state = {attempt: record.attempts.length - 1, rank: null, hidden: new Set(), find: "",
  sort: "worst", zoom: "all", lines: "", utc: false, wait: null, allWaits: false};
let attempt, ranks, apart, others, shown, view, waits, charts = [];

// --- text ---

// The page's policy allows no style attribute, but what is set like this.
function give(made, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "style") made.style.cssText = value || "";
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
}
function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  give(made, attributes || {});
  made.append(...children.filter(child => child != null && child !== false));
  return made;
}
function duration(s, digits = 2) {
  if (s == null) return "–";
  if (s < 0) return "-" + duration(-s, digits);
  if (s < 60) return s.toFixed(s >= 10 ? Math.min(digits, 1) : digits) + " s";
  const whole = Math.floor(s), two = n => String(n).padStart(2, "0");
  if (s < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  return `${Math.floor(whole / 3600)} h ${two(Math.floor(whole / 60) % 60)} min`;
}
function exact(s) {
  return s == null ? "–" : s < 60 ? s.toFixed(3) + " s"
    : s < 3600 ? `${Math.floor(s / 60)} min ${(s % 60).toFixed(3)} s`
    : `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min ${(s % 60).toFixed(3)} s`;
}
function memory(kib) {
  if (kib == null) return "–";
  const mib = kib / 1024;
  return mib >= 1023.95 ? (mib / 1024).toFixed(1) + " GiB" : mib.toFixed(1) + " MiB";
}
const cores = n => n == null ? "–" : n.toFixed(n >= 10 ? 0 : 2);
// A moment, in the reader's own time zone or in UTC: "2026-01-31 12:34:56.789".
function timeOfDay(ms) {
  const offset = state.utc ? 0 : new Date(ms).getTimezoneOffset();
  return new Date(ms - 60000 * offset).toISOString().slice(0, 23).replace("T", " ");
}
function zone(ms) {
  const ahead = state.utc ? 0 : -new Date(ms).getTimezoneOffset();
  const of = Math.abs(ahead), minutes = of % 60 ? ":" + String(of % 60).padStart(2, "0") : "";
  return "UTC" + (ahead ? (ahead < 0 ? "−" : "+") + Math.floor(of / 60) + minutes : "");
}
const clock = s =>
  timeOfDay(Date.parse(record.began) + 1000 * (attempt.began_s + s)).slice(11);
const bare = text => text.replace(/\x1b\[[0-9;?]*[ -\/]*[@-~]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)/g, "");
const quoted = word => /^[\w@%+=:,./{}-]+$/.test(word) ? word : `'${word.replace(/'/g, "'\\''")}'`;
const plural = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;
// A set of ranks: "rank 3", "ranks 0-2,5".
function named(numbers) {
  const ordered = [...numbers].sort((a, b) => a - b), parts = [];
  for (const n of ordered) {
    const last = parts[parts.length - 1];
    if (last && last[1] === n - 1) last[1] = n; else parts.push([n, n]);
  }
  const words = parts.map(([low, high]) => low === high ? low : `${low}-${high}`);
  if (words.length > 6) words.splice(6, words.length, "...");
  return `rank${ordered.length === 1 ? "" : "s"} ${words.join(",")}`;
}
// The way from this page to a file; it holds as long as both lie as they were written.
function linkTo(path) {
  const from = record.report_path.split("/").slice(1, -1), to = path.split("/").slice(1);
  let same = 0;
  while (same < from.length && same < to.length - 1 && from[same] === to[same]) same++;
  return (same < from.length ? "../".repeat(from.length - same) : "./")
    + to.slice(same).map(encodeURIComponent).join("/");
}
// A rank's colour: its own, or one between those of its neighbours where there are many.
function colourOf(rank) {
  const at = ranks.indexOf(rank);
  return ranks.length <= COLOURS ? `var(--c${at})`
    : `hsl(${Math.round(165 + 150 * at / ranks.length)} var(--ramp))`;
}
function copyButton(what, text, label = "copy") {
  const button = el("button", {class: "copy", "aria-label": `copy ${what}`, onclick: async () => {
    button.textContent = await copied(text()) ? "copied" : "not allowed";
    setTimeout(() => { button.textContent = label; }, 1500);
  }}, label);
  return button;
}
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch { // an old browser, or a page that is not from a file or a safe address
    const area = el("textarea", {"aria-hidden": true, class: "copied"});
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}
const isCause = rank => attempt.cause.rank === rank.rank;
// What an exit status means; a rank's own may be any.
function statusWords(status, cause) {
  if (!status || cause.kind === "stop") return STATUSES[status] || diedOf(status);
  const rank = ranks.find(isCause);
  if (rank && rank.signal && status > 128) return `died of ${rank.signal}`;
  return status === 1 ? "failed" : rank || status <= 128 ? "the rank's own" : diedOf(status);
}
function diedOf(status) {
  if (status <= 128) return "failed";
  const name = SIGNALS[status - 128];
  return name ? `died of SIG${name}` : `died of signal ${status - 128}`;
}
// The ranks that a line about stacks names, with the process if it is one.
function namedIn(line) {
  const found = /^ranks? (\d+(?:[-,]\d+)*)(?: on [^()]*)?(?: \(pid (\d+)\))?:(?: no Python .*)?$/
    .exec(line);
  return found && {pid: found[2], ranks: found[1].split(",").flatMap(part => {
    const [low, high] = part.split("-").map(Number);
    return Array.from({length: Math.min(1e6, (high == null ? low : high) - low + 1)},
      (_, at) => low + at);
  })};
}
// The ranks, fewer than half, whose stacks differ from all others'; none if that is not clear.
function standingApart(lines) {
  let groups = lines.map(namedIn).filter(Boolean);
  const elsewhere = (rank, group) => groups.some(one => one !== group && one.ranks.includes(rank));
  const own = rank => String((ranks.find(one => one.rank === rank) || {}).pid);
  // A process that a rank has started says nothing of the rank.
  groups = groups.filter(group => !group.pid || group.pid === own(group.ranks[0])
    || !elsewhere(group.ranks[0], group));
  const all = new Set(groups.flatMap(group => group.ranks)).size;
  const few = groups.filter(group => 2 * group.ranks.length < all);
  return few.length === 1 ? few[0].ranks : [];
}
// The ranks, fewer than half, that ran another program than all others.
function diverging(sides) {
  const all = new Set(sides.flat()).size;
  const few = sides.filter(side => 2 * side.length < all);
  return few.length === 1 ? few[0] : [];
}
const isApart = rank => apart.includes(rank.rank);
const isDiverging = rank => others.includes(rank.rank);
const isOdd = rank => isApart(rank) || isDiverging(rank);
const pills = rank => [
  isCause(rank) && el("span", {class: "pill"}, "root cause"),
  isApart(rank) && el("span", {class: "pill odd"}, "different stack"),
  isDiverging(rank) && el("span", {class: "pill odd"}, "different program"),
].filter(Boolean);
// What a rank had not done that others had, or were about to.
function late(rank) {
  if (rank.started_s == null || rank.joined_s != null || rank.outcome === "ended") return "";
  if (rank.joining_s != null) return "waiting in initialize()";
  return ranks.some(one => one.joining_s != null) ? "never called initialize()" : "";
}

// --- the head ---

function showHead() {
  const cause = attempt ? attempt.cause : {kind: "stop", report: []};
  const last = state.attempt === record.attempts.length - 1;
  const status = last ? record.exit_status : attempt.exit_status;
  const diverged = (attempt && attempt.divergence) || [];
  const kind = status === 0 ? (diverged.length ? "warn" : "good")
    : cause.kind === "rank" ? "bad" : "stop";
  $("head").className = `card ${kind}`;
  const again = record.restarts && last && status === 0
    ? ` after ${plural(record.restarts, "restart")}` : "";
  $("badge").textContent =
    `${{good: MARK.ended, warn: "⚠\ufe0e", bad: MARK.failed, stop: MARK.stopped}[kind]} ` +
    {good: "Succeeded" + again, warn: `Succeeded${again}, but the ranks ran different programs`,
      bad: "Failed", stop: ranks.length ? "Stopped" : "Not started"}[kind];
  const headline = (last ? record.words : cause.words) + (cause.kind === "stop" ? awaited() : "");
  $("words").textContent = headline;
  const where = cause.report.find((line, at) => at === 1 && line.startsWith("at "));
  $("where").textContent = where || "";
  $("where").hidden = !where;
  document.title = `${headline} – ${record.program.join(" ")}`;
  $("copy").replaceChildren(copyButton("what happened, as text", () => asText(status),
    "copy summary"));
  $("copycommand").replaceChildren(copyButton("the command", commandLine));
  // A signal between two attempts is not what the last of them ended with.
  const meant = attempt && status !== attempt.exit_status ? {kind: "stop"} : cause;
  const facts = [["Exit status", `${status}: ${statusWords(status, meant)}`],
    [record.attempts.length > 1 ? "Duration of all" : "Duration", duration(record.seconds)]];
  if (attempt) {
    const hosts = attempt.hosts.length > 1 ? plural(attempt.hosts.length, "host")
      : attempt.hosts[0];
    const of = ranks.length && ranks.length !== record.num_processes
      ? ` of ${record.num_processes}` : "";
    facts.push(["Ranks", `${ranks.length}${of} on ${hosts}`]);
    const joined = ranks.filter(rank => rank.joined_s != null);
    if (joined.length) facts.push(["Joined", joined.length === ranks.length
      ? `all, by ${duration(Math.max(...joined.map(rank => rank.joined_s)))}`
      : `${joined.length} of ${ranks.length}`]);
    if (cause.at_s != null)
      facts.push([cause.kind === "rank" ? "Root cause at" : "Stopped at", duration(cause.at_s)]);
    if (attempt.values) facts.push(["Replicas equal at", duration(attempt.values.at_s)]);
  }
  facts.push(...versions().map(([name, words]) => [name, words]));
  if (record.restarts) facts.push(["Restarts", record.restarts]);
  facts.push(["Began", began()]);
  if (attempt && attempt.job_id) facts.push(["Job", attempt.job_id]);
  if (attempt && attempt.log_dir) facts.push(["Logs", el("a",
    {href: linkTo(attempt.log_dir) + "/", target: "_blank"}, attempt.log_dir)]);
  $("facts").replaceChildren(...facts.map(([name, value]) => el("div", {}, el("dt", {}, name),
    el("dd", {}, typeof value === "object" ? value : String(value)))));
  $("command").textContent = commandLine();
  // The summary may have these lines already.
  const repeated = diverged.every(line => cause.report.some(other => other.includes(line)));
  $("diverged").hidden = repeated;
  $("diverged").open = kind === "warn";
  $("diverged").querySelector("pre").textContent = diverged.map(bare).join("\n");
  showStacks(status);
  $("report").hidden = cause.report.length < 2;
  $("report").open = cause.kind === "stop" && cause.report.length < 8;
  $("lines").textContent = cause.report.join("\n");
  $("attempts").hidden = record.attempts.length < 2;
  $("attempts").replaceChildren(...record.attempts.map((one, at) => el("button", {
    "aria-pressed": at === state.attempt, title: one.cause.words,
    onclick: () => { state.attempt = at; state.rank = null; load(); },
  }, `${one.exit_status ? "✕" : (one.divergence || []).length ? "⚠\ufe0e" : "✓"} `
    + `attempt ${at + 1} (${duration(one.seconds)}): `
    + one.cause.words)));
}

const commandLine = () => record.command.map(quoted).join(" ");
function began() {
  const at = Date.parse(record.began), here = new Date(at).getTimezoneOffset() !== 0;
  const words = `${timeOfDay(at).slice(0, 19)} ${zone(at)}`;
  if (!here) return words;
  return el("button", {class: "plain", title: state.utc ? "show your own time" : "show UTC",
    onclick: () => { state.utc = !state.utc; showHead(); showSide(); showFoot(); }}, words);
}
// What the ranks run on: one version, or which ranks have which.
function versions() {
  const of = (key, name) => {
    const found = new Map();
    for (const rank of ranks) if (rank[key] != null)
      found.set(rank[key], [...(found.get(rank[key]) || []), rank.rank]);
    if (!found.size) return [];
    if (found.size === 1) return [[name, [...found.keys()][0]]];
    return [[name, el("span", {class: "differ"}, [...found].map(([version, who]) =>
      `${version} (${named(who)})`).join(", "))]];
  };
  return [...of("jax", "jax"), ...of("python", "Python")];
}
// What happened, as one would write it into a message.
function asText(status) {
  const on = attempt ? `, ${plural(ranks.length, "rank")} on ${attempt.hosts.length > 1
    ? plural(attempt.hosts.length, "host") : attempt.hosts[0]}` : "";
  const run = versions().map(([name, words]) => `, ${name} ${words.textContent || words}`).join("");
  const at = Date.parse(record.began);
  const report = attempt ? attempt.cause.report : [];
  return [`${$("badge").textContent}: ${$("words").textContent}`, ...report.slice(1).map(bare), "",
    `exit status ${status} after ${duration(record.seconds)}${on}${run}, `
      + `${commit()}mcjax-launch ${record.launcher_version}`,
    `began ${timeOfDay(at).slice(0, 19)} ${zone(at)}`, commandLine(), ""].join("\n");
}

function showStacks(status) {
  const lines = ((attempt && attempt.stacks) || []).map(bare);
  $("stood").hidden = !lines.length;
  $("stood").open = status === 124;
  const kind = line => {
    if (line.startsWith("  > ")) return "mine";
    if (line.startsWith(" ")) return "";
    const group = namedIn(line);
    return group && apart.length && group.ranks.join() === apart.join() ? "who apart" : "who";
  };
  $("stood").querySelector("pre").replaceChildren(...lines.flatMap(line =>
    [kind(line) ? el("span", {class: kind(line)}, line) : line, "\n"]));
  const preview = attempt && attempt.preview;
  for (const [id, lines] of [["kernel", attempt && attempt.kernel_log], ["preview", preview && preview.lines]]) {
    const text = (lines || []).join("\n");
    $(id).hidden = !text;
    $(id).querySelector("pre").textContent = text;
  }
}

// --- which ranks, and which time ---

function sorted(list) {
  const last = value => value == null ? Infinity : value;
  const keys = {
    worst: r => [isCause(r) ? 0 : 1, isOdd(r) ? 0 : 1, ORDER.indexOf(r.outcome),
      ["never called initialize()", "waiting in initialize()", ""].indexOf(late(r)),
      last(r.failed_s)],
    rank: () => [],
    host: r => [attempt.hosts.indexOf(r.host)],
    joined: r => [-last(r.joined_s)],
    ended: r => [last(r.ended_s)],
    memory: r => [-(r.peak_kib || 0)],
    cpu: r => [-(r.cpu_s || 0)],
  };
  const keyed = list.map(rank => [[...keys[state.sort](rank), rank.rank], rank]);
  keyed.sort(([a], [b]) => {
    const at = a.findIndex((value, i) => value !== b[i]);
    return at < 0 ? 0 : a[at] < b[at] ? -1 : 1;
  });
  return keyed.map(([, rank]) => rank);
}
// What a rank printed last, in small letters.
function printed(rank) {
  if (rank.printed == null) rank.printed =
    [...rank.last_lines.stderr, ...rank.last_lines.stdout].map(bare).join("\n").toLowerCase();
  return rank.printed;
}
function chosen() {
  const wanted = state.find.toLowerCase().split(/[\s,]+/).filter(Boolean);
  const matches = rank => !wanted.length || wanted.some(word => {
    const range = /^(\d+)(?:-(\d+))?$/.exec(word);
    if (range) return rank.rank >= +range[1] && rank.rank <= +(range[2] || range[1]);
    return `${rank.host} ${rank.words}`.toLowerCase().includes(word) || printed(rank).includes(word);
  });
  return sorted(ranks.filter(rank => !state.hidden.has(rank.outcome) && matches(rank)));
}
function zooms() {
  const whole = attempt.seconds || 0.001, found = {all: [0, whole]};
  const joined = Math.max(0, ...ranks.map(r =>
    Math.max(r.joined_s || 0, r.joining_s || 0, r.started_s || 0)));
  if (whole < 10) return found;
  if (joined && joined < 0.6 * whole) found.start = [0, joined * 1.25];
  const ends = [attempt.cause.at_s, ...ranks.map(r => r.ended_s)].filter(at => at != null);
  const first = ends.length ? Math.min(...ends) : 0;
  if (first > 0.6 * whole) found.end = [first - (whole - first) * 0.5 - 0.01, whole];
  return found;
}
const place = at => 100 * (at - view[0]) / (view[1] - view[0]);
const lastKnown = rank => Math.max(rank.started_s || 0, rank.joined_s || 0,
  rank.first_output_s || 0, ...rank.samples.slice(-1).map(sample => sample[0]));

// --- the timeline ---

function steps() {
  const span = view[1] - view[0], choices = [];
  for (let power = 0.001; power < 10; power *= 10) choices.push(power, 2 * power, 5 * power);
  choices.push(10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400);
  const most = Math.max(2, Math.min(9, Math.floor($("axis").clientWidth / 130)));
  const step = choices.find(one => span / one <= most) || 86400 * Math.ceil(span / 86400 / most);
  const found = [];
  for (let n = Math.ceil(view[0] / step); n * step <= view[1]; n++) found.push(n * step);
  const digits = step >= 1 ? 0 : Math.min(3, Math.ceil(-Math.log10(step) - 1e-9));
  return found.map(at => [at, at < 60 ? at.toFixed(digits) + " s" :
    [[Math.floor(at / 3600), "h"], [Math.floor(at / 60) % 60, "m"], [at % 60, "s"]]
      .filter(([n, unit]) => unit === "s" ? step < 60 : n || at >= 3600)
      .map(([n, unit]) => (unit === "s" ? n.toFixed(digits) : n) + unit).join(" ")]);
}
function showAxis() {
  const cause = attempt.cause, times = el("div", {class: "times"});
  for (const [at, text] of steps()) {
    const left = place(at);
    times.append(el("span", {style: `left:${left}%`, class: left < 2 ? "edge" : left > 97 ? "far" : ""},
      text));
  }
  if (cause.at_s != null && cause.at_s >= view[0] && cause.at_s <= view[1]) {
    const left = place(cause.at_s);
    const who = cause.kind === "rank" ? `root cause: rank ${cause.rank}` : "stopped";
    times.append(el("span", {class: `flag ${left > 60 ? "left" : ""}`, style: `left:${left}%`},
      left > 60 ? `${who}, ${duration(cause.at_s)} ▾` : `▾ ${who}, ${duration(cause.at_s)}`));
  }
  $("axis").replaceChildren(el("div", {}, "rank"), times, el("div", {}, "end"),
    el("div", {style: "text-align:right"}, "memory"));
}
function phases(rank) {
  const over = rank.ended_s != null ? rank.ended_s : lastKnown(rank);
  const failed = rank.failed_s != null && rank.failed_s < over ? rank.failed_s : null;
  const left = failed != null ? failed : rank.leaving_s != null && rank.leaving_s < over
    ? rank.leaving_s : over;
  const found = [];
  const add = (kind, from, to) => {
    if (from != null && to != null && to >= from) found.push([kind, from, to]);
  };
  if (rank.joining_s != null && rank.joining_s <= left) {
    add("starting", rank.started_s, rank.joining_s);
    const through = rank.joined_s != null ? rank.joined_s : left;
    add("joining", rank.joining_s, through);
    if (rank.joined_s != null) add("running", rank.joined_s, left);
  } else add(late(rank) ? "starting" : "running", rank.started_s, left);
  if (left < over) add("held", left, over);
  if (rank.ended_s == null && rank.started_s != null) add("gone", over, attempt.seconds);
  return found;
}
function bar(rank) {
  const track = el("div", {class: "track", "aria-hidden": true});
  for (const [kind, from, to] of phases(rank)) {
    if (to < view[0] || from > view[1]) continue;
    const left = place(Math.max(from, view[0])), right = place(Math.min(to, view[1]));
    track.append(el("i", {class: kind, style: `left:${left}%;width:${right - left}%`}));
  }
  for (const wait of waits) {
    const came = wait.times.get(rank.rank), picked = wait === state.wait;
    if (came == null || !isLong(wait) && !picked) continue;
    const left = place(Math.max(came, view[0])), right = place(Math.min(wait.until_s, view[1]));
    if (right > left && !wait.late.includes(rank.rank)) track.append(el("i", {
      class: picked ? "waiting picked" : "waiting", style: `left:${left}%;width:${right - left}%`}));
  }
  const inside = at => at != null && at >= view[0] && at <= view[1];
  if (state.wait && inside(state.wait.until_s)) track.append(el("s", {
    class: state.wait.late.includes(rank.rank) ? "awaited" : "",
    style: `left:${place(state.wait.until_s)}%`}));
  if (inside(attempt.cause.at_s))
    track.append(el("span", {class: "when", style: `left:${place(attempt.cause.at_s)}%`}));
  if (inside(rank.first_output_s))
    track.append(el("u", {style: `left:${place(rank.first_output_s)}%`}));
  const end = rank.failed_s != null ? rank.failed_s : rank.ended_s;
  if (inside(end)) track.append(el("b", {
    class: rank.failed_s != null ? "failure" : "",
    style: `left:clamp(6px, ${place(end)}%, 100% - 6px)`,
  }));
  return track;
}
// How a rank ended, in a word or two.
function shortEnd(rank) {
  if (rank.outcome === "failed" && rank.exception) return rank.exception.name;
  if (rank.outcome === "unknown") return NAMED.unknown;
  if (rank.outcome === "lost") return "lost";
  if (rank.signal) return rank.signal;
  return rank.exit_status == null ? rank.outcome : `exit ${rank.exit_status}`;
}
function described(rank) {
  const said = [`rank ${rank.rank} on ${rank.host}: ${rank.words}`];
  if (isCause(rank)) said.push("root cause");
  if (isApart(rank)) said.push("different stack");
  if (isDiverging(rank)) said.push("different program");
  for (const [name, at] of moments(rank)) said.push(`${name} ${exact(at)}`);
  return said.join(", ");
}
function showRows() {
  const hosts = new Set(ranks.map(rank => rank.host)).size > 1;
  const digits = String(Math.max(0, ...ranks.map(rank => rank.rank))).length;
  const longest = hosts ? Math.max(...ranks.map(rank => rank.host.length)) + 1 : 0;
  const swatch = ranks.length <= COLOURS ? 16 : 0;
  $("main").style.setProperty("--name",
    `${Math.max(66, Math.min(200, 12 + swatch + 7 * (digits + longest)))}px`);
  $("main").classList.toggle("many", ranks.length > MANY);
  $("main").classList.toggle("few", ranks.length <= MANY);
  shown = chosen();
  if (!shown.some(rank => rank.rank === state.rank) && shown.length && state.rank == null)
    state.rank = shown[0].rank;
  const grouped = hosts && (state.sort === "rank" || state.sort === "host");
  const inTurn = shown.some(rank => rank.rank === state.rank) ? state.rank
    : shown.length ? shown[0].rank : null;
  $("rows").replaceChildren(...shown.map((rank, at) => el("div", {
    class: `row ${rank.outcome}${isCause(rank) ? " cause" : isOdd(rank) ? " apart" : ""}`
      + (grouped && at && shown[at - 1].host !== rank.host ? " newhost" : ""),
    role: "option", id: `rank-${rank.rank}`, "data-rank": rank.rank,
    "aria-selected": rank.rank === state.rank, "aria-label": described(rank),
    tabindex: rank.rank === inTurn ? 0 : -1,
  }, el("div", {class: "name"},
    swatch ? el("i", {class: "swatch", style: `background:${colourOf(rank)}`}) : null,
    el("b", {}, String(rank.rank)), hosts ? el("span", {}, ` ${rank.host}`) : null),
  bar(rank),
  el("div", {class: "end"}, ...pills(rank), el("span", {class: "dot"}, MARK[rank.outcome]),
    el("span", {title: rank.words}, late(rank) || shortEnd(rank))),
  el("div", {class: "peak"}, memory(rank.peak_kib)))));
  // As wide as its longest words, so that none are cut.
  const widest = Math.max(100, ...[...$("rows").querySelectorAll(".end")].map(one =>
    [...one.children].reduce((sum, part) => sum + part.offsetWidth + 6, 0)));
  $("main").style.setProperty("--end", `${Math.min(widest, 0.4 * $("main").clientWidth)}px`);
  $("main").style.setProperty("--bar", `${$("rows").offsetWidth - $("rows").clientWidth}px`);
  if (!shown.length) $("rows").append(el("div", {class: "none"},
    ranks.length ? "No rank matches the filter."
      : `No rank was started on ${attempt.hosts.join(", ")}.`));
  for (const id of ["axis", "tools"]) $(id).hidden = !ranks.length;
  $("body").classList.toggle("alone", !ranks.length);
  $("main").classList.toggle("bystop", attempt.cause.kind !== "rank");
}
function showTools() {
  const counts = {};
  for (const rank of ranks) counts[rank.outcome] = (counts[rank.outcome] || 0) + 1;
  $("chips").replaceChildren(...ORDER.filter(kind => counts[kind]).map(kind => el("button", {
    class: `chip ${kind}`, style: "margin-right:6px", "aria-pressed": !state.hidden.has(kind),
    title: "show or hide them",
    onclick: () => {
      if (!state.hidden.delete(kind)) state.hidden.add(kind);
      showTools(); showRows();
    },
  }, el("span", {class: "dot", "aria-hidden": true}, MARK[kind]),
  `${counts[kind]} ${NAMED[kind]}`)));
  const found = zooms();
  if (!found[state.zoom]) state.zoom = "all";
  view = found[state.zoom];
  $("zoom").hidden = Object.keys(found).length < 2;
  $("zoom").replaceChildren(...Object.keys(found).map(kind => el("button", {
    "aria-pressed": kind === state.zoom,
    onclick: () => { state.zoom = kind; showTools(); showTime(); },
  }, {all: "whole run", start: "start", end: "end"}[kind])));
}
function showLegend() {
  const sample = inside => el("span", {class: "track", "aria-hidden": true}, inside);
  const part = (inside, words) => el("span", {}, sample(inside), words);
  const has = kind => ranks.some(rank => phases(rank).some(([one]) => one === kind));
  $("legend").hidden = !ranks.length;
  $("legend").replaceChildren(...[
    has("starting") && part(el("i", {class: "starting"}), "until initialize()"),
    has("joining") && part(el("i", {class: "joining"}), "in initialize()"),
    part(el("i", {class: "running"}), has("joining") ? "joined" : "runs"),
    has("held") && part(el("i", {class: "held"}), "program finished, process still running"),
    has("gone") && part(el("i", {class: "gone"}), "nothing known"),
    waits.some(wait => isLong(wait) && wait.drawn) && part(el("span", {},
      el("i", {class: "running"}), el("i", {class: "waiting"})), "waits for another rank"),
    part(el("u", {}), "first output"), part(el("b", {}), "end"),
    ranks.some(rank => rank.failed_s != null) && part(el("b", {class: "failure"}), "failure"),
  ].filter(Boolean));
}
function showTime() { showAxis(); showRows(); showWaits(); showCharts(); }

// --- who waited for whom ---

function prepareWaits() {
  waits = (attempt ? attempt.waits : []).map(wait => {
    const times = new Map(wait.arrived), first = wait.arrived[0][1];
    const joins = wait.place === "initialize()", leaves = wait.place.endsWith("exit barrier");
    return {...wait, times, seconds: wait.until_s - first, drawn: !joins && !leaves,
      ranks: wait.arrived.map(([rank]) => rank).filter(rank => !wait.late.includes(rank)),
      never: wait.late.some(rank => !times.has(rank))};
  });
  // A phase of its own on the timeline: what stands there needs no second pattern.
  for (const wait of waits) if (!wait.drawn) wait.times = new Map();
  waits.sort((a, b) => b.seconds - a.seconds);
}
const isLong = wait => wait.seconds >= Math.min(1, Math.max(0.1, 0.02 * attempt.seconds));
function waitWords(wait) {
  const up = wait.ranks.length > 1 && !wait.never ? "up to " : "";
  return [el("b", {}, named(wait.ranks)), ` waited ${up}${duration(wait.seconds)} for `,
    el("b", {}, named(wait.late)), wait.place && ` in ${wait.place}`,
    wait.where ? el("span", {class: "soft"}, ` at ${wait.where}`) : "",
    wait.never ? el("span", {class: "never"},
      `, which ${wait.late.length > 1 ? "have" : "has"} not come`) : ""];
}
// For whom ranks waited when the job was stopped.
function awaited() {
  const wait = waits.find(one => one.never && isLong(one));
  return wait ? `; ${named(wait.ranks)} waited ${duration(wait.seconds)} for ${named(wait.late)}` : "";
}
const placeOf = wait => wait.place ? `in ${wait.place}` : wait.where ? `at ${wait.where}` : "";
function showWaits() {
  const long = waits.filter(isLong), all = state.allWaits || long.length <= FEW_WAITS + 1;
  $("waits").hidden = !long.length;
  const longest = Math.max(...long.map(wait => wait.seconds));
  $("waits").replaceChildren(el("h2", {}, "Who waited for whom"),
    ...(all ? long : long.slice(0, FEW_WAITS)).map(wait => el("button", {
      class: "wait", "aria-pressed": wait === state.wait, onclick: () => pickWait(wait),
    }, el("span", {class: "long", "aria-hidden": true},
      el("i", {style: `width:${100 * wait.seconds / longest}%`})),
    el("span", {}, ...waitWords(wait)))),
    all ? "" : el("button", {class: "plain", onclick: () => {
      state.allWaits = true;
      showWaits();
    }}, `show all ${long.length}`));
}
function pickWait(wait) {
  state.wait = state.wait === wait ? null : wait;
  if (state.wait && ranks.some(rank => rank.rank === wait.late[0])) select(wait.late[0]);
  showRows(); showWaits();
}

// --- what they use, over time ---

const sampled = (rank, field, factor = 1) => rank.gpu_samples.filter(s => s[field] != null)
  .map(s => [s[0], factor * s[field]]);
const uses = {
  gpuMemory: {title: "GPU memory", format: memory, least: 1024, isMemory: true,
    isKnown: rank => rank.gpu_samples.length, points: rank => sampled(rank, 1, 1024)},
  gpuBusy: {title: "GPUs, % of the time busy", format: n => n == null ? "–" : n.toFixed(0) + " %",
    least: 100, isKnown: rank => rank.gpu_samples.length, points: rank => sampled(rank, 2)},
  memory: {title: "Memory", format: memory, least: 1024, isMemory: true, peak: rank => rank.peak_kib, points: rank => {
    const points = rank.samples.map(s => [s[0], s[2]]);
    if (!points.length) return points;
    const last = points[points.length - 1];
    if (rank.ended_s > last[0]) points.push([rank.ended_s, last[1]]);
    return points;
  }},
  cpu: {title: "CPU, cores in use", format: cores, least: 0.1, points: rank => {
    let [at, used] = [rank.started_s || 0, 0];
    // Those from before are of the process that it was forked from.
    const samples = rank.samples.filter(s => s[0] > at), last = samples[samples.length - 1];
    // The kernel counts in hundredths of a second: too coarse for a short rest.
    if (last && rank.ended_s > last[0] + 0.5) samples.push([rank.ended_s, rank.cpu_s]);
    return samples.flatMap(s => {
      const from = at, rate = Math.max(0, s[1] - used) / Math.max(s[0] - at, 1e-3);
      [at, used] = [s[0], s[1]];
      return [[from, rate], [s[0], rate]];
    });
  }},
};
function value(points, at) {
  if (!points.length || at < points[0][0] || at > points[points.length - 1][0]) return null;
  let low = 0, high = points.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (points[middle][0] <= at) low = middle; else high = middle;
  }
  const [a, b] = [points[low], points[high]];
  return b[0] > a[0] ? a[1] + (b[1] - a[1]) * (at - a[0]) / (b[0] - a[0]) : b[1];
}
function summary(lines, at) {
  const values = lines.map(line => [value(line.points, at), line.rank])
    .filter(([v]) => v != null).sort(([a], [b]) => a - b);
  if (!values.length) return null;
  return {median: values[Math.floor(values.length / 2)][0], max: values[values.length - 1]};
}
function ceiling(most) {
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 1.2, 1.6, 2, 3, 4, 5, 6, 8, 10].map(n => n * power).find(n => n >= most * 0.9999);
}
function showCharts() {
  $("charts").replaceChildren();
  charts = [];
  if (!ranks.length) return;
  if (!ranks.some(rank => rank.samples.length)) {
    $("charts").append(el("p", {class: "none"}, attempt.complete
      ? "Memory and CPU over time: sampled once a second, and no rank ran that long."
      : "Memory and CPU over time: not in the record, like those of most attempts in the middle."));
    return;
  }
  for (const [key, use] of Object.entries(uses))
    if (!use.isKnown || ranks.some(use.isKnown)) charts.push(chart(key, use));
  $("charts").classList.toggle("dense", ranks.length > 8);
  $("charts").append(...charts.map(one => one.frame));
  pickLines();
}
function chart(key, use) {
  const lines = ranks.map(rank => ({rank, points: use.points(rank)}));
  // One rank has one peak: the kernel's count, where there is one, also sees what samples miss.
  const peak = line => !line.points.length ? null
    : use.peak ? use.peak(line.rank) : Math.max(...line.points.map(p => p[1]));
  const biggest = Math.max(use.least, ...lines.map(peak));
  // Round in the unit that is shown.
  const unit = use.isMemory ? (biggest >= 1024 ** 2 ? 1024 ** 2 : 1024) : 1;
  const top = ceiling(biggest / unit) * unit;
  const label = part => part ? +(top * part / unit).toPrecision(3)
    + {1: "", 1024: " MiB", [1024 ** 2]: " GiB"}[unit] : "0";
  const path = points => {
    const from = points.findIndex((p, at) => at + 1 >= points.length
      || points[at + 1][0] >= view[0]);
    const kept = [];
    for (const p of points.slice(Math.max(0, from))) {
      kept.push(p);
      if (p[0] > view[1]) break;
    }
    return kept.map(([at, v], i) => `${i ? "L" : "M"}${(10 * place(at)).toFixed(1)} `
      + (100 - 100 * v / top).toFixed(2)).join("");
  };
  const NS = "http:" + "//www.w3.org/2000/svg"; // a name, not an address
  const svg = document.createElementNS(NS, "svg");
  svg.setAttribute("viewBox", "0 0 1000 100");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${use.title} of each rank over time, at most `
    + use.format(biggest));
  const draw = (tag, attributes) => {
    const made = document.createElementNS(NS, tag);
    give(made, attributes);
    svg.append(made);
    return made;
  };
  for (const y of [25, 50, 75]) draw("line", {x1: 0, x2: 1000, y1: y, y2: y});
  for (const line of lines) if (line.points.length) {
    const d = path(line.points);
    line.path = draw("path", {d: d.includes("L") ? d : `${d}h.01`, "data-rank": line.rank.rank,
      style: `--own:${colourOf(line.rank)}`});
  }
  const times = [];
  if (lines.length > 8) {
    for (let n = 0; n <= 160; n++) times.push(view[0] + (view[1] - view[0]) * n / 160);
    const over = times.map(at => [at, summary(lines, at)]).filter(([, s]) => s);
    draw("path", {class: "max", d: path(over.map(([at, s]) => [at, s.max[0]]))});
    draw("path", {class: "median", d: path(over.map(([at, s]) => [at, s.median]))});
  }
  const cross = el("div", {class: "cross", hidden: ""});
  const read = el("div", {class: "read"});
  const plot = el("div", {class: "plot"}, svg, cross);
  if (attempt.cause.at_s != null && attempt.cause.at_s >= view[0])
    plot.append(el("span", {class: "when", style: `left:${place(attempt.cause.at_s)}%`}));
  const frame = el("div", {class: "frame chart", "data-use": key},
    el("div", {class: "title"}, use.title), el("div", {style: "grid-column:3/5"}),
    el("div", {class: "scale", "aria-hidden": true}, ...[0, 0.5, 1].map(part =>
      el("span", {style: `top:${100 - 100 * part}%`}, label(part)))),
    plot, read);
  const at = event => {
    const box = plot.getBoundingClientRect();
    return [view[0] + (view[1] - view[0]) * (event.clientX - box.left) / box.width,
      top * (1 - (event.clientY - box.top) / box.height)];
  };
  plot.addEventListener("mousemove", event => charts.forEach(one => one.show(at(event)[0])));
  plot.addEventListener("mouseleave", () => charts.forEach(one => one.show(null)));
  plot.addEventListener("click", event => {
    const [when, height] = at(event);
    const near = lines.map(line => [value(line.points, when), line.rank.rank])
      .filter(([v]) => v != null)
      .sort(([a], [b]) => Math.abs(a - height) - Math.abs(b - height))[0];
    if (near) select(near[1]);
  });
  function show(when) {
    cross.hidden = when == null;
    if (when != null) cross.style.left = `${place(when)}%`;
    const of = line => when == null ? peak(line) : value(line.points, when);
    const entry = (kind, name, v, line) => el("div", {class: kind,
      style: line && `--own:${colourOf(line.rank)}`}, el("span", {}), el("span", {}, name),
    el("span", {}, use.format(v)));
    read.replaceChildren(el("p", {}, when == null ? "peak" : `at ${duration(when)}`));
    const cause = lines.find(line => isCause(line.rank));
    const picked = lines.find(line => line.rank.rank === state.rank);
    if (picked && picked !== cause)
      read.append(entry("picked", `rank ${picked.rank.rank}`, of(picked), picked));
    if (cause) read.append(entry("cause", `rank ${cause.rank.rank}, root cause`, of(cause), cause));
    const all = lines.map(line => [of(line), line.rank.rank]).filter(([v]) => v != null)
      .sort(([a], [b]) => a - b);
    if (all.length > 8) read.append(
      entry("max", `highest: rank ${all[all.length - 1][1]}`, all[all.length - 1][0]),
      entry("median", "median", all[Math.floor(all.length / 2)][0]));
    if (ranks.length > COLOURS) read.append(el("div", {class: "ramp"}, el("span", {}),
      el("span", {}, `rank ${ranks[0].rank} to ${ranks[ranks.length - 1].rank}`)));
    if (all.length <= 8) for (const line of lines) if (line !== picked && line !== cause)
      read.append(entry("", `rank ${line.rank.rank}`, of(line), line));
  }
  function pick() {
    for (const line of lines) if (line.path) {
      const picked = line.rank.rank === state.rank;
      line.path.setAttribute("class",
        [picked && "picked", isCause(line.rank) && "cause"].filter(Boolean).join(" "));
    }
    svg.append(...svg.querySelectorAll(".cause"), ...svg.querySelectorAll(".picked"));
    show(null);
  }
  return {frame, show, pick};
}
function pickLines() { charts.forEach(one => one.pick()); }

// --- one rank ---

function moments(rank) {
  return [["process started", rank.started_s], ["first output", rank.first_output_s],
    ["called initialize()", rank.joining_s], ["joined", rank.joined_s],
    ["program finished", rank.leaving_s],
    ["failed", rank.failed_s !== rank.ended_s ? rank.failed_s : null],
    ["process ended", rank.ended_s]]
    .filter(([, at]) => at != null).sort((a, b) => a[1] - b[1]);
}
// Lines with a note in place of the traceback, or of its end where the lines do not hold it all.
function withoutTraceback(lines, traceback) {
  const alike = (from, part) => part.every((line, at) =>
    lines[from + at] !== undefined && lines[from + at].trimEnd() === line.trimEnd());
  const without = (from, count, words) => [...lines.slice(0, from),
    el("span", {class: "note"}, words), ...lines.slice(from + count)];
  if (!traceback.length) return lines;
  for (let from = lines.length - traceback.length; from >= 0; from--)
    if (alike(from, traceback)) return without(from, traceback.length, "(the traceback above)");
  for (let count = Math.min(lines.length, traceback.length - 1); count > 1; count--)
    if (alike(0, traceback.slice(-count)))
      return without(0, count, "(the end of the traceback above)");
  return lines;
}
function showSide() {
  const rank = ranks.find(one => one.rank === state.rank), side = $("side");
  side.replaceChildren();
  side.hidden = !ranks.length;
  if (!rank) return;
  side.append(el("div", {class: `title ${rank.outcome}`},
    el("h2", {}, `Rank ${rank.rank} `, el("span", {style: "font-weight:400"}, `on ${rank.host}`)),
    ...pills(rank)));
  side.append(el("p", {class: `said ${rank.outcome}`},
    el("span", {class: "dot", "aria-hidden": true}, MARK[rank.outcome]), rank.words,
    rank.outcome === "failed" && rank.exception ? `, exit status ${rank.exit_status}` : "",
    late(rank) ? `, ${late(rank)}` : ""));
  if (rank.killer && !rank.words.includes(rank.killer))
    side.append(el("p", {class: "said"}, rank.killer));
  const thrown = rank.exception;
  if (thrown && thrown.where) side.append(el("p", {class: "said mono", style: "font-size:12px"},
    `at ${thrown.where}${thrown.line ? ": " + thrown.line : ""}`));
  const block = (name, lines, ...more) => {
    if (lines.length) side.append(...titledBlock(name, lines, ...more));
  };
  const traceback = thrown ? thrown.traceback.map(bare) : [];
  block("Traceback", traceback);
  for (const wait of waits.filter(isLong)) {
    const forIt = wait.late.includes(rank.rank);
    if (wait.ranks.includes(rank.rank) || forIt) side.append(el("p", {class: "said"}, forIt
      ? `${named(wait.ranks)} waited ${duration(wait.seconds)} for it ${placeOf(wait)}`
      : `waited ${duration(wait.until_s - new Map(wait.arrived).get(rank.rank))} for `
        + `${named(wait.late)} ${placeOf(wait)}`));
  }
  const row = (...cells) => el("tr", {}, ...cells.map(cell => el("td", {}, cell)));
  side.append(el("table", {}, el("tbody", {},
    ...moments(rank).map(([name, at]) => row(name, exact(at), clock(at))),
    row("CPU time", rank.cpu_s == null ? "–" : duration(rank.cpu_s), ""),
    row("peak memory", memory(rank.peak_kib), ""),
    ...rank.gpu_use.map(gpu => row(`GPU ${gpu.number}`, gpu.name, gpuWords(gpu))),
    rank.gpu_peak_mib == null ? "" : row("peak GPU memory", memory(1024 * rank.gpu_peak_mib), ""),
    rank.compiled ? row("programs compiled", String(rank.compiled.programs_compiled),
      duration(rank.compiled.compiling_s)) : "",
    rank.compiled ? row("programs loaded", String(rank.compiled.programs_loaded),
      `${duration(rank.compiled.saved_s)} saved`) : "",
    row("process id", rank.pid == null ? "–" : String(rank.pid), ""),
    rank.jax ? row("jax", rank.jax, rank.jaxlib !== rank.jax ? `jaxlib ${rank.jaxlib}` : "") : "",
    rank.python ? row("Python", rank.python, "") : "",
    rank.signals_sent.length ? row("was sent", rank.signals_sent.join(", "), "") : "")));
  const last = rank.compiled_last;
  if (last) side.append(el("p", {class: "said"},
    `compiled last: ${last.name}${last.where ? " at " + last.where : ""}`));
  const ran = rank.last_programs.slice(-4);
  if (ran.length) side.append(el("p", {class: "said"},
    `ran ${rank.programs.toLocaleString("en")} programs, at last: ${ran.map(one =>
      `${one.number.toLocaleString("en")} ${one.name}${one.where ? " at " + one.where : ""}`).join(", ")}`));
  const {stdout, stderr} = rank.last_lines;
  if (stdout.length + stderr.length > 1) side.append(el("input", {type: "search", id: "grep",
    placeholder: "search in the last lines", "aria-label": "Search in the last lines",
    value: state.lines, oninput: event => { state.lines = event.target.value; showLines(); }}));
  side.append(el("div", {id: "printed"}));
  showLines();
}
function gpuWords(gpu) {
  const mib = gpu.rank_mib == null ? gpu.used_mib : gpu.rank_mib;
  return [`${memory(1024 * mib)} of ${memory(1024 * gpu.limit_mib)}`,
    gpu.busy_percent == null ? null : `${Math.round(gpu.busy_percent)} %`].filter(Boolean).join(", ");
}
function titledBlock(name, lines, title = name, whole = lines, link = null) {
  const text = () => whole.map(line => line.textContent ?? line).join("\n") + "\n";
  return [el("div", {class: "of"}, el("h3", {}, title), link, copyButton(name.toLowerCase(), text)),
    lines.length ? el("pre", {tabindex: 0, "aria-label": name}, ...lines.flatMap(line => [line, "\n"]))
      : ""];
}
// The last lines of the selected rank, all of them or those that have what is searched for.
function showLines() {
  const rank = ranks.find(one => one.rank === state.rank), box = $("printed");
  if (!box) return;
  const traceback = rank.exception ? rank.exception.traceback.map(bare) : [];
  box.replaceChildren();
  for (const stream of ["stderr", "stdout"]) {
    const path = rank.log_files && rank.log_files[stream];
    const link = path && el("a", {href: linkTo(path), target: "_blank", title: path}, "log file");
    const whole = rank.last_lines[stream].map(bare);
    if (!whole.length) {
      if (link) box.append(el("div", {class: "of"}, el("h3", {},
        attempt.complete ? `Nothing on ${stream}` : `${stream}: not in the record`), link));
      continue;
    }
    const name = `Last lines of ${stream}`, found = matching(whole);
    const lines = state.lines ? found : stream === "stderr" ? withoutTraceback(whole, traceback)
      : whole;
    box.append(...titledBlock(name, lines, state.lines
      ? `${name}: ${found.length} of ${whole.length}` : `${name} (${whole.length})`, whole, link));
  }
  if (!rank.last_lines.stdout.length && !rank.last_lines.stderr.length && !rank.log_files)
    box.append(el("h3", {}, attempt.complete ? "It printed nothing."
      : "Its last lines are not in the record."));
  for (const pre of box.querySelectorAll("pre")) pre.scrollTop = pre.scrollHeight;
}
function matching(lines) {
  const wanted = state.lines.toLowerCase();
  return lines.filter(line => line.toLowerCase().includes(wanted)).map(line => {
    const at = line.toLowerCase().indexOf(wanted);
    return el("span", {}, line.slice(0, at), el("mark", {}, line.slice(at, at + wanted.length)),
      line.slice(at + wanted.length));
  });
}
function select(number, focus) {
  state.rank = number;
  for (const row of $("rows").querySelectorAll(".row")) {
    const picked = +row.dataset.rank === number;
    row.setAttribute("aria-selected", picked);
    row.tabIndex = picked ? 0 : -1;
    if (picked) {
      row.scrollIntoView({block: "nearest"});
      if (focus) row.focus();
    }
  }
  showSide(); pickLines(); remember();
}
function remember() {
  const several = record.attempts.length > 1 ? `attempt=${state.attempt + 1}&` : "";
  try { history.replaceState(null, "", `#${several}rank=${state.rank}`); } catch { /* as it was */ }
}

// --- a tooltip for a row ---

function tip(row, event) {
  const rank = row && ranks.find(one => one.rank === +row.dataset.rank), box = $("tip");
  box.hidden = !rank;
  if (!rank) return;
  box.replaceChildren(el("b", {}, `rank ${rank.rank} on ${rank.host}`),
    el("div", {class: rank.outcome}, el("span", {class: "dot"}, MARK[rank.outcome]), rank.words),
    el("table", {}, ...moments(rank).map(([name, at]) =>
      el("tr", {}, el("td", {}, name), el("td", {}, exact(at))))));
  const size = box.getBoundingClientRect(), near = row.getBoundingClientRect();
  const x = event ? event.clientX + 14 : near.left + 80;
  const below = near.bottom + 6 + size.height < innerHeight;
  box.style.left = `${Math.max(4, Math.min(x, innerWidth - size.width - 8))}px`;
  box.style.top = `${below ? near.bottom + 6 : Math.max(4, near.top - size.height - 6)}px`;
}
$("rows").addEventListener("mousemove", event => tip(event.target.closest(".row"), event));
$("rows").addEventListener("mouseleave", () => tip(null));
$("rows").addEventListener("scroll", () => tip(null));
$("rows").addEventListener("focusin", event => {
  const row = event.target.closest(".row");
  if (row && row.matches(":focus-visible")) tip(row);
});
$("rows").addEventListener("focusout", () => tip(null));
$("rows").addEventListener("click", event => {
  const row = event.target.closest(".row");
  if (!row) return;
  select(+row.dataset.rank);
  // Where it does not stand beside the timeline.
  if ($("side").offsetTop > $("main").offsetTop + 9)
    $("side").scrollIntoView({behavior: "smooth", block: "start"});
});
$("rows").addEventListener("keydown", event => {
  const at = Math.max(0, shown.findIndex(rank => rank.rank === state.rank));
  const to = {ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + 20, PageUp: at - 20, Home: 0,
    End: shown.length - 1}[event.key];
  if (event.key === "Escape") tip(null);
  if (to == null || !shown.length) return;
  event.preventDefault();
  select(shown[Math.max(0, Math.min(to, shown.length - 1))].rank, true);
});
$("find").addEventListener("input", event => { state.find = event.target.value; showRows(); });
$("sort").addEventListener("change", event => { state.sort = event.target.value; showRows(); });
addEventListener("resize", () => { if (attempt) { showAxis(); showRows(); } });
addEventListener("hashchange", fromHash);

// --- all of it ---

function fromHash() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const at = +asked.get("attempt") - 1;
  if (record.attempts[at]) state.attempt = at;
  state.rank = asked.has("rank") ? +asked.get("rank") : null;
  load();
}
function load() {
  attempt = record.attempts[state.attempt];
  ranks = attempt ? attempt.ranks : [];
  apart = standingApart((attempt && attempt.stacks) || []);
  others = diverging((attempt && attempt.divergence_sides) || []);
  if (!ranks.some(rank => rank.rank === state.rank))
    state.rank = attempt && attempt.cause.rank != null ? attempt.cause.rank
      : [...apart, ...others][0] ?? null;
  state.hidden.clear();
  state.wait = null;
  state.allWaits = false;
  prepareWaits();
  showHead();
  $("body").hidden = !attempt;
  if (attempt) {
    showTools(); showTime(); showLegend(); showSide();
    if (state.rank != null) {
      const row = $(`rank-${state.rank}`);
      if (row) row.scrollIntoView({block: "nearest"});
    }
  }
  showFoot();
}
// Which code ran, if it is in a git checkout.
function commit() {
  const found = record.checkout;
  if (!found || !found.commit) return "";
  return `commit ${found.commit.slice(0, 12)}${found.clean === false ? " with changes" : ""}, `;
}
function showFoot() {
  $("foot").textContent = `${commit()}mcjax-launch ${record.launcher_version} on `
    + `${record.launcher_host}; `
    + `format ${record.version}. Times of ranks count from the start of the attempt, by the `
    + `launcher's clock; the times of day are ${zone(Date.parse(record.began))}.`;
}
fromHash();
scrollTo(0, 0);
