// Loads scripts of the old kind and style sheets, each once.

const loaded = new Map();

export function loadScript(path) {
  if (!loaded.has(path)) {
    const script = document.createElement('script');
    script.src = new URL(path, import.meta.url);
    const loading = new Promise((resolve, reject) => {
      script.onload = resolve;
      script.onerror = () => reject(new Error(`${path} could not be loaded`));
    });
    loading.catch(() => loaded.delete(path));
    loaded.set(path, loading);
    document.head.append(script);
  }
  return loaded.get(path);
}

// Without its style sheet a thing is shown anyway.
export function loadStyle(path) {
  if (!loaded.has(path)) {
    const link = document.createElement('link');
    link.rel = 'stylesheet';
    link.href = new URL(path, import.meta.url);
    loaded.set(path, new Promise((resolve) => {
      link.onload = resolve;
      link.onerror = resolve;
    }));
    document.head.append(link);
  }
  return loaded.get(path);
}
