/** The tiles used last, up to a number; what is on the screen is never thrown away. */

export class Cache {
  constructor(most) {
    this.most = most;
    /** @type {Map<string, any>} the least recently used first */
    this.entries = new Map();
  }

  /** @returns the entry, which is now the most recently used, or undefined */
  get(key) {
    const entry = this.entries.get(key);
    if (entry) {
      this.entries.delete(key);
      this.entries.set(key, entry);
    }
    return entry;
  }

  /** Like get, but the order stays. */
  peek(key) {
    return this.entries.get(key);
  }

  add(key, entry) {
    this.entries.set(key, entry);
    return entry;
  }

  /** Throws the oldest away, but none for which `keep` holds. */
  trim(keep) {
    if (this.entries.size <= this.most) return;
    for (const [key, entry] of this.entries) {
      if (this.entries.size <= this.most) return;
      if (!keep(entry)) this.entries.delete(key);
    }
  }

  values() {
    return this.entries.values();
  }

  clear() {
    this.entries.clear();
  }
}
