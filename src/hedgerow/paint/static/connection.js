/** The websocket to the server: opened again whenever it is lost, and told. */

const FIRST_WAIT = 300;
const LONGEST_WAIT = 4000;

export class Connection {
  /** @param {{opened: () => void, lost: (forbidden: boolean) => void, heard: (message: object) => void}} tell */
  constructor(tell) {
    this.tell = tell;
    this.wait = FIRST_WAIT;
    this.socket = null;
  }

  connect() {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}/ws`);
    this.socket = socket;
    socket.addEventListener("open", () => {
      this.wait = FIRST_WAIT;
      this.tell.opened();
    });
    socket.addEventListener("message", (event) => this.tell.heard(JSON.parse(event.data)));
    socket.addEventListener("close", () => this.lost());
  }

  async lost() {
    this.socket = null;
    this.tell.lost(await forbidden());
    setTimeout(() => this.connect(), this.wait);
    this.wait = Math.min(this.wait * 1.7, LONGEST_WAIT);
  }

  get isOpen() {
    return this.socket?.readyState === WebSocket.OPEN;
  }

  /** @returns {boolean} whether the message went out */
  send(message) {
    if (!this.isOpen) return false;
    this.socket.send(JSON.stringify(message));
    return true;
  }
}

/** Whether a server is there that does not know this page: it was started anew, with another token. */
async function forbidden() {
  try {
    return [401, 403].includes((await fetch("/api/project", { cache: "no-store" })).status);
  } catch {
    return false;
  }
}
