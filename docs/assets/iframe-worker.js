// Search runs in a worker, and a browser starts none for a page that it opened from disk: such a page gets an iframe in its place.
// Nothing is loaded from elsewhere. The name is the one by which Zensical knows that it need not add its own.
if (location.protocol === "file:") {
  class FrameWorker extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      const inside = frame.contentWindow
      inside.document.open()
      inside.document.write("<!doctype html><body></body>")
      inside.document.close()
      inside.postMessage = data => this.tell(new MessageEvent("message", { data }))
      inside.importScripts = (...urls) => urls.reduce((before, one) => before.then(() => load(one)), Promise.resolve())
      const load = source => new Promise((resolve, reject) => {
        const script = inside.document.createElement("script")
        script.src = source
        script.onload = resolve
        script.onerror = () => reject(new Error(`cannot load ${source}`))
        inside.document.body.appendChild(script)
      })
      this.loaded = load(new URL(url, document.baseURI).href)
      this.loaded.catch(error => this.tell(new ErrorEvent("error", { error, message: String(error) })))
      this.inside = inside
      this.frame = frame
    }
    tell(event) {
      this.dispatchEvent(event)
      const handler = this[`on${event.type}`]
      if (handler) handler.call(this, event)
    }
    postMessage(data) {
      this.loaded.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })))
    }
    terminate() {
      this.frame.remove()
    }
  }
  window.Worker = FrameWorker
}
