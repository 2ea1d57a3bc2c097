// Browsers may refuse localStorage (private windows, blocked site data); the page then works
// from memory and only forgets on reload.
const memory = new Map();

export function read(key) {
  try {
    return localStorage.getItem(key) ?? memory.get(key) ?? null;
  } catch {
    return memory.get(key) ?? null;
  }
}

// True: it is there after a reload too.
export function write(key, value) {
  memory.set(key, value);
  try {
    localStorage.setItem(key, value);
    return true;
  } catch {
    return false; // full or refused: memory has it
  }
}

export function remove(key) {
  memory.delete(key);
  try {
    localStorage.removeItem(key);
  } catch {
    // Nothing was stored there either.
  }
}

export function keys(prefix) {
  const found = new Set(memory.keys());
  try {
    for (let i = 0; i < localStorage.length; i += 1) found.add(localStorage.key(i));
  } catch {
    // Memory only.
  }
  return [...found].filter((key) => key.startsWith(prefix));
}

export function readJson(key, otherwise) {
  try {
    return JSON.parse(read(key)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

export const writeJson = (key, value) => write(key, JSON.stringify(value));
