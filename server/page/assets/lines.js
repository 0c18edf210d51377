// The difference of two texts, by lines.

const most = 4000; // lines of each text that are compared line by line
const budget = 2000; // edits after which the texts count as different

// difference returns [kind, text] for each line: "same", "add", "del", or "gap" for lines that are left out.
export function difference(before, after, around = 3) {
  const a = split(before), b = split(after);
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const middle = edits(a.slice(head, a.length - tail), b.slice(head, b.length - tail));
  const all = [...a.slice(0, head).map((l) => ["same", l]), ...middle, ...a.slice(a.length - tail).map((l) => ["same", l])];
  return folded(all, around);
}

function split(text) {
  const lines = String(text).split("\n");
  if (lines.at(-1) === "") lines.pop();
  return lines;
}

// edits is Myers' algorithm, with a bound.
function edits(a, b) {
  const plain = () => [...a.map((l) => ["del", l]), ...b.map((l) => ["add", l])];
  if (!a.length || !b.length || a.length > most || b.length > most) return plain();
  const max = Math.min(a.length + b.length, budget);
  const v = new Map([[1, 0]]);
  const trace = [];
  for (let d = 0; d <= max; d++) {
    trace.push(new Map(v));
    for (let k = -d; k <= d; k += 2) {
      let x = k === -d || (k !== d && v.get(k - 1) < v.get(k + 1)) ? v.get(k + 1) : v.get(k - 1) + 1;
      let y = x - k;
      while (x < a.length && y < b.length && a[x] === b[y]) {
        x++;
        y++;
      }
      v.set(k, x);
      if (x >= a.length && y >= b.length) return walk(trace, a, b);
    }
  }
  return plain();
}

function walk(trace, a, b) {
  const all = [];
  let x = a.length, y = b.length;
  for (let d = trace.length - 1; d > 0; d--) {
    const v = trace[d], k = x - y;
    const from = k === -d || (k !== d && v.get(k - 1) < v.get(k + 1)) ? k + 1 : k - 1;
    const fx = v.get(from), fy = fx - from;
    while (x > fx && y > fy) {
      all.push(["same", a[--x]]);
      y--;
    }
    if (x === fx) all.push(["add", b[--y]]);
    else all.push(["del", a[--x]]);
  }
  while (x > 0 && y > 0) {
    all.push(["same", a[--x]]);
    y--;
  }
  return all.reverse();
}

// folded leaves out equal lines that are far from a change.
function folded(all, around) {
  const keep = new Uint8Array(all.length);
  all.forEach(([kind], i) => {
    if (kind !== "same") keep.fill(1, Math.max(0, i - around), Math.min(all.length, i + around + 1));
  });
  const out = [];
  for (let i = 0; i < all.length; i++) {
    if (keep[i]) {
      out.push(all[i]);
      continue;
    }
    let n = 0;
    while (i + n < all.length && !keep[i + n]) n++;
    out.push(["gap", `${n} equal ${n === 1 ? "line" : "lines"}`]);
    i += n - 1;
  }
  return out;
}
