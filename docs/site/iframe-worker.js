// Browsers start no worker in pages that are opened from a folder. There the search runs in a frame
// that nobody sees. The plugin `offline` asks for a script of this name.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe"), script = document.createElement("script");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.loaded = new Promise((resolve, reject) => {
        script.onload = resolve;
        script.onerror = reject;
      });
      this.inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }));
      script.src = new URL(address, document.baseURI).href;
      frame.contentDocument.body.append(script);
    }

    async postMessage(data) {
      await this.loaded;
      this.inside.dispatchEvent(new MessageEvent("message", { data }));
    }
  };
}
