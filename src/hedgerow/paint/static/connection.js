/** The websocket to the server, reopened whenever it is lost. A server that stops answering is noticed, too. */

const FIRST_WAIT_MS = 300;
const MAX_WAIT_MS = 4000;
const PING_MS = 2000;
const SILENT_MS = 6000; // without an answer, after which the page says so
const GIVE_UP_MS = 40000; // without an answer, after which it connects again: the computer may have slept

export class Connection {
  /** @param {{opened: () => void, lost: (forbidden: boolean) => void, silent: (silent: boolean) => void,
   *   received: (message: any) => void}} handlers */
  constructor(handlers) {
    this.handlers = handlers;
    this.wait = FIRST_WAIT_MS;
    /** @type {WebSocket|null} */
    this.socket = null;
    this.heard = 0; // when the server was last heard
    this.isSilent = false;
    setInterval(() => this.beat(), PING_MS);
  }

  connect() {
    const address = new URL("ws", document.baseURI);
    address.protocol = address.protocol.replace("http", "ws");
    address.search = address.hash = "";
    const socket = new WebSocket(address);
    this.socket = socket;
    socket.addEventListener("open", () => {
      this.wait = FIRST_WAIT_MS;
      this.isSilent = false;
      this.heard = performance.now();
      this.handlers.opened();
    });
    socket.addEventListener("message", (event) => {
      if (socket !== this.socket) return;
      this.hear();
      this.handlers.received(JSON.parse(event.data));
    });
    socket.addEventListener("close", () => socket === this.socket && this.lost());
  }

  hear() {
    this.heard = performance.now();
    if (!this.isSilent) return;
    this.isSilent = false;
    this.handlers.silent(false);
  }

  /** Asks whether the server still answers. */
  beat() {
    if (!this.isOpen) return;
    const silence = performance.now() - this.heard;
    if (silence > GIVE_UP_MS) this.leave();
    else if (silence > SILENT_MS && !this.isSilent) {
      this.isSilent = true;
      this.handlers.silent(true);
    }
    this.send({ do: "ping" });
  }

  /** Gives this connection up, and connects again. */
  leave() {
    const { socket } = this;
    if (!socket) return;
    this.lost();
    socket.close();
  }

  async lost() {
    this.socket = null;
    this.isSilent = false;
    this.handlers.lost(false);
    if (await forbidden()) this.handlers.lost(true);
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
    const answer = await fetch("api/project", { cache: "no-store", signal: AbortSignal.timeout(3000) });
    return [401, 403].includes(answer.status);
  } catch {
    return false;
  }
}
