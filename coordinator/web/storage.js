// The browser's storage, or a memory of this visit where the browser refuses it.

function storage(name) {
  try {
    const real = window[name];
    real.getItem('');
    return real;
  } catch {
    const memory = new Map();
    return {
      getItem: (key) => (memory.has(key) ? memory.get(key) : null),
      setItem: (key, value) => memory.set(key, value),
      removeItem: (key) => memory.delete(key),
    };
  }
}

export const local = storage('localStorage');
export const session = storage('sessionStorage');
