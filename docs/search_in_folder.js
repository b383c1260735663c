// Browsers start no worker from a file: the search runs in a frame of the page instead.
if (location.protocol === "file:")
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.importScripts = (...urls) => Promise.all(urls.map((each) => this.load(each)));
      this.inside.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        this.onmessage?.(event);
      };
      this.ready = this.load(url);
    }

    load(url) {
      const script = this.inside.document.createElement("script");
      script.src = url;
      this.inside.document.body.append(script);
      return new Promise((done) => (script.onload = done));
    }

    async postMessage(data) {
      await this.ready;
      this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data }));
    }
  };
