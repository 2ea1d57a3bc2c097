// The list of conversations, in groups by when something was said last. Pure.

const DAY_MS = 86_400_000;

function groupOf(at, now) {
  const today = new Date(now).setHours(0, 0, 0, 0);
  if (at >= today) return 'today';
  if (at >= today - DAY_MS) return 'yesterday';
  if (at >= today - 7 * DAY_MS) return 'week';
  if (at >= today - 30 * DAY_MS) return 'month';
  return 'older';
}

// The pinned ones come first. A conversation that exists only here is new.
export function grouped(rows, now) {
  const groups = new Map(['pinned', 'today', 'yesterday', 'week', 'month', 'older'].map((name) => [name, []]));
  for (const row of rows) groups.get(row.pinned ? 'pinned' : groupOf(row.at ?? now, now)).push(row);
  return [...groups].filter(([, found]) => found.length);
}

// What is known, with what was told since: the newest first.
export function merged(known, told) {
  const fresh = new Map(told.map((row) => [row.name, row]));
  const rest = known.filter(({ name }) => !fresh.has(name));
  return [...fresh.values(), ...rest].sort((a, b) => (b.at ?? 0) - (a.at ?? 0));
}
