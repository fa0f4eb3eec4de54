/** The websocket to the server, reopened whenever it is lost. */

const FIRST_WAIT_MS = 300;
const MAX_WAIT_MS = 4000;

export class Connection {
  /** @param {{opened: () => void, lost: (forbidden: boolean) => void, received: (message: object) => void}} handlers */
  constructor(handlers) {
    this.handlers = handlers;
    this.wait = FIRST_WAIT_MS;
    this.socket = null;
  }

  connect() {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}/ws`);
    this.socket = socket;
    socket.addEventListener("open", () => {
      this.wait = FIRST_WAIT_MS;
      this.handlers.opened();
    });
    socket.addEventListener("message", (event) => this.handlers.received(JSON.parse(event.data)));
    socket.addEventListener("close", () => this.lost());
  }

  async lost() {
    this.socket = null;
    this.handlers.lost(await forbidden());
    setTimeout(() => this.connect(), this.wait);
    this.wait = Math.min(this.wait * 1.7, MAX_WAIT_MS);
  }

  get isOpen() {
    return this.socket?.readyState === WebSocket.OPEN;
  }

  /** @returns {boolean} whether the message was sent */
  send(message) {
    if (!this.isOpen) return false;
    this.socket.send(JSON.stringify(message));
    return true;
  }
}

/** Whether the server refuses this page because it was restarted, with another token. */
async function forbidden() {
  try {
    return [401, 403].includes((await fetch("/api/project", { cache: "no-store" })).status);
  } catch {
    return false;
  }
}
