// SPDX-License-Identifier: Apache-2.0
// Makes the search work on pages that are opened from a folder. Browsers start
// no worker for a `file:` page, so the worker's script runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      const base = new URL(url, location);
      const load = (source) =>
        new Promise((resolve, reject) => {
          const script = frame.contentDocument.createElement("script");
          script.src = new URL(source, base);
          script.onload = resolve;
          script.onerror = reject;
          frame.contentDocument.body.append(script);
        });
      inside.importScripts = (...sources) => Promise.all(sources.map(load));
      inside.postMessage = (data) =>
        this.dispatchEvent(new MessageEvent("message", { data }));
      const loaded = load(base);
      this.postMessage = (data) =>
        loaded.then(() =>
          inside.dispatchEvent(new inside.MessageEvent("message", { data })),
        );
      this.terminate = () => frame.remove();
    }
  };
}
