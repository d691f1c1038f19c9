/* Browsers start no Worker for a page that was opened from disk. There, and only there, a hidden frame runs the script
   of the search instead: what is posted to it arrives as a message, and what it posts comes back as one. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inner = frame.contentWindow;
      this.inner.postBack = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.inner.document.open();
      this.inner.document.write(
        `<script>window.postMessage = window.postBack;</script><script src="${new URL(url, location)}"></script>`
      );
      this.inner.document.close();
    }
    postMessage(data) {
      const send = () => this.inner.dispatchEvent(new MessageEvent("message", { data }));
      if (this.inner.document.readyState === "complete") send();
      else this.inner.addEventListener("load", send);
    }
  };
}
