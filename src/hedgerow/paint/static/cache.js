/** The most recently used tiles, up to a number; tiles on the screen are never evicted. */

export class Cache {
  constructor(maxEntries) {
    this.maxEntries = maxEntries;
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

  /** Like get, but does not count as a use. */
  peek(key) {
    return this.entries.get(key);
  }

  add(key, entry) {
    this.entries.set(key, entry);
    return entry;
  }

  /** Evicts the oldest entries, except those for which `keep` is true. */
  trim(keep) {
    if (this.entries.size <= this.maxEntries) return;
    for (const [key, entry] of this.entries) {
      if (this.entries.size <= this.maxEntries) return;
      if (!keep(entry)) this.entries.delete(key);
    }
  }

  values() {
    return this.entries.values();
  }
}
